"""What a client gives with a session or a prompt: content, history, tools, schemas, sampling. Pure."""
