"""One turn: the model is asked, its tools are run, and it is asked again until it has nothing more to call."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import trio

from clisup.worker.api import Api, Request, failure_of
from clisup.worker.events import Message, StreamError
from clisup.worker.failures import Failure, of_stream
from clisup.worker.history import History
from clisup.worker.permissions import Permissions
from clisup.worker.retries import delay_of
from clisup.worker.schemas import STRUCTURED_TOOL
from clisup.worker.servers import Servers
from clisup.worker.telling import Telling, text_of

__all__ = ["MAX_CALLS", "Means", "Turn"]

MAX_CALLS = 32
"""Calls of tools that run at once. More wait."""
MAX_BROKEN = 3
"""Answers in a row whose calls have arguments that are no JSON. One more ends the turn."""
HEARTBEAT_S = 30.0
"""Seconds between two signs of life of a tool that runs, as by claude."""

Block = Mapping[str, Any]


@dataclass
class Means:
    """What the turns of a process share."""

    api: Api
    url: str
    history: History
    servers: Servers
    permissions: Permissions
    request: Request
    """The model, the system prompt, thinking and effort of all requests."""
    max_retries: int
    max_rounds: int


class Turn:
    """One turn. `play` says its result, whatever happens. `asked` is what the caller asked for of the answer."""

    def __init__(self, means: Means, telling: Telling, asked: Mapping[str, Any]) -> None:
        self._means, self.telling = means, telling
        self._own = {str(tool["name"]) for tool in asked.get("tools") or ()}
        self._request = replace(
            means.request,
            schema=asked.get("schema"),
            sampling={**means.request.sampling, **(asked.get("sampling") or {})},
            tools=[*(asked.get("tools") or ()), *means.servers.definitions()],
        )
        self._results: dict[str, Block] = {}
        self._broken = 0
        self.in_tool = False
        self.stopped = False
        """Whether an answer to a question asked for the end of the turn."""

    async def play(self, take_in: Any) -> bool:
        """Ask until the answer is whole, then say the result; return whether the turn went well.

        `take_in` gives the blocks of what the user has said meanwhile.
        """
        try:
            return await self._rounds(take_in)
        except Failure as failure:
            self.telling.abandon()
            self._count()
            self.telling.fail(failure)
        except _TooMany:
            most = self._means.max_rounds
            self.telling.end(subtype="error_max_turns", is_error=True, terminal_reason="max_turns", stop_reason=None,
                             errors=[f"Reached maximum number of turns ({most})"])  # fmt: skip
        return False

    def give_up(self) -> None:
        """End a turn that was cancelled, because somebody interrupted it."""
        said = self.telling.abandon(aborted=True) if not self.in_tool else []
        if not self.in_tool:
            self._count()
            self._means.history.add_answer(self.telling.message.head, said, None)
        else:
            self._means.history.add_user([*self._results.values()])
        self.telling.interrupted(in_tool=self.in_tool)

    async def _rounds(self, take_in: Any) -> bool:
        while True:
            message = await self._answer()
            calls = [block for block in message.content if block["type"] == "tool_use"]
            self._means.history.add_answer(message.head, message.content, message.stop_reason)
            if message.stop_reason == "refusal":
                self._refuse(message)
                return False
            given = next((call for call in calls if call["name"] == STRUCTURED_TOOL), None)
            if given is not None and self._request.by_tool:
                self._give(given)
                return True
            if not calls or message.stop_reason not in ("tool_use", "pause_turn"):
                return self._finish(message)
            mine = [call for call in calls if call["name"] not in self._own]
            await self._run(mine, message)
            if len(mine) < len(calls):
                return self._hand_over(message)
            self._means.history.add_user([self._results[call["id"]] for call in calls] + take_in())
            if self.telling.spending.answers >= self._means.max_rounds:
                raise _TooMany

    # The model is asked

    async def _answer(self) -> Message:
        attempt = 0
        while True:
            try:
                await self._stream()
                return self.telling.message
            except Failure as error:
                failure = error
            except StreamError as error:
                failure = of_stream(error)
            except Exception as error:  # an SDK's own
                found = failure_of(error, self._means.url)
                if found is None:
                    raise
                failure = found
            self.telling.limit(failure)
            if self._takes_no_schema(failure):
                self._request = replace(self._request, by_tool=True)
                continue
            delay_s = delay_of(failure, attempt + 1, random.random())
            if self.telling.message.blocks or delay_s is None or attempt >= self._means.max_retries:
                raise failure
            attempt += 1
            self._count()
            self.telling.retry(failure, attempt, self._means.max_retries, delay_s)
            await trio.sleep(delay_s)

    async def _stream(self) -> None:
        telling, means = self.telling, self._means
        telling.ask()
        request = replace(self._request, messages=means.history.messages, model=means.request.model)
        async with aclosing(means.api.answer(request)) as events:
            async for event in events:
                telling.event(event, means.servers.full)
        self._count(means.api.cost_usd)

    def _count(self, cost_usd: float | None = None) -> None:
        """Count the latest answer, once."""
        message, spending = self.telling.message, self.telling.spending
        spending.add(str(message.head.get("model") or self._means.request.model), message.usage, cost_usd)
        spending.answers += bool(message.blocks)
        message.usage = {}

    def _takes_no_schema(self, failure: Failure) -> bool:
        """An API or a model without a field for schemas refuses the request: a tool is the other way."""
        native = self._request.schema is not None and not self._request.by_tool
        return native and failure.status in (400, 422) and failure.code == "invalid_request" and not failure.api_error

    # Tools

    async def _run(self, calls: Sequence[Block], message: Message) -> None:
        self._broken = self._broken + 1 if message.broken else 0
        if self._broken > MAX_BROKEN:
            raise Failure(
                f"the model called tools {self._broken} times in a row with arguments that are no JSON object",
                code="server_error",
                api_error="malformed_tool_use_exhausted",
            )
        self.in_tool, self._results = True, {}
        places = trio.CapacityLimiter(MAX_CALLS)
        async with trio.open_nursery() as nursery:
            for call in calls:
                nursery.start_soon(self._call, call, message.broken.get(call["id"]), places)
        self.in_tool = False

    async def _call(self, call: Block, broken: str | None, places: trio.CapacityLimiter) -> None:
        means, name = self._means, call["name"]
        tool = means.servers.tools.get(name)
        if broken is not None:
            said = f"The arguments were no JSON object. Call the tool again with one. They were: {broken[:2000]}"
            self._tell(call, said, is_error=True)
        elif tool is None:
            self._tell(call, f"<tool_use_error>Error: No such tool available: {name}</tool_use_error>", is_error=True)
        else:
            ruling = await means.permissions.ruling(tool, call["input"], call["id"])
            if not ruling.allowed:
                self.telling.deny(name, call["id"], call["input"], ruling.message, asked=ruling.asked)
                self._tell(call, ruling.message, is_error=True, denied=True)
                self.stopped = self.stopped or ruling.interrupt
                return
            async with places, trio.open_nursery() as nursery:
                nursery.start_soon(self._beat, call)
                result = await means.servers.call(tool, ruling.arguments, call["id"])
                nursery.cancel_scope.cancel()
            self._tell(call, result.content, is_error=result.is_error)

    async def _beat(self, call: Block) -> None:
        began, count = trio.current_time(), 0
        while True:
            await trio.sleep(HEARTBEAT_S)
            count += 1
            elapsed = round(trio.current_time() - began, 3)
            self.telling.send(self.telling.frames.tool_progress(call["id"], count, call["name"], elapsed))

    def _tell(self, call: Block, content: Any, *, is_error: bool, denied: bool = False) -> None:
        self._results[call["id"]] = self.telling.result_of(call["id"], content, is_error=is_error, denied=denied)

    # How a turn ends

    def _finish(self, message: Message) -> bool:
        text, fields = text_of(message.content), {}
        if self._request.schema is not None:
            try:
                fields["structured_output"] = json.loads(text)
            except ValueError:
                if message.stop_reason != "max_tokens":
                    self.telling.end(subtype="error_max_structured_output_retries", is_error=True, stop_reason=message.stop_reason,
                                     terminal_reason="structured_output_retry_exhausted",
                                     errors=["the model's answer is no JSON"])  # fmt: skip
                    return False
        self.telling.end(subtype="success", is_error=False, terminal_reason="completed", stop_reason=message.stop_reason,
                         result=text, api_error_status=None, **fields)  # fmt: skip
        return True

    def _give(self, call: Block) -> None:
        """The model gave the answer as a call of the tool for it."""
        said = "Structured output provided successfully"
        self._means.history.add_user([self.telling.result_of(call["id"], said, is_error=False)])
        value = call["input"]
        self.telling.end(subtype="success", is_error=False, terminal_reason="completed", stop_reason="tool_use",
                         result=json.dumps(value), structured_output=value, api_error_status=None)  # fmt: skip

    def _hand_over(self, message: Message) -> bool:
        """The caller runs these tools: the turn is over, and the next message has their results."""
        self._means.history.pending = [*self._results.values()]
        self.telling.end(subtype="success", is_error=False, terminal_reason="completed", stop_reason="tool_use",
                         result=text_of(message.content), api_error_status=None)  # fmt: skip
        return True

    def _refuse(self, message: Message) -> None:
        words = text_of(message.content) or "the model refused to answer"
        self.telling.fail(Failure(words, code="invalid_request", api_error="safety_monitor_blocked"), refusal=True)


class _TooMany(Exception):
    """The model called tools more often than a turn allows."""
