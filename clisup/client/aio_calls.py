"""The named methods of the trio client: what `clisup.client.calls` is to the blocking one."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeVar, Unpack

from clisup.client.aio_event_stream import AsyncApprovals, AsyncEvents
from clisup.client.aio_following import Subscription
from clisup.client.aio_session import AsyncSession
from clisup.client.answers import Approval, Decision, answering, approvals_of, read, settled
from clisup.client.coming_back import new_key
from clisup.client.options import EventOptions, SessionOptions
from clisup.errors import ClisupError
from clisup.wire.daemon_models import ReloadResult
from clisup.wire.gc_models import GcResult
from clisup.wire.models import (
    BackendEnvResult,
    BackendInfo,
    BackendModelsResult,
    CheckFinding,
    RestartResult,
    SessionListResult,
    SessionSummary,
)
from clisup.wire.tool_models import ToolServeResult

__all__ = ["AsyncCalls"]

_T = TypeVar("_T")


class AsyncCalls:
    """What `clisup.client.aio.AsyncClient` can be asked, by name. What may be asked twice is asked again after a restart."""

    async def call(self, method: str, /, **params: Any) -> Any:
        """Any method of the protocol, as it is on the wire."""
        raise NotImplementedError

    async def _call_surely(self, method: str, /, **params: Any) -> Any:
        raise NotImplementedError

    def subscribe(
        self, session_id: str, after_seq: int | Mapping[str, int] | None = None, **options: Any
    ) -> Subscription:
        """Events as dicts."""
        raise NotImplementedError

    # -- sessions

    @asynccontextmanager
    async def session(self, backend: str, cwd: str, **options: Unpack[SessionOptions]) -> AsyncIterator[AsyncSession]:
        """`open` for an `async with` block: the session is closed at the end of it."""
        async with await self.open(backend, cwd, **options) as session:
            yield session

    async def open(self, backend: str, cwd: str, **options: Unpack[SessionOptions]) -> AsyncSession:
        """Open a session of `backend` in the directory `cwd`.

        Its id is made here where none is given, so that asking again after a restart opens no second one.
        """
        given = {"session_id": new_key()} | {name: value for name, value in options.items() if value is not None}
        opened = await self._sure("session/new", backend=backend, cwd=cwd, **given)
        return self.attach(opened["session_id"], opened.get("native_session_id"))

    def attach(self, session_id: str, native_session_id: str | None = None) -> AsyncSession:
        """A session that is there already, by its id. Asks nothing."""
        return AsyncSession(self, session_id, native_session_id)

    async def sessions(self, *, labels: dict[str, str] | None = None, state: str | None = None) -> list[SessionSummary]:
        """All sessions with these labels, newest first; closed ones only for `state="closed"`."""
        found: list[SessionSummary] = []
        cursor = None
        while True:
            params = {"labels": labels, "state": state, "limit": 1000, "cursor": cursor}
            page = await self._read(SessionListResult, "session/list", **params)
            found += page.sessions
            if not (cursor := page.next_cursor):
                return found

    # -- events

    def events(
        self, session_id: str, after_seq: int | Mapping[str, int] | None = None, **options: Unpack[EventOptions]
    ) -> AsyncEvents:
        """As `subscribe`, typed: an asynchronous iterator of `Envelope`s of a session, or of all (`"*"`)."""
        given = {name: value for name, value in options.items() if value is not None}
        return AsyncEvents(self.subscribe(session_id, after_seq, **given))

    async def forget(self, name: str, session_id: str = "*") -> None:
        """Drop the durable place of this name."""
        await self._sure("session/unsubscribe", session_id=session_id, name=name)

    async def blob(self, session_id: str, blob: str) -> bytes:
        """The whole of a payload that was too large for its event."""
        pages: list[bytes] = []
        offset = 0
        while True:
            page = await self._sure("session/blob", session_id=session_id, blob=blob, offset=offset)
            pages.append(b64decode(page["data_base64"]))
            offset += len(pages[-1])
            if page["eof"] or not pages[-1]:
                return b"".join(pages)

    # -- approvals

    async def open_approvals(self, session_id: str | None = None) -> list[Approval]:
        """The approvals that wait for an answer now, of a session or of all."""
        return approvals_of(await self._sure("approval/list", session_id=session_id))

    def approvals(self, session_id: str = "*") -> AsyncApprovals:
        """An endless iterator of approvals that wait for an answer: those that are open now, then each as it comes."""
        return AsyncApprovals(self, session_id)

    async def respond(self, approval: Approval | str, decision: Decision, *, session_id: str | None = None) -> None:
        """Answer an approval; the first answer wins. With an id alone, `session_id` says whose it is, else all are looked through.

        Raises `approval_already_resolved` where somebody was first, `approval_not_found`. None answers nothing.
        """
        if (params := answering(approval, decision, session_id)) is not None:
            await self.call("approval/respond", **params)

    async def answer_approvals(self, handler: Callable[[Approval], Awaitable[Decision]], session_id: str = "*") -> None:
        """Ask `handler` about each approval that waits, one after the other, and send what it gives; without end.

        That somebody else answered first, or the turn ended meanwhile, is no error.
        """
        async for approval in self.approvals(session_id):
            await self.settle(approval, await handler(approval))

    async def settle(self, approval: Approval, decision: Decision) -> None:
        """`respond`, where it does not matter who was first; asked again after a restart."""
        if (params := answering(approval, decision)) is None:
            return
        try:
            await self._sure("approval/respond", **params)
        except ClisupError as error:
            if not settled(error):
                raise

    # -- tools

    async def serve_tool_calls(self, session_id: str) -> ToolServeResult:
        """From now on the daemon asks this client for the session's tools. See `clisup.client.aio_tools` for what answers."""
        return await self._read(ToolServeResult, "tool/serve", session_id=session_id)

    async def answer_tool(
        self, session_id: str, call_id: str, content: str | list[dict[str, Any]], *, is_error: bool = False
    ) -> None:
        """Answer a tool's call; the first answer wins. Raises `tool_call_not_found` where it is not open, or not any more."""
        params = {"session_id": session_id, "call_id": call_id, "content": content, "is_error": is_error}
        await self.call("tool/result", **params)

    # -- backends

    async def backends(self) -> list[BackendInfo]:
        """The configured backends, their versions, and why one is not available."""
        return await self._read(list[BackendInfo], "backend/list")

    async def backend_env(self, name: str, env: dict[str, str] | None = None) -> BackendEnvResult:
        """What a backend's environment keeps, drops and sets: names and rules, never values."""
        return await self._read(BackendEnvResult, "backend/env", name=name, env=env)

    async def models(self, name: str) -> list[str]:
        """The models that an API backend's provider offers."""
        return list((await self._read(BackendModelsResult, "backend/models", name=name)).models)

    async def check(self, name: str | None = None, *, cwd: str | None = None) -> list[CheckFinding]:
        """What `clisup doctor` finds, of one backend or of all, and of the machine."""
        return await self._read(list[CheckFinding], "backend/check", name=name, cwd=cwd)

    # -- the daemon

    async def ping(self) -> str:
        """The daemon's time, RFC 3339."""
        return str((await self._sure("ping"))["time"])

    async def discover(self) -> dict[str, Any]:
        """The protocol as an OpenRPC document: every method with its params, result and errors."""
        document: dict[str, Any] = await self._sure("rpc.discover")
        return document

    async def status(self) -> dict[str, Any]:
        """Everything that `clisup status --json` shows."""
        status: dict[str, Any] = await self._sure("daemon/status")
        return status

    async def daemon_log(self, limit: int = 200, *, session_id: str | None = None) -> dict[str, Any]:
        """The last lines of the daemon's own log, of one session or of all: `{lines, dropped, held_back}`."""
        log: dict[str, Any] = await self._sure("daemon/log", limit=limit, session_id=session_id)
        return log

    async def metrics(self, format: Literal["prometheus", "openmetrics"] = "prometheus") -> str:  # noqa: A002  the wire's name
        """What the daemon counts, as text that Prometheus reads; docs/metrics.md has every metric."""
        return str((await self._sure("daemon/metrics", format=format))["text"])

    async def reload_daemon(self, *, dry_run: bool = False) -> ReloadResult:
        """Have the configuration file read anew; what has changed. A `dry_run` only tells."""
        return await self._read(ReloadResult, "daemon/reload", dry_run=dry_run)

    async def clear(self, *, dry_run: bool = False, older_than_s: float | None = None) -> GcResult:
        """Remove what is of no use any more, or with `dry_run` say what that is: `daemon/gc`. Closed sessions go from that age on."""
        age = {} if older_than_s is None else {"older_than_s": older_than_s}
        return read(GcResult, await self.call("daemon/gc", dry_run=dry_run, **age), "daemon/gc")

    async def restart_daemon(self) -> RestartResult:
        """Start the daemon anew in place, with the code and configuration that are there now; turns go on."""
        return read(RestartResult, await self.call("daemon/restart"), "daemon/restart")

    async def stop_daemon(self, mode: Literal["drain", "detach", "kill"] = "drain") -> None:
        """Stop the daemon: turns may end first, go on without it, or are ended."""
        await self.call("daemon/shutdown", mode=mode)

    # -- how they are asked

    async def _sure(self, method: str, /, **params: Any) -> Any:
        """`call`, again after each restart: for what may be asked twice. Params that are None are left out."""
        return await self._call_surely(method, **{name: value for name, value in params.items() if value is not None})

    async def _read(self, type_: type[_T], method: str, /, **params: Any) -> _T:
        return read(type_, await self._sure(method, **params), method)
