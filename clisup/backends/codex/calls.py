"""The calls of tools in one codex turn: by their items, and by raw response items where codex made no item of a call.

A call that is refused, malformed or taken for denied by the sandbox has no item, nor have tools like `write_stdin`. The raw call
comes before the item, its raw output after it: a raw output that no item has answered tells of such a call. Some items never end,
those of calls that were interrupted or refused after all: the raw output tells there, too. A command that runs on is answered by its item.
"""

from __future__ import annotations

import re
from typing import Any

from clisup.backends.claude.frames import decode_any
from clisup.backends.codex import items
from clisup.backends.frames import get_str
from clisup.model.events import EventBase, PermissionDenied, ToolResult, ToolUse

__all__ = ["Calls"]

Frame = dict[str, Any]
_CALLS = frozenset({"function_call", "custom_tool_call"})
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})
_REFUSED = re.compile(r"approval policy is |rejected by user")
# The words with which codex answers a call that it did not run, or that an interrupt cut off.
_NOT_RUN = re.compile(
    r"unsupported call|exec_command failed|write_stdin failed|failed to parse|\w+ is unavailable in |apply_patch verification failed"
    r"|image path .+ is not a file|unable to \w+ image at |invalid agent id|agent ids must be |Unknown model |unknown MCP server"
    r"|(?:Wall time: [\d.]+ seconds\n)?aborted by user"
)
_FAILED = re.compile(r"^(?:Process exited with code [1-9]|Script failed)", re.MULTILINE)
_HEAD_ENDS = "\nOutput:\n"  # what a command or a program wrote comes behind it, and may hold any words


class Calls:
    """Which calls were told and answered."""

    __slots__ = ("_answered", "_asked", "_inputs", "_names")

    def __init__(self) -> None:
        self._asked: dict[str, ToolUse] = {}  # raw calls that no item has told of
        self._names: dict[str, str] = {}
        self._answered: set[str] = set()
        self._inputs: dict[str, Frame] = {}  # of items that run

    def name_of(self, call: str | None) -> str | None:
        asked = self._asked.get(call or "")
        return self._names.get(call or "") or (asked.name if asked else None)

    def input_of(self, call: str | None) -> Frame:
        """What a call that runs, or waits for a word, was called with; empty where no item told of it."""
        return self._inputs.get(call or "", {})

    def started(self, item: Frame) -> list[EventBase]:
        use = items.tool_use(item)
        self._inputs[use.tool_use_id] = use.input
        return self._tell(use)

    def completed(self, item: Frame) -> list[EventBase]:
        call = items.item_id(item)
        told = self._tell(items.tool_use(item))
        self._inputs.pop(call, None)
        if call in self._answered:
            return told
        self._answered.add(call)
        return [*told, *items.tool_result(item, self._names[call])]

    def see(self, raw: Frame) -> list[EventBase]:
        """A raw response item; all but calls and their outputs are told by other frames."""
        kind, call = get_str(raw, "type"), get_str(raw, "call_id")
        if call is None:
            return []
        if kind in _CALLS:
            self._asked.setdefault(call, ToolUse(tool_use_id=call, name=_name(raw), input=_arguments(raw)))
        elif kind in _OUTPUTS and call in self._asked and call not in self._answered:
            text = _text(raw.get("output"))
            if call not in self._names or _NOT_RUN.match(text):
                return [*self._tell(self._asked[call]), *self._output(call, text)]
        return []

    def _tell(self, use: ToolUse) -> list[EventBase]:
        if use.tool_use_id in self._names:
            return []
        self._names[use.tool_use_id] = use.name
        return [use]

    def _output(self, call: str, text: str) -> list[EventBase]:
        self._answered.add(call)
        head = text.partition(_HEAD_ENDS)[0]
        refused = bool(_REFUSED.search(head))
        failed = refused or bool(_NOT_RUN.match(head) or _FAILED.search(head))
        result = ToolResult(tool_use_id=call, content=text, is_error=failed)
        if not refused:
            return [result]
        return [PermissionDenied(tool_use_id=call, name=self._names[call], reason=text[: items.DETAIL_CHARS]), result]


def _name(raw: Frame) -> str:
    name, space = get_str(raw, "name") or "tool", get_str(raw, "namespace")
    return f"{space}__{name}" if space else name


def _arguments(raw: Frame) -> Frame:
    """The arguments of a function, or the free text of a custom tool."""
    text = get_str(raw, "arguments")
    if text is None:
        given = get_str(raw, "input")
        return {} if given is None else {"input": given}
    try:
        value = decode_any(text.encode())
    except (ValueError, RecursionError):
        return {"arguments": text}
    deep = text.count("{") + text.count("[") > _MAX_BRACKETS
    return value if isinstance(value, dict) and not deep else {"arguments": text}


_MAX_BRACKETS = 200  # what nests deeper than events can be written stays text


def _text(output: object) -> str:
    """A text, or the texts of its parts."""
    if isinstance(output, list):
        return "".join(get_str(part, "text") or "" for part in output if isinstance(part, dict))
    return output if isinstance(output, str) else ""
