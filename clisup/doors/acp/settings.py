"""Modes, configuration options and commands of a session, as an editor shows them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from clisup.client.raw import JsonObject

__all__ = ["COMMANDS", "SessionBackend", "config_options", "mcp_config", "modes", "session_info"]

_MODE_WORDS = {
    "default": "Ask before tools run",
    "acceptEdits": "Change files without asking",
    "auto_edit": "Change files without asking",
    "auto-edit": "Change files without asking",
    "plan": "Plan, and change nothing",
    "bypassPermissions": "Run every tool without asking",
    "yolo": "Run every tool without asking",
    "dontAsk": "Deny what would have to be asked",
}

COMMANDS: tuple[tuple[str, str, str], ...] = (
    ("compact", "Compact the conversation", "what to keep"),
    ("fork", "Open a new session with this conversation", ""),
    ("budget", "Show the budget, or limit the session's cost", "US dollars"),
    ("status", "Show the session's state, tokens and cost", ""),
    ("handover", "Let another backend go on with this conversation", "backend, and a prompt"),
    ("model", "Use another model from now on", "model"),
)
"""Commands that the door carries out itself: name, description, hint of the input."""


class SessionBackend(NamedTuple):
    """Backend of a session: its name, and its capabilities of `backend/list`."""

    name: str
    capabilities: JsonObject

    @property
    def permission_modes(self) -> tuple[str, ...]:
        """Permission modes that are known without the running CLI."""
        return tuple(self.capabilities.get("permission_modes") or ())

    def can(self, feature: str) -> bool:
        """Tell whether the backend has a feature."""
        return bool(self.capabilities.get(feature))

    @property
    def commands(self) -> list[JsonObject]:
        """The door's commands that this backend has, for `available_commands_update`."""
        lacking = set() if self.can("fork") else {"fork"}
        if "compact" not in (self.capabilities.get("controls") or ()):
            lacking.add("compact")
        return [
            {"name": name, "description": words, **({"input": {"hint": hint}} if hint else {})}
            for name, words, hint in COMMANDS
            if name not in lacking
        ]


def modes(backend: SessionBackend, current: str | None) -> JsonObject | None:
    """Return the session's modes, or None where only the running CLI knows them."""
    known = backend.permission_modes
    if not known:
        return None
    return {
        "currentModeId": _current_mode(known, current),
        "availableModes": [
            {"id": name, "name": name, **({"description": _MODE_WORDS[name]} if name in _MODE_WORDS else {})}
            for name in known
        ],
    }


def config_options(
    backend: SessionBackend, mode: str | None, model: str | None, models: Iterable[str] = ()
) -> list[JsonObject]:
    """Return the options `mode` and `model`. `models` are the known ones besides the current."""
    options: list[JsonObject] = []
    if known := backend.permission_modes:
        options.append(
            {
                "type": "select",
                "id": "mode",
                "name": "Permission mode",
                "category": "mode",
                "currentValue": _current_mode(known, mode),
                "options": [{"value": name, "name": name} for name in known],
            }
        )
    names = list(dict.fromkeys([*([model] if model else []), *models]))
    if model and names:
        options.append(
            {
                "type": "select",
                "id": "model",
                "name": "Model",
                "category": "model",
                "currentValue": model,
                "options": [{"value": name, "name": name} for name in names],
            }
        )
    return options


def _current_mode(known: tuple[str, ...], current: str | None) -> str:
    if current in known:
        return str(current)
    return "default" if "default" in known else known[0]


def session_info(row: JsonObject) -> JsonObject:
    """Return a row of the daemon's `session/list` as the protocol has it."""
    last = row.get("last_event") or {}
    about = {name: row.get(name) for name in ("backend", "state", "model", "approvals", "cost_usd")}
    return {
        "sessionId": row["session_id"],
        "cwd": row["cwd"],
        "title": row.get("title"),
        "updatedAt": last.get("ts") or row["created_at"],
        "_meta": {"clisup": about},
    }


def mcp_config(servers: Iterable[JsonObject]) -> JsonObject | None:
    """Return the editor's MCP servers in claude's form, which every backend reads. Malformed entries are left to the daemon."""
    found = {str(server.get("name")): _server(server) for server in servers if isinstance(server, dict)}
    return {"mcpServers": found} if found else None


def _server(server: JsonObject) -> JsonObject:
    if "url" in server:
        kind = server.get("type") or "http"
        return {"type": kind, "url": server["url"], "headers": _pairs(server.get("headers"))}
    command = {"type": "stdio", "command": server.get("command"), "args": server.get("args") or []}
    return {**command, "env": _pairs(server.get("env"))}


def _pairs(listed: object) -> JsonObject:
    items = listed if isinstance(listed, list) else []
    return {str(item["name"]): item.get("value") for item in items if isinstance(item, dict) and "name" in item}
