"""Codex: app-server and exec, how they are started, and what they say as events."""
