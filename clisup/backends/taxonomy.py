"""What a CLI's words for a failure mean: rules as data, so that one table in docs/errors.md can show all of them.

Each adapter has a tuple of rules. The first rule that fits the most exact word decides, so an adapter asks for its words
in its own order: a code before a status, a status before a text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Literal, NamedTuple

from clisup.model.events import TurnErrorKind

__all__ = ["RETRYABLE", "ErrorRule", "Place", "Taxonomy"]

Place = Literal["code", "status", "text", "exit", "stderr"]

RETRYABLE: frozenset[TurnErrorKind] = frozenset({"rate_limit", "overloaded", "server", "network"})
"""Kinds after which the same prompt may work later, without anybody doing anything."""


class ErrorRule(NamedTuple):
    """One way in which a CLI says what went wrong.

    `where`: `code` is a word in a frame's field, `status` an HTTP status, `text` a regular expression for a message,
    `exit` an exit code, `stderr` a regular expression for the end of stderr. `advice` is what the user can do about it.
    """

    where: Place
    says: str
    kind: TurnErrorKind
    advice: str = ""


class Taxonomy:
    """The rules of one backend, ready to be asked."""

    def __init__(self, rules: Sequence[ErrorRule]) -> None:
        self._exact = {(rule.where, rule.says): rule for rule in reversed(rules)}
        self._rules = tuple(rules)

    @cached_property
    def _patterns(self) -> list[tuple[re.Pattern[str], ErrorRule]]:
        """Compiled for the first text that is asked about: most starts see none, and all CLIs' patterns take 11 ms."""
        return [(re.compile(rule.says), rule) for rule in self._rules if rule.where in ("text", "stderr")]

    def exact(self, where: Literal["code", "status", "exit"], says: str | int | None) -> ErrorRule | None:
        """The rule for this very word or number."""
        return self._exact.get((where, str(says)))

    def search(self, where: Literal["text", "stderr"], text: str) -> ErrorRule | None:
        """The first rule whose pattern is somewhere in the text."""
        return next((rule for pattern, rule in self._patterns if rule.where == where and pattern.search(text)), None)
