"""History of a caller as a rollout file of codex, from which a resume goes on (facts from codex-cli 0.169.0). Pure.

Measured: the API gets each message as written, before codex's own words about the machine and the new prompt. `response_item` is for
the model. `task_started`, `item_completed` and `task_complete` are for people: a terminal's `codex resume` shows them as turns.

The file names no model provider, because only the CLI knows its configuration. codex refuses to resume such a file without a provider
in the request: the decoder then asks for the configured one (`modelProvider/list`), and codex keeps it for the thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from clisup.backends.codex.native_sessions import codex_home
from clisup.backends.frames import Frame
from clisup.backends.transcripts import Seed, json_line
from clisup.model.prompts.history import (
    HistoryBlock,
    HistoryImage,
    HistoryText,
    HistoryToolResult,
    HistoryToolUse,
    is_blank,
    sendable,
)

__all__ = ["CodexSeed"]


class CodexSeed:
    """Rules of a history, without thinking: codex takes back only reasoning that its maker has encrypted.

    Only the text of a failed result shows the error, because the API has no field for it.
    """

    def path(self, seed: Seed, env: Mapping[str, str]) -> str | None:
        """Return the path that codex would choose for a thread that begins at this time."""
        home = codex_home(env)
        day, _, time = seed.at.partition("T")
        name = f"rollout-{day}T{time[:8].replace(':', '-')}-{seed.native_session_id}.jsonl"
        return f"{home}/sessions/{day.replace('-', '/')}/{name}" if home is not None else None

    def lines(self, seed: Seed) -> Iterator[bytes]:
        """Yield the lines of the file, each with its newline. The same seed gives the same bytes."""
        for number, (kind, payload) in enumerate(_Writer(seed).payloads()):
            yield json_line({"timestamp": seed.at, "ordinal": number, "type": kind, "payload": payload})


_Payload = tuple[str, Frame]


class _Writer:
    """Payloads of the file's lines. A message of the user that is not only results begins a turn of codex."""

    def __init__(self, seed: Seed) -> None:
        self._seed = seed
        self._ids = 0
        self._turn: str | None = None

    def payloads(self) -> Iterator[_Payload]:
        seed = self._seed
        meta: Frame = {"id": seed.native_session_id, "session_id": seed.native_session_id, "timestamp": seed.at}
        meta |= {"cwd": seed.cwd, "originator": "clisup", "cli_version": "", "source": "vscode"}
        yield "session_meta", {**meta, "history_mode": "paginated"}
        for role, said in sendable(seed.history):
            blocks = [HistoryText(type="text", text=said)] if isinstance(said, str) else said
            yield from self._of_the_user(blocks) if role == "user" else self._of_the_model(blocks)
        yield from self._end()

    def _new_id(self) -> str:
        self._ids += 1
        return self._seed.entry_id(self._ids)

    def _of_the_user(self, blocks: Sequence[HistoryBlock]) -> Iterator[_Payload]:
        for block in blocks:
            if isinstance(block, HistoryToolResult):
                yield "response_item", _result(block)
        parts = [part for block in blocks if (part := _part(block)) is not None]
        if not parts:
            return
        yield from self._end()
        self._turn = self._new_id()
        yield "event_msg", {"type": "task_started", "turn_id": self._turn, "model_context_window": None}
        yield "response_item", {"type": "message", "role": "user", "content": parts}
        texts = [block.text for block in blocks if isinstance(block, HistoryText)]
        yield self._item("UserMessage", [{"type": "text", "text": text, "text_elements": []} for text in texts])

    def _of_the_model(self, blocks: Sequence[HistoryBlock]) -> Iterator[_Payload]:
        for block in blocks:
            if isinstance(block, HistoryToolUse):
                yield "response_item", _call(block)
            elif isinstance(block, HistoryText):
                yield self._item("AgentMessage", [{"type": "Text", "text": block.text}])
                content = [{"type": "output_text", "text": block.text}]
                yield "response_item", {"type": "message", "role": "assistant", "content": content}

    def _item(self, kind: str, content: list[Frame]) -> _Payload:
        item = {"type": kind, "id": self._new_id(), "content": content}
        thread = self._seed.native_session_id
        return "event_msg", {"type": "item_completed", "thread_id": thread, "turn_id": self._turn, "item": item}

    def _end(self) -> Iterator[_Payload]:
        if self._turn is not None:
            yield "event_msg", {"type": "task_complete", "turn_id": self._turn, "last_agent_message": None}


def _part(block: HistoryBlock) -> Frame | None:
    if isinstance(block, HistoryText):
        return {"type": "input_text", "text": block.text}
    if isinstance(block, HistoryImage):
        return {"type": "input_image", "image_url": f"data:{block.media_type};base64,{block.data}"}
    return None


def _call(block: HistoryToolUse) -> Frame:
    """Return a call. A tool of an MCP server has the server as its namespace."""
    words = block.name.split("__", 2)
    served = {"namespace": f"mcp__{words[1]}"} if words[0] == "mcp" and len(words) == 3 else {}
    name = words[2] if served else block.name
    arguments = json.dumps(block.input, ensure_ascii=False)
    return {"type": "function_call", "name": name, **served, "arguments": arguments, "call_id": block.id}


def _result(block: HistoryToolResult) -> Frame:
    said = block.content
    output = said if isinstance(said, str) else [_part(part) for part in said if not is_blank(part)]
    return {"type": "function_call_output", "call_id": block.tool_use_id, "output": output}
