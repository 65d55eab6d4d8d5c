"""Check for the libraries of the extra `fleet`."""

from __future__ import annotations

from importlib.util import find_spec

from clisup.errors import ConfigurationError

__all__ = ["check_extra"]


def check_extra() -> None:
    """Raise `ConfigurationError` if the engine's client is not installed."""
    missing = [name for name in ("nats", "nkeys") if find_spec(name) is None]
    if missing:
        message = f"cannot reach a fleet, because its libraries are not installed ({', '.join(missing)})"
        raise ConfigurationError(message, hint='pip install "clisup[fleet]"')
