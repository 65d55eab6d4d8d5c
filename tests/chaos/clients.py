"""The clients: one that talks and asks again until it is answered, and two followers that share no code but the parsing.

Both followers keep the very bytes of each event and subscribe again from the last seq that they heard. They sort out
nothing: what comes twice is kept twice.
"""

from __future__ import annotations

import json
import random
import threading
import time
from typing import Any

import trio

from clisup.client.aio import open_client
from clisup.client.raw import RawClient, encode_request
from clisup.client.reconnect import may_come_back
from clisup.errors import ClisupError
from clisup.model.journal import event_seq, event_type

__all__ = ["BlockingFollower", "Heard", "Talk", "TrioFollower", "Up"]

_PREFIX = b'{"jsonrpc":"2.0","method":"session/event","params":'
_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.25
_LOOK_S = 0.5
_HANG_UPS = (3, 30, 300, 3000)  # a follower that hangs up by itself does so after so many events


class Up:
    """Whether there is a daemon to talk to; it spares the machine a few thousand vain connects in each second without one."""

    def __init__(self) -> None:
        self._blocking, self._trio = threading.Event(), trio.Event()

    @property
    def is_set(self) -> bool:
        return self._trio.is_set()

    def set(self) -> None:
        self._blocking.set()
        self._trio.set()

    def clear(self) -> None:
        self._blocking.clear()
        self._trio = trio.Event()

    async def pause(self) -> None:
        """Before the next try."""
        await trio.sleep(_PAUSE_S)
        with trio.move_on_after(_LONGEST_PAUSE_S):
            await self._trio.wait()

    def pause_blocking(self) -> None:
        time.sleep(_PAUSE_S)
        self._blocking.wait(_LONGEST_PAUSE_S)


class Talk:
    """`call` is answered in the end, by this daemon or by a later one."""

    def __init__(self, path: str, up: Up) -> None:
        self.path, self.up = path, up

    async def call(self, method: str, /, **params: Any) -> Any:
        """Raises what the daemon refuses it with."""
        while True:
            try:
                async with open_client(self.path, name="chaos") as client:
                    return await client.call(method, **params)
            except ClisupError as error:
                if not may_come_back(error):
                    raise
            await self.up.pause()


class Heard:
    """What one follower heard of one session, in the order in which it came."""

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.events: dict[int, bytes] = {}
        self.doubled: list[tuple[int, bytes]] = []
        self.last = 0
        self.turns_ended = self.exits = 0
        self.asked: list[str] = []  # the ids of approvals
        self.closed = False
        self.refused = ""

    def take(self, line: bytes) -> None:
        """One whole frame."""
        if not line.startswith(_PREFIX):
            if b'"error":' in line:
                self.refused = line.decode()
            return
        event = line[len(_PREFIX) : -1]
        seq, type_ = event_seq(event), event_type(event)
        self.seqs.append(seq)
        if seq in self.events:
            self.doubled.append((seq, event))
        else:
            self.events[seq] = event
            self.turns_ended += type_ == "turn_completed"
            self.exits += type_ == "process_exited"
            if type_ == "approval_requested":
                self.asked.append(json.loads(event)["approval_id"])
        self.last = max(self.last, seq)
        self.closed = self.closed or (type_ == "notice" and b'"code":"closed"' in event)


def _subscribe(session_id: str, after_seq: int) -> bytes:
    return encode_request(1, "session/subscribe", {"session_id": session_id, "after_seq": after_seq})


class BlockingFollower:
    """On the blocking client's transport, in a thread. It keeps its connection as long as it lasts."""

    def __init__(self, path: str, session_id: str, up: Up) -> None:
        self.heard = Heard()
        self._path, self._session_id, self._up = path, session_id, up
        self._stopped = False

    async def run(self) -> None:
        """Until the session is closed, or cancelled."""
        try:
            await trio.to_thread.run_sync(self._follow_all, limiter=trio.CapacityLimiter(1), abandon_on_cancel=True)
        finally:
            self._stopped = True

    def _follow_all(self) -> None:
        while not self._over:
            try:
                self._follow()
            except ClisupError:
                self._up.pause_blocking()

    @property
    def _over(self) -> bool:
        return self.heard.closed or bool(self.heard.refused) or self._stopped

    def _follow(self) -> None:
        connection = RawClient(self._path, "chaos")
        connection.dial()
        try:
            connection.send(_subscribe(self._session_id, self.heard.last))
            while not self._over:
                try:
                    self.heard.take(connection.read_line(_LOOK_S))
                except TimeoutError:
                    pass
        finally:
            connection.close()


class TrioFollower:
    """A trio stream cut into lines by hand. With `chance` it hangs up by itself now and then, at moments of its own."""

    def __init__(self, path: str, session_id: str, up: Up, chance: random.Random | None = None) -> None:
        self.heard = Heard()
        self._path, self._session_id, self._up, self._chance = path, session_id, up, chance

    async def run(self) -> None:
        """Until the session is closed."""
        while not self.heard.closed and not self.heard.refused:
            try:
                stream = await trio.open_unix_socket(self._path)
            except OSError:
                await self._up.pause()
                continue
            async with stream:
                try:
                    await self._follow(stream)
                except trio.BrokenResourceError:
                    pass

    async def _follow(self, stream: trio.SocketStream) -> None:
        await stream.send_all(_subscribe(self._session_id, self.heard.last))
        budget = self._chance.choice(_HANG_UPS) if self._chance else float("inf")
        rest = b""
        async for chunk in stream:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self.heard.take(line)
                budget -= 1
                if budget <= 0 or self.heard.closed:
                    return
