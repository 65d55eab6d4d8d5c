"""Agent Client Protocol, version 1: its version negotiation, its error codes, and what this agent says of itself. Pure.

Names and fields are those of schema 1.19 (`schema/v1`). A draft of version 2 exists; this file is where it would be negotiated.
"""

from __future__ import annotations

from typing import Any

from clisup import __version__
from clisup.client.raw import JsonObject
from clisup.errors import KINDS, ClisupError, UsageError

__all__ = [
    "AUTH_REQUIRED",
    "CANCELLED",
    "VERSIONS",
    "error_object",
    "initialize_result",
    "list_param",
    "negotiated",
    "text_param",
]

VERSIONS = (1,)
"""Versions of the protocol that this agent speaks, the oldest first."""

AUTH_REQUIRED = -32000
NOT_FOUND = -32002
INTERNAL = -32603
CANCELLED = -32800
_STANDARD = (-32700, -32600, -32601, -32602, CANCELLED)
_LOGGED_OUT = ("authentication", "backend_not_logged_in")


def negotiated(asked: Any) -> int:
    """Return the version to speak: the asked one, else the newest that this agent has. The editor then decides.

    Raises `UsageError(invalid_params)` for a value that is no version.
    """
    if isinstance(asked, bool) or not isinstance(asked, int) or not 0 <= asked <= 65535:
        raise UsageError(
            "cannot negotiate a version, because protocolVersion is not a whole number from 0 to 65535",
            hint=f"this agent speaks {', '.join(map(str, VERSIONS))}",
            param="protocolVersion",
        )
    return asked if asked in VERSIONS else VERSIONS[-1]


def initialize_result(version: int, capabilities: JsonObject) -> JsonObject:
    """Return the answer to `initialize`, for a backend with these `capabilities` (of `backend/list`).

    Logging in is the CLI's own business, so there are no methods for it.
    """
    mcp = bool(capabilities.get("mcp"))
    session: JsonObject = {"list": {}, "resume": {}, "close": {}, "delete": {}}
    if capabilities.get("fork"):
        session["fork"] = {}
    return {
        "protocolVersion": version,
        "agentInfo": {"name": "clisup", "title": "clisup", "version": __version__},
        "authMethods": [],
        "agentCapabilities": {
            "loadSession": True,
            "promptCapabilities": {
                "image": bool(capabilities.get("images")),
                "audio": False,
                "embeddedContext": True,
            },
            "mcpCapabilities": {"http": mcp, "sse": mcp},
            "sessionCapabilities": session,
        },
    }


def error_object(error: ClisupError) -> JsonObject:
    """Return the error in JSON-RPC, with a code of this protocol and the daemon's kind in `data`.

    Editors show `message` alone, so the hint is part of it.
    """
    kind = str(error.data.get("kind_sent", error.data.get("turn_error", error.kind)))
    code = KINDS[error.kind].code
    if kind in _LOGGED_OUT:
        code = AUTH_REQUIRED
    elif kind == "session_not_found":
        code = NOT_FOUND
    elif code not in _STANDARD:
        code = INTERNAL
    data = {**error.to_wire()["data"], "kind": kind}
    return {"code": code, "message": str(error), "data": data}


def list_param(params: JsonObject, name: str) -> list[Any]:
    """Return a parameter that is a list. Raises `UsageError(invalid_params)`."""
    value = params.get(name)
    if not isinstance(value, list):
        raise UsageError(f"cannot read the request, because {name} is not a list", param=name)
    return value


def text_param(params: JsonObject, name: str) -> str:
    """Return a parameter that is a text. Raises `UsageError(invalid_params)`."""
    value = params.get(name)
    if not isinstance(value, str):
        raise UsageError(f"cannot read the request, because {name} is not a text", param=name)
    return value
