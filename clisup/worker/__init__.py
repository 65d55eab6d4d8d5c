"""Workers of API backends: child processes that call an HTTP API and write claude's stream-json."""

from typing import Any

VERSION = "1.0.0"
"""Version of the worker, as `--version` and the init frame report it."""

JsonObject = dict[str, Any]
"""Object of JSON whose members an API, a tool or claude's frames define."""
