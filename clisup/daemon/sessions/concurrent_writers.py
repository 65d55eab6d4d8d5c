"""One writer for a native session: who else has it open, and what somebody else wrote since our last run.

A CLI takes no lock on its session: two that write the same one make its transcript fork. What can be seen is seen before a
run is started; between that look and the CLI's start anybody may still come, and what leaves no sign is not seen at all
(docs/backends/claude.md says what).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import structlog
import trio

from clisup.daemon.sessions.recorder import Item
from clisup.errors import UsageError
from clisup.host.process.native_writers import OwnProcesses, Question, find_writers
from clisup.model.events import Notice
from clisup.store.transcripts import Mark, transcript_mark

if TYPE_CHECKING:
    from clisup.daemon.backends import Backend
    from clisup.daemon.sessions.session import Session

__all__ = ["WriterLooks", "before_run", "check_foreign_writer", "check_strangers", "mark_of"]

LOOK_LIMIT_S = 5.0
_log = structlog.get_logger()


class WriterLooks:
    """Looks for writers. Those who ask about one directory of the CLI's while a look is made share the next one.

    So ten starts at once are one look or two. Directories do not wait for one another: one of them may hang. `launched` are the
    pids of the daemon's own keepers and CLIs, as they are when a look begins.
    """

    def __init__(self, launched: set[int] | None = None) -> None:
        self._launched = set() if launched is None else launched
        self._lines: dict[str | None, _Line] = {}

    async def ask(self, question: Question) -> int | None:
        """As `find_writers`. To be bounded by the caller."""
        line = self._lines.setdefault(question.directory, _Line())
        line.askers += 1
        try:
            return await self._ask(line, question)
        finally:
            line.askers -= 1
            if not line.askers:
                del self._lines[question.directory]

    async def _ask(self, line: _Line, question: Question) -> int | None:
        while True:
            look, place = line.next, len(line.next.questions)
            look.questions.append(question)
            async with line.looking:
                if look is line.next:  # nobody has looked for those that wait together with this one
                    line.next = _Look()
                    work = (look.questions, frozenset(self._launched))
                    look.found = await trio.to_thread.run_sync(find_writers, *work, abandon_on_cancel=True)
            if look.found is not None:  # else who looked was cancelled
                return look.found[place]


@dataclass
class _Look:
    """One look: who asks, and in the same order what was found."""

    questions: list[Question] = field(default_factory=list)
    found: list[int | None] | None = None


@dataclass
class _Line:
    """Those who ask about one directory."""

    looking: trio.Lock = field(default_factory=trio.Lock)
    next: _Look = field(default_factory=_Look)
    askers: int = 0


async def check_foreign_writer(
    looks: WriterLooks, backend: Backend, request_env: Mapping[str, str], native_id: str, own: OwnProcesses
) -> None:
    """Raises `UsageError(session_busy)` where a process that is not ours has the native session open, as far as can be seen."""
    rules = backend.adapter.presence
    if rules is None:
        return
    directory = rules.directory(backend.own_environment(request_env))
    pid: int | None = None
    with trio.move_on_after(LOOK_LIMIT_S) as scope:
        pid = await looks.ask(Question(rules, directory, native_id, own))
    if scope.cancelled_caught:  # a file system that hangs: the turn goes on unseen rather than never
        _log.warning("look for other writers given up", native=native_id, after_s=LOOK_LIMIT_S)
    if pid is not None:
        raise UsageError(
            f"cannot write to the native session {native_id} now, because process {pid} has it open",
            kind="session_busy",
            hint="end that process (it is a CLI that was not started here), then try again",
            pid=pid,
        )


async def check_strangers(session: Session) -> None:
    """Raises `UsageError(session_busy)` where somebody else has this session's native one open."""
    own, looks = OwnProcesses(session.id, session.keeper_pid()), session.services.looks
    await check_foreign_writer(looks, session.backend, session.gate.brought, session.native_id, own)


async def before_run(session: Session, turn_id: str) -> None:
    """What has to be known before a run is started. Raises `UsageError(session_busy)`; journals `foreign_writes`."""
    await check_strangers(session)
    known = session.ledger.transcript
    if known is None or known.get("native") != session.native_id:
        return
    now = await trio.to_thread.run_sync(transcript_mark, session.native.pattern())
    if (words := _difference(known, now)) is not None:
        message = f"somebody else wrote to the CLI's transcript since the last run: {words}"
        await session.recorder.record_surely(lambda: [Item(Notice(code="foreign_writes", message=message), turn_id)])


def mark_of(session: Session) -> dict[str, Any]:
    """The memo for a run's end: what the transcript is now. Empty where there is none."""
    mark = transcript_mark(session.native.pattern())
    return {} if mark is None else {"transcript": {"native": session.native_id, **mark._asdict()}}


def _difference(known: Mapping[str, Any], now: Mark | None) -> str | None:
    if now is None:
        return "it is gone"
    if now.inode != known.get("inode"):
        return "it is another file"
    if (grown := now.size - int(known.get("size", 0))) != 0:
        return f"it is {abs(grown)} bytes {'longer' if grown > 0 else 'shorter'}"
    return "it was changed" if now.mtime_ns != known.get("mtime_ns") else None
