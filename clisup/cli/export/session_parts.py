"""Events of a session as parts of a document, one after the other: what is written is not kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator

from clisup.cli.export.diffs import block_diff, call_diff
from clisup.cli.export.parts import (
    Call,
    CallResult,
    Note,
    Part,
    PromptText,
    SaidText,
    Text,
    TurnBegin,
    TurnEnd,
)
from clisup.cli.views.events import Event, tool_words, words
from clisup.cli.views.terminal import clip
from clisup.client.raw import JsonObject

__all__ = ["MAX_HELD", "MAX_OUTPUT_BYTES", "MAX_TEXT_BYTES", "FetchBlob", "SessionParts"]

MAX_TEXT_BYTES = 4 * 1024 * 1024
"""Bytes of one prompt, answer or thought at most."""

MAX_OUTPUT_BYTES = 64 * 1024
"""Bytes of one tool call or result at most, unless --max-output says otherwise."""

MAX_HELD = 1000
"""Limit of prompts that wait for their turn, and of open tool calls, that are remembered."""

_INLINE_TEXT = 16 * 1024
"""Characters of a prompt that an event holds (`clisup.model.prompts.kept`)."""

FetchBlob = Callable[[str, int], tuple[bytes, int]]
"""Return the first bytes of a payload that is stored outside its event, and its whole size."""

_NOTES = (
    "permission_denied", "approval_resolved", "retry", "watchdog", "notice", "gap", "task", "session_forked",
    "session_seeded",
)  # fmt: skip


class SessionParts:
    """Reader of the events of one session. `fetch` reads blobs; `max_output` limits the bytes of a tool call or result."""

    def __init__(self, fetch: FetchBlob, max_output: int = MAX_OUTPUT_BYTES) -> None:
        self._fetch, self._max_output = fetch, max_output
        self._prompts: dict[str, PromptText] = {}
        self._tools: dict[str, str] = {}
        self._unfinished: dict[str | None, str] = {}
        self._answered = False
        self._turn: str | None = None

    def parts(self, events: Iterable[Event]) -> Iterator[Part]:
        """Yield the parts of the events."""
        for event in events:
            yield from self._parts(event)

    def _parts(self, event: Event) -> Iterator[Part]:
        match event["type"]:
            case "prompt_accepted":
                yield from self._accepted(event)
            case "turn_started":
                yield self._begin(event)
            case "content_delta" if event["kind"] == "text" and not event.get("parent_tool_use_id"):
                self._pend(event)
            case "retracted":
                self._unfinished.pop(event.get("message_id"), None)
            case "message":
                yield from self._message(event)
            case "tool_use":
                yield self._call(event)
            case "tool_result":
                yield self._result(event)
            case "turn_completed":
                yield from self._end(event)
            case "rate_limit" if not str(event["status"]).startswith("allowed"):
                yield self._note(event)
            case kind if kind in _NOTES:
                yield self._note(event)

    # -- turns

    def _accepted(self, event: Event) -> Iterator[Part]:
        """Remember the prompt for its turn. Show a steered prompt where it was sent."""
        if event.get("text") is None and event.get("blob") is None:
            return
        prompt = PromptText(self._prompt_body(event), int(event.get("images") or 0))
        if event["delivery"] == "steered":
            yield prompt
        elif event.get("turn_id"):
            self._prompts[event["turn_id"]] = prompt
            _bound(self._prompts)

    def _prompt_body(self, event: Event) -> Text:
        head = str(event.get("text") or "")
        if not event.get("blob"):
            return _text(head, MAX_TEXT_BYTES)
        data, size = self._fetch(event["blob"], MAX_TEXT_BYTES)
        try:
            blocks = json.loads(data)
            texts = [str(block.get("text") or "") for block in blocks if block.get("type") == "text"]
        except (ValueError, AttributeError, TypeError, RecursionError):
            whole = event.get("images") and len(head) < _INLINE_TEXT  # the images alone are too large
            return Text(head, 0 if whole else max(0, size - len(head.encode())))
        return _text("\n".join(texts), MAX_TEXT_BYTES)

    def _begin(self, event: Event) -> Part:
        self._turn = turn_id = str(event["turn_id"])
        self._answered = False
        prompt = self._prompts.pop(turn_id, None)
        if prompt is None and event.get("prompt_preview"):
            preview = str(event["prompt_preview"])
            cut = max(0, int(event.get("prompt_bytes") or 0) - len(preview.rstrip("…").encode()))
            prompt = PromptText(Text(preview, cut), int(event.get("prompt_images") or 0))
        return TurnBegin(turn_id, str(event["ts"]), prompt)

    def _end(self, event: Event) -> Iterator[Part]:
        if event["turn_id"] in self._prompts:  # the turn never began: it was removed from the queue, or refused
            yield TurnBegin(event["turn_id"], str(event["ts"]), self._prompts.pop(event["turn_id"]))
            self._answered = False
        for text in self._unfinished.values():
            yield SaidText("unfinished", _text(text, MAX_TEXT_BYTES))
        self._unfinished.clear()
        body = self._body(event, "text", MAX_TEXT_BYTES)
        if not self._answered and event["outcome"] == "completed" and body.text:
            yield SaidText("answer", body)
        self._tools.clear()
        self._turn = None
        yield TurnEnd(event)

    # -- what the model says

    def _pend(self, event: Event) -> None:
        """Collect text that no message has confirmed yet."""
        id_ = event.get("message_id")
        held = self._unfinished.get(id_, "")
        if len(held) < MAX_TEXT_BYTES:
            self._unfinished[id_] = held + str(event["text"])
        _bound(self._unfinished)

    def _message(self, event: Event) -> Iterator[Part]:
        self._unfinished.pop(event.get("message_id"), None)
        subagent = event.get("parent_tool_use_id") is not None
        for block in event.get("blocks") or ():
            if block["kind"] not in ("text", "thinking") or not (block.get("text") or block.get("blob")):
                continue
            body = self._body(block, "text", MAX_TEXT_BYTES)
            if block["kind"] == "thinking":
                yield SaidText("thinking", body, subagent)
                continue
            self._answered = self._answered or not subagent
            yield SaidText("synthetic" if event.get("synthetic") else "answer", body, subagent)

    # -- tools

    def _call(self, event: Event) -> Part:
        name, arguments = str(event["name"]), self._arguments(event)
        self._tools[event["tool_use_id"]] = name
        _bound(self._tools)
        diff = call_diff(arguments)
        body = _text(json.dumps(arguments, ensure_ascii=False, indent=2) if arguments else "", self._max_output)
        if event.get("blob") and "_head" in arguments:
            body = self._body({"text": arguments["_head"], "blob": event["blob"]}, "text", self._max_output)
        return Call(
            str(event["tool_use_id"]),
            clip(name, 80),
            clip(tool_words({**event, "input": arguments}), 160),
            body,
            _text(diff, self._max_output) if diff else None,
            event.get("parent_tool_use_id") is not None,
        )

    def _arguments(self, event: Event) -> JsonObject:
        """Return the whole input of a call if its blob is within the limit, else its head."""
        given: JsonObject = event.get("input") or {}
        if not event.get("blob"):
            return given
        data, size = self._fetch(event["blob"], self._max_output)
        if size > self._max_output:
            return given
        try:
            whole = json.loads(data)
        except (ValueError, RecursionError):
            return given
        return whole if isinstance(whole, dict) else given

    def _result(self, event: Event) -> Part:
        diff = "".join(block_diff(block) for block in event.get("blocks") or ())
        return CallResult(
            str(event["tool_use_id"]),
            clip(self._tools.get(event["tool_use_id"], "tool"), 80),
            self._body(event, "content", self._max_output),
            _text(diff, self._max_output) if diff else None,
            bool(event.get("is_error")),
            event.get("parent_tool_use_id") is not None,
        )

    # -- texts

    def _body(self, event: Event, field: str, limit: int) -> Text:
        """Return a text, whole from its blob up to the limit."""
        text = str(event.get(field) or "")
        if not event.get("blob"):
            return _text(text, limit)
        data, size = self._fetch(event["blob"], limit)
        if not data:  # removed by retention
            return _text(text, limit)
        return Text(data.decode("utf-8", "replace"), max(0, size - len(data)))

    def _note(self, event: Event) -> Part:
        return Note(str(event["type"]), str(event.get("ts") or ""), words(event))


def _text(text: str, limit: int) -> Text:
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return Text(text)
    return Text(data[:limit].decode("utf-8", "ignore"), len(data) - limit)


def _bound(held: dict[str, PromptText] | dict[str, str] | dict[str | None, str]) -> None:
    """Forget the oldest entry over the limit."""
    if len(held) > MAX_HELD:
        held.pop(next(iter(held)))  # type: ignore[arg-type]
