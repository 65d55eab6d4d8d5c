"""`POST /v1/chat/completions`, as the SDK openai 3.54 has it."""
