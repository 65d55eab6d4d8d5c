"""Errors of turns: rules as data, exits without a terminal frame, and messages inside error bodies.

docs/reference/errors.md has a table of all rules. Each adapter has a tuple of rules. The first match of the most exact word decides. An
adapter therefore searches its words in its own order: a code before a status, a status before a text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from signal import Signals
from typing import Literal, NamedTuple

from clisup.backends.frames import decode_any, get_dict, get_str
from clisup.backends.launch import RunEnd
from clisup.model.events import TurnError, TurnErrorKind

__all__ = [
    "LIMIT_RULE", "LIMIT_WORDS", "LOST_END", "MESSAGE_CHARS", "NO_ANSWER", "RETRYABLE", "STATUS_RULES", "ErrorRule", "Place", "Taxonomy",
    "crashed", "explain_end", "how",
    "kind_of_status", "last_words", "plain_words", "refused",
]  # fmt: skip

Place = Literal["code", "status", "text", "exit", "stderr"]

MESSAGE_CHARS = 4096
"""Limit of the message of a `TurnError`."""
RETRYABLE: frozenset[TurnErrorKind] = frozenset({"rate_limit", "overloaded", "server", "network", "session_busy"})
"""Kinds after which the same prompt may work later without any change."""


class ErrorRule(NamedTuple):
    """Rule for one word of a CLI about a failure.

    `where`: `code` is a word in a frame's field, `status` an HTTP status, `text` a regular expression for a message,
    `exit` an exit code, `stderr` a regular expression for the end of stderr. `advice` tells the user what to do, in the
    message of a run without a result or of a refused request. Other rules need none: the message is the CLI's own.
    `help_only`: the words are a page of help that names no cause, so the message is the advice alone.
    """

    where: Place
    says: str
    kind: TurnErrorKind
    advice: str = ""
    help_only: bool = False


STATUS_RULES = (
    ErrorRule("status", "402", "quota_exceeded", "look at the account's plan and balance"),
    ErrorRule("status", "403", "permission"),
    ErrorRule("status", "408", "server"),
    ErrorRule("status", "413", "context_overflow"),
    ErrorRule("status", "429", "rate_limit"),
    ErrorRule("status", "503", "overloaded"),
)
"""HTTP statuses that mean the same to every CLI."""


LIMIT_WORDS = (
    r"(?i)\b(?:usage|session|weekly|daily|monthly|hourly|5-hour|opus|sonnet) (?:usage )?limit (?:has been )?(?:reached|exceeded)"
    r"|(?:hit|reached|exceeded) your (?:(?:usage|session|weekly|daily|monthly|5-hour|opus|sonnet|plan) )*(?:limit|quota)\b"
    r"|out of (?:extra )?(?:usage|credits)\b|exhausted your (?:daily |weekly |monthly )?(?:quota|capacity)"
    r"|usage_limit_reached|insufficient[_ ]quota|exceeded your current quota|quota (?:has been |was |is )?(?:exceeded|exhausted)"
    r"|billing hard limit|insufficient balance"
)
"""Words for the end of a plan or quota, in which CLIs, gateways and providers tell it without a code."""
LIMIT_RULE = ErrorRule("text", LIMIT_WORDS, "quota_exceeded")


class Taxonomy:
    """Rules of one backend, ready to search."""

    def __init__(self, rules: Sequence[ErrorRule]) -> None:
        self._exact = {(rule.where, rule.says): rule for rule in reversed(rules)}
        self._rules = tuple(rules)

    @cached_property
    def _patterns(self) -> list[tuple[re.Pattern[str], ErrorRule]]:
        """Compiled patterns, made for the first text: most starts see no text, and all patterns take 11 ms."""
        return [(re.compile(rule.says), rule) for rule in self._rules if rule.where in ("text", "stderr")]

    def exact(self, where: Literal["code", "status", "exit"], says: str | int | None) -> ErrorRule | None:
        """Return the rule for exactly this word or number."""
        return self._exact.get((where, str(says)))

    def search(self, where: Literal["text", "stderr"], text: str) -> ErrorRule | None:
        """Return the first rule whose pattern occurs in the text."""
        return next((rule for pattern, rule in self._patterns if rule.where == where and pattern.search(text)), None)


NO_ANSWER = "the agent ended the turn without an answer"
"""Message for an end without words: agents report a failed request to the model in this way, with the cause on stderr."""
LOST_END = TurnError(
    kind="protocol", message="the CLI says that it is idle, and has told no end of the turn", retryable=True
)
"""Error of a turn whose end got lost: the CLI waits for the next prompt."""
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


def kind_of_status(status: int | None) -> TurnErrorKind | None:
    """Return the kind by the first digit of an HTTP status, or None for no failure."""
    if status is None or status < 400:
        return None
    return "server" if status >= 500 else "invalid_request"


def explain_end(
    rules: Taxonomy, who: str, end: RunEnd, *, before: str = "without a result", codes_tell: bool = False
) -> TurnError:
    """Explain a run that ended without a terminal frame, by its exit code or stderr, else as `crashed`.

    The message holds the words of stderr, with advice if there is any.
    """
    by_stderr, words = refused(rules, end)
    rule = rules.exact("exit", end.exit_code) or by_stderr
    if rule is None:
        return crashed(who, end, before=before, codes_tell=codes_tell)
    message = "; ".join(part for part in ("" if rule.help_only else words, rule.advice) if part)
    return TurnError(kind=rule.kind, message=message, retryable=rule.kind in RETRYABLE)


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


def plain_words(text: str) -> str:
    """Return the message of an API's error body, or the text itself if it is no such JSON."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        body = decode_any(text.encode())
    except (ValueError, RecursionError):
        return text
    if not isinstance(body, dict):
        return text
    told = (
        get_str(get_dict(body, "error"), "message"),
        *(get_str(body, name) for name in ("message", "detail", "error")),
    )
    return next((words for words in told if words and words.strip()), text)
