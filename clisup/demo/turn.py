"""One turn's frames in order: messages, blocks, tool calls and the result that ends it. It knows no directive."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from clisup.demo.session import Session
from clisup.demo.wire import Wire
from clisup.stream_json.frames import Frame, Frames, token_usage

__all__ = ["Turn"]

_PRICE_IN, _PRICE_OUT = 3e-6, 15e-6  # dollars a token: any fixed price will do, for a cost that a test can foretell
_REQUEST = "req_demo"
_INPUT_PIECE = 24  # characters of a tool's input in one delta, about what claude sends


class Turn:
    """Opens and closes messages and blocks as they are needed, so that a script can say things in any order.

    `results` counts the results of the process: a background task gives a second one.
    """

    def __init__(self, wire: Wire, frames: Frames, session: Session, *, prompt_length: int) -> None:
        self.wire, self.frames, self._session = wire, frames, session
        self._number = len(session.prompts)
        self._serial = self._tool_serial = 0
        self._message: str | None = None
        self._index = 0
        self._text: list[str] | None = None  # the open text block; None where none is open
        self._characters = 0
        self._began = time.monotonic()
        self.results = 0
        self.usage: Frame | None = None
        self.cost_usd: float | None = None
        self.structured: Any = None
        self.schema: Frame | None = None  # of the answer that the process was asked for
        self.permission_mode = "default"
        self.uuids: list[str] = []
        self.before_result: Callable[[Frame], None] = lambda fields: None
        self.holds_results = False  # one-shot claude says no result before its sub-agents have reported (2.1.330)
        self._held: list[Frame] = []
        self._spokesman: str | None = None
        self._said = self._requested = False
        self._reset(prompt_length)

    def begin(self, *, prompt_length: int, uuids: list[str]) -> None:
        """Another turn of the same process, for the messages with these uuids: frames of it name them, as claude's do."""
        self._began = time.monotonic()
        self.uuids, self._said = uuids, False
        self._spokesman = uuids[-1] if uuids else None  # whatever message is taken in later
        self._reset(prompt_length)

    def renumber(self) -> None:
        """The session has its prompt: ids from here on are those of its turn."""
        self._number = len(self._session.prompts)

    def request(self) -> None:
        """Say that the model is asked. Without it the first block of a message says so."""
        self.send(self.frames.system("status", status="requesting"))
        self._requested = True

    def _reset(self, prompt_length: int) -> None:
        self._input_tokens, self._output_tokens, self._messages = -(-prompt_length // 4), 0, 0
        self._requested = False
        self._last_text = ""
        self.denials: list[Frame] = []

    # What the model says

    def text(self, text: str) -> None:
        """One text delta; the deltas of following steps join the open block, on a line of their own."""
        self._open_text()
        assert self._text is not None  # for the type checker: _open_text has just set it
        if self._text and not self._text[-1].endswith("\n"):
            text = "\n" + text
        self.delta(text)

    def delta(self, text: str) -> None:
        """One text delta, exactly as it is."""
        self._open_text()
        assert self._text is not None  # as above
        self._text.append(text)
        self._event("content_block_delta", delta={"type": "text_delta", "text": text})

    def think(self, text: str) -> None:
        """A whole thinking block."""
        self._open_block({"type": "thinking", "thinking": "", "signature": ""})
        tokens = -(-len(text) // 4)
        self.send(self.frames.system("thinking_tokens", estimated_tokens=tokens, estimated_tokens_delta=tokens))
        self._event("content_block_delta", delta={"type": "thinking_delta", "thinking": text})
        self._event("content_block_delta", delta={"type": "signature_delta", "signature": "ZGVtbw=="})
        self._characters += len(text)
        block = {"type": "thinking", "thinking": text, "signature": "ZGVtbw=="}
        self._close_block(block, thinking_duration_ms=1, thinking_display="updates")

    def tool_use(self, name: str, arguments: Frame) -> str:
        """A tool_use block; gives its id. Call `end_message` before the results."""
        self._tool_serial += 1
        tool_id = f"toolu_demo{self._number:04d}{self._tool_serial:06d}"
        self._open_block({"type": "tool_use", "id": tool_id, "name": name, "input": {}})
        whole = json.dumps(arguments, ensure_ascii=False)
        for start in range(0, len(whole), max(_INPUT_PIECE, len(whole) // 64)):
            piece = whole[start : start + max(_INPUT_PIECE, len(whole) // 64)]
            self._event("content_block_delta", delta={"type": "input_json_delta", "partial_json": piece})
        self._characters += len(whole)
        self._close_block({"type": "tool_use", "id": tool_id, "name": name, "input": arguments})
        return tool_id

    def end_message(self, stop_reason: str) -> None:
        """Close the message, if one is open."""
        if self._message is None:
            return
        self._close_text()
        output = -(-self._characters // 4)
        self._output_tokens += output
        usage = token_usage(self._input_tokens, output)
        delta = {"stop_reason": stop_reason, "stop_sequence": None}
        self.send(self.frames.stream({"type": "message_delta", "delta": delta, "usage": usage}, self._message))
        self.send(self.frames.stream({"type": "message_stop"}, self._message))
        self._message = None

    def abandon_message(self, *, aborted: bool = False) -> None:
        """Take the open message back, as claude does when its connection is cut: no `assistant` frame confirms the text.

        After an interrupt (`aborted`) that frame is out already, so only what would have come next is abandoned.
        """
        if self._text is not None:
            self._event("content_block_stop")
        if aborted:
            delta = {"stop_reason": None, "stop_sequence": None}
            usage = token_usage(self._input_tokens, 1)
            self.send(self.frames.stream({"type": "message_delta", "delta": delta, "usage": usage}, self._message))
        lost = {"api_message_id": self._message, "from_block_index": self._index + aborted}
        self.send(self.frames.stream({"type": "message_stop"}, self._message, abandoned_blocks=lost))
        self._message = self._text = None

    def send(self, frame: Frame) -> None:
        if self.uuids:
            self._name_messages(frame)
        self.wire.frame(frame)

    def _name_messages(self, frame: Frame) -> None:
        """claude names the messages of a turn where it asks the model, in its first words, and in the result."""
        kind = frame["type"]
        if kind == "result" or (kind == "assistant" and not self._said):
            frame["user_message_uuid"] = self._spokesman
            frame["user_message_uuids"] = list(self.uuids)
        elif frame.get("status") == "requesting" or frame.get("subtype") == "init":
            frame["user_message_uuids"] = list(self.uuids)
        self._said = self._said or kind == "assistant"

    def _open_message(self) -> None:
        self._serial += 1
        self._messages += 1
        self._message = f"msg_demo{self._number:04d}{self._serial:06d}"
        self._index, self._characters = -1, 0
        if not self._requested:
            self.request()
        self._requested = False
        self.send(self.frames.message_start(self._message, token_usage(self._input_tokens, 1)))

    def _open_block(self, block: Frame) -> None:
        self._close_text()
        if self._message is None:
            self._open_message()
        self._index += 1
        self._event("content_block_start", content_block=block)

    def _open_text(self) -> None:
        if self._text is None:
            self._open_block({"type": "text", "text": ""})
            self._text = []

    def _close_text(self) -> None:
        if self._text is not None:
            text = self._last_text = "".join(self._text)
            self._text = None
            self._characters += len(text)
            self._close_block({"type": "text", "text": text})

    def _close_block(self, block: Frame, **fields: Any) -> None:
        assert self._message is not None  # a block is open, so its message is
        self._session.add_answer([block])
        self.send(
            self.frames.assistant(
                self._message, block, token_usage(self._input_tokens, 1), request_id=_REQUEST, **fields
            )
        )
        self._event("content_block_stop")

    def _event(self, kind: str, **fields: Any) -> None:
        self.send(self.frames.stream({"type": kind, "index": self._index, **fields}, self._message))

    # How a turn ends

    def succeed(self, **fields: Any) -> None:
        """End the turn well. A turn without a last word says "Done."."""
        if self._message is None:
            self.text("Done.")
        self.end_message("end_turn")
        if self.structured is not None:
            fields["structured_output"] = self.structured
        self.finish(subtype="success", is_error=False, terminal_reason="completed", result=self._last_text,
                    stop_reason="end_turn", api_error_status=None, **fields)  # fmt: skip

    def answer_by_schema(self, value: Any) -> None:
        """End the turn as claude does (2.1.329): the model calls a tool with the value, and has no word after it."""
        tool_id = self.tool_use("StructuredOutput", value)
        self.end_message("tool_use")
        said = "Structured output provided successfully"
        block = {"tool_use_id": tool_id, "type": "tool_result", "content": said}
        self.send(self.frames.user([block], tool_use_result=said))
        self.finish(subtype="success", is_error=False, terminal_reason="completed", stop_reason="tool_use", api_error_status=None,
                    result=json.dumps(value, separators=(",", ":")), structured_output=value)  # fmt: skip

    def interrupt(self, *, in_tool: bool) -> None:
        """End the turn as claude does after SIGINT: what was said so far is kept."""
        self._keep_partial()
        note = "[Request interrupted by user for tool use]" if in_tool else "[Request interrupted by user]"
        self.send(self.frames.user([{"type": "text", "text": note}]))
        if self._message is not None:
            self.abandon_message(aborted=True)
        reason = "aborted_tools" if in_tool else "aborted_streaming"
        self.finish(subtype="error_during_execution", is_error=True, terminal_reason=reason,
                    errors=["[ede_diagnostic] result_type=user last_content_type=n/a stop_reason=null"])  # fmt: skip

    def preempt(self, *, in_tool: bool) -> None:
        """End the turn for a message that is to be heard at once: claude calls that a success."""
        text = self._keep_partial()
        if self._message is not None:
            self.abandon_message(aborted=True)
        self.finish(subtype="success", is_error=False, terminal_reason="aborted_tools" if in_tool else "aborted_streaming",
                    result=text, api_error_status=None)  # fmt: skip

    def _keep_partial(self) -> str:
        """What was said of the open text block, in an aborted frame of its own; gives the text."""
        if self._message is None or self._text is None:
            return ""
        text = "".join(self._text)
        self._session.add_answer([{"type": "text", "text": text}])
        block = {"type": "text", "text": text}
        self.send(
            self.frames.assistant(
                self._message, block, token_usage(self._input_tokens, 1), request_id=_REQUEST, aborted=True
            )
        )
        return text

    def release_results(self) -> None:
        """Say the results that were held back."""
        held, self._held = self._held, []
        for frame in held:
            self.send(frame)

    def finish(self, **fields: Any) -> None:
        """The result frame, with the turn's usage and the session's cost, and a clean slate for a turn after it."""
        self.before_result(fields)
        usage = self.usage or token_usage(self._input_tokens * max(self._messages, 1), self._output_tokens)
        cost = self.cost_usd
        if cost is None:
            cost = usage["input_tokens"] * _PRICE_IN + usage["output_tokens"] * _PRICE_OUT
        total = self._session.add_cost(cost, self.frames.model)
        elapsed = int((time.monotonic() - self._began) * 1000)
        with self.wire.whole():  # a signal must find the result said and counted, or neither
            self._held.append(self.frames.result(
                usage=usage, total_cost_usd=total, modelUsage={self.frames.model: _model_usage(usage, total)},
                permission_denials=self.denials, num_turns=self._messages, duration_ms=elapsed, duration_api_ms=elapsed,
                result_index=self.results, **fields,
            ))  # fmt: skip
            self.results += 1
            if fields["is_error"] or not self.holds_results:
                self.release_results()
        self.usage = self.cost_usd = self.structured = None
        self._reset(0)


def _model_usage(usage: Frame, cost_usd: float) -> Frame:
    return {"inputTokens": usage["input_tokens"], "outputTokens": usage["output_tokens"], "cacheReadInputTokens": 0,
            "cacheCreationInputTokens": 0, "webSearchRequests": 0, "costUSD": cost_usd, "contextWindow": 200000,
            "maxOutputTokens": 32000}  # fmt: skip
