"""Lines of JSON-RPC as the Agent Client Protocol has them: read with care, and written."""

from __future__ import annotations

import json
from typing import Any

from clisup.backends.acp_updates import CHUNKS
from clisup.backends.claude_frames import decode_any, get_dict, get_str, mend
from clisup.core.framing import Line

__all__ = ["read_frame", "refusal", "reply_text", "request_text"]


def request_text(number: int | None, method: str, params: dict[str, Any]) -> str:
    """One line: a request, or with None a notification."""
    head: dict[str, Any] = {"jsonrpc": "2.0"} if number is None else {"jsonrpc": "2.0", "id": number}
    return json.dumps(head | {"method": method, "params": params}) + "\n"


def read_frame(line: Line) -> dict[str, Any] | None:
    """The line as a JSON object; bytes and surrogate halves that are no characters are mended.

    A chunk of text keeps its halves: the other one may come with the next chunk.
    """
    try:
        value = decode_any(line.data)
    except (ValueError, RecursionError):
        try:
            value = decode_any(mend(line.data))
            _keep_halves(value, line.data)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def _keep_halves(value: object, data: bytes) -> None:
    update = get_dict(get_dict(value, "params"), "update") if isinstance(value, dict) else {}
    if get_str(update, "sessionUpdate") in CHUNKS and "text" in get_dict(update, "content"):
        raw = json.loads(data.decode("utf-8", "replace"))
        update["content"]["text"] = raw["params"]["update"]["content"]["text"]


def refusal(params: dict[str, Any]) -> dict[str, Any]:
    """The option that refuses this once; one that refuses for ever only where there is no other."""
    options = params.get("options")
    known = [option for option in options if isinstance(option, dict)] if isinstance(options, list) else []
    for kind in ("reject_once", "reject_always"):
        for option in known:
            if option.get("kind") == kind and isinstance(option.get("optionId"), str):
                return {"outcome": "selected", "optionId": option["optionId"]}
    return {"outcome": "cancelled"}


def reply_text(number: int | str | None, body: dict[str, Any]) -> str:
    """One line: the answer to the agent's request of this id; `body` is its result or error."""
    return json.dumps({"jsonrpc": "2.0", "id": number, **body}) + "\n"
