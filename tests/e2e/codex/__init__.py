"""The real codex in front of a fake Responses API."""
