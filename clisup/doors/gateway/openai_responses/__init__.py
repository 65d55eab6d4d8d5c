"""`POST /v1/responses`, as the SDK openai 3.54 has it."""
