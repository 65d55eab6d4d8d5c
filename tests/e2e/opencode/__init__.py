"""The real opencode against a loopback fake of an OpenAI-compatible API."""
