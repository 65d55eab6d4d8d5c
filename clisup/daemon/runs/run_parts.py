"""Settings of a run, and the interface to the recorder of its events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import trio
from msgspec import Struct, field

from clisup.backends.base import Background, Carried, LaunchRequest
from clisup.config.model import LimitsConfig
from clisup.daemon.journal.recorder import Item
from clisup.daemon.journal.storage import Storage
from clisup.daemon.runs.orphans import Orphans
from clisup.model.events import ApprovalRequested, Notice
from clisup.model.sessions.ledger import TurnRecord
from clisup.model.sessions.turn_state import SpoolPlace, TurnEnding
from clisup.model.verdict import Terminal
from clisup.ops.drift import FrameSample
from clisup.policy.watchdog import TurnTimeouts

__all__ = ["BEHIND_LINE", "FOLLOW_UP_FIRST", "STORAGE_BLOCKED", "STORAGE_RECOVERED", "RunSettings", "RunSink"]

BEHIND_LINE = 1 << 20
"""Number of the first event that comes behind a line, and not from it. A repeated decoding gives the same numbers."""

STORAGE_BLOCKED = Notice(
    code="storage_blocked", message="the disk takes no more: nothing is lost, the CLI waits and its timers are frozen"
)
STORAGE_RECOVERED = Notice(code="storage_recovered", message="the disk takes output again")
FOLLOW_UP_FIRST = Notice(code="follow_up_first", message="a follow-up of the CLI's own came before this turn's prompt")


class RunSettings(Struct, frozen=True):
    """Settings of a run, from its session and backend. All runs of the daemon share `own` and `read_turns`.

    `own` holds the pids of the connected keepers and CLIs. Runs with more to read take turns by `read_turns`.
    """

    session_id: str
    number: int
    timeouts: TurnTimeouts
    limits: LimitsConfig
    request: LaunchRequest
    storage: Storage
    frames: FrameSample
    own: set[int] = field(default_factory=set)
    orphans: Orphans | None = None
    read_turns: trio.Lock = field(default_factory=trio.Lock)


class RunSink(Protocol):
    """Recorder of a run's events. One-shot runs and live runs have different recorders."""

    @property
    def turn(self) -> TurnRecord: ...
    @property
    def carried(self) -> Carried: ...
    def record(self, items: Sequence[Item]) -> int: ...
    def first_frame(self) -> None: ...
    def ending(self) -> None: ...
    def end_turn(self, terminal: Terminal, place: SpoolPlace, background: Background) -> list[Item]: ...
    def begin_turn(self, place: SpoolPlace, background: Background, prompt_ids: tuple[str, ...]) -> list[Item]: ...
    def turn_began(self) -> None: ...
    def turn_ended(self) -> None: ...
    async def somebody_wrote(self) -> bool: ...
    def idle(self, given_up: frozenset[str]) -> list[Item]: ...
    def approval_requested(self, event: ApprovalRequested) -> None: ...
    def cancel_approvals(self, ending: TurnEnding) -> list[Item]: ...
