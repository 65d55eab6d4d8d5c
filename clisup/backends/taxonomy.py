"""Rules that map a CLI's words for a failure to error kinds, as data. docs/errors.md has a table of all rules.

Each adapter has a tuple of rules. The first match of the most exact word decides. An adapter therefore searches its words in its
own order: a code before a status, a status before a text.
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
"""Kinds after which the same prompt may work later without any change."""


class ErrorRule(NamedTuple):
    """Rule for one word of a CLI about a failure.

    `where`: `code` is a word in a frame's field, `status` an HTTP status, `text` a regular expression for a message,
    `exit` an exit code, `stderr` a regular expression for the end of stderr. `advice` tells the user what to do.
    """

    where: Place
    says: str
    kind: TurnErrorKind
    advice: str = ""


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
