"""What options and arguments have to be before anything is done: callbacks for click's parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import click

from clisup.cli.failure import usage

__all__ = ["MAX_COUNT", "MAX_SECONDS", "MAX_USD", "in_utf8", "labels_of", "limit", "utf8"]

MAX_USD = 1e9
MAX_COUNT = 2**53
MAX_SECONDS = 3.2e9
"""The daemon's own bounds of a budget (`clisup.model.sessions.budget`), known here so that nothing is changed before they are."""

_Callback = Callable[[click.Context, click.Parameter, Any], Any]
_Text = TypeVar("_Text", str, None)


def in_utf8(text: _Text, what: str, hint: str = "") -> _Text:
    """The text, which can be sent. Raises `UsageError`: cannot `what`, where the bytes that were given are not UTF-8."""
    try:
        (text or "").encode()
    except UnicodeEncodeError:
        raise usage(f"cannot {what}, because it is not UTF-8", hint=hint) from None
    return text


def utf8(what: str, hint: str = "") -> _Callback:
    """A callback for a text, or several, that goes to the daemon: `what` is what cannot be done with another one."""

    def check(_ctx: click.Context, _param: click.Parameter, value: Any) -> Any:
        for text in value if isinstance(value, tuple) else (value,):
            in_utf8(text, what, hint)
        return value

    return check


def limit(most: float) -> _Callback:
    """A callback for a number above 0 and up to `most`."""

    def check(_ctx: click.Context, _param: click.Parameter, value: float | None) -> float | None:
        if value is None or (math.isfinite(value) and 0 < value <= most):
            return value
        raise click.BadParameter(f"{value} is no limit: give a number above 0, and at most {most:.0f}")

    return check


def labels_of(pairs: tuple[str, ...]) -> dict[str, str] | None:
    """The labels of all `--label K=V`; None without any. Raises `UsageError` for one of another form."""
    for pair in pairs:
        if "=" not in pair:
            raise usage(f"cannot use the label {pair!r}, because it is not of the form K=V", hint="--label ticket=4711")
    return dict(pair.split("=", 1) for pair in pairs) or None
