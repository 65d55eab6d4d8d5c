"""The named methods of the blocking client: one for each method of the protocol that is no session's own (see `session`).

`clisup status` loads this file with its client, so what is typed is loaded by the method that needs it.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` itself costs as much as all the rest of a light command
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Literal, TypeVar, Unpack
    from weakref import ref

    from clisup.client.answers import Approval, Decision
    from clisup.client.event_stream import Approvals, Events
    from clisup.client.following import Follower
    from clisup.client.options import EventOptions, SessionOptions
    from clisup.client.session import Session
    from clisup.wire.daemon_models import ReloadResult
    from clisup.wire.gc_models import GcResult
    from clisup.wire.models import BackendEnvResult, BackendInfo, CheckFinding, RestartResult, SessionSummary
    from clisup.wire.tool_models import ToolServeResult

    _T = TypeVar("_T")

__all__ = ["Calls"]


class Calls:
    """What `clisup.client.sync.Client` can be asked, by name. What may be asked twice is asked again after a restart."""

    _name: str
    _followers: list[ref[Follower]]  # those that somebody still has

    @property
    def path(self) -> str:
        """The socket's path."""
        raise NotImplementedError

    def call(self, method: str, /, **params: Any) -> Any:
        """Any method of the protocol, as it is on the wire."""
        raise NotImplementedError

    # -- sessions

    def open(self, backend: str, cwd: str, **options: Unpack[SessionOptions]) -> Session:
        """Open a session of `backend` in the directory `cwd`. In a `with` block it is closed at the end.

        Its id is made here where none is given, so that asking again after a restart opens no second one.
        """
        from clisup.client.coming_back import new_key

        given = {"session_id": new_key()} | {name: value for name, value in options.items() if value is not None}
        opened = self._sure("session/new", backend=backend, cwd=cwd, **given)
        return self.attach(opened["session_id"], opened.get("native_session_id"))

    session = open  # noqa: A003  the method above, not the builtin
    """As the trio client calls it."""

    def attach(self, session_id: str, native_session_id: str | None = None) -> Session:
        """A session that is there already, by its id. Asks nothing."""
        from clisup.client.session import Session

        return Session(self, session_id, native_session_id)

    def sessions(self, *, labels: dict[str, str] | None = None, state: str | None = None) -> list[SessionSummary]:
        """All sessions with these labels, newest first; closed ones only for `state="closed"`."""
        from clisup.wire.models import SessionListResult

        found: list[SessionSummary] = []
        cursor = None
        while True:
            page = self._read(SessionListResult, "session/list", labels=labels, state=state, limit=1000, cursor=cursor)
            found += page.sessions
            if not (cursor := page.next_cursor):
                return found

    # -- events

    def follow(
        self,
        session_id: str,
        after_seq: int | Mapping[str, int] | None = None,
        *,
        on_lost: Callable[[], None] | None = None,
        on_back: Callable[[], None] | None = None,
        **options: Any,
    ) -> Follower:
        """Subscribe now, and iterate over the events of a session, or of all (`"*"`), as dicts. See `events` for typed ones.

        It has connections of its own: after a restart of the daemon it goes on where it was, each seq once. With `name` the
        place is durable: `ack` an event when you are done with it, and a later `follow` of this name begins after it,
        whatever `after_seq` says.
        """
        from weakref import ref

        from clisup.client.following import Follower

        follower = Follower(self.path, session_id, after_seq, on_lost=on_lost, on_back=on_back, options=options)
        open_ones = [known for known in self._followers if (item := known()) and not item.closed]
        self._followers = [*open_ones, ref(follower)]
        return follower

    def events(
        self,
        session_id: str,
        after_seq: int | Mapping[str, int] | None = None,
        *,
        on_lost: Callable[[], None] | None = None,
        on_back: Callable[[], None] | None = None,
        **options: Unpack[EventOptions],
    ) -> Events:
        """As `follow`, typed: an iterator of `Envelope`s."""
        from clisup.client.event_stream import Events

        given = {name: value for name, value in options.items() if value is not None}
        return Events(self.follow(session_id, after_seq, on_lost=on_lost, on_back=on_back, **given))

    def forget(self, name: str, session_id: str = "*") -> None:
        """Drop the durable place of this name."""
        self._sure("session/unsubscribe", session_id=session_id, name=name)

    def blob(self, session_id: str, blob: str) -> bytes:
        """The whole of a payload that was too large for its event."""
        from base64 import b64decode

        pages: list[bytes] = []
        offset = 0
        while True:
            page = self._sure("session/blob", session_id=session_id, blob=blob, offset=offset)
            pages.append(b64decode(page["data_base64"]))
            offset += len(pages[-1])
            if page["eof"] or not pages[-1]:
                return b"".join(pages)

    # -- approvals

    def open_approvals(self, session_id: str | None = None) -> list[Approval]:
        """The approvals that wait for an answer now, of a session or of all."""
        from clisup.client.answers import approvals_of

        return approvals_of(self._sure("approval/list", session_id=session_id))

    def approvals(self, session_id: str = "*") -> Approvals:
        """An endless iterator of approvals that wait for an answer: those that are open now, then each as it comes."""
        from clisup.client.event_stream import Approvals

        return Approvals(self, session_id)

    def respond(self, approval: Approval | str, decision: Decision, *, session_id: str | None = None) -> None:
        """Answer an approval; the first answer wins. With an id alone, `session_id` says whose it is, else all are looked through.

        Raises `approval_already_resolved` where somebody was first, `approval_not_found`. None answers nothing.
        """
        from clisup.client.answers import answering

        if (params := answering(approval, decision, session_id)) is not None:
            self.call("approval/respond", **params)

    def answer_approvals(self, handler: Callable[[Approval], Decision], session_id: str = "*") -> None:
        """Ask `handler` about each approval that waits, and send what it gives; without end. For a thread and client of its own.

        That somebody else answered first, or the turn ended meanwhile, is no error.
        """
        for approval in self.approvals(session_id):
            self.settle(approval, handler(approval))

    def settle(self, approval: Approval, decision: Decision) -> None:
        """`respond`, where it does not matter who was first; asked again after a restart."""
        from clisup.client.answers import answering, settled
        from clisup.errors import ClisupError

        if (params := answering(approval, decision)) is None:
            return
        try:
            self._sure("approval/respond", **params)
        except ClisupError as error:
            if not settled(error):
                raise

    # -- tools

    def serve_tool_calls(self, session_id: str) -> ToolServeResult:
        """From now on the daemon asks this client for the session's tools: `notifications` gives each `tool/call`."""
        from clisup.wire.tool_models import ToolServeResult

        return self._read(ToolServeResult, "tool/serve", session_id=session_id)

    def answer_tool(
        self, session_id: str, call_id: str, content: str | list[dict[str, Any]], *, is_error: bool = False
    ) -> None:
        """Answer a tool's call; the first answer wins. Raises `tool_call_not_found` where it is not open, or not any more."""
        self.call("tool/result", session_id=session_id, call_id=call_id, content=content, is_error=is_error)

    # -- backends

    def backends(self) -> list[BackendInfo]:
        """The configured backends, their versions, and why one is not available."""
        from clisup.wire.models import BackendInfo

        return self._read(list[BackendInfo], "backend/list")

    def backend_env(self, name: str, env: dict[str, str] | None = None) -> BackendEnvResult:
        """What a backend's environment keeps, drops and sets: names and rules, never values."""
        from clisup.wire.models import BackendEnvResult

        return self._read(BackendEnvResult, "backend/env", name=name, env=env)

    def models(self, name: str) -> list[str]:
        """The models that an API backend's provider offers."""
        from clisup.wire.models import BackendModelsResult

        return list(self._read(BackendModelsResult, "backend/models", name=name).models)

    def check(self, name: str | None = None, *, cwd: str | None = None) -> list[CheckFinding]:
        """What `clisup doctor` finds, of one backend or of all, and of the machine."""
        from clisup.wire.models import CheckFinding

        return self._read(list[CheckFinding], "backend/check", name=name, cwd=cwd)

    # -- the daemon

    def ping(self) -> str:
        """The daemon's time, RFC 3339."""
        return str(self._sure("ping")["time"])

    def discover(self) -> dict[str, Any]:
        """The protocol as an OpenRPC document: every method with its params, result and errors."""
        document: dict[str, Any] = self._sure("rpc.discover")
        return document

    def status(self) -> dict[str, Any]:
        """Everything that `clisup status --json` shows."""
        status: dict[str, Any] = self._sure("daemon/status")
        return status

    def daemon_log(self, limit: int = 200, *, session_id: str | None = None) -> dict[str, Any]:
        """The last lines of the daemon's own log, of one session or of all: `{lines, dropped, held_back}`."""
        log: dict[str, Any] = self._sure("daemon/log", limit=limit, session_id=session_id)
        return log

    def metrics(self, format: Literal["prometheus", "openmetrics"] = "prometheus") -> str:  # noqa: A002  the wire's name
        """What the daemon counts, as text that Prometheus reads; docs/metrics.md has every metric."""
        return str(self._sure("daemon/metrics", format=format)["text"])

    def reload_daemon(self, *, dry_run: bool = False) -> ReloadResult:
        """Have the configuration file read anew; what has changed. A `dry_run` only tells."""
        from clisup.wire.daemon_models import ReloadResult

        return self._read(ReloadResult, "daemon/reload", dry_run=dry_run)

    def clear(self, *, dry_run: bool = False, older_than_s: float | None = None) -> GcResult:
        """Remove what is of no use any more, or with `dry_run` say what that is: `daemon/gc`. Closed sessions go from that age on."""
        from clisup.client.answers import read
        from clisup.wire.gc_models import GcResult

        age = {} if older_than_s is None else {"older_than_s": older_than_s}
        return read(GcResult, self.call("daemon/gc", dry_run=dry_run, **age), "daemon/gc")

    def restart_daemon(self) -> RestartResult:
        """Start the daemon anew in place, with the code and configuration that are there now; turns go on."""
        from clisup.client.answers import read
        from clisup.wire.models import RestartResult

        return read(RestartResult, self.call("daemon/restart"), "daemon/restart")

    def stop_daemon(self, mode: Literal["drain", "detach", "kill"] = "drain") -> None:
        """Stop the daemon: turns may end first, go on without it, or are ended."""
        self.call("daemon/shutdown", mode=mode)

    # -- how they are asked

    def _sure(self, method: str, /, **params: Any) -> Any:
        """`call`, again after each restart: for what may be asked twice. Params that are None are left out."""
        from clisup.client.coming_back import call_surely

        return call_surely(self.call, method, {name: value for name, value in params.items() if value is not None})

    def _read(self, type_: type[_T], method: str, /, **params: Any) -> _T:
        from clisup.client.answers import read

        return read(type_, self._sure(method, **params), method)
