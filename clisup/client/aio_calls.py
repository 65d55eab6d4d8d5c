"""The named methods of the trio client: what `clisup.client.calls` is to the blocking one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal, Unpack

from clisup.client.aio_event_stream import AsyncEventCalls
from clisup.client.aio_session import AsyncSession
from clisup.client.answers import read
from clisup.client.coming_back import new_key
from clisup.client.options import SessionOptions
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


class AsyncCalls(AsyncEventCalls):
    """What `clisup.client.aio.AsyncClient` can be asked, by name. What may be asked twice is asked again after a restart."""

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
