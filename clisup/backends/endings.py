"""How a run ended without a last word, in words: what the adapters say of exits that no rule explains."""

from __future__ import annotations

from signal import Signals

from clisup.backends.base import RunEnd
from clisup.backends.taxonomy import ErrorRule, Taxonomy
from clisup.model.events import TurnError

__all__ = ["crashed", "how", "last_words", "refused"]

STDERR_TAIL = 2048  # characters of stderr that go into a message
_SIGNALLED = range(129, 129 + 64)


def crashed(who: str, end: RunEnd, *, before: str = "without a result", codes_tell: bool = False) -> TurnError:
    """The error of an end that nothing explains. Whoever was killed may be asked again.

    `codes_tell`: the CLI's own handlers leave with 128 + the signal's number, as a shell would say it.
    """
    tail = last_words(end)
    said = f"its last words on stderr: {tail}" if tail else "stderr holds nothing"
    killed = end.signal is not None or (codes_tell and end.exit_code in _SIGNALLED)
    message = f"{who} {how(end, codes_tell=codes_tell)} {before}; {said}"
    return TurnError(kind="crashed", message=message, retryable=killed)


def last_words(end: RunEnd) -> str:
    """The end of stderr, as much as goes into a message."""
    return end.stderr.strip()[-STDERR_TAIL:]


def refused(rules: Taxonomy, end: RunEnd) -> tuple[ErrorRule | None, str]:
    """Return the rule that stderr fits, and the words of stderr for the message.

    Where the end of stderr fits none, each paragraph is asked: a wrong flag is told first, and pages of help follow it.
    """
    tail = last_words(end)
    if rule := rules.search("stderr", tail):
        return rule, tail
    for words in end.stderr.split("\n\n"):
        if rule := rules.search("stderr", words):
            return rule, words.strip()[:STDERR_TAIL]
    return None, tail


def how(end: RunEnd, *, codes_tell: bool = False) -> str:
    """`was killed by SIGKILL`, `exited with code 143 (as on SIGTERM)`, `exited with code 1`."""
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
