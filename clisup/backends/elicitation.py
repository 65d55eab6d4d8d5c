"""Elicitations: an MCP server, or the CLI itself, asks the user for values. Pure.

An elicitation reaches the user as an approval (`elicitation_tool`, `elicitation_input`). The answer allows it with
`updated_input: {"content": {field: value}}`, or denies it. `answer_to_elicitation` makes the result that both protocols use.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from clisup.backends.approvals import ApprovalAnswer, refuse_rule
from clisup.backends.frames import Frame, too_deep
from clisup.errors import UsageError
from clisup.policy.form_schema import fields_of, problem_of

__all__ = ["ELICITATION", "answer_to_elicitation", "elicitation_input", "elicitation_tool"]

ELICITATION = "elicitation"
MOST_CONTENT_CHARS = 256 * 1024
_NAME_CHARS = 200


def elicitation_tool(server: str | None = None) -> str:
    """Return the `tool_name` of an elicitation: of an MCP server, or of the agent itself without one."""
    return ELICITATION if server is None else f"mcp__{server[:_NAME_CHARS]}__{ELICITATION}"


def elicitation_input(
    message: str | None, *, server: str | None = None, schema: object = None, url: str | None = None
) -> Frame:
    """Return the `input` of an elicitation: a form with `schema`, or a `url` for the user to open."""
    asked: Frame = {"message": message or "", "mode": "form" if url is None else "url"}
    if server is not None:
        asked["server"] = server
    if url is not None:
        asked["url"] = url
    elif isinstance(schema, dict):
        asked["requested_schema"] = schema
    return asked


def answer_to_elicitation(asked: Mapping[str, Any], answer: ApprovalAnswer) -> Frame:
    """Return the result: `action`, and the `content` of an accepted form. `asked` is the input of the approval.

    Raises `UsageError(kind="invalid_params")` for values that do not fit the form, `UsageError(kind="unsupported")` for an
    `allow` by a rule: a rule has no values.
    """
    if answer.decision == "cancelled":
        return {"action": "cancel"}
    if answer.decision == "deny":
        return {"action": "decline"}
    refuse_rule(answer, "accept an elicitation", "values for it")
    if asked.get("mode") == "url":
        return {"action": "accept"}
    return {"action": "accept", "content": _content(asked.get("requested_schema"), answer.updated_input or {})}


def _content(schema: object, updated_input: Mapping[str, Any]) -> Frame:
    """Return the checked values of an answer. A schema of an unknown form allows each object."""
    content = updated_input.get("content", {})
    if not isinstance(content, dict):
        raise _refused("`content` is no object")
    try:
        data = json.dumps(content, allow_nan=False).encode()
    except (ValueError, RecursionError):
        raise _refused("`content` is no JSON") from None
    if len(data) > MOST_CONTENT_CHARS:
        raise _refused(f"`content` has more than {MOST_CONTENT_CHARS} characters")
    if too_deep(data, content):
        raise _refused("`content` is nested too deep")
    fields = fields_of(schema)
    problem = None if fields is None else problem_of(fields, content)
    if problem is not None:
        raise _refused(problem)
    return content


def _refused(problem: str) -> UsageError:
    return UsageError(
        f"cannot accept the elicitation: {problem}",
        hint="answer with updated_input.content, an object that fits requested_schema of the approval, or deny it",
    )
