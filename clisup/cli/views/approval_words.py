"""An approval for people: what a tool wants to do, so that nothing in it can drive the reader's terminal or hide."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["LINES", "WIDTH", "question_lines", "visible"]

LINES = 40
"""Lines of an input that are shown at most."""

WIDTH = 400
"""Characters of one of its lines."""

_Approval = dict[str, Any]


def visible(text: str) -> str:
    """The text with everything that does not print as itself escaped: control characters, and those that turn text around."""
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def question_lines(approval: _Approval) -> list[str]:
    """The tool, the CLI's reason, and the whole input; one that is too long is cut, and that is said.

    Each line of a value begins with a bar, so that no text can look like the question itself.
    """
    head = f"approval: {visible(str(approval['tool_name']))[:WIDTH]}"
    reason = approval.get("reason")
    lines = [head + (f" ({visible(str(reason))[:WIDTH]})" if reason else "")]
    shown: list[str] = []
    whole = approval.get("blob") is None
    for name, value in (approval.get("input") or {}).items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        parts = text.split("\n")
        whole = whole and all(len(part) <= WIDTH for part in parts)
        shown += [f"  {visible(str(name))[:WIDTH]}:", *(f"  | {visible(part[:WIDTH])}" for part in parts[: LINES + 1])]
    if len(shown) > LINES or not whole:
        return [*lines, *shown[:LINES], "  [cut: the whole of it is in clisup approvals --json]"]
    return [*lines, *shown]
