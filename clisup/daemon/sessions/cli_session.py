"""Native session of a CLI behind a session: id, transcript, and foreign processes with the session open.

A CLI takes no lock on its session, and two writers fork the transcript. The daemon checks for writers before each run.
Another writer may come between the check and the CLI's start. The check cannot see a writer that leaves no sign
(docs/backends/claude.md).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import trio

from clisup.daemon.backends import Backend
from clisup.daemon.journal.recorder import Item
from clisup.daemon.services import Services
from clisup.daemon.sessions.context import SessionContext
from clisup.errors import ClisupError, UsageError
from clisup.host.log import event_logger
from clisup.host.process.cli_processes import OwnProcesses, Question, find_writers
from clisup.host.process.markers import state_id
from clisup.host.threads import in_thread
from clisup.model.events import Notice
from clisup.model.sessions.ledger import TurnRecord
from clisup.model.sessions.turn_state import TurnState
from clisup.store.session_dir import RunDir
from clisup.store.transcripts import (
    READ_LIMIT,
    Mark,
    appended,
    tail_since,
    transcript_exists,
    transcript_mark,
    transcript_size,
)

__all__ = ["CliSession", "check_foreign_writer", "is_unkept"]

CHECK_LIMIT_S = 5.0
TAIL_BYTES = 1024 * 1024
"""Limit of bytes at the end of a transcript that are read for messages of other programs."""
_log = event_logger()


class CliSession:
    """Counterpart of one session in its CLI. The daemon only reads the transcript."""

    __slots__ = ("_context",)

    def __init__(self, context: SessionContext) -> None:
        self._context = context

    # -- its id ------------------------------------------------------------------------------------------------------

    def name(self, mode: str | None, run: int) -> tuple[str | None, bool]:
        """Return the native id for a run, and whether to resume the session. The id is None if the CLI chooses the id.

        `mode` ("resume" or "fresh") is the correction after a first try. Without a correction, the transcript or a
        completed turn decides.
        """
        native = self._context.native_id
        resume = mode == "resume" if mode is not None else self._is_known(native)
        return (native, True) if resume else (self._fresh(native, run), False)

    def _fresh(self, native: str, run: int) -> str | None:
        can = self._context.capabilities
        if not can.chosen_id:
            return None
        if can.ids_once:
            return native if run == 1 else f"{can.native_id_prefix}{run}{self._context.id}"
        # A transcript that the CLI cannot continue, such as an empty one, takes its id (claude 2.1.332: "already in use").
        own = uuid.UUID(self._context.id)
        return str(uuid.uuid5(own, f"{run}/session")) if transcript_exists(self.pattern()) else native

    def _is_known(self, native: str) -> bool:
        context, ledger = self._context, self._context.ledger
        if ledger.native_lost:
            return False
        if context.spec.resume_native_id == native:  # also the transcript that clisup has written for this session
            return True
        if native == context.id and not context.capabilities.chosen_id:
            return False  # the CLI has never reported an id
        return ledger.completed > 0 or transcript_exists(self.pattern())

    # -- its transcript ----------------------------------------------------------------------------------------------

    def pattern(self, native_id: str | None = None) -> str | None:
        """Return a glob for the transcript of this session, or of another native session in the same place."""
        backend = self._context.backend
        env = backend.own_environment(self._context.request_env)
        return backend.adapter.transcript_pattern(native_id or self._context.native_id, env)

    def transcript_size(self) -> int:
        """Return the size of the transcript. A run appends after this size."""
        return transcript_size(self.pattern())

    def evidence(self, turn: TurnRecord, run_dir: RunDir) -> dict[str, Any]:
        """Return the transcript's evidence of a prompt with an unknown fate. Blocks: call in a thread."""
        prompt = self._context.load_prompt(turn.id)
        try:
            data = appended(self.pattern(), self._begin(turn, run_dir))
        except (OSError, ClisupError):
            return {"transcript": "unreadable"}
        if data is None or prompt is None:
            return {"transcript": "missing"}
        return {"transcript": self._context.backend.adapter.transcript_says(data, str(prompt["text"]))}

    def last_words(self, turn: TurnRecord, run_dir: RunDir) -> bytes:
        """Return the end of the bytes appended by the CLI to its transcript in the turn. Blocks."""
        try:
            begin = max(self._begin(turn, run_dir), self.transcript_size() - READ_LIMIT)
            return appended(self.pattern(), begin) or b""
        except (OSError, ClisupError):
            return b""

    @staticmethod
    def _begin(turn: TurnRecord, run_dir: RunDir) -> int:
        """Return the size of the transcript at the turn's start."""
        return int(run_dir.intent().get("transcript_at", 0)) if turn.transcript_at is None else turn.transcript_at

    # -- other writers -----------------------------------------------------------------------------------------------

    async def check_writers(self) -> None:
        """Raise `UsageError(session_busy)` if a foreign process has the native session open."""
        context = self._context
        own = OwnProcesses(context.id, state_id(context.services.state_dir), context.keeper_pid())
        await check_foreign_writer(context.services, context.backend, context.request_env, context.native_id, own)

    async def check_before_run(self, turn_id: str) -> None:
        """Check for foreign writers, and journal `foreign_writes` if the transcript has changed since the last run."""
        await self.check_writers()
        context = self._context
        known = context.ledger.transcript
        if known is None or known.get("native") != context.native_id or is_unkept(known):
            return
        now = await in_thread(transcript_mark, self.pattern())
        if (words := _difference(known, now)) is not None:
            message = f"somebody else wrote to the CLI's transcript since the last run: {words}"
            await context.recorder.record_with_retry(
                lambda: [Item(Notice(code="foreign_writes", message=message), turn_id)]
            )

    def strange_messages(self) -> int:
        """Return how many messages other programs wrote into the transcript while a live process rested. Blocks."""
        last = self._context.ledger.last_turn
        if last is None:
            return 0
        tail = tail_since(self.pattern(), last["ended_at"], TAIL_BYTES)
        return self._context.backend.adapter.strange_messages(tail, last["ended_at"]) if tail else 0

    def mark(self) -> TurnState:
        """Return the memo of a run's end: the present transcript, or an empty memo. Blocks."""
        pattern = self.pattern()
        mark = transcript_mark(pattern)
        if mark is None:
            return {"transcript": {"native": self._context.native_id, "unkept": True}} if pattern else {}
        strange = self.strange_messages() if self._context.ledger.current is None else 0
        return {"transcript": {"native": self._context.native_id, **mark._asdict(), "strange": strange}}


async def check_foreign_writer(
    services: Services, backend: Backend, request_env: Mapping[str, str], native_id: str, own: OwnProcesses
) -> None:
    """Raise `UsageError(session_busy)` if the daemon finds a foreign process with the native session open."""
    rules = backend.adapter.presence
    if rules is None:
        return
    question = Question(rules, rules.directory(backend.own_environment(request_env)), native_id, own)
    pid: int | None = None
    with trio.move_on_after(CHECK_LIMIT_S) as scope:
        [pid] = await in_thread(
            find_writers, [question], frozenset(services.own), abandon_on_cancel=True, limiter=services.writer_checks
        )
    if scope.cancelled_caught:  # a hanging file system skips the check, and does not stop the turn
        _log.warning("look for other writers given up", native=native_id, after_s=CHECK_LIMIT_S)
    if pid is not None:
        raise UsageError(
            f"process {pid} has the native session {native_id} open",
            kind="session_busy",
            hint="end that process (a CLI that clisup did not start), then try again",
            pid=pid,
        )


def is_unkept(transcript: Mapping[str, Any] | None) -> bool:
    """Tell whether the CLI had kept no transcript at its last end."""
    return bool(transcript and transcript.get("unkept"))


def _difference(known: Mapping[str, Any], now: Mark | None) -> str | None:
    if strange := known.get("strange"):
        return f"{strange} messages while its live process rested"
    if now is None:
        return "it is gone"
    if now.inode != known.get("inode"):
        return "it is another file"
    if (grown := now.size - int(known.get("size", 0))) != 0:
        return f"it is {abs(grown)} bytes {'longer' if grown > 0 else 'shorter'}"
    return "it was changed" if now.mtime_ns != known.get("mtime_ns") else None
