"""Far end of the tunnels: connections to this box's daemon for clients of other boxes."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from clisup.errors import WorldError
from clisup.fleet.agent.daemon_link import CONNECT_S
from clisup.fleet.agent.settings import AgentSettings
from clisup.fleet.agent.waiting import wait_at_most
from clisup.fleet.engine import Engine
from clisup.fleet.tunnel import (
    OUTPUT_BYTES,
    Access,
    FrameJoiner,
    TunnelAnswer,
    TunnelRequest,
    call_subject,
    check_frame,
    decode,
    denied,
    encode,
    fits,
    read_call,
    renamed,
)
from clisup.host.log import event_logger

__all__ = ["Tunnels"]

MAX_TUNNELS = 64
IDLE_S = 60.0
"""Seconds without a request after which a tunnel is closed. Its client is gone, or cut off."""
POLL_S = 10.0
"""Seconds for which an answer waits for output."""
MAX_FRAME = 64 * 1024 * 1024
"""Bytes of one frame of a client. The daemon's own limit is below, and its refusal names it."""
_log = event_logger()


class Tunnels:
    """Tunnels of all callers."""

    def __init__(self, engine: Engine, settings: AgentSettings) -> None:
        self._engine, self._settings = engine, settings
        self._open: dict[tuple[str, str], _Tunnel] = {}

    async def run(self) -> None:
        """Answer calls until cancelled."""
        subject = call_subject(self._settings.member.name, "*", "*")
        try:
            async with self._engine.answer(subject, self._answer):
                while True:
                    await asyncio.sleep(IDLE_S / 4)
                    for key, tunnel in list(self._open.items()):
                        if time.monotonic() - tunnel.used > IDLE_S:
                            self._close(key)
        finally:
            for key in list(self._open):
                self._close(key)

    def _close(self, key: tuple[str, str]) -> None:
        if (tunnel := self._open.pop(key, None)) is not None:
            tunnel.close()

    async def _answer(self, subject: str, message: bytes) -> bytes:
        access, sender = read_call(subject)
        head, data = decode(message, TunnelRequest)
        key = (sender, head.tunnel)
        try:
            tunnel = self._open.get(key) or await self._begin(key, head)
        except WorldError as error:
            return encode(TunnelAnswer(end=True, error=error.to_wire()))
        if head.close:
            self._close(key)
            return encode(TunnelAnswer(end=True))
        return await tunnel.exchange(head, data, access)

    async def _begin(self, key: tuple[str, str], head: TunnelRequest) -> _Tunnel:
        """Open a tunnel. Raises `WorldError` for a tunnel that this agent does not know, and without a daemon."""
        if not head.begin:
            raise WorldError("the agent of the box was started again", kind="box_away")
        if len(self._open) >= MAX_TUNNELS:
            raise WorldError(
                f"the box has {MAX_TUNNELS} connections from other boxes, which is its limit", kind="overloaded"
            )
        tunnel = self._open[key] = _Tunnel(key[0], self._settings)
        try:
            await tunnel.connect()
        except WorldError:
            self._open.pop(key, None)
            raise
        return tunnel


class _Tunnel:
    """One connection to the daemon, for the client of one member."""

    def __init__(self, sender: str, settings: AgentSettings) -> None:
        self._sender, self._settings = sender, settings
        self.used = time.monotonic()
        self._taken = 0
        self._half = b""
        self._out, self._out_at = bytearray(), 0
        self._ended = False
        self._joiner = FrameJoiner()
        self._more, self._room = asyncio.Event(), asyncio.Event()
        self._input = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def connect(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, self._writer = await asyncio.open_unix_connection(self._settings.daemon_socket)
        except (OSError, TimeoutError):
            raise WorldError("its daemon does not run", kind="box_away") from None
        self._reading = asyncio.create_task(self._read(reader))

    def close(self) -> None:
        self._ended = True
        self._more.set()
        if self._reading is not None:
            self._reading.cancel()
        if self._writer is not None:
            self._writer.close()

    async def exchange(self, head: TunnelRequest, data: bytes, access: Access) -> bytes:
        """Take input, and return output. A request that comes again changes nothing."""
        self.used = time.monotonic()
        self._acknowledge(head.got)
        async with self._input:
            if head.at <= self._taken < head.at + len(data):
                await self._take(data[self._taken - head.at :], access)
        if head.poll and not self._out and not self._ended:
            self._more.clear()
            await wait_at_most(self._more, POLL_S)
        self.used = time.monotonic()
        start = max(0, head.got - self._out_at)
        piece = bytes(self._out[start : start + self._most]) if head.poll else b""
        end = self._ended and start + len(piece) == len(self._out)
        return encode(TunnelAnswer(at=self._out_at + start, taken=self._taken, end=end), piece)

    @property
    def _most(self) -> int:
        return OUTPUT_BYTES

    def _acknowledge(self, got: int) -> None:
        """Drop the output that the client has."""
        known = min(max(0, got - self._out_at), len(self._out))
        if known:
            del self._out[:known]
            self._out_at += known
            self._room.set()

    async def _take(self, data: bytes, access: Access) -> None:
        self._taken += len(data)
        *lines, self._half = (self._half + data).split(b"\n")
        for line in lines:
            if (frame := self._checked(line + b"\n", access)) and not self._ended and self._writer is not None:
                self._writer.write(frame)
        if len(self._half) > MAX_FRAME:
            self.close()
        elif self._writer is not None:
            with suppress(OSError):
                await self._writer.drain()

    def _checked(self, line: bytes, access: Access) -> bytes:
        """Return the frame for the daemon, or answer it here and return nothing."""
        checked, me = check_frame(line), self._settings.member.name
        refusal = checked.refusal
        if refusal is None and not fits(checked.access, access):
            refusal = denied(line, f"{checked.method} came by a call of the class {access}", "")
        if refusal is None and checked.access != "observe" and not self._accepts():
            hint = f'on {me}: add "{self._sender}" to accept in the table [fleet], and reload its agent'
            refusal = denied(line, f"{me} does not let {self._sender} drive it", hint)
        if refusal is None:
            return renamed(line, self._sender)
        self._put(self._joiner.put(refusal))
        return b""

    def _accepts(self) -> bool:
        accept = self._settings.fleet.accept
        return self._sender in accept or "*" in accept

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Read the daemon's output, as far as the client takes it."""
        try:
            while True:
                while len(self._out) >= OUTPUT_BYTES:
                    self._room.clear()
                    await self._room.wait()
                data = await reader.read(OUTPUT_BYTES - len(self._out))
                if not data:
                    break
                self._put(self._joiner.feed(data))
        except OSError:
            pass
        finally:
            self._ended = True
            self._more.set()

    def _put(self, data: bytes) -> None:
        self._out += data
        if data:
            self._more.set()
