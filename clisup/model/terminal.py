"""Terminal frame of a turn, as a decoder found it: the source of `turn_completed`."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from clisup.model.events import AssistantMessage, EventBase, MessageStart, SessionInit, TurnError
from clisup.model.usage import Usage


class Terminal(Struct, frozen=True):
    """Last report of the CLI on a turn. It is not journaled: the daemon makes `turn_completed` from it and the exit.

    `cost_total_usd` and `usage_total` are the CLI's running totals to carry over. `follow_up` marks a turn that the CLI
    began by itself. `estimated` marks a cost from a list of prices, not from the provider. `prompts` are the ids of the
    prompts that the turn took, if the CLI reports them.
    """

    is_error: bool
    text: str = ""
    stop_reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
    estimated: bool = False
    cost_total_usd: float | None = None
    usage_total: Usage | None = None
    error: TurnError | None = None
    interrupted: bool = False
    denied: tuple[str, ...] = ()
    structured: object = None
    follow_up: bool = False
    prompts: tuple[str, ...] | None = None


def begins_turn(events: Sequence[EventBase]) -> bool:
    """Tell whether these events after a terminal frame show a new model request. A sub-agent's events do not."""
    return any(
        isinstance(event, SessionInit)
        or (isinstance(event, MessageStart | AssistantMessage) and event.parent_tool_use_id is None)
        for event in events
    )


def sum_of(words: Sequence[Terminal]) -> Terminal:
    """Return the last terminal frame of a turn, with the usage, cost, prompts and refusals of all of them.

    A CLI has a terminal frame for each time that it goes on by itself: once more for each report of background work.
    """
    last = words[-1]
    if len(words) == 1:
        return last
    costs = [word.cost_usd for word in words if word.cost_usd is not None]
    prompts = [word.prompts for word in words if word.prompts is not None]
    return replace(
        last,
        usage=sum((word.usage for word in words[1:]), words[0].usage),
        cost_usd=sum(costs) if len(costs) == len(words) else None,
        estimated=any(word.estimated for word in words),
        cost_total_usd=next((w.cost_total_usd for w in reversed(words) if w.cost_total_usd is not None), None),
        usage_total=next((w.usage_total for w in reversed(words) if w.usage_total is not None), None),
        denied=tuple(dict.fromkeys(name for word in words for name in word.denied)),
        structured=next((w.structured for w in reversed(words) if w.structured is not None), None),
        follow_up=all(word.follow_up for word in words),
        prompts=tuple(dict.fromkeys(name for named in prompts for name in named)) if prompts else None,
    )
