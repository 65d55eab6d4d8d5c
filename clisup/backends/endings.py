"""Errors of runs without a terminal frame, for exits that no rule of an adapter explains."""

from __future__ import annotations

from signal import Signals

from clisup.backends.base import RunEnd
from clisup.backends.taxonomy import ErrorRule, Taxonomy
from clisup.model.events import TurnError

__all__ = ["crashed", "how", "last_words", "refused"]

STDERR_TAIL = 2048  # characters of stderr that go into a message
_SIGNALLED = range(129, 129 + 64)


def crashed(who: str, end: RunEnd, *, before: str = "without a result", codes_tell: bool = False) -> TurnError:
    """Return the error of an unexplained end. The daemon may repeat the prompt of a killed CLI.

    `codes_tell`: the CLI's own signal handlers exit with 128 + the number of the signal, as a shell does.
    """
    tail = last_words(end)
    said = f"its last words on stderr: {tail}" if tail else "stderr holds nothing"
    killed = end.signal is not None or (codes_tell and end.exit_code in _SIGNALLED)
    message = f"{who} {how(end, codes_tell=codes_tell)} {before}; {said}"
    return TurnError(kind="crashed", message=message, retryable=killed)


def last_words(end: RunEnd) -> str:
    """Return the end of stderr, short enough for a message."""
    return end.stderr.strip()[-STDERR_TAIL:]


def refused(rules: Taxonomy, end: RunEnd) -> tuple[ErrorRule | None, str]:
    """Return the rule that matches stderr, and the words of stderr for the message.

    If the end matches no rule, the search goes through the paragraphs: a CLI prints a wrong flag first, and pages of help after.
    """
    tail = last_words(end)
    if rule := rules.search("stderr", tail):
        return rule, tail
    for words in end.stderr.split("\n\n"):
        if rule := rules.search("stderr", words):
            return rule, words.strip()[:STDERR_TAIL]
    return None, tail


def how(end: RunEnd, *, codes_tell: bool = False) -> str:
    """Return `was killed by SIGKILL`, `exited with code 143 (as on SIGTERM)` or `exited with code 1`."""
    if end.signal is not None:
        return f"was killed by {_name(end.signal)}"
    if end.exit_code is None:
        return "ended in an unknown way"
    as_on = f" (as on {_name(end.exit_code - 128)})" if codes_tell and end.exit_code in _SIGNALLED else ""
    return f"exited with code {end.exit_code}{as_on}"


def _name(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"
