"""What the end of a run means: the exit in the journal, the turn's verdict, or the word that the turn needs another run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import trio
from msgspec.structs import replace

from clisup.backends.base import RunEnd
from clisup.daemon.sessions.cli_session import NativeSession
from clisup.daemon.sessions.concurrent_writers import mark_of
from clisup.daemon.sessions.recorder import Item
from clisup.daemon.sessions.turn_recorder import carry
from clisup.host.failpoints import failpoint
from clisup.host.process import cgroups
from clisup.model.events import Actor, Notice, ProcessExited, TurnCompleted, TurnError
from clisup.model.sessions.ledger import Turn
from clisup.model.verdict import ExitRecord, because, conclude, ended_by
from clisup.store.session_dir import RunDir
from clisup.store.spool import ends_text

if TYPE_CHECKING:
    from clisup.daemon.runs.run import Run
    from clisup.daemon.sessions.session import Session

__all__ = ["Closer", "Correction"]

Correction = str
"""Why a turn needs another run: "resume" or "fresh" (how to name the native session then), or "again"."""

_CORRECTIONS: dict[Correction, Notice] = {
    "resume": Notice(
        code="session_corrected",
        message="the CLI has a transcript of this session already: the prompt is sent again as a resume",
    ),
    "fresh": Notice(
        code="session_corrected",
        message="the CLI had not yet kept anything of this session: the prompt is sent again under the same id",
    ),
    "again": Notice(
        code="prompt_not_taken",
        message="the live process was gone before it took the prompt: another one gets it",
    ),
}


class Closer:
    """Closes the runs of one session."""

    def __init__(self, session: Session, native: NativeSession) -> None:
        self._session = session
        self._adapter = session.backend.adapter
        self._native = native
        self._storage = session.services.storage

    async def close(
        self, run: Run, record: ExitRecord, run_dir: RunDir, *, mode: str | None, lap_s: float
    ) -> Correction | None:
        """Journal what there is to say of a run that is over. Gives the correction where its turn needs another run.

        `mode` is how the run named the native session where a first try was wrong; `lap_s` is for a turn that began later
        than its run. Between two turns of a live process there is only the exit to tell.
        """
        self._session.services.drift.add(self._adapter.kind, run.frames, self._session.backend.version)
        run_dir.drop_scratch()
        run_dir.drop_all_said()
        record = _with_cgroup(record, (await self._storage.surely(run_dir.intent)).get("cgroup"))
        turn = self._session.ledger.held
        if turn is None:
            return None
        if not turn.process_exited:
            mark = await trio.to_thread.run_sync(mark_of, self._session)
            item = Item(_process_exited(record, turn.ending), turn.id, memo=mark or None)
            await self._session.recorder.record_surely(lambda: self._session.approvals.and_gone(item))
        self._session.approvals.over()
        if not turn.id:
            return None
        return await self._conclude(turn, run, record, run_dir, mode, lap_s)

    async def _conclude(
        self, turn: Turn, run: Run, record: ExitRecord, run_dir: RunDir, mode: str | None, lap_s: float
    ) -> Correction | None:
        session = self._session
        end = RunEnd(record.exit_code, record.signal, session.redact(ends_text(run_dir.err)))
        own_time = record.duration_s is not None and turn.origin == "prompt" and not run.used_before
        done = conclude(
            terminal=run.terminal,
            record=record,
            ending=turn.ending,
            explained=self._adapter.explain_exit(end),
            duration_s=round(record.duration_s or 0.0, 3) if own_time else lap_s,
        )
        if done.error is not None and done.error.kind == "idle_timeout":
            error = await trio.to_thread.run_sync(self._because, done.error, end, turn, run_dir)
            done = replace(done, error=error)
        correction = self._correction(done, end, mode)
        if correction is None and await self._was_not_taken(turn, run, run_dir):
            correction = "again"
        if correction is not None:
            await session.recorder.record_surely(lambda: [Item(_CORRECTIONS[correction], turn.id)])
            return correction
        if not record.known and run.terminal is None and turn.ending is None and not turn.answered:
            evidence = await trio.to_thread.run_sync(self._native.evidence, turn, run_dir)
            done = replace(done, delivery="uncertain", evidence=evidence)
        lost = done.error is not None and done.error.kind == "session_not_found"
        memo = carry(session, run.terminal, answered=turn.answered) | ({"native_lost": True} if lost else {})
        failpoint("end.before")
        await session.recorder.record_surely(lambda: [session.completion(done, memo)])
        failpoint("end.after")
        return None

    def _because(self, silence: TurnError, end: RunEnd, turn: Turn, run_dir: RunDir) -> TurnError:
        """The failure of the request that the CLI was repeating, where its files tell of one. Blocks."""
        transcript = self._native.last_words(turn, run_dir)
        failure = self._adapter.repeated(end, transcript, answered=turn.answered)
        if failure is None:
            return silence
        return because(silence, replace(failure, message=self._session.redact(failure.message)))

    def _correction(self, done: TurnCompleted, end: RunEnd, mode: str | None) -> Correction | None:
        """Another run can help only where this one did nothing: it was refused for the way it named the native session."""
        if mode is not None or done.outcome != "failed" or done.error is None:
            return None
        wanted = self._adapter.recovery(done.error) or self._adapter.recovery(end)
        ledger, spec = self._session.ledger, self._session.spec
        if wanted == "fresh" and (ledger.completed > 0 or spec.resume_native_id is not None):
            return None  # there was a history, and it is gone: the client has to know
        return wanted

    async def _was_not_taken(self, turn: Turn, run: Run, run_dir: RunDir) -> bool:
        """A process that was kept from an earlier turn may go in the very moment of the next prompt.

        It said nothing of this one, nobody had asked for its end, and its transcript does not hold the prompt.
        """
        if not run.used_before or run.spoke or turn.origin != "prompt" or turn.ending is not None:
            return False
        evidence = await trio.to_thread.run_sync(self._native.evidence, turn, run_dir)
        return bool(evidence["transcript"] == "prompt_not_found")


def _with_cgroup(record: ExitRecord, cgroup: str | None) -> ExitRecord:
    """The kernel's word on memory, and the end of the run's cgroup (one that still holds kept processes stays)."""
    if cgroup is None:
        return record
    starved = record.reason == "exit" and record.signal is not None and cgroups.oom_kills(cgroup) > 0
    cgroups.remove(cgroup)
    return replace(record, reason="oom") if starved else record


def _process_exited(record: ExitRecord, ending: dict[str, Any] | None) -> ProcessExited:
    actor = (ending or {}).get("actor")
    return ProcessExited(
        exit_code=record.exit_code,
        signal=record.signal,
        ended_by=ended_by(record, (ending or {}).get("asked")),
        actor=msgspec.convert(actor, Actor) if actor else None,
        survivors=_named(record.survivors),
        kept=_named(record.kept) or None,
        left=_named(record.left) or None,
        duration_s=record.duration_s,
        max_rss_kb=record.max_rss_kb,
        note=None
        if record.known
        else "the keeper was killed; what left its cgroup and cleared its environment is found only by the daemon that started the keeper",
    )


def _named(processes: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """What clients learn of a process: never its command line."""
    return tuple({"pid": process.get("pid"), "comm": process.get("comm")} for process in processes)
