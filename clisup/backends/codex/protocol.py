"""Requests to `codex app-server`, and answers to its own requests (0.169.0)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from clisup.backends.base import LaunchRequest
from clisup.backends.codex.mcp import servers_of
from clisup.backends.codex.mentions import Said, switched_off
from clisup.errors import UsageError
from clisup.model.prompts.content import Image

__all__ = [
    "GREETING",
    "INITIALIZE",
    "INTERRUPT",
    "START_TURN",
    "THREAD",
    "answer_to",
    "approvals_of",
    "config_of",
    "interrupt",
    "open_thread",
    "said",
    "sandbox_of",
    "start_turn",
    "strict_schema",
    "trust_of",
]

Frame = dict[str, Any]
INITIALIZE, THREAD, START_TURN, INTERRUPT = 1, 2, 3, 4
_NOT_ALLOWED = "nobody is there to allow it"
_ANSWERS: dict[str, Frame] = {
    "item/tool/requestUserInput": {"answers": {}},
    "item/tool/call": {"contentItems": [], "success": False},
    "mcpServer/elicitation/request": {"action": "decline", "content": None, "_meta": None},
    "applyPatchApproval": {"decision": {"denied": {"rejection": _NOT_ALLOWED}}},
    "execCommandApproval": {"decision": {"denied": {"rejection": _NOT_ALLOWED}}},
}


def _line(**frame: Any) -> str:
    return json.dumps(frame, ensure_ascii=True) + "\n"


# codex gives raw response items only with experimentalApi.
GREETING = _line(
    id=INITIALIZE,
    method="initialize",
    params={
        "clientInfo": {"name": "clisup", "title": "clisup", "version": "1"},
        "capabilities": {"experimentalApi": True, "requestAttestation": False},
    },
) + _line(method="initialized")


def open_thread(request: LaunchRequest) -> str:
    """Return thread/start for a new session, thread/resume for a session with an id."""
    params: Frame = {
        "cwd": request.cwd,
        "approvalPolicy": approvals_of(request),
        "model": request.model,
        "sandbox": sandbox_of(request),
        "developerInstructions": request.system_prompt,
        "config": config_of(request) or None,
    }
    given = {name: value for name, value in params.items() if value is not None}
    if not request.resume:
        return _line(id=THREAD, method="thread/start", params={**given, "experimentalRawEvents": True})
    return _line(
        id=THREAD,
        method="thread/resume",
        params={"threadId": request.native_session_id, "excludeTurns": True, **given},
    )


def approvals_of(request: LaunchRequest) -> str:
    """Return the approval policy. With a sandbox, codex asks before it runs a command outside the sandbox."""
    return "never" if request.permission_mode == "danger-full-access" else "on-request"


def sandbox_of(request: LaunchRequest) -> str:
    """Return the sandbox, never none: codex gives an untrusted directory a writable sandbox by default (0.169.0)."""
    return request.permission_mode or "read-only"


def start_turn(thread: str, request: LaunchRequest) -> str:
    """Return the prompt, with images as `data:` URLs: for a local file codex would also tell the model the path."""
    items = [_input_item(part) for part in said(request).content]
    params: Frame = {"threadId": thread, "input": items}
    if request.output_schema is not None:
        params["outputSchema"] = strict_schema(request.output_schema)
    return _line(id=START_TURN, method="turn/start", params=params)


def said(request: LaunchRequest) -> Said:
    """Return the prompt as text only, unless the caller lets codex look for skills."""
    content = request.content or (request.prompt,)
    return Said(content, [], None) if request.expand else switched_off(content)


def _input_item(part: str | Image) -> Frame:
    if isinstance(part, str):
        return {"type": "text", "text": part, "text_elements": []}
    return {"type": "image", "url": part.url}


def interrupt(thread: str, turn: str) -> str:
    return _line(id=INTERRUPT, method="turn/interrupt", params={"threadId": thread, "turnId": turn})


def answer_to(method: str, asked: str | int) -> str:
    """Return a refusal in the form of the request. An unknown request gets an error, so that codex does not wait forever."""
    result = _ANSWERS.get(method)
    if result is None:
        return _line(id=asked, error={"code": -32601, "message": f"clisup does not answer {method[:200]}"})
    return _line(id=asked, result=result)


def config_of(request: LaunchRequest) -> Frame:
    """Return the settings for the thread's request, which other users cannot read."""
    config: Frame = {}
    if trust := trust_of(request):
        config["projects"] = {path: {"trust_level": level} for path, level in trust.items()}
    if request.mcp_servers:
        config["mcp_servers"] = servers_of(request)
    if rules := said(request).rules:
        config["skills"] = {"config": rules}
    return config


def trust_of(request: LaunchRequest) -> dict[str, str]:
    """Return paths with `trusted` or `untrusted`, for the settings of the working directory.

    By default, thread/start with a writable sandbox marks the repository as trusted in the user's config.toml, and then runs its
    MCP servers and hooks (measured 0.169.0). The closed form also names every parent directory, because the user may have
    trusted the root of the repository.
    """
    if request.setting_sources is None:
        return {}
    if "project" in _sources(request.setting_sources):
        return {request.cwd: "trusted"}
    return dict.fromkeys(_upwards(request.cwd), "untrusted")


def _upwards(path: str) -> list[str]:
    """Return the directory and its parents."""
    parts = path.rstrip("/").split("/")
    return ["/".join(parts[:count]) or "/" for count in range(len(parts), 0, -1)]


def _sources(value: str) -> frozenset[str]:
    sources = frozenset(name.strip() for name in value.split(",") if name.strip())
    if sources not in ({"user"}, {"user", "project"}):
        raise UsageError(
            f"cannot take the setting sources {value!r}, because codex always reads the user's and has no local ones",
            kind="unsupported",
            hint="take `user`, or `user,project`",
        )
    return sources


_NAMED = ("properties", "$defs", "definitions")  # names to schemas
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "not", "additionalProperties")


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema with every property required, no others allowed, and without defaults.

    An object without named properties, or with a rule for others, stays unchanged: the API then accepts or refuses it.
    """
    made = {name: _part(name, value) for name, value in schema.items() if name != "default"}
    properties = made.get("properties")
    if isinstance(properties, dict) and made.get("additionalProperties", True) is True:
        made["additionalProperties"] = False
    if isinstance(properties, dict):
        made["required"] = list(properties)
    return made


def _part(name: str, value: Any) -> Any:
    if name in _NAMED and isinstance(value, dict):
        return {key: _sub(part) for key, part in value.items()}
    if name in _LISTED and isinstance(value, list):
        return [_sub(part) for part in value]
    return _sub(value) if name in _SINGLE else value


def _sub(schema: Any) -> Any:
    return strict_schema(schema) if isinstance(schema, dict) else schema
