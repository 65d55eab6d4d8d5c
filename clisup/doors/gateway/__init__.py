"""Door for programs that speak HTTP: the APIs of OpenAI and Anthropic over durable turns."""
