"""The handlers of the method table. Each takes the connection and checked params, and gives the result's JSON."""

from __future__ import annotations

import base64
import json
from importlib import import_module
from typing import Any

import trio
from msgspec.structs import asdict

from clisup.backends.base import ApprovalAnswer
from clisup.daemon.app import Daemon
from clisup.daemon.clients.connection import Connection, Handlers
from clisup.daemon.clients.raw_lines import blob_page, whole_blob, with_native
from clisup.daemon.clients.subscriptions import acknowledge, subscribe, unsubscribe
from clisup.daemon.ops.cleanup import Clearing
from clisup.daemon.ops.status import summaries_of, summary_of
from clisup.daemon.sessions.session import Session
from clisup.daemon.tools.calls import answer_json, tool_answer
from clisup.errors import UsageError, WorldError
from clisup.host import clock
from clisup.host.log import LOG
from clisup.model.journal import event_type
from clisup.model.lifecycle import SessionState
from clisup.policy.environment.scrub import held_back
from clisup.policy.open_calls import MAX_OPEN_CALLS
from clisup.wire import daemon_models as d
from clisup.wire import models as m
from clisup.wire import tool_models as t
from clisup.wire.budget_models import SetBudgetParams, SetBudgetResult
from clisup.wire.gc_models import GcParams
from clisup.wire.methods import METHODS, PROTOCOL_VERSION
from clisup.wire.note_models import NoteParams

__all__ = ["make_handlers"]

LAST_EVENTS = 20
_TOLD_LIMITS = ("max_frame_bytes", "max_frame_values", "max_requests", "max_images", "max_image_bytes")
PAGE_BYTES = 1024 * 1024  # a page ends with the event that passes it


class _Handlers:
    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._manager = daemon.manager
        self._openrpc: bytes | None = None

    # -- daemon ------------------------------------------------------------------------------------------------------

    async def initialize(self, connection: Connection, params: m.InitializeParams) -> bytes:
        if params.protocol_version not in (None, PROTOCOL_VERSION):
            raise UsageError(
                f"cannot speak protocol version {params.protocol_version}",
                kind="unsupported",
                hint=f"this daemon speaks version {PROTOCOL_VERSION}",
            )
        if params.client is not None:
            connection.name = params.client.name
        limits = self._daemon.config.daemon
        result = m.InitializeResult(
            protocol_version=PROTOCOL_VERSION,
            server=self._daemon.identity(),
            limits={name: getattr(limits, name) for name in _TOLD_LIMITS},
            backends=self._daemon.backends.names(),
        )
        return _json(result)

    async def ping(self, connection: Connection, params: m.Empty) -> bytes:
        return _json(m.PingResult(time=clock.timestamp()))

    async def rpc_discover(self, connection: Connection, params: m.Empty) -> bytes:
        if self._openrpc is None:
            from clisup.wire.openrpc import document, models_of  # a daemon that nobody asks does not load it

            for model in models_of(METHODS):
                model.model_rebuild()  # here, not in the thread: a request may be about to do the same
                await trio.lowlevel.checkpoint()
            self._openrpc = await trio.to_thread.run_sync(document, METHODS, PROTOCOL_VERSION)  # 0.2 s
        return self._openrpc

    async def daemon_status(self, connection: Connection, params: m.Empty) -> bytes:
        return (await self._daemon.status(connection.share.wait_for_piece)).encode()

    async def daemon_log(self, connection: Connection, params: d.LogParams) -> bytes:
        lines = [line for line in LOG.recent() if params.session_id in (None, line.get("session"))]
        dropped = LOG.outlet.dropped if LOG.outlet is not None else 0
        return _json(d.LogResult(lines=lines[-params.limit :], dropped=dropped, held_back=dict(LOG.rate.held)))

    async def daemon_metrics(self, connection: Connection, params: d.MetricsParams) -> bytes:
        await trio.to_thread.run_sync(import_module, "clisup.daemon.ops.exposition")  # the first time takes a while
        from clisup.daemon.ops.exposition import CONTENT_TYPES, exposition_of

        await connection.share.wait_for_piece()  # ten milliseconds, which a round has to know of
        text = exposition_of(self._daemon, params.format)
        return _json(d.MetricsResult(text=text, content_type=CONTENT_TYPES[params.format]))

    async def daemon_shutdown(self, connection: Connection, params: d.ShutdownParams) -> bytes:
        peer = connection.peer
        self._daemon.stop(params.mode, why=f"a client asked for it (uid {peer.uid}, pid {peer.pid})")
        return _json(m.Done())

    async def daemon_reload(self, connection: Connection, params: d.ReloadParams) -> bytes:
        with trio.CancelScope(shield=True):
            found = await self._daemon.reload(dry_run=params.dry_run)
        changed = [d.ChangedKey.model_validate(change._asdict()) for change in found]
        return _json(d.ReloadResult(file=self._daemon.config_file.path, changed=changed))

    async def daemon_restart(self, connection: Connection, params: m.Empty) -> bytes:
        running = sum(session.ledger.current is not None for session in self._manager)
        await self._daemon.restart()
        return _json(m.RestartResult(running=running, instance_id=self._daemon.instance_id))

    async def daemon_gc(self, connection: Connection, params: GcParams) -> bytes:
        return _json(await Clearing(self._manager, self._daemon.retention, self._daemon.socket_path).run(params))

    # -- backends ----------------------------------------------------------------------------------------------------

    async def backend_list(self, connection: Connection, params: m.Empty) -> bytes:
        return json.dumps(await self._daemon.backends.describe()).encode()

    async def backend_env(self, connection: Connection, params: m.BackendEnvParams) -> bytes:
        backend = self._daemon.backends.get(params.name)
        own = backend.own_launch()
        _, report = backend.environment(request_env=params.env, sets=own.env, closed=own.closed_env, markers={})
        groups = {
            name: [m.NameRule(name=n, rule=r) for n, r in getattr(report, name)] for name in ("kept", "dropped", "set")
        }
        held = held_back(report, backend.rules.pairs, backend.adapter.login_keys)
        lists = [m.CheckedList(list=s.list_name, source=s.source, date=s.date) for s in backend.rules.stamps]
        return _json(m.BackendEnvResult(**groups, lists=lists, held_back=held))

    async def backend_models(self, connection: Connection, params: m.BackendModelsParams) -> bytes:
        return _json(m.BackendModelsResult(models=await self._daemon.backends.get(params.name).models()))

    async def backend_check(self, connection: Connection, params: m.BackendCheckParams) -> bytes:
        found = await self._daemon.diagnose(params.name, params.cwd)
        return json.dumps([asdict(finding) for finding in found]).encode()

    # -- sessions ----------------------------------------------------------------------------------------------------

    async def session_new(self, connection: Connection, params: m.SessionNewParams) -> bytes:
        with trio.CancelScope(shield=True):  # what was asked for is done, also where the client has gone meanwhile
            session = await self._manager.open(params, connection.actor)
        _serve_from_the_start(session, connection)
        native = session.ledger.native_session_id or session.spec.resume_native_id
        return _json(m.SessionNewResult(session_id=session.id, native_session_id=native))

    async def session_fork(self, connection: Connection, params: m.SessionForkParams) -> bytes:
        with trio.CancelScope(shield=True):
            session = await self._manager.fork(params, connection.actor)
        _serve_from_the_start(session, connection)
        return _json(m.SessionForkResult(session_id=session.id, native_session_id=session.context.native_id))

    async def session_list(self, connection: Connection, params: m.SessionListParams) -> bytes:
        wanted = [s for s in self._manager if _matches(s, params)]
        wanted.sort(key=lambda session: (session.spec.created_at, session.id), reverse=True)
        if params.cursor is not None:
            ids = [session.id for session in wanted]
            wanted = wanted[ids.index(params.cursor) + 1 :] if params.cursor in ids else []
        page = wanted[: params.limit]
        more = page[-1].id if len(wanted) > len(page) else None
        await self._manager.look_at_memory()
        rows = await summaries_of(page, connection.share.wait_for_piece)
        return f'{{"sessions": {rows}, "next_cursor": {json.dumps(more)}}}'.encode()

    async def session_get(self, connection: Connection, params: m.SessionParams) -> bytes:
        session = self._manager.get(params.session_id)
        await self._manager.look_at_memory()  # before all: nothing that follows waits, so the answer is of one moment
        after = max(session.recorder.first_seq - 1, session.recorder.next_seq - 1 - LAST_EVENTS)
        reader = session.recorder.reader(after)
        last: list[dict[str, Any]] = []
        try:
            while events := reader.read():
                last += [json.loads(event.event) for event in events]
        finally:
            reader.close()
        detail = {
            "tools": session.tools.describe() if session.tools is not None else None,
            "timers": session.timers(),
            "watch": session.watch(),
            "last_events": [_short(event) for event in last],
        }
        return json.dumps({**summary_of(session), **detail}).encode()

    async def session_prompt(self, connection: Connection, params: m.PromptParams) -> bytes:
        session = self._manager.get(params.session_id)
        with trio.CancelScope(shield=True):
            accepted = await session.prompts.accept(params, connection.actor)
        wait = params.wait
        del params  # the prompt may be long, and so may the turn
        return await self._result_of(session, accepted) if wait else _json(accepted)

    async def session_compact(self, connection: Connection, params: m.CompactParams) -> bytes:
        session = self._manager.get(params.session_id)
        with trio.CancelScope(shield=True):
            accepted = await session.settings.compact(params, connection.actor)
        return await self._result_of(session, accepted) if params.wait else _json(accepted)

    async def session_set_model(self, connection: Connection, params: m.SetModelParams) -> bytes:
        return _json(await self._manager.get(params.session_id).settings.set("model", params.model))

    async def session_set_permission_mode(self, connection: Connection, params: m.SetPermissionModeParams) -> bytes:
        session = self._manager.get(params.session_id)
        return _json(await session.settings.set("permission_mode", params.permission_mode))

    async def session_set_budget(self, connection: Connection, params: SetBudgetParams) -> bytes:
        session = self._manager.get(params.session_id)
        with trio.CancelScope(shield=True):
            budget = await session.budgets.set(params.budget, connection.actor)
        return _json(SetBudgetResult(budget=budget))

    async def session_context_usage(self, connection: Connection, params: m.SessionParams) -> bytes:
        return _json(await self._manager.get(params.session_id).settings.context_usage())

    async def _result_of(self, session: Session, accepted: m.PromptResult) -> bytes:
        """The turn's end as one answer, with the whole text even where the event holds only its head."""
        turn_id = accepted.turn_id
        if accepted.prompt_id is not None:
            turn_id = await session.steering.turn_of(accepted.prompt_id)
        event = _event_at(session, await session.finished(turn_id))
        if event.get("blob"):
            event["text"] = whole_blob(session.dir, event["blob"]).decode()
        names = m.TurnResult.model_fields
        return json.dumps({name: event[name] for name in names if name in event}).encode()

    async def session_interrupt(self, connection: Connection, params: m.InterruptParams) -> bytes:
        session = self._manager.get(params.session_id)
        turn_id, seq = await session.interrupt(params.turn_id, params.mode, connection.actor)
        return _json(m.InterruptResult(turn_id=turn_id, outcome=_event_at(session, seq)["outcome"]))

    async def session_note(self, connection: Connection, params: NoteParams) -> bytes:
        with trio.CancelScope(shield=True):
            result = await self._manager.get(params.session_id).note(params, connection.actor)
        return _json(result)

    async def approval_list(self, connection: Connection, params: m.ApprovalListParams) -> bytes:
        chosen = [self._manager.get(params.session_id)] if params.session_id else list(self._manager)
        found: list[dict[str, Any]] = []
        for session in chosen:
            if session.approvals.open:
                await connection.share.wait_for_piece()
                found += session.approvals.describe()
        found.sort(key=lambda approval: str(approval["requested_at"]))
        return json.dumps({"approvals": found}).encode()

    async def approval_respond(self, connection: Connection, params: m.RespondParams) -> bytes:
        session = self._manager.with_approval(params.approval_id, params.session_id)
        answer = ApprovalAnswer(params.decision, params.message, params.updated_input, params.remember)
        await session.approvals.respond(params.approval_id, answer, connection.actor)
        return _json(m.RespondResult(approval_id=params.approval_id, session_id=session.id, decision=params.decision))

    # -- tools -------------------------------------------------------------------------------------------------------

    async def tool_serve(self, connection: Connection, params: t.ToolServeParams) -> bytes:
        tools = self._manager.get(params.session_id).tools_to_serve()
        return _json(t.ToolServeResult(session_id=params.session_id, tools=tools.names, open=tools.serve(connection)))

    async def tool_result(self, connection: Connection, params: t.ToolResultParams) -> bytes:
        self._manager.get(params.session_id).tools_to_serve().answer(params.call_id, tool_answer(params))
        return _json(m.Done())

    async def bridge_hello(self, connection: Connection, params: t.BridgeHelloParams) -> bytes:
        session, connection.bridge = self._manager.tools_of_token(params.token)
        limits = self._daemon.config.daemon
        hello = {
            "session_id": session.id,
            "tools": connection.bridge.definitions(),
            "max_frame_bytes": limits.max_frame_bytes,
            # One less than its connection has requests at once, so that a cancellation is read at any time.
            "max_calls": max(1, min(MAX_OPEN_CALLS, limits.max_requests) - 1),
        }
        return json.dumps(hello).encode()

    async def bridge_call(self, connection: Connection, params: t.BridgeCallParams) -> bytes:
        if connection.bridge is None:
            raise UsageError(
                "cannot call a tool, because this connection has not said whose bridge it is",
                kind="permission_denied",
                hint="say bridge/hello first",
            )
        return answer_json(await connection.bridge.call(params))

    # -- the end of a session ----------------------------------------------------------------------------------------

    async def session_close(self, connection: Connection, params: m.SessionParams) -> bytes:
        await self._manager.get(params.session_id).close(connection.actor)
        return _json(m.Done())

    async def session_delete(self, connection: Connection, params: m.SessionParams) -> bytes:
        with trio.CancelScope(shield=True):
            await self._manager.delete(params.session_id)
        return _json(m.Done())

    async def session_subscribe(self, connection: Connection, params: m.SubscribeParams) -> bytes:
        result = subscribe(self._manager, connection, params)
        return result.model_dump_json(exclude_none=True).encode()

    async def session_unsubscribe(self, connection: Connection, params: m.UnsubscribeParams) -> bytes:
        unsubscribe(self._manager, connection, params)
        return _json(m.Done())

    async def session_ack(self, connection: Connection, params: m.AckParams) -> bytes:
        return _json(m.AckResult(seq=acknowledge(self._manager, params)))

    async def session_events(self, connection: Connection, params: m.EventsParams) -> bytes:
        session = self._manager.get(params.session_id)
        reader = session.recorder.reader(params.after_seq)
        page: list[bytes] = []
        gaps: list[dict[str, Any]] = []
        size, at = 0, params.after_seq
        try:
            while len(page) < params.limit and size < PAGE_BYTES:
                await connection.share.wait_for_piece()
                events = reader.read()
                if (gap := reader.take_gap()) is not None:
                    gaps.append(gap._asdict())
                    at = gap.to_seq
                if not events:
                    break
                for event in events:
                    if len(page) >= params.limit or size >= PAGE_BYTES:
                        break
                    at = event.seq
                    if params.types is None or event_type(event.event) in params.types:
                        raw = await with_native(event.event, event.line, session.dir) if params.raw else event.event
                        page.append(raw)
                        size += len(page[-1])
        finally:
            reader.close()
        head = b'{"gaps":' + json.dumps(gaps).encode() + b',"events":[' if gaps else b'{"events":['
        eof = b"true" if at + 1 >= session.recorder.next_seq else b"false"
        return head + b",".join(page) + b'],"next_seq":' + str(at + 1).encode() + b',"eof":' + eof + b"}"

    async def session_blob(self, connection: Connection, params: m.BlobParams) -> bytes:
        session = self._manager.get(params.session_id)
        data, size = blob_page(session.dir, params.blob, params.offset, params.limit)
        eof = params.offset + len(data) >= size
        return _json(m.BlobResult(data_base64=base64.b64encode(data).decode(), size=size, eof=eof))


def make_handlers(daemon: Daemon) -> Handlers:
    """A handler for every method of the table, by its name: `session/new` -> `session_new`."""
    handlers = _Handlers(daemon)
    return {name: getattr(handlers, name.replace("/", "_").replace(".", "_")) for name in METHODS}


def _json(result: m.Result) -> bytes:
    return result.model_dump_json().encode()


def _serve_from_the_start(session: Session, connection: Connection) -> None:
    """Who opens a session with tools is who runs them, until another one says so."""
    if session.tools is not None and session.state is not SessionState.CLOSED:
        session.tools.serve(connection)


def _matches(session: Session, params: m.SessionListParams) -> bool:
    if params.state is not None and session.visible_state != params.state:
        return False
    if params.state is None and session.state is SessionState.CLOSED:
        return False
    labels = session.spec.labels
    return all(labels.get(key) == value for key, value in (params.labels or {}).items())


def _event_at(session: Session, seq: int) -> dict[str, Any]:
    if seq < session.recorder.first_seq:
        raise UsageError(
            f"cannot give event {seq} of session {session.id}, because retention removed it",
            kind="turn_not_found",
            hint="raise daemon.retention, or ask sooner",
            first_seq=session.recorder.first_seq,
        )
    event = session.recorder.event(seq)
    if event is None:
        raise WorldError(
            f"cannot give event {seq} of session {session.id}, because it is damaged or was removed",
            kind="storage_failed",
            hint="the turn has ended all the same: see session/get, or clisup status SESSION",
        )
    return event


def _short(event: dict[str, Any]) -> dict[str, Any]:
    """An event for a glance: long texts cut, also those of its blocks; images without their bytes."""
    return {
        key: [_short(block) for block in value] if key == "blocks" and value else _cut(value)
        for key, value in event.items()
        if key != "data" or not isinstance(value, str)
    }


def _cut(value: Any) -> Any:
    return value[:200] if isinstance(value, str) else value
