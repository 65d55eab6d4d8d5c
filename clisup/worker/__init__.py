"""Workers of API backends: child processes that ask an HTTP API and speak claude's stream-json."""

VERSION = "1.0.0"
"""The worker's own version: what `--version` and the init frame say."""
