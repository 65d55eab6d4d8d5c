"""The CLI's last word on a turn, as a decoder found it: what `turn_completed` is made from."""

from __future__ import annotations

from dataclasses import dataclass, field

from clisup.core.events import TurnError
from clisup.core.usage import Usage

__all__ = ["Terminal"]


@dataclass(frozen=True, slots=True)
class Terminal:
    """The CLI's last word on a turn. It is not journaled: the daemon makes `turn_completed` from it and the exit.

    `cost_total_usd` is the CLI's running total to carry over. `follow_up` marks a turn that the CLI began by itself.
    """

    is_error: bool
    text: str = ""
    stop_reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
    cost_total_usd: float | None = None
    error: TurnError | None = None
    interrupted: bool = False
    denied: tuple[str, ...] = ()
    structured: object = None
    follow_up: bool = False
