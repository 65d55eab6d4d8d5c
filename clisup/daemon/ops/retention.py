"""Retention: a task that removes the oldest events and spools, and closes sessions that rest for too long.

Later readers of removed events get a gap event.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import TYPE_CHECKING

import trio

from clisup.config.model import RetentionConfig
from clisup.errors import ClisupError
from clisup.host import clock
from clisup.host.failpoints import failpoint
from clisup.host.files import storage_error
from clisup.host.log import event_logger
from clisup.host.threads import in_thread
from clisup.model.events import Actor
from clisup.model.lifecycle import SessionState
from clisup.policy.retention import Part, expired, shares
from clisup.policy.wall_time import ClockLook, age_of
from clisup.store.clock_store import look_at_clock
from clisup.store.journal_reader import Segments
from clisup.store.session_dir import SessionDir
from clisup.store.stored_sizes import Stored, look_at

if TYPE_CHECKING:
    from clisup.daemon.sessions.registry import Manager
    from clisup.daemon.sessions.session import Session

LOOKED_AT_ONCE = 32  # sessions for one thread: starting a thread takes longer than one look
PROMPT_SLACK_S = 60.0
"""Time between the write of a prompt's blob and of its event. A younger blob stays for a later pass."""

_log = event_logger()


class Retention:
    """Retention task. It has no state: each pass reads the disk."""

    def __init__(self, manager: Manager, config: RetentionConfig) -> None:
        self._manager = manager
        self._config = config
        self._renewed = trio.Event()

    def renew(self, config: RetentionConfig) -> None:
        """Apply other settings, and run the next pass at once."""
        if config != self._config:
            self._config = config
            self._renewed.set()

    async def run(self) -> None:
        """Run a pass at the start and then every `retention.every_s`, until cancelled."""
        while True:
            self._renewed = trio.Event()
            try:
                await self.once()
                await self.close_idle()
            except (ClisupError, OSError) as error:
                _log_failure(error)
            with trio.move_on_after(self._config.every_s):
                await self._renewed.wait()

    async def once(self) -> int:
        """Remove all due parts, and return their number. A failure in one session does not affect the others."""
        gone: list[Part] = []
        stuck: set[str] = set()
        for part in await self.due():
            if part.session_id in stuck:
                continue  # leave no hole in a session
            try:
                await self.remove(part)
                gone.append(part)
            except (ClisupError, OSError) as error:
                stuck.add(part.session_id)
                _log_failure(error)
        if gone:
            whole = sum(part.upto is None for part in gone)
            _log.info("retention removed", parts=len(gone), sessions=whole, bytes=sum(part.size for part in gone))
        return len(gone)

    async def close_idle(self) -> int:
        """Close the sessions whose last event is older than `retention.idle_close`, and return their number."""
        limit, closed = self._config.idle_close, 0
        if not limit or not list(self._manager):
            return 0
        actor = Actor(uid=os.getuid(), pid=os.getpid(), client="clisup")
        look = await in_thread(look_at_clock, self._manager.state_dir)
        for session in list(self._manager):
            since = session.idle_since()
            if (
                since is None
                or age_of(clock.seconds_of(since), look) < limit
                or self._manager.services.storage.stopping
            ):
                continue
            try:
                await session.close_idle(actor, f"it had no event for {limit:g} s (daemon.retention.idle_close)")
                closed += 1
            except ClisupError as error:
                _log_failure(error)
        if closed:
            _log.info("idle sessions closed", sessions=closed, limit_s=limit)
        return closed

    async def due(self) -> list[Part]:
        """Return the parts to remove now, oldest first. An unreadable session is logged and skipped."""
        sessions = list(self._manager)
        if not sessions or not (self._config.days or self._config.bytes):
            return []
        found: list[tuple[Stored, list[Part]]] = []
        for at in range(0, len(sessions), LOOKED_AT_ONCE):
            some = sessions[at : at + LOOKED_AT_ONCE]
            looks = await in_thread(_look_at_all, [session.dir for session in some])
            for session, look in zip(some, looks, strict=True):
                if isinstance(look, OSError):
                    _log_failure(look)
                else:
                    found.append((look, _parts(session, look)))
        return due_of(found, self._config, await in_thread(look_at_clock, self._manager.state_dir))

    async def remove(self, part: Part) -> None:
        """Remove one due part, unless a client was faster. Raises `UsageError` or `WorldError(storage_failed)`."""
        failpoint("retention.before")
        session = self._manager.find(part.session_id)
        if session is not None and part.upto is None:
            await self._manager.delete(part.session_id)
        elif session is not None and part.upto is not None:
            with self._manager.services.storage.watched():
                session.recorder.release(part.upto)
            first_seq = session.recorder.first_seq
            if part.upto < first_seq:  # an active session keeps the segment that it writes
                runs = [session.dir.run(run).path for run in part.runs]
                await in_thread(_remove_below, session.dir.journal, first_seq, runs)
                await in_thread(session.dir.drop_kept_before, part.written - PROMPT_SLACK_S)
        failpoint("retention.after")


def _log_failure(error: ClisupError | OSError) -> None:
    """Log a failure. The next pass tries again."""
    _log.error("retention failed", error=error.message if isinstance(error, ClisupError) else error.strerror)


def _remove_below(journal: str, first_seq: int, runs: list[str]) -> None:
    """Remove all released segments, also those that an earlier pass failed to remove. Raises `WorldError(storage_failed)`."""
    segments = Segments(journal)
    try:
        there = segments.listed(journal)
    except OSError as error:
        raise storage_error("read", journal, error) from None
    remove_files([segments.path_of(seq) for seq in there if seq < first_seq], runs)


def _look_at_all(directories: list[SessionDir]) -> list[Stored | OSError]:
    looks: list[Stored | OSError] = []
    for directory in directories:
        try:
            looks.append(look_at(directory))
        except OSError as error:
            looks.append(error)
    return looks


def _parts(session: Session, stored: Stored) -> list[Part]:
    may_end = not (session.context.busy or session.adoptable)
    closed, next_seq = session.state is SessionState.CLOSED, session.recorder.next_seq
    return removable_parts(session.id, stored, closed=closed, next_seq=next_seq, last_too=may_end)


def due_of(found: Iterable[tuple[Stored, list[Part]]], config: RetentionConfig, look: ClockLook) -> list[Part]:
    """Return the parts to remove, oldest first. `found` has the disk usage and the removable parts of each session."""
    parts: list[Part] = []
    kept = 0
    for stored, mine in found:
        parts += mine
        kept += sum(s.size for s in stored.segments) + sum(stored.runs.values()) - sum(part.size for part in mine)
    return expired(parts, clock=look, days=config.days, limit=config.bytes, kept=kept)


def removable_parts(session_id: str, stored: Stored, *, closed: bool, next_seq: int, last_too: bool) -> list[Part]:
    """Return the removable parts of a session. A closed session is one part, each segment of an open session is another.

    With `last_too` the last segment is removable as well. No segment counts as older than the segments before it, so
    that segments are removed in order even after a change of the clock.
    """
    segments = stored.segments
    if not segments:
        return []
    if closed:
        size = sum(segment.size for segment in segments) + sum(stored.runs.values())
        return [Part(session_id, None, (), size, segments[-1].written)]
    runs = shares([s.first_seq for s in segments], [(s.runs, s.running) for s in segments], stored.runs)
    ends = [s.first_seq - 1 for s in segments[1:]] + [next_seq - 1]
    written = accumulate((segment.written for segment in segments), max)
    parts = [
        Part(session_id, end, mine, segment.size + sum(stored.runs[run] for run in mine), since)
        for segment, mine, end, since in zip(segments, runs, ends, written, strict=True)
    ]
    only_a_head = ends[-1] < segments[-1].first_seq
    return parts if last_too and not only_a_head else parts[:-1]


def remove_files(segments: list[str], runs: list[str]) -> None:
    """Remove segments, oldest first, so that a crash leaves no hole. Then remove the runs."""
    for path in segments:
        _tolerant(os.unlink, path)
    for path in runs:
        _tolerant(shutil.rmtree, path)


def _tolerant(remove: Callable[[str], None], path: str) -> None:
    try:
        remove(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise storage_error("remove", path, error) from None
