"""One worker process: frames on stdin, and one turn after the other."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import Any

import trio

from clisup.stream_json.frames import Frame, Frames
from clisup.stream_json.lines import encode_frame, read_frame, write_all
from clisup.worker import VERSION, JsonObject
from clisup.worker.apis.prices import price_of
from clisup.worker.controls import carry_out
from clisup.worker.prompts import Prompt, WorkerQueue, read_prompt
from clisup.worker.turn import TurnContext, WorkerTurn
from clisup.worker.turn_usage import TurnUsage
from clisup.worker.turn_writer import TurnWriter

MAX_LINE = 64 * 1024 * 1024
"""Longest line on stdin, in bytes."""

KEEP_ALIVE_S = 5.0
"""Seconds between two `keep_alive` frames while an API sends bytes without events: pings and comments."""


class WorkerProcess:
    """Loop over the turns until stdin has ended and the queue is empty."""

    def __init__(self, frames: Frames, *, live: bool) -> None:
        self.frames = frames
        self._live = live
        self.queue = WorkerQueue()
        self._context: TurnContext | None = None
        self._seen: set[str] = set()
        self._news = trio.Event()
        self._input_ended = self._over = False
        self._starting = trio.CancelScope()
        self._turn: trio.CancelScope | None = None
        self._preempted = False
        self._state = "idle"
        self._last_frame = 0.0
        self._steering: list[Prompt] = []

    @property
    def context(self) -> TurnContext:
        """Return the parts that all turns share. `run` sets them."""
        assert self._context is not None
        return self._context

    def send(self, frame: Frame) -> None:
        """Write one frame."""
        write_all(1, encode_frame(frame) + b"\n")

    def alive(self) -> None:
        """Write a `keep_alive` frame for bytes of the API, unless a frame of the turn came shortly before."""
        now = trio.current_time()
        if now - self._last_frame >= KEEP_ALIVE_S:
            self._last_frame = now
            self.send({"type": "keep_alive"})

    def set_state(self, state: str) -> None:
        """Report a change of the session's state, in live mode only, as claude does."""
        if self._live and state != self._state:
            self._state = state
            self.send(self.frames.system("session_state_changed", state=state))

    def lifecycle(self, prompt: Prompt, state: str) -> None:
        """Report the state of a message that has an id."""
        if prompt.uuid:
            self.send(self.frames.lifecycle(prompt.uuid, state))

    def interrupt(self, *, preempt: bool = False) -> None:
        """End the running turn, if there is one."""
        if self._turn is not None and not self._turn.cancel_called:
            self._preempted = preempt
            self._turn.cancel()

    def end(self) -> None:
        """End the running turn and the process."""
        self._over = True
        self._starting.cancel()
        self.interrupt()
        self._news.set()

    async def run(self, context: TurnContext) -> int:
        """Play all turns, and return the exit code. Raises `BadInput` for a line that is no message."""
        self._context = context
        code = 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen)
            nursery.start_soon(self._watch_signals)
            with self._starting:
                await context.servers.start(nursery)
            while await self._has_work():
                code = await self._play(self.queue.take_next())
                if not self.queue:
                    self.set_state("idle")
            context.servers.stop()
            nursery.cancel_scope.cancel()
        return code

    async def _has_work(self) -> bool:
        while not self.queue and not self._input_ended and not self._over:
            self._news = trio.Event()
            await self._news.wait()
        return bool(self.queue) and not self._over

    # Turns

    async def _play(self, batch: list[Prompt]) -> int:
        context, uuids = self.context, [prompt.uuid for prompt in batch if prompt.uuid]
        for prompt in batch:
            self.lifecycle(prompt, "started")
        usage = TurnUsage(lambda model, usage: price_of(model, usage, context.api.endpoint.url))
        writer = TurnWriter(self.frames, self._send_of_turn, uuids, usage)
        turn = WorkerTurn(context, writer, batch[-1].asked)
        self.set_state("running")
        writer.send(self._init())
        context.history.add_user([block for prompt in batch for block in prompt.content])
        self._steering, self._preempted, succeeded = [], False, False
        with trio.CancelScope() as self._turn:
            succeeded = await turn.play(lambda: self._steer(writer))
        cancelled, self._turn = self._turn.cancelled_caught, None
        if cancelled:
            turn.interrupt(preempted=self._preempted)
        for prompt in [*batch, *self._steering]:
            self.lifecycle(prompt, "cancelled" if cancelled else "completed")
        return 0 if succeeded or cancelled else 1

    def _send_of_turn(self, frame: Frame) -> None:
        self._last_frame = trio.current_time()
        self.send(frame)

    def _init(self) -> Frame:
        servers = self.context.servers
        return self.frames.init(
            cwd=os.getcwd(), permission_mode=self.context.permissions.mode, mcp_servers=servers.describe(),
            tools=sorted(servers.tools), version=VERSION, key="user",
        )  # fmt: skip

    def _steer(self, writer: TurnWriter) -> list[JsonObject]:
        """Return the content of the messages that came during the turn. The model reads them after its tools' results."""
        taken = self.queue.take_steering()
        for prompt in taken:
            self.lifecycle(prompt, "started")
            writer.uuids += [prompt.uuid] if prompt.uuid else []
        self._steering += taken
        return [block for prompt in taken for block in prompt.content]

    # Input

    async def _watch_signals(self) -> None:
        with trio.open_signal_receiver(signal.SIGINT) as signals:
            async for _ in signals:
                self.end()

    async def _listen(self) -> None:
        pieces: list[bytes] = []  # of an unfinished line
        async with trio.lowlevel.FdStream(os.dup(0)) as stdin:
            while data := await stdin.receive_some(1 << 20):
                first, *lines = data.split(b"\n")
                pieces.append(first)
                for line in lines:
                    self._hear(b"".join(pieces))
                    pieces = [line]
                if sum(map(len, pieces)) > MAX_LINE:
                    break
        self._hear(b"".join(pieces))
        self._input_ended = True
        self.context.permissions.close()
        self._news.set()

    def _hear(self, line: bytes) -> None:
        frame = read_frame(line)
        kind = frame.get("type")
        if kind == "user":
            self._hear_prompt(read_prompt(frame))
        elif kind == "control_request":
            self._hear_control(frame.get("request_id"), frame.get("request"))
        elif kind == "control_response" and isinstance(frame.get("response"), dict):
            self.context.permissions.answer(frame["response"])
        self._news.set()

    def _hear_prompt(self, prompt: Prompt) -> None:
        if prompt.uuid is not None and prompt.uuid in self._seen:
            return  # a repeated message
        if prompt.uuid is not None:
            self._seen.add(prompt.uuid)
        self.lifecycle(prompt, "queued")
        self.queue.add(prompt)
        if prompt.priority == "now":
            self.interrupt(preempt=True)

    def _hear_control(self, request_id: Any, request: Mapping[str, Any] | None) -> None:
        answer = carry_out(self, request if isinstance(request, dict) else {})
        outcome = {"subtype": "error", **answer} if "error" in answer else {"subtype": "success", "response": answer}
        self.send({"type": "control_response", "response": {"request_id": request_id, **outcome}})
