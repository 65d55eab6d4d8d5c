"""What an adapter with `Capabilities.history` says of how a history becomes a session file of its CLI's. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from clisup.backends.base import Adapter
from clisup.model.prompts.history import HistoryMessage

__all__ = ["Seed", "SeedRules", "seed_rules"]


class Seed(NamedTuple):
    """A history, and the session that begins with it. `cwd` is a real path, `at` RFC 3339, `model` as the session has it."""

    history: Sequence[HistoryMessage]
    native_session_id: str
    cwd: str
    model: str | None
    at: str


class SeedRules(Protocol):
    """How a history is written. The daemon writes it, whole or not at all."""

    def path(self, native_session_id: str, cwd: str, env: Mapping[str, str]) -> str | None:
        """The file; its name is the id with `.jsonl`. None where the environment does not tell where the CLI keeps them."""

    def lines(self, seed: Seed) -> Iterator[bytes]:
        """Its lines, in order, each with its newline."""


def seed_rules(adapter: Adapter) -> SeedRules | None:
    """The adapter's rules; None where its CLI has no such file."""
    rules: SeedRules | None = getattr(adapter, "seed", None)
    return rules if adapter.capabilities.history else None
