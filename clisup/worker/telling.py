"""The frames of one turn, in claude's order: an answer's events, its whole blocks, results of tools, and the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from clisup.stream_json.frames import Frame, Frames, token_usage
from clisup.worker.events import Event, Message
from clisup.worker.failures import Failure
from clisup.worker.spending import Spending

__all__ = ["Telling", "text_of"]

_ACCEPTED = {"permission_decision": {"decision": "accept", "source": "config", "reason_type": "rule"}}
_REJECTED = {"permission_decision": {"decision": "reject", "source": "config"}}


class Telling:
    """Says what happens in a turn. `uuids` are those of its messages: claude names them where it asks, first speaks, and ends."""

    def __init__(self, frames: Frames, write: Callable[[Frame], None], uuids: list[str], spending: Spending) -> None:
        self.frames, self.uuids, self.spending = frames, uuids, spending
        self._write = write
        self._spokesman = uuids[-1] if uuids else None
        self._spoke = False
        self._held: list[Event] = []
        self._began = time.monotonic()
        self.message = Message()
        self.denials: list[Frame] = []

    def send(self, frame: Frame) -> None:
        """Write a frame, with the turn's messages where claude names them."""
        kind = frame["type"]
        if self.uuids and (kind == "result" or (kind == "assistant" and not self._spoke)):
            frame |= {"user_message_uuid": self._spokesman, "user_message_uuids": list(self.uuids)}
        elif self.uuids and (frame.get("status") == "requesting" or frame.get("subtype") == "init"):
            frame["user_message_uuids"] = list(self.uuids)
        self._spoke = self._spoke or kind == "assistant"
        self._write(frame)

    def ask(self) -> None:
        """Say that the model is asked; its answer begins anew."""
        self.message, self._held = Message(), []
        self.send(self.frames.system("status", status="requesting"))

    def event(self, event: Event, name_of: Callable[[str], str]) -> None:
        """Say one event of an answer. Nothing is said before its first block: until then the request can be made again."""
        if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
            block = event["content_block"]
            event = {**event, "content_block": {**block, "name": name_of(block["name"])}}
        ended = self.message.take(event)
        if not self.message.blocks and event["type"] != "message_stop":
            self._held.append(event)
            return
        for held in self._held:
            self._stream(held)
        self._held = []
        if ended is not None:
            self.send(self.frames.assistant(self._id, ended, self._usage))
        self._stream(event)

    def abandon(self, *, aborted: bool = False) -> list[dict[str, Any]]:
        """Take back what no whole block confirms; return what was said. After an interrupt (`aborted`) text is kept."""
        if not self.message.blocks:
            return []
        said = [block for block in self.message.content if aborted and block["type"] == "text" and block["text"]]
        open_index = max(self.message.blocks)
        if said and self.message.blocks[open_index] is said[-1]:
            self.send(self.frames.assistant(self._id, said[-1], self._usage, aborted=True))
        lost = {"api_message_id": self._id, "from_block_index": open_index + aborted}
        self.send(self.frames.stream({"type": "message_stop"}, self._id, abandoned_blocks=lost))
        return said

    def retry(self, failure: Failure, attempt: int, most: int, delay_s: float) -> None:
        """Say that a request is made again."""
        self.send(self.frames.system(
            "api_retry", attempt=attempt, max_retries=most, retry_delay_ms=round(delay_s * 1000),
            error_status=failure.status, error=failure.code or "unknown",
        ))  # fmt: skip

    def limit(self, failure: Failure) -> None:
        """Say until when the account is to rest."""
        if failure.is_limit and failure.retry_after_s is not None:
            resets = int(time.time() + failure.retry_after_s + 0.999)
            self.send(self.frames.rate_limit(status="rejected", resetsAt=resets, rateLimitType="api"))

    def result_of(self, tool_id: str, content: Any, *, is_error: bool, denied: bool = False) -> dict[str, Any]:
        """Say a tool's result; return its block."""
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": tool_id, "content": content}
        if is_error:
            block["is_error"] = True
        told = f"Error: {content}" if is_error else content
        meta = _REJECTED if denied else _ACCEPTED
        self.send(self.frames.user([block], tool_use_result=told, tool_use_meta=meta))
        return block

    def deny(self, name: str, tool_id: str, arguments: Mapping[str, Any], message: str, *, asked: bool) -> None:
        """Note a refusal for the result; one that nobody was asked about is said at once."""
        self.denials.append({"tool_name": name, "tool_use_id": tool_id, "tool_input": dict(arguments)})
        if not asked:
            self.send(self.frames.system("permission_denied", tool_name=name, tool_use_id=tool_id, message=message))

    def fail(self, failure: Failure, *, refusal: bool = False) -> None:
        """End the turn with a failure of the API."""
        self.send(self.frames.synthetic(failure.message, is_api_error_message=True, **failure.fields()))
        stop_reason = "refusal" if refusal else "stop_sequence"
        self.end(subtype="success", is_error=True, terminal_reason="api_error", stop_reason=stop_reason,
                 result=failure.message, **{k: v for k, v in failure.fields().items() if k != "error"})  # fmt: skip

    def interrupted(self, *, in_tool: bool) -> None:
        """End the turn because somebody interrupted it."""
        note = "[Request interrupted by user for tool use]" if in_tool else "[Request interrupted by user]"
        self.send(self.frames.user([{"type": "text", "text": note}]))
        self.end(subtype="error_during_execution", is_error=True, errors=[note],
                 terminal_reason="aborted_tools" if in_tool else "aborted_streaming")  # fmt: skip

    def end(self, **fields: Any) -> None:
        """Say the result, with all that the turn has used."""
        elapsed = int((time.monotonic() - self._began) * 1000)
        self.send(self.frames.result(
            permission_denials=self.denials, num_turns=self.spending.answers, duration_ms=elapsed, duration_api_ms=elapsed,
            **self.spending.fields(), **fields,
        ))  # fmt: skip

    @property
    def _id(self) -> str:
        return str(self.message.head.get("id") or "")

    @property
    def _usage(self) -> Frame:
        return {**token_usage(0, 0), **{name: count for name, count in self.message.usage.items() if count is not None}}

    def _stream(self, event: Event) -> None:
        self.send(self.frames.stream(event, self._id))


def text_of(blocks: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of an answer."""
    return "".join(block["text"] for block in blocks if block["type"] == "text")
