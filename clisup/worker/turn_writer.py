"""Frames of one turn, in claude's order: events and blocks of answers, results of tools, and the result frame."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from clisup.stream_json.frames import Frame, Frames, token_usage
from clisup.worker.apis.events import ApiMessage, Event
from clisup.worker.apis.failures import RequestFailure
from clisup.worker.turn_usage import TurnUsage

_ACCEPTED = {"decision": "accept", "source": "config", "reason_type": "rule"}
_REJECTED = {"decision": "reject", "source": "config"}


class TurnWriter:
    """Writer of a turn's frames. `uuids` are the turn's messages: claude names them in init, request, first answer and result."""

    def __init__(self, frames: Frames, write: Callable[[Frame], None], uuids: list[str], usage: TurnUsage) -> None:
        self.frames, self.uuids, self.usage = frames, uuids, usage
        self._write = write
        self._last_uuid = uuids[-1] if uuids else None
        self._answered = False
        self._held: list[Event] = []
        self._began = time.monotonic()
        self.message = ApiMessage()
        self.denials: list[Frame] = []

    def send(self, frame: Frame) -> None:
        """Write a frame, with the turn's messages if claude names them in such a frame."""
        kind = frame["type"]
        if self.uuids and (kind == "result" or (kind == "assistant" and not self._answered)):
            frame |= {"user_message_uuid": self._last_uuid, "user_message_uuids": list(self.uuids)}
        elif self.uuids and (frame.get("status") == "requesting" or frame.get("subtype") == "init"):
            frame["user_message_uuids"] = list(self.uuids)
        self._answered = self._answered or kind == "assistant"
        self._write(frame)

    def begin_request(self) -> None:
        """Report a request to the model, and expect a new answer."""
        self.message, self._held = ApiMessage(), []
        self.send(self.frames.system("status", status="requesting"))

    def event(self, event: Event, full_name: Callable[[str], str]) -> None:
        """Write one event of an answer. Events before the first block wait, because the request may be repeated until then."""
        ended = self.message.take(event)
        if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
            block = self.message.blocks[event["index"]]
            block["name"] = full_name(block["name"])
            event = {**event, "content_block": dict(block)}
        if not self.message.blocks and event["type"] != "message_stop":
            self._held.append(event)
            return
        for held in self._held:
            self._stream(held)
        self._held = []
        if ended is not None:
            self.send(self.frames.assistant(self.message.id, ended, self._message_usage))
        self._stream(event)

    def abandon(self) -> None:
        """Retract the unfinished block of an answer that broke off."""
        self._stop(max(self.message.blocks, default=0))

    def keep_partial(self) -> list[Event]:
        """Retract an interrupted answer except its text, and return the text blocks."""
        content = self.message.content
        kept = [block for block in content if block["type"] == "text" and block["text"]]
        if kept and not self.message.ended and content[-1] is kept[-1]:
            self.send(self.frames.assistant(self.message.id, kept[-1], self._message_usage, aborted=True))
        self._stop(max(self.message.blocks, default=0) + 1)
        return kept

    def retry(self, failure: RequestFailure, attempt: int, most: int, delay_s: float) -> None:
        """Report that a request will be repeated."""
        self.send(self.frames.system(
            "api_retry", attempt=attempt, max_retries=most, retry_delay_ms=round(delay_s * 1000),
            error_status=failure.status, error=failure.code or "unknown", message=failure.message,
        ))  # fmt: skip

    def rate_limit(self, failure: RequestFailure) -> None:
        """Report the end of the account's rate limit, if the failure names one."""
        if failure.is_limit and failure.retry_after_s is not None:
            resets = int(time.time() + failure.retry_after_s + 0.999)
            self.send(self.frames.rate_limit(status="rejected", resetsAt=resets, rateLimitType="api"))

    def tool_result(self, tool_id: str, content: Any, *, is_error: bool, denied: bool = False) -> Event:
        """Write a tool's result, and return its block."""
        block: Event = {"type": "tool_result", "tool_use_id": tool_id, "content": content}
        if is_error:
            block["is_error"] = True
        meta = [{"id": tool_id, "permission_decision": _REJECTED if denied else _ACCEPTED}]
        shown = f"Error: {content}" if is_error else content
        self.send(self.frames.user([block], tool_use_result=shown, tool_result_meta=meta))
        return block

    def deny(self, name: str, tool_id: str, arguments: Mapping[str, Any], message: str, *, asked: bool) -> None:
        """List a denied call in the result. A denial without a request is also reported at once."""
        self.denials.append({"tool_name": name, "tool_use_id": tool_id, "tool_input": dict(arguments)})
        if not asked:
            self.send(self.frames.system("permission_denied", tool_name=name, tool_use_id=tool_id, message=message))

    def succeed(self, text: str, stop_reason: str | None, **fields: Any) -> None:
        """End the turn with an answer."""
        self.end(subtype="success", is_error=False, terminal_reason="completed", stop_reason=stop_reason, result=text,
                 api_error_status=None, **fields)  # fmt: skip

    def fail(self, failure: RequestFailure, *, refusal: bool = False) -> None:
        """End the turn with a failure of the API."""
        self.send(self.frames.synthetic(failure.message, is_api_error_message=True, **failure.fields()))
        stop_reason = "refusal" if refusal else "stop_sequence"
        self.end(subtype="success", is_error=True, terminal_reason="api_error", stop_reason=stop_reason,
                 result=failure.message, **{k: v for k, v in failure.fields().items() if k != "error"})  # fmt: skip

    def fail_by(self, subtype: str, terminal_reason: str, message: str, stop_reason: str | None = None) -> None:
        """End the turn with an error of the worker's own."""
        self.end(subtype=subtype, is_error=True, terminal_reason=terminal_reason, stop_reason=stop_reason,
                 errors=[message])  # fmt: skip

    def preempt(self, *, in_tool: bool, text: str) -> None:
        """End the turn for an urgent message. Claude calls this a success."""
        self.end(subtype="success", is_error=False, terminal_reason=_aborted(in_tool=in_tool), result=text,
                 api_error_status=None)  # fmt: skip

    def interrupt(self, note: str, *, in_tool: bool) -> None:
        """End an interrupted turn."""
        self.send(self.frames.user([{"type": "text", "text": note}]))
        self.fail_by("error_during_execution", _aborted(in_tool=in_tool), note)

    def end(self, **fields: Any) -> None:
        """Write the result frame with the turn's usage."""
        elapsed = int((time.monotonic() - self._began) * 1000)
        self.send(self.frames.result(
            permission_denials=self.denials, num_turns=self.usage.answers, duration_ms=elapsed, duration_api_ms=elapsed,
            **self.usage.fields(), **fields,
        ))  # fmt: skip

    @property
    def _message_usage(self) -> Frame:
        return {**token_usage(0, 0), **{name: count for name, count in self.message.usage.items() if count is not None}}

    def _stop(self, first_lost: int) -> None:
        """End the answer on stdout. The block `first_lost` and later ones are retracted."""
        if self.message.blocks and not self.message.ended:
            lost = {"api_message_id": self.message.id, "from_block_index": first_lost}
            self.send(self.frames.stream({"type": "message_stop"}, self.message.id, abandoned_blocks=lost))

    def _stream(self, event: Event) -> None:
        self.send(self.frames.stream(event, self.message.id))


def _aborted(*, in_tool: bool) -> str:
    return "aborted_tools" if in_tool else "aborted_streaming"
