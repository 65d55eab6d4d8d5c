"""Near end of a tunnel: a client's connection on this box, and the calls that carry it to another box."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from uuid import uuid4

from clisup.errors import ClisupError, WorldError, box_away, error_from_wire
from clisup.fleet.engine import Engine
from clisup.fleet.member import FleetMember
from clisup.fleet.tunnel import (
    Access,
    FrameJoiner,
    TunnelAnswer,
    TunnelRequest,
    call_subject,
    check_frame,
    decode,
    denied,
    encode,
    may_send,
)

__all__ = ["NearTunnel"]

CALL_S = 20.0
"""Seconds for one call. The far box answers a poll after ten."""
PATIENCE_S = 30.0
"""Seconds for which a tunnel outlives the engine. Clients wait as long for a daemon."""
AGAIN_S = 0.5
LAST_S = 30.0
"""Seconds for the last answers to a client that has closed its direction."""
_HEAD_BYTES = 1024


class NearTunnel:
    """Tunnel of one client. `open` first, then `carry` until the client or the far side ends."""

    def __init__(self, engine: Engine, member: FleetMember, box: str) -> None:
        self._engine, self._member, self._box = engine, member, box
        self._id = uuid4().hex
        self._sent = self._got = 0
        self._joiner = FrameJoiner()

    async def open(self) -> bool:
        """Open the tunnel. Return False if nobody answers for the box.

        Raises `WorldError`: `fleet_away`, or the far side's refusal.
        """
        if not may_send("observe", self._member.roles):
            roles = ", ".join(sorted(self._member.roles))
            message = f"this box may not look at {self._box}, because its role in the fleet is {roles}"
            hint = "join with the role observer, too: clisup fleet member add NAME --role worker --role observer"
            raise WorldError(message, kind="permission_denied", hint=hint)
        head = TunnelRequest(self._id, begin=True)
        answer = await self._engine.call(self._subject("observe"), encode(head), CALL_S)
        if answer is None:
            return False
        self._check(decode(answer, TunnelAnswer)[0])
        return True

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry both streams until one of them ends. Raises `WorldError` if the box or the engine is away."""
        sending = asyncio.create_task(self._send(reader, writer))
        receiving = asyncio.create_task(self._receive(writer))
        try:
            await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done() and not receiving.done():
                sending.result()
                with suppress(TimeoutError):  # a client that closed one direction still gets its answers
                    await asyncio.wait_for(asyncio.shield(receiving), LAST_S)
            for task in (sending, receiving):
                if task.done():
                    task.result()
        finally:
            for task in (sending, receiving):
                task.cancel()
            await asyncio.gather(sending, receiving, return_exceptions=True)
            with suppress(ClisupError):
                await self._engine.call(self._subject("observe"), encode(TunnelRequest(self._id, close=True)), AGAIN_S)

    def _subject(self, access: Access) -> str:
        return call_subject(self._box, access, self._member.name)

    async def _send(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send the client's frames, each by a call of its class."""
        while line := await reader.readline():
            checked = check_frame(line)
            refusal = checked.refusal
            if refusal is None and not may_send(checked.access, self._member.roles):
                roles = ", ".join(sorted(self._member.roles))
                message = f"this box may not drive {self._box}, because its role in the fleet is {roles}"
                refusal = denied(
                    line, message, "join with the role operator: clisup fleet member add NAME --role operator"
                )
            if refusal is None:
                await self._send_frame(line, checked.access)
            else:
                writer.write(self._joiner.put(refusal))
                await writer.drain()

    async def _send_frame(self, line: bytes, access: Access) -> None:
        most = self._engine.max_payload - _HEAD_BYTES
        for start in range(0, len(line), most):
            piece = line[start : start + most]
            head, _ = await self._call(access, TunnelRequest(self._id, at=self._sent, got=self._got), piece)
            self._sent += len(piece)
            if head.end:
                return

    async def _receive(self, writer: asyncio.StreamWriter) -> None:
        """Ask for output, and give it to the client as fast as the client reads."""
        while True:
            head, data = await self._call("observe", TunnelRequest(self._id, at=self._sent, got=self._got, poll=True))
            data = data[max(0, self._got - head.at) :]
            self._got += len(data)
            if data:
                writer.write(self._joiner.feed(data))
                await writer.drain()
            if head.end:
                return

    async def _call(self, access: Access, head: TunnelRequest, data: bytes = b"") -> tuple[TunnelAnswer, bytes]:
        """Call the far side until it has answered, at most `PATIENCE_S` after its last sign of life."""
        until, message = time.monotonic() + PATIENCE_S, encode(head, data)
        while True:
            try:
                answer = await self._engine.call(self._subject(access), message, CALL_S)
                if answer is None:
                    raise box_away(self._box, "its agent has ended")
                found = decode(answer, TunnelAnswer)
                self._check(found[0])
                return found
            except WorldError as error:
                if error.kind != "fleet_away" or time.monotonic() > until:
                    raise
                await asyncio.sleep(AGAIN_S)

    def _check(self, head: TunnelAnswer) -> None:
        """Raise the far side's error, if any."""
        if head.error is not None:
            error = error_from_wire(head.error)
            if error.kind == "box_away":
                raise box_away(self._box, error.message)
            raise WorldError(error.message, kind=error.kind, hint=error.hint)
