"""A `Run` with a journal in memory and nobody around it: no keeper, no session, no disk. What it makes of bytes can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from recorder_in_memory import SESSION, GoodDisk, MemoryJournal, recorder_in_memory

from clisup.backends.base import Adapter, Background, Carried, LaunchRequest, background_of
from clisup.config.model import LimitsConfig
from clisup.daemon.journal.recorder import Item, Recorder
from clisup.daemon.runs.reader import STEP_S
from clisup.daemon.runs.run import Run
from clisup.daemon.runs.run_parts import RunSettings
from clisup.host import clock
from clisup.model.events import (
    ApprovalRequested,
    ProcessStarted,
    PromptAccepted,
    TurnCompleted,
    TurnStarted,
)
from clisup.model.journal import read_entries
from clisup.model.sessions.ledger import TurnRecord
from clisup.model.sessions.turn_state import SpoolPlace
from clisup.model.verdict import Terminal
from clisup.ops.drift import FrameSample
from clisup.policy.secrets.redact import Redactor
from clisup.policy.watchdog import TurnTimeouts, ladder_for
from clisup.store.drift_store import known_fields
from clisup.store.session_dir import RunDir

__all__ = ["LoneRun"]


class _RunDir(RunDir):
    def save_blob(self, name: str, data: object) -> None:
        """Blobs are told by the names that the events give them."""


class _Sink:
    """Turns as those of a session, and a word in `told` for each step of theirs."""

    def __init__(self, recorder: Recorder, carried: Carried) -> None:
        self._recorder = recorder
        self._carried = carried
        self.told: list[object] = []

    @property
    def turn(self) -> TurnRecord:
        turn = self._recorder.ledger.active_turn
        assert turn is not None, "a run belongs to a turn, or waits for one"
        return turn

    @property
    def carried(self) -> Carried:
        return Carried(self._carried.cost_usd, self._carried.usage, background_of(self.turn.background))

    def record(self, items: Sequence[Item]) -> int:
        return self._recorder.record(items)

    def end_turn(self, terminal: Terminal, place: SpoolPlace, background: Background) -> list[Item]:
        memo = {"begin": place, "background": sorted(background)}
        return [Item(TurnCompleted(outcome="completed", usage=terminal.usage), self.turn.id, memo=memo)]

    def begin_turn(self, place: SpoolPlace, background: Background, prompt_ids: tuple[str, ...]) -> list[Item]:
        memo = {"begin": place, "background": sorted(background), "pid": self.turn.pid}
        started = TurnStarted(run=1, origin="backend", prompt_ids=prompt_ids)
        return [Item(started, f"t{self._recorder.ledger.turns + 1}", memo=memo)]

    def first_frame(self) -> None:
        self.told.append(("first frame", self.turn.id))

    def ending(self) -> None:
        self.told.append("ending")

    def turn_began(self) -> None:
        self.told.append("began")

    def turn_ended(self) -> None:
        self.told.append("rested")

    def idle(self, given_up: frozenset[str]) -> list[Item]:
        self.told.append(("idle", sorted(given_up)))
        return []

    def approval_requested(self, event: ApprovalRequested) -> None:
        self.told.append(("asked", event.approval_id))

    def cancel_approvals(self, _ending: Mapping[str, Any]) -> list[Item]:
        return []


class LoneRun:
    """`journal` is what a daemon before this one has left. With `by_chunk` lines are decoded by the chunk where they may be."""

    def __init__(
        self,
        adapter: Adapter,
        request: LaunchRequest,
        carried: Carried,
        journal: Sequence[bytes] = (),
        *,
        by_chunk: bool,
        **limits: int,
    ) -> None:
        self._journal = MemoryJournal()
        self._journal.append(b"".join(journal), len(journal), None)
        recorder = recorder_in_memory(self._journal)
        for record in read_entries(b"".join(journal))[0]:
            recorder.ledger.apply(record)
        if not journal:
            memo = {"run": 1, "live": request.live, "begin": {"out": 0, "err": 0}}
            started = [Item(TurnStarted(run=1), "t1", memo=memo), Item(ProcessStarted(pid=77), "t1")]
            recorder.record([Item(PromptAccepted(delivery="delivered"), "t1"), *started])
        self._ledger = recorder.ledger
        self._sink = _Sink(recorder, carried)
        known = known_fields("claude") or {}
        frames = self._frames = FrameSample({name: fields - {"uuid"} for name, fields in known.items()})
        settings = RunSettings(SESSION, 1, TurnTimeouts(), LimitsConfig(**{"inline_bytes": 1024, **limits}), request,
                               cast("Any", GoodDisk()), frames)  # fmt: skip
        self.run = Run(self._sink, _RunDir(f"/nowhere/sessions/{SESSION}/runs/1"), adapter, settings, Redactor([]))
        if not by_chunk:
            self.run._plain_bytes = -1

    @property
    def journal(self) -> list[bytes]:
        """All lines of it."""
        return self._journal.lines

    @property
    def begin(self) -> int:
        """Where the part of stdout begins that the next daemon would decode again."""
        return self._sink.turn.begin["out"]

    async def take(self, data: bytes) -> None:
        """More of stdout, as one read of the spool gives it."""
        await self.run.take_bytes(data, clock.monotonic() + STEP_S)
        while self.run._out.waiting:
            await self.run.take_bytes(b"", clock.monotonic() + STEP_S)
        await self.run._batch.store()

    def end(self) -> None:
        """As when a client interrupts the turn, or the run where that has no word for it."""
        self.run._keeper._greeted.set()
        self.run._keeper.in_order()
        self.run.end("client", ladder_for("graceful", TurnTimeouts()))

    def look(self) -> dict[str, Any]:
        """All that a later line, a deadline or a client could meet of it."""
        run = self.run
        return {
            "journal": self.journal,
            "ledger": repr(self._ledger),
            "told": self._sink.told,
            "decoded_to": run._decoded_to,
            "terminal": run.terminal,
            "tracker": run.tracker,
            "phase": run.watchdog.describe()["phase"],
            "watchdog": run.watchdog._dog.phase,
            "seen": (run.spoke, run._unseen, run._heartbeat),
            "says": run._keeper._messages,
            "drift": (self._frames._looks, self._frames.frames, self._frames.fields),
        }
