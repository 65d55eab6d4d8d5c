"""Events of a session as `session/update`s of the protocol. Pure: an event in, updates out.

An editor cannot take text back, so each text is sent once: as it is streamed, or with its message if it was not.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

from clisup.client.events import (
    ApprovalRequested,
    ApprovalResolved,
    AssistantMessage,
    BackendRetry,
    BackendStatus,
    Block,
    ContentDelta,
    Envelope,
    Gap,
    Notice,
    PromptAccepted,
    Retracted,
    SessionInit,
    ToolResult,
    ToolUse,
    TurnCompleted,
    TurnStarted,
)
from clisup.client.raw import JsonObject
from clisup.doors.tool_calls import PLAN_TOOLS, changes, kind_of, locations, plan_of, plan_of_lines, title_of

__all__ = ["MAX_HELD", "MAX_OUTPUT_CHARS", "UpdateMaker", "call_id", "chunk", "prompt_contents", "tool_call"]

MAX_OUTPUT_CHARS = 256 * 1024
"""Characters of one tool's output that an editor gets."""

MAX_HELD = 1000
"""Prompts that wait for their turn, and tool calls, that are remembered."""

_CHUNKS = {"text": "agent_message_chunk", "thinking": "agent_thought_chunk"}
_PLANS = ("plan", "todo_list")


class UpdateMaker:
    """Maker of the updates of one session. `cwd` is the session's directory.

    Prompts whose keys are in `own_keys` are not shown: their editor shows them already.
    """

    def __init__(self, cwd: str, own_keys: Collection[str | None] = ()) -> None:
        self.cwd, self._own = cwd, own_keys
        self._prompts: dict[str | None, PromptAccepted] = {}
        self._own_turns: set[str | None] = set()
        self._streamed: dict[tuple[str | None, str], str] = {}
        self._edits: dict[str, bool] = {}  # of each call: whether it shows its change
        self._open_calls: set[str] = set()
        self._said = False
        self.open_approvals: dict[str, ApprovalRequested] = {}
        self.approval_turns: dict[str, str | None] = {}
        self.last_message = 0
        """Seq of the last event that made all text before it complete."""
        self.mode: str | None = None
        self.model: str | None = None

    def take(self, envelope: Envelope) -> list[JsonObject]:
        """Return the updates of an event."""
        match envelope.event:
            case ContentDelta() as delta:
                return self._delta(envelope, delta)
            case AssistantMessage() as message:
                return self._message(envelope, message)
            case ToolUse() | ToolResult() as event:
                return self._tool(envelope, event)
            case PromptAccepted() as prompt:
                return self._accepted(envelope, prompt)
            case TurnStarted():
                return self._started(envelope)
            case TurnCompleted() as end:
                return self._ended(envelope, end)
            case ApprovalRequested() | ApprovalResolved() as event:
                return self._approval(envelope, event)
            case Retracted() as retracted:
                return self._retracted(envelope, retracted)
            case other:
                return self._other(other)

    # -- prompts and turns

    def _accepted(self, envelope: Envelope, prompt: PromptAccepted) -> list[JsonObject]:
        """Show a steered prompt where it was sent, and others at the beginning of their turn."""
        if prompt.delivery == "duplicate":
            return []
        if prompt.key in self._own:
            self._own_turns.add(envelope.turn_id)
            return []
        if prompt.delivery == "steered":
            return _said_by_user(envelope, prompt)
        self._prompts[envelope.turn_id] = prompt
        _bound(self._prompts)
        return []

    def _started(self, envelope: Envelope) -> list[JsonObject]:
        self._begin_turn(envelope)
        started = envelope.event
        assert isinstance(started, TurnStarted)
        prompt = self._prompts.pop(envelope.turn_id, None)
        if prompt is not None and (prompt.text is not None or prompt.blob is not None):
            return _said_by_user(envelope, prompt)
        if envelope.turn_id in self._own_turns or not started.prompt_preview:
            return []
        return [chunk("user_message_chunk", _text(started.prompt_preview), f"{envelope.turn_id}.prompt")]

    def _ended(self, envelope: Envelope, end: TurnCompleted) -> list[JsonObject]:
        updates = [_call_update(id_, status="failed") for id_ in sorted(self._open_calls)]
        own = envelope.turn_id in self._own_turns
        self._own_turns.discard(envelope.turn_id)
        self._prompts.pop(envelope.turn_id, None)
        if end.outcome == "completed" and end.text and not self._said:
            updates.append(chunk(_CHUNKS["text"], _text(end.text), f"{envelope.turn_id}.answer"))
        elif end.error is not None and not own:
            updates.append(_note(envelope, f"The turn {_OUTCOMES[end.outcome]}: {end.error.message}"))
        self._begin_turn(envelope)
        return updates

    def _begin_turn(self, envelope: Envelope) -> None:
        self._said, self.last_message = False, envelope.seq
        self._streamed.clear()
        self._open_calls.clear()

    # -- texts of the model

    def _delta(self, envelope: Envelope, delta: ContentDelta) -> list[JsonObject]:
        if delta.parent_tool_use_id is not None or delta.kind not in _CHUNKS or not delta.text:
            return []
        key = (delta.message_id, delta.kind)
        self._streamed[key] = self._streamed.get(key, "") + delta.text
        self._said = self._said or delta.kind == "text"
        return [chunk(_CHUNKS[delta.kind], _text(delta.text), _message_id(envelope, delta.message_id))]

    def _message(self, envelope: Envelope, message: AssistantMessage) -> list[JsonObject]:
        if message.parent_tool_use_id is not None:
            return []
        self.last_message = envelope.seq
        id_ = _message_id(envelope, message.message_id)
        updates = [
            chunk(_CHUNKS.get(block.kind, _CHUNKS["text"]), content, id_)
            for block in message.blocks
            if (content := self._unsent(message.message_id, block)) is not None
        ]
        for kind in _CHUNKS:
            if not self._streamed.get((message.message_id, kind), "").strip():
                self._streamed.pop((message.message_id, kind), None)
        return updates

    def _unsent(self, message_id: str | None, block: Block) -> JsonObject | None:
        """Return the part of a block that was not streamed, as content."""
        if block.kind == "image" and block.data:
            return {"type": "image", "data": block.data, "mimeType": block.media_type or "image/png"}
        if block.kind not in _CHUNKS or not block.text:
            return None
        self._said = self._said or block.kind == "text"
        key = (message_id, block.kind)
        rest, self._streamed[key] = _rest(block.text, self._streamed.get(key, ""))
        return _text(rest) if rest else None

    def _retracted(self, envelope: Envelope, retracted: Retracted) -> list[JsonObject]:
        for kind in _CHUNKS:
            self._streamed.pop((retracted.message_id, kind), None)
        why = f" ({retracted.reason})" if retracted.reason else ""
        return [_note(envelope, f"The text above was withdrawn{why}.")]

    # -- tools

    def _tool(self, envelope: Envelope, event: ToolUse | ToolResult) -> list[JsonObject]:
        id_ = call_id(envelope.turn_id, event.tool_use_id)
        if isinstance(event, ToolResult):
            return self._result(id_, event)
        self._open_calls.add(id_)
        call = tool_call(id_, event.name, event.input, self.cwd)
        self._edits[id_] = bool(call.get("content"))
        _bound(self._edits)
        if event.parent_tool_use_id is not None:
            parent = call_id(envelope.turn_id, event.parent_tool_use_id)
            call["_meta"] = {"clisup": {"parentToolCallId": parent}}
        updates: list[JsonObject] = [{"sessionUpdate": "tool_call", **call, "status": "in_progress"}]
        if event.name.lower() in PLAN_TOOLS and (entries := plan_of(event.input)):
            updates.append({"sessionUpdate": "plan", "entries": entries})
        return updates

    def _result(self, id_: str, result: ToolResult) -> list[JsonObject]:
        self._open_calls.discard(id_)
        update = _call_update(id_, status="failed" if result.is_error else "completed")
        contents = [_content(content) for content in _contents_of(result)]
        contents += [diff for block in result.blocks or () if (diff := _diff_of(block, self.cwd))]
        if contents and (result.is_error or not self._edits.get(id_)):
            update["content"] = contents
        return [update]

    def _approval(self, envelope: Envelope, event: ApprovalRequested | ApprovalResolved) -> list[JsonObject]:
        if isinstance(event, ApprovalRequested):
            self.open_approvals[event.approval_id] = event
            self.approval_turns[event.approval_id] = envelope.turn_id
            state = "pending"
        else:
            asked = self.open_approvals.pop(event.approval_id, None)
            self.approval_turns.pop(event.approval_id, None)
            if asked is None or event.decision != "allow":
                return []
            event, state = asked, "in_progress"
        id_ = call_id(envelope.turn_id, event.tool_use_id or "")
        return [_call_update(id_, status=state)] if id_ in self._open_calls else []

    # -- the rest

    def _other(self, event: Any) -> list[JsonObject]:
        match event:
            case BackendStatus(status=status, detail=str(detail)) if status in _PLANS:
                return [{"sessionUpdate": "plan", "entries": plan_of_lines(detail)}]
            case BackendRetry(attempt=attempt, error=error):
                reason = f": {error.message}" if error else ""
                return [chunk(_CHUNKS["thinking"], _text(f"The model is asked again (try {attempt or '?'}){reason}\n"))]
            case Gap(from_seq=first, to_seq=last, reason=reason):
                return [chunk(_CHUNKS["text"], _text(f"[Events {first} to {last} are missing: {reason}]\n\n"))]
            case SessionInit():
                self.model = event.model or self.model
                return self._moded(event.permission_mode)
            case Notice(code="permission_mode_set", data={"value": str(mode)}):
                return self._moded(mode)
            case Notice(code="model_set", data={"value": str(model)}):
                self.model = model
        return []

    def _moded(self, mode: str | None) -> list[JsonObject]:
        if mode is None or mode == self.mode:
            return []
        self.mode = mode
        return [{"sessionUpdate": "current_mode_update", "currentModeId": mode}]


_OUTCOMES = {"failed": "failed", "interrupted": "was interrupted", "timed_out": "timed out", "completed": "ended"}


def call_id(turn_id: str | None, tool_use_id: str) -> str:
    """Return the id of a tool call in its session. Some backends count the calls of each turn anew."""
    return f"{turn_id or 't0'}.{tool_use_id}"


def chunk(kind: str, content: JsonObject, message_id: str | None = None) -> JsonObject:
    """Return a chunk of a message."""
    named = {"messageId": message_id} if message_id else {}
    return {"sessionUpdate": kind, "content": content, **named}


def tool_call(id_: str, name: str, given: JsonObject, cwd: str) -> JsonObject:
    """Return the fields of a tool call that its input gives."""
    call: JsonObject = {"toolCallId": id_, "title": title_of(name, given), "kind": kind_of(name), "rawInput": given}
    if diffs := changes(name, given, cwd):
        call["content"] = diffs
    if files := locations(given):
        call["locations"] = [
            {**file, "path": file["path"] if file["path"].startswith("/") else f"{cwd.rstrip('/')}/{file['path']}"}
            for file in files
        ]
    return call


def prompt_contents(prompt: PromptAccepted) -> list[JsonObject]:
    """Return the contents of a prompt: texts and images. `text` is the JSON of all blocks if the prompt has a `blob`."""
    if prompt.blob is None:
        return [_text(prompt.text)] if prompt.text else []
    try:
        blocks = json.loads(prompt.text or "")
        return [content for block in blocks if (content := _block_content(block)) is not None]
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return [_text(f"{prompt.text or ''}\n[...]")]


def _block_content(block: JsonObject) -> JsonObject | None:
    if block["type"] == "image":
        return {"type": "image", "data": block["data"], "mimeType": block["media_type"]}
    return _text(block["text"]) if block["type"] == "text" else None


def _said_by_user(envelope: Envelope, prompt: PromptAccepted) -> list[JsonObject]:
    id_ = f"{envelope.turn_id}.{prompt.prompt_id or 'prompt'}"
    return [chunk("user_message_chunk", content, id_) for content in prompt_contents(prompt)]


def _rest(block: str, streamed: str) -> tuple[str, str]:
    """Return what of a block was not streamed, and what of the stream belongs to later blocks."""
    if streamed.startswith(block):
        return "", streamed[len(block) :]
    if block.startswith(streamed):
        return block[len(streamed) :], ""
    same, whole = streamed.strip(), block.strip()
    if same and whole.startswith(same):  # a backend has trimmed the message
        return whole[len(same) :], ""
    return ("", "") if same.startswith(whole) else (block, "")


def _contents_of(result: ToolResult) -> Iterable[JsonObject]:
    if result.content:
        cut = len(result.content) > MAX_OUTPUT_CHARS
        yield _text(result.content[:MAX_OUTPUT_CHARS] + ("\n[...]" if cut else ""))
    for block in result.blocks or ():
        if block.kind == "image" and block.data:
            yield {"type": "image", "data": block.data, "mimeType": block.media_type or "image/png"}
        elif block.kind == "text" and block.text and not result.content:
            yield _text(block.text[:MAX_OUTPUT_CHARS])


def _diff_of(block: Block, cwd: str) -> JsonObject | None:
    """Return the change that an ACP agent reports as a part of a result."""
    return next(iter(changes("edit", block.input, cwd)), None) if block.native_kind == "diff" and block.input else None


def _call_update(id_: str, *, status: str) -> JsonObject:
    return {"sessionUpdate": "tool_call_update", "toolCallId": id_, "status": status}


def _note(envelope: Envelope, text: str) -> JsonObject:
    return chunk(_CHUNKS["text"], _text(f"\n\n[{text}]\n\n"), f"{envelope.turn_id}.note-{envelope.seq}")


def _content(content: JsonObject) -> JsonObject:
    return {"type": "content", "content": content}


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _message_id(envelope: Envelope, message_id: str | None) -> str:
    return f"{envelope.turn_id}.{message_id or 'message'}"


def _bound(held: dict[Any, Any]) -> None:
    """Forget the oldest entry over the limit."""
    if len(held) > MAX_HELD:
        held.pop(next(iter(held)))
