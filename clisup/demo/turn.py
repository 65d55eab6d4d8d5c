"""Frames of a turn in their order: messages, blocks, tool calls, and the result; and the session that remembers the turns.

Transcripts of sessions are below `$DEMO_CLI_HOME`, else `$XDG_STATE_HOME/clisup-demo`, else `$HOME/.local/state/clisup-demo`.
The real claude never looks there.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

from clisup.demo.stdio import Wire
from clisup.stream_json.frames import Frame, Frames, token_usage
from clisup.stream_json.transcript import Transcript, open_transcript

__all__ = ["DemoSession", "DemoTurn", "open_session"]

_PRICE_IN, _PRICE_OUT = 3e-6, 15e-6  # dollars a token
_REQUEST = "req_demo"
_INPUT_PIECE = 24  # characters of a tool's input in one delta, about as many as claude sends


class DemoTurn:
    """The turns of a process, one after the other. Messages and blocks are opened and closed as needed.

    `results` counts the results of the process. `usage`, `cost_usd` and `structured` replace the values of the next result.
    """

    def __init__(self, wire: Wire, frames: Frames, session: DemoSession, *, prompt_length: int) -> None:
        self.wire, self.frames, self._session = wire, frames, session
        self._number = len(session.prompts)
        self._serial = self._tool_serial = 0
        self._message: str | None = None
        self._index = 0
        self._text: list[str] | None = None  # the open text block
        self._characters = 0
        self.results = 0
        self.usage: Frame | None = None
        self.cost_usd: float | None = None
        self.structured: Any = None
        self.schema: Frame | None = None
        self.permission_mode = "default"
        self.uuids: list[str] = []
        self.before_result: Callable[[Frame], None] = lambda fields: None
        self.holds_results = False  # a one-shot claude gives no result before its sub-agents have reported (2.1.330)
        self._held: list[Frame] = []
        self._reset(prompt_length)

    def begin(self, *, prompt_length: int, uuids: list[str]) -> None:
        """Begin another turn, for the messages with these uuids. Its frames name the messages, as in claude."""
        self.uuids = uuids
        self._reset(prompt_length)

    def renumber(self) -> None:
        """Number the ids of messages and tools by the session's latest prompt."""
        self._number = len(self._session.prompts)

    def request(self) -> None:
        """Announce a request to the model. Without this call the first block of a message announces it."""
        self.send(self.frames.system("status", status="requesting"))
        self._requested = True

    def _reset(self, prompt_length: int) -> None:
        self._began = time.monotonic()
        self._input_tokens, self._output_tokens, self._messages = -(-prompt_length // 4), 0, 0
        self._requested = self._said = False
        self._last_text = ""
        self._newest_uuid = self.uuids[-1] if self.uuids else None  # whatever message is added to the turn later
        self.denials: list[Frame] = []

    # The model's answer

    def text(self, text: str) -> None:
        """Send a text delta on a line of its own."""
        block = self._text_block()
        if block and not block[-1].endswith("\n"):
            text = "\n" + text
        self.delta(text)

    def delta(self, text: str) -> None:
        """Send a text delta exactly as it is."""
        self._text_block().append(text)
        self._event("content_block_delta", delta={"type": "text_delta", "text": text})

    def think(self, text: str) -> None:
        """Send a thinking block."""
        self._open_block({"type": "thinking", "thinking": "", "signature": ""})
        tokens = -(-len(text) // 4)
        self.send(self.frames.system("thinking_tokens", estimated_tokens=tokens, estimated_tokens_delta=tokens))
        self._event("content_block_delta", delta={"type": "thinking_delta", "thinking": text})
        self._event("content_block_delta", delta={"type": "signature_delta", "signature": "ZGVtbw=="})
        self._characters += len(text)
        block = {"type": "thinking", "thinking": text, "signature": "ZGVtbw=="}
        self._close_block(block, thinking_duration_ms=1, thinking_display="updates")

    def tool_use(self, name: str, arguments: Frame) -> str:
        """Send a tool_use block and return its id. `end_message` has to come before the results."""
        self._tool_serial += 1
        tool_id = f"toolu_demo{self._number:04d}{self._tool_serial:06d}"
        self._open_block({"type": "tool_use", "id": tool_id, "name": name, "input": {}})
        whole = json.dumps(arguments, ensure_ascii=False)
        size = max(_INPUT_PIECE, len(whole) // 64)
        for start in range(0, len(whole), size):
            delta = {"type": "input_json_delta", "partial_json": whole[start : start + size]}
            self._event("content_block_delta", delta=delta)
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
        self._message_delta(stop_reason, output)
        self.send(self.frames.stream({"type": "message_stop"}, self._message))
        self._message = None

    def abandon_message(self, *, aborted: bool = False) -> None:
        """Take back the open message, as claude does when its connection is cut: no `assistant` frame confirms the text.

        After an interrupt (`aborted`) that frame has been sent, so only later blocks are abandoned.
        """
        if self._text is not None:
            self._event("content_block_stop")
        if aborted:
            self._message_delta(None, 1)
        lost = {"api_message_id": self._message, "from_block_index": self._index + aborted}
        self.send(self.frames.stream({"type": "message_stop"}, self._message, abandoned_blocks=lost))
        self._message = self._text = None

    def send(self, frame: Frame) -> None:
        if self.uuids:
            self._name_messages(frame)
        self.wire.frame(frame)

    def _name_messages(self, frame: Frame) -> None:
        """Name the turn's messages where claude does: in requests to the model, the first answer, and the result."""
        kind = frame["type"]
        if kind == "result" or (kind == "assistant" and not self._said):
            frame["user_message_uuid"] = self._newest_uuid
            frame["user_message_uuids"] = list(self.uuids)
        elif frame.get("status") == "requesting" or frame.get("subtype") == "init":
            frame["user_message_uuids"] = list(self.uuids)
        self._said = self._said or kind == "assistant"

    def _open_block(self, block: Frame) -> None:
        self._close_text()
        if self._message is None:
            self._serial += 1
            self._messages += 1
            self._message = f"msg_demo{self._number:04d}{self._serial:06d}"
            self._index, self._characters = -1, 0
            if not self._requested:
                self.request()
            self._requested = False
            self.send(self.frames.message_start(self._message, token_usage(self._input_tokens, 1)))
        self._index += 1
        self._event("content_block_start", content_block=block)

    def _text_block(self) -> list[str]:
        if self._text is None:
            self._open_block({"type": "text", "text": ""})
            self._text = []
        return self._text

    def _close_text(self) -> None:
        if self._text is not None:
            text = self._last_text = "".join(self._text)
            self._text = None
            self._characters += len(text)
            self._close_block({"type": "text", "text": text})

    def _close_block(self, block: Frame, **more: Any) -> None:
        self._confirm(block, **more)
        self._event("content_block_stop")

    def _confirm(self, block: Frame, **more: Any) -> None:
        assert self._message is not None  # a block is open, so its message is
        self._session.add_answer([block])
        usage = token_usage(self._input_tokens, 1)
        self.send(self.frames.assistant(self._message, block, usage, request_id=_REQUEST, **more))

    def _event(self, kind: str, **more: Any) -> None:
        self.send(self.frames.stream({"type": kind, "index": self._index, **more}, self._message))

    def _message_delta(self, stop_reason: str | None, output_tokens: int) -> None:
        delta = {"stop_reason": stop_reason, "stop_sequence": None}
        usage = token_usage(self._input_tokens, output_tokens)
        self.send(self.frames.stream({"type": "message_delta", "delta": delta, "usage": usage}, self._message))

    # The end of a turn

    def succeed(self, **more: Any) -> None:
        """End the turn with success. A turn without a last word says "Done."."""
        if self._message is None:
            self.text("Done.")
        self.end_message("end_turn")
        if self.structured is not None:
            more["structured_output"] = self.structured
        self.finish(subtype="success", is_error=False, terminal_reason="completed", result=self._last_text,
                    stop_reason="end_turn", api_error_status=None, **more)  # fmt: skip

    def succeed_with_value(self, value: Any) -> None:
        """End the turn as claude does with --json-schema (2.1.329): a tool call has the value, and no text follows."""
        tool_id = self.tool_use("StructuredOutput", value)
        self.end_message("tool_use")
        answer = "Structured output provided successfully"
        block = {"tool_use_id": tool_id, "type": "tool_result", "content": answer}
        self.send(self.frames.user([block], tool_use_result=answer))
        self.finish(subtype="success", is_error=False, terminal_reason="completed", stop_reason="tool_use", api_error_status=None,
                    result=json.dumps(value, separators=(",", ":")), structured_output=value)  # fmt: skip

    def interrupt(self, *, in_tool: bool) -> None:
        """End the turn as claude does after SIGINT. The text so far is kept, in an aborted frame of its own."""
        if self._message is not None and self._text is not None:
            self._confirm({"type": "text", "text": "".join(self._text)}, aborted=True)
        note = "[Request interrupted by user for tool use]" if in_tool else "[Request interrupted by user]"
        self.send(self.frames.user([{"type": "text", "text": note}]))
        if self._message is not None:
            self.abandon_message(aborted=True)
        reason = "aborted_tools" if in_tool else "aborted_streaming"
        self.finish(subtype="error_during_execution", is_error=True, terminal_reason=reason,
                    errors=["[ede_diagnostic] result_type=user last_content_type=n/a stop_reason=null"])  # fmt: skip

    def release_results(self) -> None:
        """Send the results that were held back."""
        held, self._held = self._held, []
        for frame in held:
            self.send(frame)

    def finish(self, **more: Any) -> None:
        """Send the result, with the turn's usage and the session's cost."""
        self.before_result(more)
        usage = self.usage or token_usage(self._input_tokens * max(self._messages, 1), self._output_tokens)
        cost = self.cost_usd
        if cost is None:
            cost = usage["input_tokens"] * _PRICE_IN + usage["output_tokens"] * _PRICE_OUT
        total = self._session.add_cost(cost, self.frames.model)
        elapsed = int((time.monotonic() - self._began) * 1000)
        own = {
            "inputTokens": usage["input_tokens"], "outputTokens": usage["output_tokens"],
            "cacheReadInputTokens": usage.get("cache_read_input_tokens", 0),
            "cacheCreationInputTokens": usage.get("cache_creation_input_tokens", 0), "webSearchRequests": 0, "costUSD": cost,
            "contextWindow": 200000, "maxOutputTokens": 32000,
        }  # fmt: skip
        with self.wire.whole():  # a signal must find the result both sent and counted, or neither
            self._held.append(self.frames.result(
                usage=usage, total_cost_usd=total, modelUsage={self.frames.model: {**own, "costUSD": total}},
                model_usage_since_last_result={self.frames.model: own}, permission_denials=self.denials,
                num_turns=self._messages, duration_ms=elapsed, duration_api_ms=elapsed, result_index=self.results, **more,
            ))  # fmt: skip
            self.results += 1
            if more["is_error"] or not self.holds_results:
                self.release_results()
        self.usage = self.cost_usd = self.structured = None
        self._reset(0)


# -- the session --------------------------------------------------------------------------------------------------------


class DemoSession:
    """Session with its transcript. The transcript is read at start and grows with each turn.

    `prompts`, `total_cost_usd` and `model` are of all turns so far. `answered` holds the uuids of messages that had their
    turn. `messages` has all messages in order; `messages_before` counts those before the running turn.
    """

    def __init__(self, transcript: Transcript) -> None:
        self.id = transcript.session_id
        self.prompts: list[str] = []
        self.messages: list[Frame] = []
        self.messages_before = 0
        self.answered: set[str] = set()
        self.total_cost_usd = 0.0
        self.model: str | None = None
        self.transcript = transcript
        self._asked: list[str] = []

    def load(self, entry: Frame) -> None:
        """Take over one entry of a transcript."""
        if entry.get("type") in ("user", "assistant"):
            self.messages.append({"role": entry["type"], "content": entry["message"]["content"]})
        if entry.get("type") == "user":
            injected = entry.get("injected", False)
            self.prompts += [] if injected else _prompts(entry["message"]["content"])
            self._asked = [*(self._asked if injected else ()), *entry.get("uuids", ())]
        elif entry.get("type") == "cost-state":
            self.answered.update(self._asked)
            self.total_cost_usd = float(entry["totalCostUSD"])
            self.model = entry.get("model")

    def add_prompt(self, prompt: str, uuids: list[str] | None = None) -> None:
        """Add the prompt of the running turn, which the messages `uuids` gave. The session can be resumed from now on."""
        self.prompts.append(prompt)
        self.messages_before = len(self.messages)
        self._add("user", prompt, **({"uuids": uuids} if uuids else {}))

    def add_to_turn(self, text: str, uuids: list[str]) -> None:
        """Add a message that the running turn has received."""
        self._add("user", text, uuids=uuids, injected=True)

    def add_answer(self, content: list[Frame]) -> None:
        self._add("assistant", content)

    def add_cost(self, cost_usd: float, model: str) -> float:
        """Add the cost of a turn and return the session's total."""
        self.total_cost_usd = round(self.total_cost_usd + cost_usd, 9)
        self.model = model
        self.transcript.append({"type": "cost-state", "totalCostUSD": self.total_cost_usd, "model": model})
        return self.total_cost_usd

    def _add(self, role: str, content: Any, **fields: Any) -> None:
        message = {"role": role, "content": content}
        self.messages.append(message)
        self.transcript.append({"type": role, "message": message, **fields})


def open_session(cwd: str, *, new: str | None, resume: str | None, fork: bool, persist: bool) -> DemoSession:
    """Open the session of a run. A fork begins with a copy of `resume`. Raises `SessionInUse` or `UnknownSession`."""
    home = _home()
    source = None if resume is None else open_transcript(home, cwd, new=None, resume=resume)
    resumed = source if not fork else None
    session = DemoSession(resumed or open_transcript(home, cwd, new=new, resume=None))
    session.transcript.persist = persist
    for entry in source.entries() if source else ():
        session.load(entry)
        if resumed is None:
            session.transcript.append({**entry, "sessionId": session.id})
    return session


def _prompts(content: Any) -> list[str]:
    """Return the text of a message as a prompt. Results of tools are no prompts. Other programs may have written blocks."""
    if not isinstance(content, list):
        return [str(content)]
    texts = [str(block.get("text", "")) for block in content if block.get("type") == "text"]
    return ["\n".join(texts)] if texts else []


def _home() -> str:
    explicit = os.environ.get("DEMO_CLI_HOME")
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return explicit or os.path.join(state, "clisup-demo")
