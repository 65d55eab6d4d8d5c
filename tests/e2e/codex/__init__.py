"""The real codex 0.169.0 in front of a fake Responses API."""
