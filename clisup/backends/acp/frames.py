"""Reader and writer of the JSON-RPC lines of the Agent Client Protocol."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from clisup.backends.acp.updates import CHUNKS
from clisup.backends.approvals import ApprovalAnswer
from clisup.backends.frames import decode_any, get_dict, get_str, mend
from clisup.errors import UsageError
from clisup.model.lines.framing import Line

__all__ = ["options_of", "outcome", "read_frame", "reply_text", "request_text"]


def request_text(number: int | None, method: str, params: dict[str, Any]) -> str:
    """Return one line: a request, or a notification if `number` is None."""
    head: dict[str, Any] = {"jsonrpc": "2.0"} if number is None else {"jsonrpc": "2.0", "id": number}
    return json.dumps(head | {"method": method, "params": params}) + "\n"


def read_frame(line: Line) -> dict[str, Any] | None:
    """Return the line's JSON object, with broken characters replaced.

    A text chunk keeps its halves of surrogate pairs: the other half may come with the next chunk.
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


_KINDS: dict[tuple[str, bool], tuple[str, ...]] = {
    ("allow", False): ("allow_once",),  # nothing permanent without a request for it
    ("allow", True): ("allow_always", "allow_once"),
    ("deny", False): ("reject_once", "reject_always"),
    ("deny", True): ("reject_always", "reject_once"),
}
"""Kinds of options for each answer, the best first."""


def options_of(params: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return the valid answers that the agent offers."""
    options = params.get("options")
    known = [option for option in options if isinstance(option, dict)] if isinstance(options, list) else []
    return tuple(option for option in known if isinstance(option.get("optionId"), str))


def outcome(options: Sequence[dict[str, Any]], answer: ApprovalAnswer) -> dict[str, Any]:
    """Return the answer as the agent's option. Without an option to refuse, a refusal is `cancelled`.

    Raises `UsageError(kind="unsupported")` if the agent offers no such answer.
    """
    if answer.decision == "cancelled":
        return {"outcome": "cancelled"}
    if answer.updated_input is not None:
        raise UsageError(
            "cannot change the input of this tool call, because the Agent Client Protocol has no way to",
            kind="unsupported",
            hint="deny it, and say what to do instead in the next prompt",
        )
    for kind in _KINDS[answer.decision, answer.remember]:
        for option in options:
            if option.get("kind") == kind:
                return {"outcome": "selected", "optionId": option["optionId"]}
    if answer.decision == "deny":
        return {"outcome": "cancelled"}
    raise UsageError(
        "cannot allow this tool call, because the agent does not offer that",
        kind="unsupported",
        hint="see `suggestions` of the approval: with `remember` it may be offered for ever",
    )


def reply_text(number: int | str | None, body: dict[str, Any]) -> str:
    """Return one line: the answer to the agent's request. `body` is its result or error."""
    return json.dumps({"jsonrpc": "2.0", "id": number, **body}) + "\n"
