"""End of a run: the exit in the journal, then the turn's end, or the decision for another run of the turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from clisup.backends.base import RunEnd
from clisup.backends.errors import NO_ANSWER, last_words
from clisup.daemon.approvals.queue import ApprovalQueue
from clisup.daemon.journal.recorder import Item
from clisup.daemon.runs.run import Run
from clisup.daemon.sessions.cli_session import CliSession, is_unkept
from clisup.daemon.sessions.context import SessionContext
from clisup.daemon.sessions.turn_ends import TurnEnds
from clisup.daemon.sessions.turn_recorder import carried_totals
from clisup.host.failpoints import failpoint
from clisup.host.process import cgroups
from clisup.host.threads import in_thread
from clisup.model.events import Actor, Notice, ProcessExited, TurnCompleted, TurnError
from clisup.model.sessions.ledger import TurnRecord
from clisup.model.sessions.turn_state import TurnEnding, TurnState
from clisup.model.verdict import ExitRecord, because, conclude, ended_by, with_words
from clisup.store.session_dir import RunDir
from clisup.store.spool import ends_text

__all__ = ["Correction", "RunCloser"]

Correction = str
"""Reason for another run of a turn: "resume" or "fresh" (how to name the native session), or "again"."""

QUOTED_CHARS = 500
"""Characters of the CLI's last words in the message of a silent or unexplained end."""
_NOT_KEPT = Notice(
    code="history_not_kept",
    message="the CLI kept no transcript of this session, so its next process will not know the turns until now; its directory for "
    "sessions must be there and writable, and no flag may switch sessions off",
)
_QUOTED = ("idle_timeout", "startup_timeout", "crashed")

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


class RunCloser:
    """Closes the runs of a session."""

    def __init__(self, context: SessionContext, cli: CliSession, approvals: ApprovalQueue, ends: TurnEnds) -> None:
        self._context = context
        self._cli = cli
        self._approvals = approvals
        self._ends = ends

    async def close(
        self, run: Run, record: ExitRecord, run_dir: RunDir, *, mode: str | None, lap_s: float
    ) -> Correction | None:
        """Journal the end of a run and of its turn. Return the correction if the turn needs another run.

        `mode` is the correction at the start of the run. `lap_s` is the duration of the turn, for a turn with a later
        start than its run. Between two turns of a live process, journal only the exit.
        """
        context = self._context
        context.services.drift.add(context.backend.adapter.kind, run.frames, context.backend.version)
        run_dir.drop_scratch()
        run_dir.drop_kept()
        record = _with_cgroup(record, await context.services.storage.with_retry(run_dir.cgroup))
        turn = context.ledger.active_turn
        if turn is None:
            return None
        if not turn.process_exited:
            mark = await in_thread(self._cli.mark)
            completed = run.used_before or (run.terminal is not None and not run.terminal.is_error)
            missing = is_unkept(mark.get("transcript")) and not is_unkept(context.ledger.transcript)
            mark = mark if completed or not missing else {}  # nothing was to be kept
            item = Item(_process_exited(record, turn.ending), turn.id, memo=mark or None)
            lost = completed and missing
            more = [Item(_NOT_KEPT, turn.id)] if lost else []
            await context.recorder.record_with_retry(lambda: [*self._approvals.closed_with(item), *more])
        self._approvals.refuse_answers()
        if not turn.id:
            return None
        return await self._conclude(turn, run, record, run_dir, mode, lap_s)

    async def _conclude(
        self, turn: TurnRecord, run: Run, record: ExitRecord, run_dir: RunDir, mode: str | None, lap_s: float
    ) -> Correction | None:
        context, adapter = self._context, self._context.backend.adapter
        end = adapter.run_end(record.exit_code, record.signal, context.redact(ends_text(run_dir.err)))
        own_time = record.duration_s is not None and turn.origin == "prompt" and not run.used_before
        done = conclude(
            terminal=run.terminal,
            record=record,
            ending=turn.ending,
            explained=adapter.explain_exit(end),
            duration_s=round(record.duration_s or 0.0, 3) if own_time else lap_s,
        )
        # Some CLIs print nothing before the model's answer: while they repeat requests, their silence is that of a start.
        if done.error is not None and done.error.kind in ("idle_timeout", "startup_timeout"):
            error = await in_thread(self._because, done.error, end, turn, run_dir)
            done = replace(done, error=error)
        if done.error is not None and (done.error.kind in _QUOTED or done.error.message == NO_ANSWER):
            words = {
                "stderr": last_words(end)[-QUOTED_CHARS:],
                "unreadable": context.redact(run.tracker.unreadable)[:QUOTED_CHARS],
            }
            done = replace(done, error=with_words(done.error, **words))
        correction = self._correction(done, end, mode)
        if correction is None and await self._was_not_taken(turn, run, run_dir):
            correction = "again"
        if correction is not None:
            await context.recorder.record_with_retry(lambda: [Item(_CORRECTIONS[correction], turn.id)])
            return correction
        if not record.known and run.terminal is None and turn.ending is None and not turn.answered:
            evidence = await in_thread(self._cli.evidence, turn, run_dir)
            done = replace(done, delivery="uncertain", evidence=evidence)
        lost = done.error is not None and done.error.kind == "session_not_found"
        memo = carried_totals(context, run.terminal, answered=turn.answered) | (
            TurnState(native_lost=True) if lost else TurnState()
        )
        failpoint("end.before")
        await context.recorder.record_with_retry(lambda: [self._ends.completion(done, memo)])
        failpoint("end.after")
        return None

    def _because(self, silence: TurnError, end: RunEnd, turn: TurnRecord, run_dir: RunDir) -> TurnError:
        """Return the failure of the CLI's repeated request, if the CLI's files report a failure. Blocks."""
        transcript = self._cli.last_words(turn, run_dir)
        failure = self._context.backend.adapter.repeated(end, transcript, answered=turn.answered)
        if failure is None:
            return silence
        return because(silence, replace(failure, message=self._context.redact(failure.message)))

    def _correction(self, done: TurnCompleted, end: RunEnd, mode: str | None) -> Correction | None:
        """Return the correction for a run that did nothing only because of the name of the native session."""
        if mode is not None or done.outcome != "failed" or done.error is None:
            return None
        wanted = self._context.backend.adapter.recovery(done.error) or self._context.backend.adapter.recovery(end)
        ledger, spec = self._context.ledger, self._context.spec
        has_history = ledger.completed > 0 or spec.resume_native_id is not None
        if wanted == "fresh" and has_history and not is_unkept(ledger.transcript):
            return None  # the history is gone: the client has to know
        return wanted

    async def _was_not_taken(self, turn: TurnRecord, run: Run, run_dir: RunDir) -> bool:
        """Tell whether a live process exited just before it could take the turn's prompt.

        The process printed nothing for this turn, and the daemon did not end the process. The transcript does not hold
        the prompt.
        """
        if not run.used_before or run.spoke or turn.origin != "prompt" or turn.ending is not None:
            return False
        evidence = await in_thread(self._cli.evidence, turn, run_dir)
        return bool(evidence["transcript"] == "prompt_not_found")


def _with_cgroup(record: ExitRecord, cgroup: str | None) -> ExitRecord:
    """Note a kill for lack of memory, and remove the run's cgroup, unless the cgroup still holds kept processes."""
    if cgroup is None:
        return record
    starved = record.reason == "exit" and record.signal is not None and cgroups.oom_kills(cgroup) > 0
    cgroups.remove(cgroup)
    return replace(record, reason="oom") if starved else record


def _process_exited(record: ExitRecord, ending: TurnEnding | None) -> ProcessExited:
    actor = ending.get("actor") if ending else None
    return ProcessExited(
        exit_code=record.exit_code,
        signal=record.signal,
        ended_by=ended_by(record, ending.get("asked") if ending else None),
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
    """Return the public fields of processes: never the command lines."""
    return tuple({"pid": process.get("pid"), "comm": process.get("comm")} for process in processes)
