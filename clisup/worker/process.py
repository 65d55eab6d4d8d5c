"""One worker process: what it hears on stdin, and one turn after the other."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import trio

from clisup.stream_json.frames import Frame, Frames
from clisup.stream_json.lines import encode_frame, write_all
from clisup.worker import VERSION
from clisup.worker.api import KEEP_ALIVE_S
from clisup.worker.inbox import Prompt, Queue, read_line, read_prompt
from clisup.worker.permissions import MODES
from clisup.worker.prices import price_of
from clisup.worker.spending import Spending
from clisup.worker.telling import Telling
from clisup.worker.turn import Means, Turn

__all__ = ["MAX_LINE", "Process"]

MAX_LINE = 64 * 1024 * 1024
"""Bytes of one line on stdin; more is no message."""


class Process:
    """Plays turns until stdin has ended and nothing is left to do. `run` gives the exit code."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._means: Means | None = None
        self._queue = Queue()
        self._seen: set[str] = set()
        self._news = trio.Event()
        self._ended = self._over = False
        self._turn: trio.CancelScope | None = None
        self._why = ""
        self._state = "idle"
        self._heard = 0.0
        self._taken_in: list[Prompt] = []

    def send(self, frame: Frame) -> None:
        """Write one frame."""
        write_all(1, encode_frame(frame) + b"\n")

    def alive(self) -> None:
        """The API has sent bytes: say so where no frame does, so that nobody takes the turn for a hung one."""
        now = trio.current_time()
        if now - self._heard >= KEEP_ALIVE_S:
            self._heard = now
            self.send({"type": "keep_alive"})

    def tell_state(self, state: str) -> None:
        """Say what the session does, where that is new."""
        if state != self._state:
            self._state = state
            self.send(self._frames.system("session_state_changed", state=state))

    async def run(self, means: Means) -> int:
        """Play what comes. Raises `BadInput` for a line that is no message."""
        self._means = means
        code = 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen)
            nursery.start_soon(self._signals)
            await means.servers.start(nursery)
            while await self._has_work():
                code = await self._play(self._queue.take_next())
                if not self._queue:
                    self.tell_state("idle")
            means.servers.stop()
            nursery.cancel_scope.cancel()
        return code

    async def _has_work(self) -> bool:
        while not self._queue:
            if self._ended or self._over:
                return False
            self._news = trio.Event()
            await self._news.wait()
        return not self._over

    # A turn

    async def _play(self, batch: list[Prompt]) -> int:
        assert self._means is not None  # a turn is played by `run`
        means, uuids = self._means, [prompt.uuid for prompt in batch if prompt.uuid]
        for prompt in batch:
            self._lifecycle(prompt, "started")
        telling = Telling(
            self._frames, self._send_heard, uuids, Spending(lambda m, usage: price_of(m, usage, means.url))
        )
        turn = Turn(means, telling, batch[-1].asked)
        self.tell_state("running")
        telling.send(self._init())
        means.history.add_user([block for prompt in batch for block in prompt.content])
        self._taken_in, self._why = [], ""
        with trio.CancelScope() as self._turn:
            went_well = await turn.play(lambda: self._take_in(telling))
        if self._turn.cancelled_caught:
            went_well = False
            turn.give_up()
        self._turn = None
        for prompt in [*batch, *self._taken_in]:
            self._lifecycle(prompt, "completed" if went_well or not self._why else "cancelled")
        return 0 if went_well or self._why == "interrupt" else 1

    def _send_heard(self, frame: Frame) -> None:
        self._heard = trio.current_time()
        self.send(frame)

    def _init(self) -> Frame:
        assert self._means is not None  # as above
        servers = self._means.servers
        return self._frames.init(
            cwd=os.getcwd(), permission_mode=self._means.permissions.mode, mcp_servers=servers.describe(),
            tools=sorted(servers.tools), version=VERSION, key="user",
        )  # fmt: skip

    def _take_in(self, telling: Telling) -> list[dict[str, Any]]:
        """What the user has said since the turn began: the model gets it with the results of its tools."""
        taken = self._queue.take_in()
        for prompt in taken:
            self._lifecycle(prompt, "started")
            telling.uuids += [prompt.uuid] if prompt.uuid else []
        self._taken_in += taken
        return [block for prompt in taken for block in prompt.content]

    def _lifecycle(self, prompt: Prompt, state: str) -> None:
        if prompt.uuid:
            self.send(self._frames.lifecycle(prompt.uuid, state))

    def _interrupt(self, why: str = "interrupt") -> None:
        if self._turn is not None:
            self._why = self._why or why
            self._turn.cancel()

    # What comes

    async def _signals(self) -> None:
        with trio.open_signal_receiver(signal.SIGINT) as signals:
            async for _ in signals:
                self._over = True
                self._interrupt()
                self._news.set()

    async def _listen(self) -> None:
        assert self._means is not None  # as above
        rest = b""
        async with trio.lowlevel.FdStream(os.dup(0)) as stdin:
            while data := await stdin.receive_some(1 << 20):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._hear(read_line(line))
                if len(rest) > MAX_LINE:
                    break
        if rest.strip():
            self._hear(read_line(rest))
        self._ended = True
        self._means.permissions.close()
        self._news.set()

    def _hear(self, frame: Mapping[str, Any]) -> None:
        assert self._means is not None  # as above
        kind = frame.get("type")
        if kind == "user":
            self._hear_prompt(read_prompt(frame))
        elif kind == "control_request":
            self._control(frame.get("request_id"), frame.get("request"))
        elif kind == "control_response" and isinstance(frame.get("response"), dict):
            self._means.permissions.answer(frame["response"])
        self._news.set()

    def _hear_prompt(self, prompt: Prompt) -> None:
        if prompt.uuid is not None and prompt.uuid in self._seen:
            return  # the same message again: it has its turn already
        if prompt.uuid is not None:
            self._seen.add(prompt.uuid)
        self._lifecycle(prompt, "queued")
        self._queue.add(prompt)
        if prompt.priority == "now":
            self._interrupt("preempt")

    def _control(self, request_id: Any, request: Any) -> None:
        asked = request if isinstance(request, dict) else {}
        answer = self._carry_out(asked)
        said = {"subtype": "success", "response": answer} if "error" not in answer else {"subtype": "error", **answer}
        self.send({"type": "control_response", "response": {"request_id": request_id, **said}})

    def _carry_out(self, request: Mapping[str, Any]) -> dict[str, Any]:
        assert self._means is not None  # as above
        means = self._means
        match request.get("subtype"):
            case "interrupt":
                self._interrupt()
                return {"still_queued": self._queue.uuids()}
            case "cancel_async_message":
                withdrawn = self._queue.withdraw(request.get("message_uuid"))
                if withdrawn is not None:
                    self._lifecycle(withdrawn, "cancelled")
                return {"cancelled": withdrawn is not None}
            case "set_model" if isinstance(model := request.get("model"), str) and model:
                means.request = replace(means.request, model=model)
                self._frames.model = model
                return {"model": model}
            case "set_permission_mode" if (mode := request.get("mode")) in MODES:
                means.permissions.mode = str(mode)
                return {"mode": mode}
            case "set_model" | "set_permission_mode":
                return {"error": f"cannot carry out {request['subtype']}: its value is none that the worker knows"}
            case "end_session":
                self._over = True
                self._interrupt()
                return {}
        words = f"Unsupported control request subtype: {request.get('subtype')}"
        return {"error": words, "error_code": "unsupported_request"}
