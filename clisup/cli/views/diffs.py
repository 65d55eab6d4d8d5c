"""Edits of a tool call as lines of a diff. Pure. Text is not escaped here: an output escapes what it prints."""

from __future__ import annotations

from typing import Any

from clisup.cli.views.events import Event

__all__ = ["DIFF_LINES", "diff_lines"]

DIFF_LINES = 40
"""Lines of one call that are shown at most."""

_TEXT_CHARS = 200_000
"""Characters of a text to compare. A comparison of longer texts would hold up the terminal."""


def diff_lines(event: Event) -> list[str]:
    """Return the lines of a diff for a `tool_use` that edits files: `+ new`, `- old`, others as context. Else return none."""
    given = event.get("input") or {}
    lines: list[str] = []
    for edit in _list(given, "edits") or [given]:
        if isinstance(edit, dict) and _is_text(edit.get("old_string")) and _is_text(edit.get("new_string")):
            lines += _compared(edit["old_string"], edit["new_string"])
    if not lines and event.get("name") == "Write" and _is_text(given.get("content")):
        lines = [f"+ {line}" for line in given["content"].splitlines()]
    for change in _list(given, "changes"):
        if isinstance(change, dict) and _is_text(change.get("diff")):
            lines += [str(change.get("path") or ""), *change["diff"].splitlines()]
    if len(lines) > DIFF_LINES:
        return [*lines[:DIFF_LINES], f"[{len(lines) - DIFF_LINES} more lines]"]
    return lines


def _list(given: dict[str, Any], name: str) -> list[Any]:
    value = given.get(name)
    return value if isinstance(value, list) else []


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _TEXT_CHARS


def _compared(old: str, new: str) -> list[str]:
    """Return the changed lines with two lines of context. Long texts are not compared line by line."""
    before, after = old.splitlines(), new.splitlines()
    if len(before) + len(after) > 2000:  # the comparison takes quadratic time
        return [f"- {line}" for line in before] + [f"+ {line}" for line in after]
    import difflib  # most turns edit nothing

    found = list(difflib.unified_diff(before, after, n=2, lineterm=""))[2:]
    return [f"{line[0]} {line[1:]}" for line in found if not line.startswith("@@")]
