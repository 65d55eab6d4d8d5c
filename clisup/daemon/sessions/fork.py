"""Fork of a session (`session/fork`): a new session with another session's history, whole or up to the end of a turn.

The daemon copies the CLI's transcript and never edits the original. The journal assigns parts of the transcript to
turns: by the ids of the messages, the prompts, and the size of the transcript before each run.
"""

from __future__ import annotations

import json
import os
from functools import partial
from typing import Any

import msgspec
import trio
from msgspec import Struct

from clisup.backends.base import ForkPlan, ForkRules
from clisup.config.session_spec import SessionSpec
from clisup.daemon.sessions.session import Session
from clisup.errors import UsageError
from clisup.host import clock
from clisup.host.threads import in_thread
from clisup.model.events import Actor, SessionForked
from clisup.model.journal import event_type
from clisup.model.lifecycle import SessionState
from clisup.model.sessions.turn_trace import WATCHED, RunMark, TurnTrace, TurnTraces
from clisup.store.session_dir import SessionDir
from clisup.store.transcripts import CopyInProgress, find_transcript, parts_of, read_lines, write_session

__all__ = ["check_forkable", "make_fork"]

WRITTEN_LIMIT_S = 2.0  # claude writes its transcript some 100 ms after printing
CHECK_AGAIN_S = 0.1


class _Point(Struct, frozen=True):
    """Place of the cut: the end of turn `upto`. `whole` takes the unchanged transcript, up to `size` bytes."""

    path: str
    turns: list[TurnTrace]
    upto: str | None
    whole: bool
    size: int


def check_forkable(source: Session) -> ForkRules:
    """Return the fork rules of the backend. Raises `UsageError`: unsupported, session_closed."""
    adapter = source.backend.adapter
    rules = adapter.fork
    if rules is None or not adapter.capabilities.fork:
        raise UsageError(
            f"cannot fork session {source.id}: backend {source.backend.name!r} has no such feature",
            kind="unsupported",
            hint="see `fork` in the capabilities of backend/list",
        )
    if source.state is SessionState.CLOSED:
        raise UsageError(
            f"cannot fork session {source.id}: it is closed",
            kind="session_closed",
            hint="open its native session again: session/new with resume_native_id",
        )
    return rules


async def make_fork(
    source: Session, session_id: str, digest: str, at_turn: str | None, actor: Actor
) -> tuple[SessionSpec, CopyInProgress]:
    """Copy the transcript and write the new session's record. Without the record no session exists.

    The caller keeps the copy when the session has begun. Otherwise the caller undoes the copy and removes the record.

    Raises `UsageError`: unsupported, session_closed, session_busy, session_exists, turn_not_found, limit_exceeded;
    `WorldError`: storage_failed. An error leaves nothing behind.
    """
    rules, private = check_forkable(source), _private_of(source.dir)
    native_id = source.backend.adapter.capabilities.native_id_prefix + session_id
    if find_transcript(source.cli.pattern(native_id)) is not None:
        raise UsageError(
            f"cannot fork to {session_id}: the CLI has a transcript of this id",
            kind="session_exists",
            hint="choose another id",
        )
    point, plan = await _settled_plan(source, rules, at_turn)
    directory = SessionDir(source.context.services.state_dir, session_id)
    forked = SessionForked(
        source_session_id=source.id,
        at_turn=point.upto,
        whole=point.whole,
        source_native_session_id=source.context.native_id,
        native_session_id=native_id,
        actor=actor,
    )
    spec = source.spec.model_copy(
        update={
            "session_id": session_id,
            "created_at": clock.timestamp(),
            "digest": digest,
            "title": source.context.title,
            "model": source.context.setting("model"),
            "permission_mode": source.context.setting("permission_mode"),
            "budget": source.budgets.limits,  # the same limits, with nothing used
            "resume_native_id": native_id,
            "seeded": None,
            "usage_total": msgspec.to_builtins(plan.usage_total),
            "forked_from": {name: value for name, value in msgspec.to_builtins(forked).items() if name != "type"},
        }
    )
    with source.context.services.storage.watched():
        rewrite = partial(rules.copy, native_session_id=native_id)
        record = partial(directory.create, spec, *private)
        lines = parts_of(point.path, plan.parts, rewrite)
        target = _beside(point.path, source.context.native_id, native_id)
        copy = await in_thread(write_session, directory, target, lines, record)
    return spec, copy


def _beside(path: str, native_id: str, other: str) -> str:
    """Return the path of another native session in the same folder. A transcript's name has the id of its session."""
    folder, name = os.path.split(path)
    return os.path.join(folder, name.replace(native_id, other))


def _private_of(brought: SessionDir) -> tuple[dict[str, str], str | None, bytes | None, list[dict[str, Any]] | None]:
    """Return the private data of the source's request, without the token: a fork gets another token."""
    brought.check(tools=True)
    tools = brought.read_tools()
    definitions = tools.definitions if tools is not None else None
    return brought.secrets(), brought.read_system_prompt(), brought.read_mcp_config(), definitions


# -- the cut ----------------------------------------------------------------------------------------------------------


async def _settled_plan(source: Session, rules: ForkRules, at_turn: str | None) -> tuple[_Point, ForkPlan]:
    """Return the plan. Retry for a while if the CLI has not yet written all of its output to the transcript."""
    until = trio.current_time() + WRITTEN_LIMIT_S
    while True:
        point = await _point(source, at_turn)
        over = trio.current_time() >= until
        try:
            plan = await in_thread(_plan, rules, point)
            if plan.complete or over:
                return point, plan
        except UsageError:
            if over:
                raise
        await trio.sleep(CHECK_AGAIN_S)


def _plan(rules: ForkRules, point: _Point) -> ForkPlan:
    return rules.plan(read_lines(point.path, point.size), point.turns, point.upto, whole=point.whole)


async def _point(source: Session, at_turn: str | None) -> _Point:
    """Return the place of the cut.

    Raises `UsageError`: session_busy for a turn without an end, turn_not_found for a turn without a run.
    """
    path = find_transcript(source.cli.pattern())
    turns = await _traces(source)
    idle = not source.context.busy
    size = os.stat(path).st_size if path is not None else 0  # in one step with `idle`: no run comes between
    pending = [turn.id for turn in (source.ledger.current, *source.ledger.queue) if turn is not None]
    if at_turn in pending:
        raise _busy(source, f"turn {at_turn} has not ended")
    done = [turn for turn in turns if turn.done]
    if at_turn is not None and at_turn not in {turn.turn_id for turn in done}:
        raise UsageError(
            f"cannot fork session {source.id} at turn {at_turn}: no such turn has run",
            kind="turn_not_found",
            hint="name a turn that was started (turn_started) and whose events are still kept",
        )
    if not done and pending:
        raise _busy(source, "its first turn has not ended")
    if path is None or not (done or source.spec.resume_native_id):
        raise UsageError(
            f"cannot fork session {source.id}: it has no history yet",
            kind="turn_not_found",
            hint="open a new session",
        )
    whole = at_turn is None and idle
    return _Point(path, done, at_turn or (done[-1].turn_id if done else None), whole, size)


def _busy(source: Session, why: str) -> UsageError:
    return UsageError(
        f"cannot fork session {source.id} there: {why}",
        kind="session_busy",
        hint="wait for its turn_completed, or fork at a turn that has ended",
    )


async def _traces(source: Session) -> list[TurnTrace]:
    """Return the traces of the turns in the journal, with the places from the runs' intents."""
    traces, recorder = TurnTraces(), source.recorder
    reader = recorder.reader(recorder.first_seq - 1)
    try:
        while block := await recorder.read(reader):
            for stored in block.events():
                if event_type(stored.event) in WATCHED:
                    traces.apply(json.loads(stored.event))
            await trio.lowlevel.checkpoint()
    finally:
        reader.close()
    return traces.located(await in_thread(_marks, source.dir, source.context.native_id))


def _marks(directory: SessionDir, native_id: str) -> list[RunMark]:
    marks = []
    for number in directory.run_numbers():
        intent = directory.run(number).intent()
        named, at = (intent.get("native") or [None])[0], intent.get("transcript_at")
        if isinstance(at, int) and named in (None, native_id):
            marks.append(RunMark(number, str(intent.get("turn_id")), at))
    return marks
