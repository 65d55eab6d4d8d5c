"""Logging: structlog to stderr, one line a state change, as console text or JSON."""

from __future__ import annotations

import logging
import sys
from typing import Any, Literal

import structlog

__all__ = ["configure_logging", "set_log_level"]


class _Threshold:
    """A processor that drops what is below its level. A loggers' class would not do: loggers keep theirs once they are used."""

    def __init__(self) -> None:
        self.least = logging.INFO

    def __call__(self, _logger: Any, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        if getattr(logging, "ERROR" if method == "exception" else method.upper()) < self.least:
            raise structlog.DropEvent
        return event


_threshold = _Threshold()


def set_log_level(level: str) -> None:
    """Drop what is less, from now on."""
    _threshold.least = getattr(logging, level.upper())


def configure_logging(level: str, form: Literal["auto", "console", "json"] = "auto") -> None:
    """Set structlog up. `auto` is console text on a terminal and JSON elsewhere."""
    console = form == "console" or (form == "auto" and sys.stderr.isatty())
    renderer = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()) if console else structlog.processors.JSONRenderer()
    )
    set_log_level(level)
    structlog.configure(
        processors=[
            _threshold,
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
