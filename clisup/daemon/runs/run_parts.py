"""What a run is given: its settings, and the sink for all that it has to say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from clisup.backends.base import Background, Carried, LaunchRequest
from clisup.config.model import LimitsConfig
from clisup.daemon.approvals.questions import AskingSink
from clisup.daemon.runs.orphans import Orphans
from clisup.daemon.runs.pace import Pace
from clisup.daemon.sessions.recorder import Item
from clisup.daemon.sessions.turn_recorder import Place
from clisup.daemon.storage import Storage
from clisup.model.events import Notice
from clisup.model.terminal import Terminal
from clisup.ops.drift import FrameSample
from clisup.policy.watchdog import Timeouts

if TYPE_CHECKING:
    from clisup.daemon.runs.run import Run

__all__ = ["FOLLOW_UP_FIRST", "STORAGE_BLOCKED", "STORAGE_RECOVERED", "RunSettings", "RunSink"]

STORAGE_BLOCKED = Notice(
    code="storage_blocked", message="the disk takes no more: nothing is lost, the CLI waits and its timers are frozen"
)
STORAGE_RECOVERED = Notice(code="storage_recovered", message="the disk takes output again")
FOLLOW_UP_FIRST = Notice(code="follow_up_first", message="a follow-up of the CLI's own came before this turn's prompt")


class RunSettings(Struct, frozen=True):
    """What a run needs from its session and backend."""

    session_id: str
    number: int
    timeouts: Timeouts
    limits: LimitsConfig
    request: LaunchRequest
    storage: Storage
    frames: FrameSample
    own: set[int] = field(default_factory=set)
    """The daemon's: the pids of all keepers, and of their CLIs."""
    orphans: Orphans | None = None
    pace: Pace = field(default_factory=Pace)
    """The daemon's, shared by all runs."""


class RunSink(AskingSink, Protocol):
    """What a run needs from its turn."""

    @property
    def carried(self) -> Carried: ...
    def record(self, items: Sequence[Item]) -> int: ...
    def first_frame(self) -> None: ...
    def ending(self) -> None: ...
    def over(self, terminal: Terminal, place: Place, background: Background) -> list[Item]: ...
    def begins(self, place: Place, background: Background, prompt_ids: tuple[str, ...]) -> list[Item]: ...
    def began(self) -> None: ...
    def rested(self) -> None: ...
    def idle(self, given_up: frozenset[str]) -> list[Item]: ...
    async def attend(self, run: Run) -> None: ...
