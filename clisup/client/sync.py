"""The blocking client, for scripts and for clisup's own commands.

    with Client.connect() as client, client.open("claude", "/srv/app") as session:
        for envelope in session.run("Say hello."):
            print(envelope.seq, envelope.event)

`call`, `prompt`, `follow` and `subscribe` return dicts, as on the wire. The named methods return typed results, and load
pydantic when they are called.

A client is one connection. After a restart of the daemon the next call connects again; the call that was under way raises
`ConnectionLost`, unless it may be sent twice. `follow`, `events` and `prompt` have connections of their own and reconnect, so
that nothing is lost or repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Unpack
from weakref import ref

from clisup.client.failures import lost
from clisup.client.options import SessionOptions
from clisup.client.raw import Frame, JsonObject, RawClient
from clisup.client.reconnect import FollowCursor, may_come_back, new_key
from clisup.client.sync_calls import BlockingCalls
from clisup.client.sync_requests import BlockingFollower, again_until, call_surely
from clisup.errors import ClisupError

if TYPE_CHECKING:
    from clisup.client.sync_session import BlockingSession

__all__ = ["BlockingClient", "Client", "Follower", "RepeatingClient", "prompt_surely"]

_Told = Callable[[], None] | None


class BlockingClient(RawClient, BlockingCalls):
    """One connection, for one thread at a time. Open a client for each thread. `Client` is the name to import."""

    def __init__(self, path: str, name: str, *, on_lost: _Told = None, on_back: _Told = None) -> None:
        super().__init__(path, name)
        self._on_lost, self._on_back = on_lost, on_back
        self._followers: list[ref[Follower]] = []  # those that the caller still holds

    def session(self, backend: str, cwd: str, **options: Unpack[SessionOptions]) -> BlockingSession:
        """`open`, by the name that the trio client has for a session in a block."""
        return self.open(backend, cwd, **options)

    def post(self, method: str, /, **params: Any) -> int:
        """Send a request without waiting for the answer, which is dropped later. Return the request's id.

        Connect again first if the daemon went away.
        """
        if not self._closed:
            self._stand()
        return super().post(method, **params)

    def prompt(
        self,
        session_id: str,
        prompt: str | list[JsonObject],
        *,
        key: str | None = None,
        wait: bool = True,
        on_lost: _Told = None,
        on_back: _Told = None,
        **options: Any,
    ) -> Frame:
        """Send a prompt and return the turn's result, also across restarts of the daemon; without `wait`, the acceptance.

        The request has a connection of its own. A lost request is repeated with the same `key`, which never prompts twice. A
        key is made if none is given. The result `delivery: "uncertain"` means: nobody knows whether the CLI received the
        prompt. The `evidence` tells more. Only the caller can decide to send the prompt again, with another key.
        Raises the daemon's refusal, and `daemon_not_running` if the daemon stays away for `RECONNECT_S`.
        """
        params = {"session_id": session_id, "prompt": prompt, "key": key, "wait": wait, **options}
        return prompt_surely(self.path, params, name=self._name, on_lost=on_lost, on_back=on_back)

    def follow(
        self,
        session_id: str,
        after_seq: int | Mapping[str, int] | None = None,
        *,
        on_lost: _Told = None,
        on_back: _Told = None,
        **options: Any,
    ) -> Follower:
        """Subscribe now, and iterate over the events of a session, or of all sessions (`"*"`), as dicts.

        The follower has connections of its own. After a restart of the daemon it goes on after its cursor, each seq once.
        With `name` the cursor is durable: `ack` an event when you are done with it, and a later follower of this name begins
        after it, whatever `after_seq` says. `events` returns a typed iterator.
        """
        return self._follower(session_id, after_seq, options, on_lost=on_lost, on_back=on_back)

    def close(self) -> None:
        """Close the connection and the followers. Turns go on."""
        for known in self._followers:
            if (follower := known()) is not None:
                follower.close()
        super().close()

    def _follower(
        self,
        session_id: str,
        after_seq: int | Mapping[str, int] | None,
        options: Mapping[str, Any],
        *,
        on_lost: _Told = None,
        on_back: _Told = None,
        expected: bool = False,
    ) -> Follower:
        follower = Follower(self.path, session_id, after_seq, options=options, expected=expected)
        follower.on_lost, follower.on_back = on_lost, on_back
        open_ones = [known for known in self._followers if (item := known()) is not None and not item.closed]
        self._followers = [*open_ones, ref(follower)]
        return follower

    def _stand(self) -> None:
        """Connect if there is no connection, and retry until the daemon is back."""
        if self._socket is not None and not self.lost:
            return
        error: ClisupError = lost(self.path)
        if not self.lost:
            try:
                self._connect()
                return
            except ClisupError as refused:
                if not may_come_back(refused):
                    raise
                error = refused
        if self._on_lost:
            self._on_lost()
        again_until(self._connect, error)
        if self._on_back:
            self._on_back()

    def _call_surely(self, method: str, /, **params: Any) -> Any:
        return call_surely(self.call, lambda: self.server, method, params)

    def _call_by_key(self, method: str, params: JsonObject) -> Frame:
        return prompt_surely(self.path, params, name=self._name, method=method)


Client = BlockingClient


class Follower(BlockingFollower):
    """Follower that subscribes when it is made, and acknowledges on a connection of its own. `options` as in `session/subscribe`."""

    def __init__(
        self,
        path: str,
        session_id: str,
        after_seq: int | Mapping[str, int] | None,
        *,
        on_lost: _Told = None,
        on_back: _Told = None,
        options: Mapping[str, Any] | None = None,
        expected: bool = False,
        name: str = "clisup-follow",
    ) -> None:
        self._acks = RepeatingClient(path, name=name)
        super().__init__(path, name, FollowCursor(session_id, after_seq), options or {}, self._acks.call)
        self.on_lost, self.on_back, self.expected = on_lost, on_back, expected
        self.open()

    def interrupt_reading(self) -> None:
        """End the iteration of another thread."""
        self._closed = True
        if (connection := self._connection) is not None:
            connection.interrupt_reading()

    def close(self) -> None:
        """End the subscription; the iteration stops. A durable cursor stays."""
        super().close()
        self._acks.close()


class RepeatingClient(BlockingClient):
    """Client for requests that may be sent twice: `call` repeats them until the daemon answers.

    The client connects at the first call. That connection, too, is retried until `RECONNECT_S` have passed, for callers that
    have spoken with the daemon before. After `close` a later call connects again.
    """

    def call(self, method: str, /, **params: Any) -> Any:
        """Return the answer, however often the daemon goes away.

        Raises `daemon_not_running` once the daemon stays away, and `ConnectionLost` or the refusal as `Repeats` says.
        """
        return call_surely(super().call, lambda: self.server, method, params)

    def close(self) -> None:
        """Close the connection."""
        super().close()
        self._closed, self._socket = False, None


def prompt_surely(
    path: str,
    params: JsonObject,
    *,
    name: str,
    method: str = "session/prompt",
    on_lost: _Told = None,
    on_back: _Told = None,
) -> Frame:
    """Send `session/prompt`, or another `method` with a key, until the daemon answers. Make a key if `params` has none.

    The same key never prompts twice. An uncertain delivery is an answer, too: nothing here runs a turn a second time.
    """
    if params.get("key") is None:
        params = params | {"key": new_key()}
    with RepeatingClient(path, name=name, on_lost=on_lost, on_back=on_back) as client:
        result: Frame = client.call(method, **params)
        return result
