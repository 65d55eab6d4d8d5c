"""Gemini CLI: how it is started, and its stream-json as events."""
