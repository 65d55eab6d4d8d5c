"""Following sessions across restarts of the daemon: connect again, subscribe after the cursor, each seq exactly once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

from clisup.client.coming_back import RepeatingClient, again_until, may_come_back
from clisup.client.cursor import Cursor
from clisup.client.failures import ConnectionLost
from clisup.client.sync import Client
from clisup.errors import ClisupError, UsageError, WorldError

__all__ = ["Follower", "ack_params"]

_NAME = "clisup-follow"


class Follower:
    """An iterator over the events of one session, or of all (`"*"`). It subscribes when it is made: nothing after that is missed.

    After a restart of the daemon it goes on where it was, each seq of each session once and in order; a session that was
    opened meanwhile is given whole. `on_lost` and `on_back` are told when the connection breaks and when it stands again.
    """

    def __init__(
        self,
        path: str,
        session_id: str,
        after_seq: int | Mapping[str, int] | None,
        *,
        on_lost: Callable[[], None] | None = None,
        on_back: Callable[[], None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        self._path, self._options = path, options or {}
        self._on_lost, self._on_back = on_lost, on_back
        self._cursor = Cursor(session_id, after_seq)
        self._closed = False
        self._acks = RepeatingClient(path, name=_NAME)
        self._client = self._subscribed()

    @property
    def cursor(self) -> int | dict[str, int] | None:
        """The last seq given; of all sessions a map of them. What another follower may be given as `after_seq`."""
        return self._cursor.value

    @property
    def closed(self) -> bool:
        """Was it closed here?"""
        return self._closed

    @property
    def at_hand(self) -> bool:
        """Has an event come that was not given yet? Then the next step does not wait, but for one that was given before."""
        return self._client.at_hand

    def __iter__(self) -> Follower:
        return self

    def __next__(self) -> dict[str, Any]:
        while not self._closed:
            try:
                event = self._client.next_event(self._cursor.session_id)
            except ClisupError as error:
                if not may_come_back(error):
                    raise
                self._come_back(error)
                continue
            if self._cursor.advance(event):
                return event
        raise StopIteration

    def ack(self, event: Mapping[str, Any]) -> None:
        """Be done with everything of the event's session up to it, for good: a follower of this `name` begins after it.

        It is stored when this returns. Asked on a connection of its own, so that it waits for no events, and again after a
        restart. A session that was deleted meanwhile is no error. Raises `invalid_params` without a `name`, `storage_failed`.
        """
        params = ack_params(self._options.get("name"), event)
        try:
            self._acks.call("session/ack", **params)
        except ClisupError as error:
            if error.kind != "session_not_found":
                raise

    def close(self) -> None:
        """End the subscription; the iteration stops. A durable cursor stays."""
        self._closed = True
        self._client.close()
        self._acks.close()

    def __del__(self) -> None:
        """Nobody will take another event, as where the loop over a turn was left: its connection is not kept until the client's end."""
        if hasattr(self, "_client"):
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _subscribed(self) -> Client:
        client = Client.connect(self._path, name=_NAME)
        try:
            self._cursor.opened(client.call("session/subscribe", **self._cursor.params(), **self._options))
        except BaseException:
            client.close()
            raise
        return client

    def _come_back(self, error: ClisupError) -> None:
        self._client.close()
        if self._on_lost:
            self._on_lost()
        first = error if isinstance(error, ConnectionLost) else WorldError(error.message, kind=error.kind)
        self._client = again_until(self._subscribed, first)
        if self._on_back:
            self._on_back()


def ack_params(name: str | None, event: Mapping[str, Any]) -> dict[str, Any]:
    """What `session/ack` takes, for an event or a gap. Raises `UsageError(invalid_params)` without a name."""
    if name is None:
        raise UsageError(
            "cannot acknowledge an event, because this subscription has no name",
            hint="follow with name=...: that is the durable cursor which an acknowledgement moves",
            param="name",
        )
    seq = event["to_seq"] if event["type"] == "gap" else event["seq"]
    return {"name": name, "session_id": event["session_id"], "seq": seq}
