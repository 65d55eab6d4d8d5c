"""The command line of `clisup status`, read by hand: click, which explains what is wrong with one, is slow to load."""

from __future__ import annotations

__all__ = ["WATCH_S", "StatusArguments", "parse"]

WATCH_S = 2.0
"""Seconds between two looks of `--watch`."""

_FLAGS = {"--json": "json", "--why": "why", "-q": "quiet", "--quiet": "quiet"}
_SECONDS_DIGITS = 3  # of `--watch 5`; from four characters on it may be the beginning of a session's id


class StatusArguments:
    """What was asked for. `columns` is the list of `-o` as it was given, `watch` the seconds between two looks."""

    __slots__ = ("columns", "json", "quiet", "session", "watch", "why")

    def __init__(self) -> None:
        self.session: str | None = None
        self.columns: str | None = None
        self.watch: float | None = None
        self.json = self.quiet = self.why = False

    @property
    def possible(self) -> bool:
        """Do they go together? `--why` is of one session; there is one form of output."""
        if self.why and (self.session is None or self.quiet or self.columns is not None or self.watch is not None):
            return False
        return self.json + self.quiet + (self.columns is not None) <= 1


def parse(args: list[str]) -> StatusArguments | None:
    """The arguments after `status`; None for what click has to explain, and for `--help`."""
    found, left = StatusArguments(), args[::-1]
    while left:
        if not _take(found, left.pop(), left):
            return None
    return found if found.possible else None


def _take(found: StatusArguments, arg: str, left: list[str]) -> bool:
    """One argument, with the next of `left` where it takes one. False for none of ours."""
    name, equals, value = arg.partition("=")
    if arg in _FLAGS:
        setattr(found, _FLAGS[arg], True)
    elif arg in ("-o", "--output"):
        found.columns = left.pop() if left else None
        return found.columns is not None
    elif name == "--output" and equals:
        found.columns = value
    elif arg.startswith("-o") and not arg.startswith("--"):
        found.columns = arg[2:].removeprefix("=")
    elif name in ("-w", "--watch"):
        text = value if equals else left.pop() if left and _is_seconds(left[-1]) else str(WATCH_S)
        found.watch = _seconds(text)
        return found.watch is not None
    elif arg and not arg.startswith("-") and found.session is None:
        found.session = arg
    else:
        return False
    return True


def _is_seconds(text: str) -> bool:
    return _seconds(text) is not None and (len(text) <= _SECONDS_DIGITS or "." in text)


def _seconds(text: str) -> float | None:
    return float(text) if text.replace(".", "", 1).isdecimal() and text.isascii() else None
