"""Workers of API backends: child processes that call an HTTP API and write claude's stream-json."""

VERSION = "1.0.0"
"""Version of the worker, as `--version` and the init frame report it."""
