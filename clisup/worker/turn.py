"""One turn: ask the model, run its tools, and ask again until the model calls no more tools."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import trio

from clisup.stream_json.json_texts import json_values
from clisup.worker import JsonObject
from clisup.worker.apis.api import Api, ApiRequest, failure_of
from clisup.worker.apis.events import ApiMessage
from clisup.worker.apis.failures import RequestFailure
from clisup.worker.apis.retries import delay_of
from clisup.worker.apis.schemas import STRUCTURED_TOOL
from clisup.worker.conversation import request_messages
from clisup.worker.history import MessageHistory
from clisup.worker.tools.call_runner import CallRunner
from clisup.worker.tools.mcp_servers import McpServers
from clisup.worker.tools.permissions import Permissions
from clisup.worker.turn_writer import TurnWriter

MAX_BROKEN = 3
"""Allowed number of answers in a row with invalid arguments of calls."""

_CUT_ENDS = ("max_tokens", "model_context_window_exceeded", "refusal")
"""Ends after which a call may be incomplete. After any other word of a provider the calls run."""

_INTERRUPTED = "[Request interrupted by user]"
_INTERRUPTED_TOOL = "[Request interrupted by user for tool use]"
_CUT_CALL = "The call was not run, because the answer ended before it: {}."


@dataclass
class TurnContext:
    """Parts that all turns of a process share. `request` has the model, the system prompt and the options."""

    api: Api
    history: MessageHistory
    servers: McpServers
    permissions: Permissions
    request: ApiRequest
    max_retries: int
    max_rounds: int


class WorkerTurn:
    """One turn. `asked` may have a `schema` for the answer, `sampling`, and `tools` that the caller runs."""

    def __init__(self, context: TurnContext, writer: TurnWriter, asked: Mapping[str, Any]) -> None:
        self._context, self._writer = context, writer
        self._own = {str(tool["name"]) for tool in asked.get("tools") or ()}
        self._request = replace(
            context.request,
            schema=asked.get("schema"),
            sampling={**context.request.sampling, **(asked.get("sampling") or {})},
            tools=[*(asked.get("tools") or ()), *context.servers.definitions()],
        )
        self._calls: CallRunner | None = None
        self._broken = 0

    async def play(self, steering: Callable[[], list[JsonObject]]) -> bool:
        """Ask until the answer is complete, write the result, and return whether the turn succeeded.

        `steering` returns the blocks that the user has sent since the turn began.
        """
        try:
            return await self._rounds(steering)
        except RequestFailure as failure:
            self._writer.abandon()
            self._count()
            self._writer.fail(failure)
        except _TooManyRoundsError:
            most = self._context.max_rounds
            self._writer.fail_by("error_max_turns", "max_turns", f"Reached maximum number of turns ({most})")
        return False

    def interrupt(self, *, preempted: bool) -> None:
        """End the cancelled turn. Its text and its results of tools stay in the history."""
        history, writer, calls = self._context.history, self._writer, self._calls
        note = _INTERRUPTED if calls is None else _INTERRUPTED_TOOL
        text = ""
        if calls is None:
            kept = writer.keep_partial()
            self._count()
            history.add_answer(writer.message.head, kept, None)
            text = "".join(block["text"] for block in kept)
        else:
            history.add_user([*calls.results.values(), *calls.missing(note)])
        if preempted:
            writer.preempt(in_tool=calls is not None, text=text)
        else:
            history.add_user([{"type": "text", "text": note}])
            writer.interrupt(note, in_tool=calls is not None)

    async def _rounds(self, steering: Callable[[], list[JsonObject]]) -> bool:
        history = self._context.history
        while True:
            message = await self._answer()
            history.add_answer(message.head, message.content, message.stop_reason)
            if message.stop_reason == "refusal":
                self._refuse(message)
                return False
            if (value := self._structured_call(message)) is not None:
                self._finish_by_call(message, value)
                return True
            if not message.calls or message.stop_reason in _CUT_ENDS:
                return self._finish(message)
            # A choice that held for ever would never let the model answer.
            sampling = {name: value for name, value in self._request.sampling.items() if name != "tool_choice"}
            self._request = replace(self._request, sampling=sampling)
            calls = [call for call in message.calls if call["name"] not in self._own]
            stopped = await self._run(calls, message)
            if len(calls) < len(message.calls):
                self._writer.succeed(message.text, "tool_use")  # the caller runs the other calls
                return True
            if stopped:
                self._writer.interrupt(_INTERRUPTED_TOOL, in_tool=True)
                return False
            history.add_user(steering())
            if self._writer.usage.answers >= self._context.max_rounds:
                raise _TooManyRoundsError

    # Requests

    async def _answer(self) -> ApiMessage:
        attempt = 0
        while True:
            try:
                await self._stream()
                return self._writer.message
            except Exception as error:  # an SDK has errors of many types
                found = failure_of(error, self._context.api.endpoint)
                if found is None:
                    raise
                failure = found
            self._writer.rate_limit(failure)
            if failure.refuses_request and self._context.api.leave_out(failure.message):
                continue  # the API does not know a field that the worker added by itself
            if self._request.schema is not None and not self._request.by_tool and failure.refuses_request:
                self._request = replace(self._request, by_tool=True)  # the API has no field for schemas
                continue
            delay_s = delay_of(failure, attempt + 1, random.random())
            if self._writer.message.blocks or delay_s is None or attempt >= self._context.max_retries:
                raise failure
            attempt += 1
            self._count()
            self._writer.retry(failure, attempt, self._context.max_retries, delay_s)
            await trio.sleep(delay_s)

    async def _stream(self) -> None:
        context, writer = self._context, self._writer
        writer.begin_request()
        messages = request_messages(context.history.messages, context.servers.api_name)
        request = replace(self._request, messages=messages, model=context.request.model)
        async with aclosing(context.api.answer(request)) as events:
            async for event in events:
                writer.event(event, context.servers.full_name)
        self._count(context.api.cost_usd)

    def _count(self, cost_usd: float | None = None) -> None:
        """Count the latest answer, once."""
        message = self._writer.message
        if not message.counted:
            message.counted = True
            model = str(message.head.get("model") or self._context.request.model)
            self._writer.usage.add(model, message.usage, cost_usd, answered=bool(message.blocks) or message.ended)

    # Tools

    async def _run(self, calls: Sequence[Mapping[str, Any]], message: ApiMessage) -> bool:
        """Run the calls, and return whether a denial asked to stop the turn."""
        self._broken = self._broken + 1 if message.broken else 0
        if self._broken > MAX_BROKEN:
            raise RequestFailure(
                f"the model called tools {self._broken} times in a row with arguments that are no JSON object",
                code="server_error",
                api_error="malformed_tool_use_exhausted",
            )
        context = self._context
        self._calls = CallRunner(calls, message.broken, context.servers, context.permissions, self._writer)
        stopped = await self._calls.run()
        context.history.add_user([self._calls.results[call["id"]] for call in calls])
        self._calls = None
        return stopped

    # Ends of a turn

    def _structured_call(self, message: ApiMessage) -> Mapping[str, Any] | None:
        if not self._request.by_tool:
            return None
        return next((c for c in message.calls if c["name"] == STRUCTURED_TOOL and c["id"] not in message.broken), None)

    def _finish(self, message: ApiMessage) -> bool:
        writer, fields = self._writer, {}
        for call in message.calls:  # an answer at its token limit may end within a call
            reason = _CUT_CALL.format(message.stop_reason)
            self._context.history.add_user([writer.tool_result(call["id"], reason, is_error=True)])
        if self._request.schema is not None:
            found = _value(message.text, self._request.schema)
            if found is not None:
                fields["structured_output"] = found
            elif message.stop_reason != "max_tokens":
                writer.fail_by("error_max_structured_output_retries", "structured_output_retry_exhausted",
                               "the model's answer is no JSON", message.stop_reason)  # fmt: skip
                return False
        writer.succeed(message.text, message.stop_reason, **fields)
        return True

    def _finish_by_call(self, message: ApiMessage, answer: Mapping[str, Any]) -> None:
        for call in message.calls:
            chosen = call["id"] == answer["id"]
            text = "Structured output provided successfully" if chosen else "Not run: the final answer was given."
            self._context.history.add_user([self._writer.tool_result(call["id"], text, is_error=not chosen)])
        context, value = self._context, answer["input"]
        context.request = replace(context.request, by_tool=True)  # the next turns need not try the field again
        self._writer.succeed(json.dumps(value), "tool_use", structured_output=value)

    def _refuse(self, message: ApiMessage) -> None:
        text = message.text or "the model refused to answer"
        self._writer.fail(
            RequestFailure(text, code="invalid_request", api_error="safety_monitor_blocked"), refusal=True
        )


class _TooManyRoundsError(Exception):
    """Limit of `max_rounds` reached."""


def _value(text: str, schema: Mapping[str, Any]) -> Any:
    """Return the JSON value of an answer, without fences, thinking and prose around it, or None."""
    wants_object = schema.get("type") == "object"
    return next((value for value in json_values(text) if isinstance(value, dict) or not wants_object), None)
