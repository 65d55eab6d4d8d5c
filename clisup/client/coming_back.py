"""A daemon that is killed, or restarted in place, comes back: how long that is waited for, and what is then asked again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Self, TypeVar

from clisup.client.failures import ConnectionLost
from clisup.client.sync import Client
from clisup.errors import ClisupError, WorldError

__all__ = [
    "RECONNECT_S",
    "RETRY_PAUSE_S",
    "RepeatingClient",
    "Repeats",
    "again_until",
    "call_surely",
    "gone",
    "may_come_back",
    "new_key",
    "prompt_surely",
    "stays_away",
]

RECONNECT_S = 30.0
"""A restart of the daemon takes less, with 500 running sessions too."""

RETRY_PAUSE_S = 0.1
HANG_UPS = 5
"""So often one request is sent to a daemon that hangs up on it."""

_T = TypeVar("_T")
_Told = Callable[[], None] | None


def may_come_back(error: ClisupError) -> bool:
    """A daemon that is restarting looks like this."""
    return error.kind in ("daemon_not_running", "shutting_down", "overloaded")


def stays_away(error: ClisupError) -> bool:
    """It was looked for until `RECONNECT_S` had passed, or was never there."""
    return error.kind == "daemon_not_running" and not isinstance(error, ConnectionLost)


class Repeats:
    """When a request is not sent again: the same daemon has hung up on it `HANG_UPS` times in a row, each time within `RECONNECT_S`,
    or has refused it for `RECONNECT_S`.

    A daemon that was restarted is another one; and a connection that has stood for longer was not ended by what was sent.
    """

    def __init__(self) -> None:
        self._instance: object = None
        self._began = 0.0
        self._hang_ups = 0
        self._refused_at: float | None = None  # for the first time in a row

    def begin(self) -> None:
        """It is sent now."""
        self._began = time.monotonic()

    def spent(self, error: ClisupError, server: dict[str, Any]) -> bool:
        """Was this failure of it, by the daemon that introduced itself as `server`, one too many?"""
        instance = server.get("server", {}).get("instance_id")
        hung_up = isinstance(error, ConnectionLost) and time.monotonic() - self._began <= RECONNECT_S
        self._hang_ups = hung_up + (self._hang_ups if hung_up and instance == self._instance else 0)
        self._refused_at = self._refused_since(error, instance)
        self._instance = instance
        refused = self._refused_at is not None and time.monotonic() - self._refused_at > RECONNECT_S
        return refused or self._hang_ups >= HANG_UPS

    def _refused_since(self, error: ClisupError, instance: object) -> float | None:
        if isinstance(error, ConnectionLost):
            return None
        again = self._refused_at is not None and instance == self._instance
        return self._refused_at if again else time.monotonic()


def call_surely(call: Callable[..., Any], method: str, params: dict[str, Any]) -> Any:
    """`call`, again after each restart: for what may be asked twice. A daemon that refuses all the time is asked for `RECONNECT_S`."""
    until = None
    while True:
        try:
            return call(method, **params)
        except ClisupError as error:
            until = until or time.monotonic() + RECONNECT_S
            if not may_come_back(error) or stays_away(error) or time.monotonic() > until:
                raise
        time.sleep(RETRY_PAUSE_S)


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
                raise gone(error, first) from None
        time.sleep(RETRY_PAUSE_S)


def gone(last: ClisupError, first: ClisupError) -> ClisupError:
    """It was lost as `first` says, and stayed away."""
    message = f"{first.message}, and it did not come back within {RECONNECT_S:g} s"
    return WorldError(message, kind="daemon_not_running", hint=last.hint)


class RepeatingClient:
    """Asks what may be asked twice, on a connection of its own that it makes anew whenever the daemon comes back.

    It is for who has spoken with the daemon before: also the first connection is tried for until `RECONNECT_S` have passed.
    """

    def __init__(self, path: str, *, name: str, on_lost: _Told = None, on_back: _Told = None) -> None:
        self._path, self._name = path, name
        self._on_lost, self._on_back = on_lost, on_back
        self._client: Client | None = None

    def call(self, method: str, /, **params: Any) -> Any:
        """The answer, however often the daemon went away. Raises `daemon_not_running` once it stays away, and `ConnectionLost` or
        its refusal as `Repeats` says.
        """
        repeats = Repeats()
        while True:
            repeats.begin()
            try:
                return (self._client or self._connect()).call(method, **params)
            except ClisupError as error:
                if not may_come_back(error) or repeats.spent(error, self._client.server if self._client else {}):
                    raise
                self._come_back(error)

    def close(self) -> None:
        """Hang up; a later call connects again."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _connect(self) -> Client:
        self._client = Client.connect(self._path, name=self._name)
        return self._client

    def _come_back(self, error: ClisupError) -> None:
        self.close()
        if self._on_lost:
            self._on_lost()
        time.sleep(RETRY_PAUSE_S)  # a daemon that is there and refuses is not asked in a spin
        again_until(self._connect, error)
        if self._on_back:
            self._on_back()


def prompt_surely(
    path: str,
    params: dict[str, Any],
    *,
    name: str,
    method: str = "session/prompt",
    on_lost: _Told = None,
    on_back: _Told = None,
) -> dict[str, Any]:
    """`session/prompt`, or another `method` with a key, asked again until it is answered. A key is made where `params` has none.

    The same key never prompts twice, so nothing here can run a turn a second time: also where the answer is that the prompt's
    delivery is `uncertain`, that is the answer.
    """
    if params.get("key") is None:
        params = params | {"key": new_key()}
    with RepeatingClient(path, name=name, on_lost=on_lost, on_back=on_back) as client:
        result: dict[str, Any] = client.call(method, **params)
        return result


def new_key() -> str:
    """A key that no other prompt has."""
    from uuid import uuid4

    return str(uuid4())
