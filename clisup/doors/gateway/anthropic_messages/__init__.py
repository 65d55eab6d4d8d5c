"""`POST /v1/messages`, as the SDK anthropic 2.12 has it."""
