"""Tool calls of every backend in the words of the Agent Client Protocol: kind, title, files, changes, and plans. Pure.

Backends name tools and arguments in their own words. Unknown names are of the kind `other`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from clisup.client.raw import JsonObject

__all__ = [
    "MAX_PLAN",
    "PLAN_TOOLS",
    "TITLE_CHARS",
    "changed_files",
    "changes",
    "kind_of",
    "locations",
    "plan_of",
    "plan_of_lines",
    "title_of",
]

TITLE_CHARS = 200
MAX_PLAN = 100
"""Entries of a plan at most."""
MAX_LOCATIONS = 20

_KINDS = {
    "read": ("read", "read_file", "readfile", "read_many_files", "notebookread", "view", "ls", "list_directory"),
    "edit": (
        "edit", "multiedit", "write", "write_file", "writefile", "replace", "notebookedit", "apply_patch", "file_change",
        "filechange", "str_replace", "create",
    ),
    "delete": ("delete", "delete_file"),
    "move": ("move", "rename"),
    "search": ("grep", "glob", "search", "search_file_content", "grep_search", "toolsearch"),
    "execute": ("bash", "bashoutput", "killshell", "shell", "run_shell_command", "command_execution", "commandexecution",
                "exec_command", "execute"),
    "think": ("think", "task", "agent", "todowrite", "todo_write", "write_todos", "update_plan"),
    "fetch": ("webfetch", "web_fetch", "websearch", "web_search", "google_web_search", "fetch"),
    "switch_mode": ("exitplanmode", "exit_plan_mode", "enterplanmode", "enter_plan_mode"),
}  # fmt: skip
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names}
PLAN_TOOLS = ("todowrite", "todo_write", "write_todos", "update_plan")
"""Tools whose input is the model's plan, in lower case."""

_TELLING = (
    "command", "file_path", "absolute_path", "notebook_path", "path", "pattern", "query", "url", "description", "prompt",
)  # fmt: skip
_PATHS = ("file_path", "absolute_path", "notebook_path", "path")
_OLD = ("old_string", "oldText", "old_str")
_NEW = ("new_string", "newText", "new_str", "new_source")
_STATES = {"completed": "completed", "done": "completed", "in_progress": "in_progress", "inprogress": "in_progress"}


def kind_of(name: str) -> str:
    """Return the protocol's kind of a tool."""
    return _KIND_OF.get(name.lower(), "other")


def title_of(name: str, given: Mapping[str, Any]) -> str:
    """Return the name of a tool and its most telling argument, in one line."""
    telling = _first(given, _TELLING)
    if telling is None and given and "_head" not in given:
        telling = json.dumps(given, ensure_ascii=False)
    words = " ".join(f"{name} {telling or ''}"[: 4 * TITLE_CHARS].split())
    return words if len(words) <= TITLE_CHARS else words[: TITLE_CHARS - 1] + "…"


def locations(given: Mapping[str, Any]) -> list[JsonObject]:
    """Return the files that a call is about."""
    line = given.get("offset") or given.get("line")
    at = {"line": line} if isinstance(line, int) and not isinstance(line, bool) and line > 0 else {}
    found: list[JsonObject] = []
    if (path := _first(given, _PATHS)) is not None:
        found.append({"path": path, **at})
    found += [{"path": path} for change in _dicts(given.get("changes")) if (path := _first(change, ("path",)))]
    return found[:MAX_LOCATIONS]


def changed_files(name: str, given: Mapping[str, Any]) -> list[str]:
    """Return the files that a call asks to change, delete or move."""
    return [str(at["path"]) for at in locations(given)] if kind_of(name) in ("edit", "delete", "move") else []


def changes(name: str, given: Mapping[str, Any], cwd: str) -> list[JsonObject]:
    """Return the changes that a call asks for, as `diff` contents.

    Known are the arguments of Edit, MultiEdit, Write and replace (claude, gemini, qwen) and of file changes (codex).
    """
    path = _first(given, _PATHS)
    if path and (edits := _dicts(given.get("edits"))):
        return [diff for edit in edits if (diff := _pair(path, edit, cwd))]
    if found := _dicts(given.get("changes")):
        return [diff for change in found if (diff := _change(change, cwd))]
    if path is None:
        return []
    if diff := _pair(path, given, cwd):
        return [diff]
    content = given.get("content")
    if kind_of(name) == "edit" and isinstance(content, str):
        return [_diff(path, None, content, cwd)]
    return []


def plan_of(given: Mapping[str, Any]) -> list[JsonObject]:
    """Return the entries of the plan in a tool's input."""
    items = _dicts(given.get("todos")) or _dicts(given.get("plan"))
    return [
        _entry(text, item.get("status"))
        for item in items[:MAX_PLAN]
        if (text := _first(item, ("content", "description", "step", "text")))
    ]


def plan_of_lines(text: str) -> list[JsonObject]:
    """Return the entries of a plan that a backend reports as lines: `[ ] step`, `[x] step` or `[state] step`."""
    entries: list[JsonObject] = []
    for line in text.splitlines()[:MAX_PLAN]:
        mark, close, step = line.strip().partition("] ")
        if close and mark.startswith("["):
            state = mark[1:].strip()
            entries.append(_entry(step, "completed" if state == "x" else state))
        elif line.strip():
            entries.append(_entry(line.strip(), None))
    return entries


def _entry(text: str, state: Any) -> JsonObject:
    return {"content": text, "priority": "medium", "status": _STATES.get(str(state).lower(), "pending")}


def _pair(path: str, given: Mapping[str, Any], cwd: str) -> JsonObject | None:
    old, new = _first(given, _OLD), _first(given, _NEW)
    return None if old is None and new is None else _diff(path, old, new or "", cwd)


def _change(change: Mapping[str, Any], cwd: str) -> JsonObject | None:
    path, diff, kind = _first(change, ("path",)), _first(change, ("diff",)), change.get("kind")
    if path is None or diff is None:
        return None
    if isinstance(kind, dict):
        kind = kind.get("type")
    if not diff.startswith(("@@", "---", "diff ")):
        if kind == "add":
            return _diff(path, None, diff, cwd)
        if kind == "delete":
            return _diff(path, diff, "", cwd)
    old, new = _sides(diff.splitlines(keepends=True))
    return _diff(path, old, new, cwd)


def _sides(lines: Iterable[str]) -> tuple[str, str]:
    """Return the old and the new text of the hunks of a unified diff."""
    old, new, inside = [], [], False
    for line in lines:
        if line.startswith("@@"):
            inside = True
        elif inside and line[:1] in " -+":
            if line[0] != "+":
                old.append(line[1:])
            if line[0] != "-":
                new.append(line[1:])
    return "".join(old), "".join(new)


def _diff(path: str, old: str | None, new: str, cwd: str) -> JsonObject:
    whole = path if path.startswith("/") else f"{cwd.rstrip('/')}/{path}"
    return {"type": "diff", "path": whole, "oldText": old, "newText": new}


def _first(given: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((given[name] for name in names if isinstance(given.get(name), str)), None)


def _dicts(value: Any) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
