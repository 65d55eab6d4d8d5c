"""Log of a job: which steps count, in the order of the engine. Pure. `clisup.fleet.jobs` has the table of steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from clisup.fleet.jobs import GONE_S, START_S, JobState

__all__ = ["FINAL", "EndedJobs", "JobLog"]

FINAL = ("done", "cancelled")
SAYS_LOST = 3
"""Times that one box may call an attempt of another box lost. Its box answers each one."""
MAX_RUNS = 100
MAX_TEXT = 300
"""Characters of an outcome and of an error."""


class JobLog:
    """State of one job, folded from its log. `at` is the engine's time of the last step that counted.

    The role, the writer and the time of a step come from the engine. Of what a writer says, only what it may say counts.
    """

    __slots__ = ("_doubts", "at", "state")

    def __init__(self) -> None:
        self.state: JobState | None = None
        self.at = 0.0
        self._doubts: dict[str, int] = {}

    def take(self, role: str, writer: str, step: JobState, at: float) -> bool:
        """Take the next step of the log. Return False for a step that does not count."""
        after = self._submitted(writer, step, at) if role == "submit" else self._worked(role, writer, step, at)
        if after is None:
            return False
        if self.state is None or after.attempt != self.state.attempt:
            self._doubts = {}
        self.state, self.at = after, at
        return True

    def _submitted(self, writer: str, step: JobState, at: float) -> JobState | None:
        now = self.state
        if now is None:
            if step.status != "pending" or step.submitter != writer:
                return None
            until = min(step.not_after or at + START_S, at + START_S)
            return replace(_blank(step), not_after=until, runs=max(1, min(step.runs, MAX_RUNS)))
        if step.status != "cancelled" or now.status != "pending" or now.submitter != writer:
            return None
        return replace(now, status="cancelled")

    def _worked(self, role: str, writer: str, step: JobState, at: float) -> JobState | None:
        now = self.state
        if role != "work" or now is None or now.status in FINAL:
            return None
        if step.attempt != now.attempt and (step.status, step.attempt) != ("started", now.attempt + 1):
            return None
        if step.status == "claimed":
            return self._claimed(now, writer, step, at)
        if (writer, step.incarnation) == (now.box, now.incarnation):
            return self._of_holder(now, step, at)
        return self._lost(now, writer, step)

    def _claimed(self, now: JobState, writer: str, step: JobState, at: float) -> JobState | None:
        """Return the state after a claim: of a free job, or of one whose holder has said nothing for a while."""
        silent, leave = at - self.at >= GONE_S, now.on_lost == "rerun"
        if not (now.status == "pending" or (silent and (now.status == "claimed" or (now.status == "lost" and leave)))):
            return None
        if now.for_box not in ("", writer) or not _may_start(now, at) or not step.incarnation:
            return None
        return replace(_blank(now), status="claimed", box=writer, incarnation=step.incarnation, attempt=now.attempt)

    def _of_holder(self, now: JobState, step: JobState, at: float) -> JobState | None:
        """Return the state after a step of the job's own box."""
        begun = now.status in ("started", "lost")
        match step.status:
            case "started" if now.status == "claimed" and step.attempt == now.attempt + 1 and _may_start(now, at):
                return replace(now, status="started", attempt=step.attempt)
            case "started" if now.status == "lost" and step.attempt == now.attempt:
                return replace(now, status="started", late=now.late or step.late)
            case "done" if begun:
                late, error = now.late or step.late, step.error[:MAX_TEXT]
                return replace(now, status="done", outcome=step.outcome[:MAX_TEXT], late=late, error=error)
            case "pending" if begun or now.status == "claimed":
                return replace(_blank(now), attempt=now.attempt)
        return None

    def _lost(self, now: JobState, writer: str, step: JobState) -> JobState | None:
        """Return the state after another box called the job lost. Its box says otherwise, or is gone."""
        if step.status != "lost" or now.status != "started" or self._doubts.get(writer, 0) >= SAYS_LOST:
            return None
        self._doubts[writer] = self._doubts.get(writer, 0) + 1
        return replace(now, status="lost")


def _blank(state: JobState) -> JobState:
    """Return a job that no box has, with what its submitter said."""
    return JobState(
        submitter=state.submitter,
        on_lost=state.on_lost,
        for_box=state.for_box,
        not_after=state.not_after,
        runs=state.runs,
    )


def _may_start(state: JobState, at: float) -> bool:
    return at <= state.not_after and state.attempt < state.runs


class EndedJobs:
    """Jobs that this box ended, with the attempt: it starts no attempt again that it ended, whatever the engine says.

    The last `MOST` of them are kept, each for a day longer than the engine keeps a job.
    """

    MOST = 2000

    def __init__(self, rows: Mapping[str, Any] | None = None) -> None:
        self._rows: dict[str, tuple[int, float]] = {}
        for job, row in (rows or {}).items():
            match row:
                case [int(attempt), int() | float() as at]:
                    self._rows[str(job)] = attempt, float(at)

    def ended(self, job: str) -> int:
        """Return the last attempt that this box ended of a job, or 0."""
        return self._rows.get(job, (0, 0.0))[0]

    def add(self, job: str, attempt: int, now: float, keep_s: float) -> None:
        """Note the end of an attempt."""
        attempt = max(attempt, self.ended(job))
        kept = [(key, row) for key, row in self._rows.items() if key != job and now - row[1] < keep_s]
        self._rows = dict([*kept[-self.MOST + 1 :], (job, (attempt, now))])

    @property
    def rows(self) -> dict[str, tuple[int, float]]:
        """Return what to store: attempt and time of each job."""
        return self._rows
