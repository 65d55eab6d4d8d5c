"""The CLI's last word on a turn, as a decoder found it: what `turn_completed` is made from."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from clisup.core.events import AssistantMessage, EventBase, MessageStart, SessionInit, TurnError
from clisup.core.usage import Usage

__all__ = ["Terminal", "begins_turn", "sum_of"]


class Terminal(Struct, frozen=True):
    """The CLI's last word on a turn. It is not journaled: the daemon makes `turn_completed` from it and the exit.

    `cost_total_usd` and `usage_total` are the CLI's running totals to carry over. `follow_up` marks a turn that the CLI began by itself.
    `prompts` are the ids of the prompts that the turn took, where the CLI tells.
    """

    is_error: bool
    text: str = ""
    stop_reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
    cost_total_usd: float | None = None
    usage_total: Usage | None = None
    error: TurnError | None = None
    interrupted: bool = False
    denied: tuple[str, ...] = ()
    structured: object = None
    follow_up: bool = False
    prompts: tuple[str, ...] | None = None


_BEGINS = frozenset({SessionInit, MessageStart, AssistantMessage})


def begins_turn(events: Sequence[EventBase]) -> bool:
    """Do these events, which come after a last word, show that the CLI goes on with a turn of its own?"""
    return not _BEGINS.isdisjoint(map(type, events))


def sum_of(last: Terminal, others: Sequence[Terminal]) -> Terminal:
    """The last word on a turn, with the usage and the cost of what the CLI did before it on the same account."""
    usage, cost = last.usage, last.cost_usd
    for other in others:
        usage += other.usage
        cost = None if cost is None or other.cost_usd is None else cost + other.cost_usd
    return replace(last, usage=usage, cost_usd=cost) if others else last
