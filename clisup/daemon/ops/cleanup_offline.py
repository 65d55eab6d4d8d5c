"""`clisup gc` without a daemon: same rule, under the lock of the state directory, so that no daemon starts meanwhile."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from clisup.config.model import Config
from clisup.daemon.ops import garbage
from clisup.daemon.ops.cleanup import MAX_ITEMS, Facts, SessionFact, find, result_of
from clisup.daemon.ops.garbage import Removable
from clisup.daemon.ops.retention import due_of, parts_of, remove_files
from clisup.daemon.start import Flags, config_path, place_of
from clisup.errors import ClisupError, WorldError
from clisup.host.config_file import read_config
from clisup.host.locks import FileLock
from clisup.host.process.carrying import taken_environment
from clisup.host.process.cgroups import CgroupHome
from clisup.host.safe_paths import make_safe_dir
from clisup.policy.retention import Part
from clisup.store.cursor_store import CursorStore
from clisup.store.journal_reader import Segments
from clisup.store.offline import StoredSession, stored_sessions
from clisup.store.session_dir import SessionDir
from clisup.store.stored_sizes import look_at
from clisup.wire.params import GcParams


def clean_up_offline(*, dry_run: bool, older_than_s: float) -> dict[str, Any]:
    """Remove garbage and return the answer of `daemon/gc`.

    Raises `WorldError` if a daemon holds the state directory, and `ConfigurationError`.
    """
    env = taken_environment()
    path, named = config_path(Flags(), env)
    config = read_config(path, required=named)
    place = place_of(Flags(), config.daemon.socket, config.daemon.state_dir, env)
    params = GcParams(dry_run=dry_run, older_than_s=older_than_s)
    if not os.path.isdir(place.state_dir):
        return result_of(params, [], {}, 0).model_dump()
    make_safe_dir(place.state_dir, "clean up")
    with _locked(os.path.join(place.state_dir, "daemon.lock")):
        stored = list(stored_sessions(place.state_dir, {}))  # damaged sessions stay
        found = list(
            find(_facts(place.state_dir, place.socket, stored), older_than_s, _due(place.state_dir, stored, config))
        )
        chosen = found[:MAX_ITEMS]
        failed = {} if dry_run else _remove_all(place.state_dir, chosen, config)
        return result_of(params, chosen, failed, len(found) - len(chosen)).model_dump()


@contextmanager
def _locked(path: str) -> Iterator[None]:
    lock = FileLock(path)
    holder = lock.acquire()
    if holder is not None:
        raise WorldError(
            f"cannot clean up, because pid {holder} holds the state directory and does not answer as a daemon",
            kind="overloaded",
            hint="it is starting, stuck, or listens at another socket: see clisup status",
        )
    try:
        yield
    finally:
        lock.release()


def _facts(state_dir: str, socket: str, stored: list[StoredSession]) -> Facts:
    sessions = tuple(
        SessionFact(
            SessionDir(state_dir, s.spec.session_id), s.closed, s.ledger.active_turn is None and not s.ledger.queue
        )
        for s in stored
    )
    runs = frozenset((s.spec.session_id, s.ledger.active_turn.run) for s in stored if s.ledger.active_turn is not None)
    return Facts(state_dir, socket, False, CgroupHome.find(), sessions, runs)


def _due(state_dir: str, stored: list[StoredSession], config: Config) -> list[Part]:
    """Return the parts that retention removes. The last segment of an open session stays: the next daemon needs it."""
    limits = config.daemon.retention
    if not limits.days and not limits.bytes:
        return []
    found = []
    for session in stored:
        session_id = session.spec.session_id
        try:
            sizes = look_at(SessionDir(state_dir, session_id))
        except OSError:
            continue  # unreadable sessions stay
        held = session.ledger.active_turn is not None or bool(session.ledger.queue)
        mine = parts_of(session_id, sizes, closed=session.closed, next_seq=session.next_seq, last_too=False)
        found.append((sizes, [] if held else mine))
    return due_of(found, limits)


def _remove_all(state_dir: str, items: list[Removable], config: Config) -> dict[str, str]:
    failed: dict[str, str] = {}
    cursors = CursorStore(state_dir, limit=config.daemon.max_cursors)
    for item in items:
        try:
            if item.part is not None:
                _remove_part(SessionDir(state_dir, item.part.session_id), item.part)
            elif item.kind == "session" and item.session_id is not None:
                cursors.drop_sessions([item.session_id])
                shutil.rmtree(SessionDir(state_dir, item.session_id).throw_away())
            elif (error := garbage.remove(item)) is not None:
                failed[item.path] = error
        except (ClisupError, OSError) as refused:
            failed[item.path] = str(refused)
    return failed


def _remove_part(directory: SessionDir, part: Part) -> None:
    """Remove whole segments, but never the last: the next daemon reads only that one."""
    first = [segment.first_seq for segment in look_at(directory).segments]
    ends = [following - 1 for following in first[1:]]
    gone = [seq for seq, end in zip(first, ends, strict=False) if part.upto is not None and end <= part.upto]
    journal = Segments(directory.journal)
    remove_files([journal.path_of(seq) for seq in gone], [directory.run(run).path for run in part.runs])
