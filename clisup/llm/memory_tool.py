"""The tool `memory`: how a model reads and writes its working memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import trio

from clisup.errors import ClisupError
from clisup.llm.kept_values import MAX_KEY_CHARS, KeptValues
from clisup.llm.tools import ToolOutput

__all__ = ["MemoryTool"]

QUERY_LIMIT = 50
"""How many values a query gives the model at most."""
ANSWER_CHARS = 40_000
"""How long an answer to the model may be; a query that finds more says so."""

_DESCRIPTION = """\
Your working memory: JSON values by key, kept on disk. It outlives this conversation and everything that is left out of it.
Use it for plans, decisions, findings and open points that you will need later.
operation "set" needs key and value, "get" and "delete" need key, "query" lists values by prefix of the key and by fields (where)."""

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "operation": {"type": "string", "enum": ["set", "get", "delete", "query"]},
        "key": {"type": "string", "maxLength": MAX_KEY_CHARS, "description": 'Such as "plan/step-1".'},
        "value": {"description": "Any JSON value; for set."},
        "prefix": {"type": "string", "description": "For query: how the keys begin. All, where it is left out."},
        "where": {
            "type": "object",
            "description": 'For query: fields that a value must have, as {"done": false}; "a.b" goes into objects.',
        },
    },
    "required": ["operation"],
    "additionalProperties": False,
}


class MemoryTool:
    """Made by `WorkingMemory.tool`."""

    name = "memory"
    description = _DESCRIPTION
    timeout_s: float | None = None

    def __init__(self, memory: KeptValues) -> None:
        self._memory = memory

    @property
    def input_schema(self) -> dict[str, Any]:
        """JSON Schema of the input."""
        return _SCHEMA

    async def run(self, arguments: dict[str, Any]) -> ToolOutput:
        """Do it, in a thread: a change waits for the disk. What goes wrong is told to the model."""
        operation = _OPERATIONS.get(str(arguments.get("operation")))
        if operation is None:
            return ToolOutput(f"operation must be one of {', '.join(_OPERATIONS)}", is_error=True)
        wrong = [name for name in operation.needs if name not in arguments]
        wrong += [name for name in ("key", "prefix") if not isinstance(arguments.get(name, ""), str)]
        wrong += [] if isinstance(arguments.get("where") or {}, Mapping) else ["where"]
        if wrong:
            return ToolOutput(f"{arguments['operation']} needs a fitting {' and '.join(wrong)}", is_error=True)
        try:
            return await trio.to_thread.run_sync(operation.run, self._memory, arguments)
        except ClisupError as error:
            return ToolOutput(str(error), is_error=True)


class _Operation:
    def __init__(self, run: Callable[[KeptValues, dict[str, Any]], ToolOutput], *needs: str) -> None:
        self.run, self.needs = run, needs


def _set(memory: KeptValues, given: dict[str, Any]) -> ToolOutput:
    memory.set(given["key"], given["value"])
    return ToolOutput(f"kept {given['key']}")


def _get(memory: KeptValues, given: dict[str, Any]) -> ToolOutput:
    if given["key"] in memory:
        return ToolOutput(_text(memory.get(given["key"])))
    return ToolOutput(
        f"there is no {given['key']!r}; keys: {', '.join(memory.keys()[:QUERY_LIMIT]) or 'none'}", is_error=True
    )


def _delete(memory: KeptValues, given: dict[str, Any]) -> ToolOutput:
    return ToolOutput(f"{'deleted' if memory.delete(given['key']) else 'there was no'} {given['key']}")


def _query(memory: KeptValues, given: dict[str, Any]) -> ToolOutput:
    found = memory.query(given.get("prefix") or "", given.get("where") or None, limit=QUERY_LIMIT + 1)
    shown: dict[str, Any] = {}
    length = 0
    for key, value in list(found.items())[:QUERY_LIMIT]:
        length += len(key) + len(_text(value))
        if shown and length > ANSWER_CHARS:
            break
        shown[key] = value
    more = "" if len(shown) == len(found) else "\n(There are more: ask by a longer prefix, or by where.)"
    return ToolOutput(_text(shown) + more)


_OPERATIONS = {
    "set": _Operation(_set, "key", "value"),
    "get": _Operation(_get, "key"),
    "delete": _Operation(_delete, "key"),
    "query": _Operation(_query),
}


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
