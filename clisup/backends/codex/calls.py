"""Tool calls of one codex turn, from items, and from raw response items for calls without an item.

A call has no item if codex refused the call, could not parse the call or took the call for denied by the sandbox. Tools like
`write_stdin` have no items either. The raw call comes before the item, and the raw output after the item. A raw output without an
item's result therefore belongs to such a call. Items of interrupted calls, and of calls that were refused later, never end: the
raw output is their result. A command that goes on running gets its result from its item.
"""

from __future__ import annotations

import re

from msgspec import Struct, field

from clisup.backends.codex import items
from clisup.backends.frames import Frame, decode_any, detail, get_str
from clisup.model.events import EventBase, PermissionDenied, ToolResult, ToolUse

__all__ = ["Calls"]

_CALLS = frozenset({"function_call", "custom_tool_call"})
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})
_REFUSED = re.compile(r"approval policy is |rejected by user")
# Outputs of codex for calls that it did not run, or that an interrupt cut off.
_NOT_RUN = re.compile(
    r"unsupported call|exec_command failed|write_stdin failed|failed to parse|\w+ is unavailable in |apply_patch verification failed"
    r"|image path .+ is not a file|unable to \w+ image at |invalid agent id|agent ids must be |Unknown model |unknown MCP server"
    r"|(?:Wall time: [\d.]+ seconds\n)?aborted by user"
)
_FAILED = re.compile(r"^(?:Process exited with code [1-9]|Script failed)", re.MULTILINE)
_HEAD_ENDS = "\nOutput:\n"  # the output of a command follows, which may hold any words


class Calls(Struct):
    """Reported and answered tool calls."""

    asked: dict[str, ToolUse] = field(default_factory=dict)
    """Raw calls without an item."""
    names: dict[str, str] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    inputs: dict[str, Frame] = field(default_factory=dict)
    """Inputs of running items."""
    running: dict[str, str] = field(default_factory=dict)
    """Codex's names of the processes of running commands."""

    def name_of(self, call: str | None) -> str | None:
        asked = self.asked.get(call or "")
        return self.names.get(call or "") or (asked.name if asked else None)

    def input_of(self, call: str | None) -> Frame:
        """Return the input of a call that runs or waits for an approval. It is empty for a call without an item."""
        return self.inputs.get(call or "", {})

    @property
    def processes(self) -> tuple[str, ...]:
        """Return codex's names of the processes of running commands."""
        return tuple(self.running.values())

    def started(self, item: Frame) -> list[EventBase]:
        use = items.tool_use(item)
        self.inputs[use.tool_use_id] = use.input
        if (process := get_str(item, "processId")) is not None:
            self.running[use.tool_use_id] = process
        return self._tell(use)

    def completed(self, item: Frame) -> list[EventBase]:
        call = items.item_id(item)
        told = self._tell(items.tool_use(item))
        self.inputs.pop(call, None)
        self.running.pop(call, None)
        if call in self.answered:
            return told
        self.answered.add(call)
        return [*told, *items.tool_result(item, self.names[call])]

    def see(self, raw: Frame) -> list[EventBase]:
        """Read a raw response item. Only calls and their outputs count: other frames report the rest."""
        kind, call = get_str(raw, "type"), get_str(raw, "call_id")
        if call is None:
            return []
        if kind in _CALLS:
            self.asked.setdefault(call, ToolUse(tool_use_id=call, name=_name(raw), input=_arguments(raw)))
        elif kind in _OUTPUTS and call in self.asked and call not in self.answered:
            text = _text(raw.get("output"))
            if call not in self.names or _NOT_RUN.match(text):
                return [*self._tell(self.asked[call]), *self._output(call, text)]
        return []

    def _tell(self, use: ToolUse) -> list[EventBase]:
        if use.tool_use_id in self.names:
            return []
        self.names[use.tool_use_id] = use.name
        return [use]

    def _output(self, call: str, text: str) -> list[EventBase]:
        self.answered.add(call)
        head = text.partition(_HEAD_ENDS)[0]
        refused = bool(_REFUSED.search(head))
        failed = refused or bool(_NOT_RUN.match(head) or _FAILED.search(head))
        result = ToolResult(tool_use_id=call, content=text, is_error=failed)
        if not refused:
            return [result]
        return [PermissionDenied(tool_use_id=call, name=self.names[call], reason=detail(text)), result]


def _name(raw: Frame) -> str:
    name, space = get_str(raw, "name") or "tool", get_str(raw, "namespace")
    return f"{space}__{name}" if space else name


def _arguments(raw: Frame) -> Frame:
    """Return the arguments of a function, or the free text of a custom tool."""
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


_MAX_BRACKETS = 200  # more nesting cannot be written as an event, so the arguments stay text


def _text(output: object) -> str:
    """Return a text, or the joined texts of parts."""
    if isinstance(output, list):
        return "".join(get_str(part, "text") or "" for part in output if isinstance(part, dict))
    return output if isinstance(output, str) else ""
