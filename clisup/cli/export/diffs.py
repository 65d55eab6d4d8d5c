"""Changes of files that a tool call asks for, as unified diffs."""

from __future__ import annotations

import difflib
from typing import Any

from clisup.client.raw import JsonObject

__all__ = ["MAX_COMPARED", "block_diff", "call_diff"]

MAX_COMPARED = 2000
"""Lines of each side that are compared at most. Longer sides are shown one after the other."""

_OLD = ("old_string", "oldText", "old_str")
_NEW = ("new_string", "newText", "new_str")
_PATHS = ("file_path", "path", "absolute_path", "notebook_path")


def call_diff(arguments: JsonObject) -> str:
    """Return the diff of a call's arguments, or "".

    Known are the arguments of Edit, MultiEdit, Write and replace (claude, gemini, qwen) and of apply_patch (codex).
    """
    path = _first(arguments, _PATHS)
    if (edits := _dicts(arguments.get("edits"))) and path:
        return "".join(_pair({**edit, "path": path}) for edit in edits)
    if changes := _dicts(arguments.get("changes")):
        return "".join(_change(change) for change in changes)
    if pair := _pair(arguments):
        return pair
    content = arguments.get("content")
    return _unified(path, "", content) if path and isinstance(content, str) else ""


def block_diff(block: JsonObject) -> str:
    """Return the diff in a block of a tool's result (ACP agents), or ""."""
    given = block.get("input")
    return _pair(given) if block.get("native_kind") == "diff" and isinstance(given, dict) else ""


def _pair(arguments: JsonObject) -> str:
    old, new = _first(arguments, _OLD), _first(arguments, _NEW)
    return "" if old is None and new is None else _unified(_first(arguments, _PATHS), old or "", new or "")


def _change(change: JsonObject) -> str:
    diff, path = change.get("diff"), change.get("path")
    if not isinstance(diff, str):
        return f"{change.get('kind') or 'change'} {path}\n"
    kind = change.get("kind")
    if kind == "add" and not diff.startswith(("@@", "---", "diff ")):
        return _unified(str(path), "", diff)
    if kind == "delete" and not diff.startswith(("@@", "---", "diff ")):
        return _unified(str(path), diff, "")
    head = "" if diff.startswith(("---", "diff ")) else f"--- {path}\n+++ {path}\n"
    return head + diff + ("" if diff.endswith("\n") else "\n")


def _unified(path: str | None, old: str, new: str) -> str:
    before, after, name = old.splitlines(), new.splitlines(), (path or "file").replace("\n", " ")
    if max(len(before), len(after)) > MAX_COMPARED:
        lines = [f"--- {name}", f"+++ {name}", *(f"-{line}" for line in before), *(f"+{line}" for line in after)]
    else:
        lines = list(difflib.unified_diff(before, after, name, name, lineterm=""))
    return "".join(line + "\n" for line in lines)


def _first(arguments: JsonObject, names: tuple[str, ...]) -> str | None:
    return next((arguments[name] for name in names if isinstance(arguments.get(name), str)), None)


def _dicts(value: Any) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
