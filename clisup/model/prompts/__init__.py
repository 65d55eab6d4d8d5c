"""Input of a client with a session or a prompt: content, history, tools, schemas, sampling. Pure."""
