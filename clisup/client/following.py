"""Following a session across restarts of the daemon: connect again, subscribe after the cursor, each seq exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Self, TypeVar

from clisup.client.failures import ConnectionLost
from clisup.client.sync import Client
from clisup.errors import ClisupError, WorldError

__all__ = ["RECONNECT_S", "Follower", "again_until", "may_come_back"]

RECONNECT_S = 30.0
"""A restart of the daemon takes less, with 500 running sessions too."""

RETRY_PAUSE_S = 0.1
_T = TypeVar("_T")


def may_come_back(error: ClisupError) -> bool:
    """A daemon that is restarting looks like this."""
    return error.kind in ("daemon_not_running", "shutting_down", "overloaded")


def again_until(action: Callable[[], _T], first: ClisupError) -> _T:
    """Repeat `action` until the daemon is back. Raises a refusal after `RECONNECT_S`, anything else at once."""
    until = time.monotonic() + RECONNECT_S
    while True:
        try:
            return action()
        except ClisupError as error:
            if not may_come_back(error):
                raise
            if time.monotonic() > until:
                raise _gone(error, first) from None
        time.sleep(RETRY_PAUSE_S)


def _gone(error: ClisupError, first: ClisupError) -> ClisupError:
    message = f"{first.message}, and it did not come back within {RECONNECT_S:g} s"
    return WorldError(message, kind="daemon_not_running", hint=error.hint)


class Follower:
    """An iterator over the events of one session. It subscribes when it is made, so nothing after that is missed.

    `on_lost` and `on_back` are told when the connection breaks and when it stands again. `cursor` is the last seq given.
    """

    def __init__(
        self,
        path: str,
        session_id: str,
        after_seq: int | None,
        *,
        on_lost: Callable[[], None] | None = None,
        on_back: Callable[[], None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        self._path, self._session_id, self._options = path, session_id, options or {}
        self._on_lost, self._on_back = on_lost, on_back
        self.cursor = after_seq
        self._client = self._subscribed()

    def __iter__(self) -> Follower:
        return self

    def __next__(self) -> dict[str, Any]:
        while True:
            try:
                event = self._client.next_event(self._session_id)
            except ClisupError as error:
                if not may_come_back(error):
                    raise
                self._come_back(error)
                continue
            if self._advance(event):
                return event

    def close(self) -> None:
        """End the subscription."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _advance(self, event: dict[str, Any]) -> bool:
        """Move the cursor; false for what was given before."""
        seq = int(event["to_seq"] if event["type"] == "gap" else event["seq"])
        if self.cursor is not None and seq <= self.cursor:
            return False
        self.cursor = seq
        return True

    def _subscribed(self) -> Client:
        client = Client.connect(self._path, name="clisup-follow")
        try:
            opened = client.open_subscription(self._session_id, self.cursor, **self._options)
        except BaseException:
            client.close()
            raise
        if self.cursor is None:
            self.cursor = int(opened["next_seq"]) - 1
        return client

    def _come_back(self, error: ClisupError) -> None:
        self._client.close()
        if self._on_lost:
            self._on_lost()
        first = error if isinstance(error, ConnectionLost) else WorldError(error.message, kind=error.kind)
        self._client = again_until(self._subscribed, first)
        if self._on_back:
            self._on_back()
