"""Handlers of the `session/...` methods, except events and subscriptions."""

from __future__ import annotations

import json
from typing import Any

import trio

from clisup.daemon.clients.connection import Connection, Handlers
from clisup.daemon.journal.raw_lines import whole_blob
from clisup.daemon.ops.status import summaries_of, summary_of
from clisup.daemon.sessions.registry import Manager
from clisup.daemon.sessions.session import Session
from clisup.errors import UsageError, WorldError
from clisup.model.envelope import encoded
from clisup.model.lifecycle import SessionState
from clisup.wire.params import (
    CompactParams,
    InterruptParams,
    NoteParams,
    PromptParams,
    SessionForkParams,
    SessionListParams,
    SessionNewParams,
    SessionParams,
    SetBudgetParams,
    SetModelParams,
    SetPermissionModeParams,
    SetTitleParams,
)
from clisup.wire.results import (
    CloseResult,
    Done,
    InterruptResult,
    PromptResult,
    SessionForkResult,
    SessionNewResult,
    SetBudgetResult,
    TurnResult,
)

__all__ = ["SessionHandlers"]

LAST_EVENTS = 20


class SessionHandlers:
    """Handlers that shield their changes: the daemon completes a change also if the client is gone."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    def table(self) -> Handlers:
        return {
            "session/new": self.new,
            "session/fork": self.fork,
            "session/list": self.list,
            "session/get": self.get,
            "session/prompt": self.prompt,
            "session/compact": self.compact,
            "session/interrupt": self.interrupt,
            "session/set_model": self.set_model,
            "session/set_permission_mode": self.set_permission_mode,
            "session/set_title": self.set_title,
            "session/set_budget": self.set_budget,
            "session/context_usage": self.context_usage,
            "session/note": self.note,
            "session/close": self.close,
            "session/delete": self.delete,
        }

    async def new(self, connection: Connection, params: SessionNewParams) -> bytes:
        with trio.CancelScope(shield=True):
            session = await self._manager.open(params, connection.actor)
        _serve_tools(session, connection)
        native = session.ledger.native_session_id or session.spec.resume_native_id
        worktree = session.spec.worktree
        about = worktree.model_dump(exclude={"owner", "git_dir"}) if worktree is not None else None
        return SessionNewResult(
            session_id=session.id,
            native_session_id=native,
            backend=session.spec.backend,
            cwd=session.spec.cwd,
            worktree=about,
        ).to_json()

    async def fork(self, connection: Connection, params: SessionForkParams) -> bytes:
        with trio.CancelScope(shield=True):
            session = await self._manager.fork(params, connection.actor)
        _serve_tools(session, connection)
        return SessionForkResult(session_id=session.id, native_session_id=session.context.native_id).to_json()

    async def list(self, connection: Connection, params: SessionListParams) -> bytes:
        wanted = [s for s in self._manager if _matches(s, params)]
        wanted.sort(key=lambda session: (session.spec.created_at, session.id), reverse=True)
        if params.cursor is not None:
            ids = [session.id for session in wanted]
            wanted = wanted[ids.index(params.cursor) + 1 :] if params.cursor in ids else []
        page = wanted[: params.limit]
        more = page[-1].id if len(wanted) > len(page) else None
        await self._manager.look(page)
        rows = await summaries_of(page, connection.share.wait_for_piece)
        return b'{"sessions":%b,"next_cursor":%b}' % (rows, encoded(more))

    async def get(self, connection: Connection, params: SessionParams) -> bytes:
        session = self._manager.get(params.session_id)
        await self._manager.look([session])  # first: nothing below waits, so the answer shows one moment
        detail = {
            "tools": session.tools.describe() if session.tools is not None else None,
            "timers": session.timers(),
            "watch": session.watch(),
            "last_events": _last_events(session),
            "turn_cost_usd": session.budgets.turn_cost(),
        }
        return encoded({**summary_of(session), **detail})

    async def prompt(self, connection: Connection, params: PromptParams) -> bytes:
        session = self._manager.get(params.session_id)
        with trio.CancelScope(shield=True):
            accepted = await session.prompts.accept(params, connection.actor)
        wait = params.wait
        del params  # frees a long prompt before a long turn
        return await _turn_result(session, accepted) if wait else accepted.to_json()

    async def compact(self, connection: Connection, params: CompactParams) -> bytes:
        session = self._manager.get(params.session_id)
        with trio.CancelScope(shield=True):
            accepted = await session.settings.compact(params, connection.actor)
        return await _turn_result(session, accepted) if params.wait else accepted.to_json()

    async def interrupt(self, connection: Connection, params: InterruptParams) -> bytes:
        session = self._manager.get(params.session_id)
        turn_id, seq = await session.interrupt(params.turn_id, params.mode, connection.actor)
        return InterruptResult(turn_id=turn_id, outcome=_event_at(session, seq)["outcome"]).to_json()

    async def set_model(self, connection: Connection, params: SetModelParams) -> bytes:
        return (await self._manager.get(params.session_id).settings.set("model", params.model)).to_json()

    async def set_permission_mode(self, connection: Connection, params: SetPermissionModeParams) -> bytes:
        settings = self._manager.get(params.session_id).settings
        return (await settings.set("permission_mode", params.permission_mode)).to_json()

    async def set_title(self, connection: Connection, params: SetTitleParams) -> bytes:
        with trio.CancelScope(shield=True):
            await self._manager.get(params.session_id).set_title(params.title, connection.actor)
        return Done().to_json()

    async def set_budget(self, connection: Connection, params: SetBudgetParams) -> bytes:
        session = self._manager.get(params.session_id)
        with trio.CancelScope(shield=True):
            budget = await session.budgets.set(params.budget, connection.actor)
        return SetBudgetResult(budget=budget).to_json()

    async def context_usage(self, connection: Connection, params: SessionParams) -> bytes:
        return (await self._manager.get(params.session_id).settings.context_usage()).to_json()

    async def note(self, connection: Connection, params: NoteParams) -> bytes:
        with trio.CancelScope(shield=True):
            result = await self._manager.get(params.session_id).note(params, connection.actor)
        return result.to_json()

    async def close(self, connection: Connection, params: SessionParams) -> bytes:
        session = self._manager.get(params.session_id)
        await session.close(connection.actor)
        return CloseResult(worktree_kept=(session.worktree() or {}).get("kept")).to_json()

    async def delete(self, connection: Connection, params: SessionParams) -> bytes:
        with trio.CancelScope(shield=True):
            await self._manager.delete(params.session_id)
        return Done().to_json()


def _serve_tools(session: Session, connection: Connection) -> None:
    """Let the client that opens a session serve its tools, until another client calls `tool/serve`."""
    if session.tools is not None and session.state is not SessionState.CLOSED:
        session.tools.serve(connection)


def _matches(session: Session, params: SessionListParams) -> bool:
    if params.state is not None and session.visible_state != params.state:
        return False
    if params.state is None and session.state is SessionState.CLOSED:
        return False
    labels = session.spec.labels
    return all(labels.get(key) == value for key, value in (params.labels or {}).items())


async def _turn_result(session: Session, accepted: PromptResult) -> bytes:
    """Wait for the end of the turn and return its result. The text is whole, even if the event has only its beginning."""
    turn_id = accepted.turn_id
    if accepted.prompt_id is not None:
        turn_id = await session.steering.turn_of(accepted.prompt_id)
    event = _event_at(session, await session.finished(turn_id))
    if event.get("blob"):
        event["text"] = whole_blob(session.dir, event["blob"]).decode()
    return encoded({name: event[name] for name in TurnResult.model_fields if name in event})


def _event_at(session: Session, seq: int) -> dict[str, Any]:
    if seq < session.recorder.first_seq:
        raise UsageError(
            f"event {seq} of session {session.id} not found: retention removed this event",
            kind="turn_not_found",
            hint="raise daemon.retention, or ask sooner",
            first_seq=session.recorder.first_seq,
        )
    event = session.recorder.event(seq)
    if event is None:
        raise WorldError(
            f"event {seq} of session {session.id} is damaged or missing",
            kind="storage_failed",
            hint="the turn has ended: see session/get, or clisup status SESSION",
        )
    return event


def _last_events(session: Session) -> list[dict[str, Any]]:
    recorder = session.recorder
    after = max(recorder.first_seq - 1, recorder.next_seq - 1 - LAST_EVENTS)
    return [_short(json.loads(stored.event)) for stored in recorder.events(after)]


def _short(event: dict[str, Any]) -> dict[str, Any]:
    """Return the event with long texts cut, also in its blocks, and without the bytes of images."""
    return {
        key: [_short(block) for block in value] if key == "blocks" and value else _cut(value)
        for key, value in event.items()
        if key != "data" or not isinstance(value, str)
    }


def _cut(value: Any) -> Any:
    return value[:200] if isinstance(value, str) else value
