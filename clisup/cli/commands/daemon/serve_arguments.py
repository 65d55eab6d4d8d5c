"""The command line of `clisup serve`, read by hand where nothing is wrong with it: a start reads it twice, and click is slow to load."""

from __future__ import annotations

__all__ = ["LOG_FORMATS", "parse"]

_TAKING = {"--config": "config", "--socket": "socket", "--state-dir": "state_dir", "--log-format": "log_format"}
LOG_FORMATS = ("auto", "console", "json", "journald")


def parse(args: list[str]) -> dict[str, object] | None:
    """The flags among the arguments after `serve`, by field of `Flags`; None for what click has to explain, and for `--help`."""
    found: dict[str, object] = {}
    left = args[::-1]
    while left:
        name, equals, value = left.pop().partition("=")
        if name == "--check" and not equals:
            found["check"] = True
        elif name in _TAKING and (equals or left):
            found[_TAKING[name]] = value if equals else left.pop()
        else:
            return None
    return found if found.get("log_format", "auto") in LOG_FORMATS else None
