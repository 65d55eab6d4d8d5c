"""Lines of JSON-RPC as the Agent Client Protocol has them: read with care, and written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from clisup.backends.acp.updates import CHUNKS
from clisup.backends.approvals import ApprovalAnswer
from clisup.backends.claude.frames import decode_any, mend
from clisup.backends.frames import get_dict, get_str
from clisup.errors import UsageError
from clisup.model.lines.framing import Line

__all__ = ["options_of", "outcome", "read_frame", "reply_text", "request_text"]


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


_KINDS: dict[tuple[str, bool], tuple[str, ...]] = {
    ("allow", False): ("allow_once",),  # never for ever where nobody said so
    ("allow", True): ("allow_always", "allow_once"),
    ("deny", False): ("reject_once", "reject_always"),
    ("deny", True): ("reject_always", "reject_once"),
}
"""Which kinds of option are an answer, the best first."""


def options_of(params: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """The answers that the agent offers, those that can be given."""
    options = params.get("options")
    known = [option for option in options if isinstance(option, dict)] if isinstance(options, list) else []
    return tuple(option for option in known if isinstance(option.get("optionId"), str))


def outcome(options: Sequence[dict[str, Any]], answer: ApprovalAnswer) -> dict[str, Any]:
    """The answer in the agent's words. Without an option that refuses, a refusal is `cancelled`.

    Raises `UsageError(kind="unsupported")` where the agent offers no such answer.
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
    """One line: the answer to the agent's request of this id; `body` is its result or error."""
    return json.dumps({"jsonrpc": "2.0", "id": number, **body}) + "\n"
