"""Named methods of the clients: one for each method of the protocol that no session has.

`clisup.client.sync_calls` is generated from this file by `make client`. Typed results are loaded by the method that returns
them, because commands that need dicts alone use the same client.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Literal, Unpack

from clisup.client.aio_requests import AsyncRequests
from clisup.client.options import EventOptions, SessionOptions, given
from clisup.client.raw import JsonObject
from clisup.client.reconnect import new_key

if TYPE_CHECKING:
    from clisup.client.aio_session import AsyncApprovals, AsyncEvents, AsyncSession
    from clisup.client.answers import Approval, Decision
    from clisup.wire.results import (
        AccountListResult,
        BackendEnvResult,
        BackendInfo,
        CheckFinding,
        GcResult,
        NativeSessionInfo,
        NotifyRow,
        NotifyTest,
        ReloadResult,
        RestartResult,
        SessionSummary,
        ToolServeResult,
    )

__all__ = ["AsyncCalls"]


class AsyncCalls(AsyncRequests):
    """Requests of a client, by name. Requests that may be sent twice are repeated after a restart of the daemon."""

    # -- sessions

    async def open(self, backend: str | None, cwd: str, **options: Unpack[SessionOptions]) -> AsyncSession:
        """Open a session of `backend` in the directory `cwd`. In a `with` block the session is closed at the end.

        Without a `backend`, the daemon takes the configured default, else the only installed CLI.

        The client makes the session's id if none is given, so that a request repeated after a restart opens no second one.
        """
        params = {"session_id": new_key()} | given(options)
        opened = await self._sure("session/new", backend=backend, cwd=cwd, **params)
        return self.attach(opened["session_id"], opened.get("native_session_id"))

    def attach(self, session_id: str, native_session_id: str | None = None) -> AsyncSession:
        """Return an existing session by its id. Nothing is sent."""
        from clisup.client.aio_session import AsyncSession

        return AsyncSession(self, session_id, native_session_id)

    async def sessions(self, *, labels: dict[str, str] | None = None, state: str | None = None) -> list[SessionSummary]:
        """Return all sessions with these labels, newest first; closed ones only for `state="closed"`."""
        from clisup.wire.results import SessionListResult

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
        self,
        session_id: str,
        after_seq: int | Mapping[str, int] | None = None,
        *,
        on_lost: Callable[[], None] | None = None,
        on_back: Callable[[], None] | None = None,
        **options: Unpack[EventOptions],
    ) -> AsyncEvents:
        """Iterate over the `Envelope`s of a session, or of all sessions (`"*"`), each seq exactly once.

        The iterator has a connection of its own and reconnects; `on_lost` and `on_back` report both. With `name` the cursor is
        durable: `ack` an event when you are done with it, and a later iterator of this name begins after it. The trio
        client subscribes at the first step, or by `open`.
        """
        from clisup.client.aio_session import AsyncEvents

        follower = self._follower(session_id, after_seq, given(options), on_lost=on_lost, on_back=on_back)
        return AsyncEvents(follower)

    async def forget(self, name: str, session_id: str = "*") -> None:
        """Remove the durable cursor of this name."""
        await self._sure("session/unsubscribe", session_id=session_id, name=name)

    # -- approvals

    def approvals(self, session_id: str = "*") -> AsyncApprovals:
        """Iterate without end over pending approvals: those that are open now, then each new one."""
        from clisup.client.aio_session import AsyncApprovals

        async def pending() -> list[Approval]:
            return await self.open_approvals(None if session_id == "*" else session_id)

        return AsyncApprovals(self.events(session_id, types=["approval_requested"]), pending)

    async def answer_approvals(self, handler: Callable[[Approval], Awaitable[Decision]], session_id: str = "*") -> None:
        """Ask `handler` about each pending approval, one after the other, and send its decision; without end.

        An earlier answer by another client, or the end of the turn, is no error.
        """
        async for approval in self.approvals(session_id):
            await self.settle(approval, await handler(approval))

    # -- tools

    async def serve_tool_calls(self, session_id: str) -> ToolServeResult:
        """Send the session's tool calls to this client from now on.

        With trio, `clisup.client.aio_tools` answers them. The blocking client gets them from `notifications`.
        """
        from clisup.wire.results import ToolServeResult

        return await self._read(ToolServeResult, "tool/serve", session_id=session_id)

    async def answer_tool(
        self, session_id: str, call_id: str, content: str | list[JsonObject], *, is_error: bool = False
    ) -> None:
        """Answer a tool call; the first answer wins. Raises `tool_call_not_found` for a call that is not open."""
        params = {"session_id": session_id, "call_id": call_id, "content": content, "is_error": is_error}
        await self.call("tool/result", **params)

    # -- backends

    async def backends(self) -> list[BackendInfo]:
        """Return the configured backends, their versions, and why one is not available."""
        from clisup.wire.results import BackendInfo

        return await self._read(list[BackendInfo], "backend/list")

    async def backend_env(self, name: str, env: dict[str, str] | None = None) -> BackendEnvResult:
        """Return what a backend's environment keeps, drops and sets: names and rules, never values."""
        from clisup.wire.results import BackendEnvResult

        return await self._read(BackendEnvResult, "backend/env", name=name, env=env)

    async def models(self, name: str) -> list[str]:
        """Return the models that an API backend's provider offers."""
        from clisup.wire.results import BackendModelsResult

        return list((await self._read(BackendModelsResult, "backend/models", name=name)).models)

    async def native_sessions(
        self, cwd: str, backend: str | None = None, *, limit: int = 50
    ) -> list[NativeSessionInfo]:
        """Return the sessions that the CLIs keep of a directory, newest first: also those that began in a terminal."""
        from clisup.wire.results import BackendSessionsResult

        found = await self._read(BackendSessionsResult, "backend/sessions", cwd=cwd, backend=backend, limit=limit)
        return found.sessions

    async def check(self, name: str | None = None, *, cwd: str | None = None) -> list[CheckFinding]:
        """Return the findings of `clisup doctor`, for one backend or for all, and for the machine."""
        from clisup.wire.results import CheckFinding

        return await self._read(list[CheckFinding], "backend/check", name=name, cwd=cwd)

    # -- the daemon

    async def ping(self) -> str:
        """Return the daemon's time, RFC 3339."""
        return str((await self._sure("ping"))["time"])

    async def discover(self) -> JsonObject:
        """Return the protocol as an OpenRPC document: every method with its params, result and errors."""
        return await self._sure("rpc.discover")

    async def status(self) -> JsonObject:
        """Return the data of `clisup status --json`."""
        return await self._sure("daemon/status")

    async def daemon_log(self, limit: int = 200, *, session_id: str | None = None) -> JsonObject:
        """Return the last lines of the daemon's own log, of one session or of all: `{lines, dropped, held_back}`."""
        return await self._sure("daemon/log", limit=limit, session_id=session_id)

    async def metrics(self, format: Literal["prometheus", "openmetrics"] = "prometheus") -> str:  # noqa: A002  the wire's name
        """Return the daemon's metrics as text for Prometheus. docs/reference/observe.md lists them."""
        return str((await self._sure("daemon/metrics", format=format))["text"])

    async def reload_daemon(self, *, dry_run: bool = False) -> ReloadResult:
        """Reload the configuration file, and return the changes. With `dry_run` nothing is applied."""
        from clisup.wire.results import ReloadResult

        return await self._read(ReloadResult, "daemon/reload", dry_run=dry_run)

    async def clear(
        self, *, dry_run: bool = False, older_than_s: float | None = None, foreign: bool = False
    ) -> GcResult:
        """Remove closed sessions of that age, and leftovers (`daemon/gc`). With `dry_run` only list them.

        `foreign` also removes dead sockets of programs that clisup did not start.
        """
        from clisup.client.answers import read
        from clisup.wire.results import GcResult

        params = given({"dry_run": dry_run, "older_than_s": older_than_s, "foreign": foreign or None})
        return read(GcResult, await self.call("daemon/gc", **params), "daemon/gc")

    async def accounts(self) -> AccountListResult:
        """Return the accounts that the configuration names, with their limits. `status` has all accounts in use."""
        from clisup.wire.results import AccountListResult

        return await self._read(AccountListResult, "account/list")

    async def report_account(
        self, account: str, limit: JsonObject | None = None, *, probe: Literal["here", "elsewhere"] = "here"
    ) -> None:
        """Report a limit that another box has learned, and which boxes try first after its end (`account/report`)."""
        await self.call("account/report", **given({"account": account, "limit": limit, "probe": probe}))

    async def notify_targets(self) -> list[NotifyRow]:
        """Return the targets of `[[notify]]` with their state and counts."""
        from clisup.wire.results import NotifyListResult

        return (await self._read(NotifyListResult, "notify/list")).targets

    async def test_notify(self, name: str | None = None) -> list[NotifyTest]:
        """Send a test message to one target of `[[notify]]`, or to all. Return what came back."""
        from clisup.client.answers import read
        from clisup.wire.results import NotifyTestResult

        sent = await self.call("notify/test", **given({"name": name}))
        return read(NotifyTestResult, sent, "notify/test").results

    async def restart_daemon(self) -> RestartResult:
        """Restart the daemon in place, with the present code and configuration. Turns go on."""
        from clisup.client.answers import read
        from clisup.wire.results import RestartResult

        return read(RestartResult, await self.call("daemon/restart"), "daemon/restart")

    async def stop_daemon(self, mode: Literal["drain", "detach", "kill"] = "drain") -> None:
        """Stop the daemon. Turns end first (`drain`), go on (`detach`), or are terminated (`kill`)."""
        await self.call("daemon/shutdown", mode=mode)
