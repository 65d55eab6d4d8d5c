"""An elicitation as an approval, and its answer as the result for the CLI."""

from __future__ import annotations

from typing import Any

import pytest

from clisup.backends.approvals import ApprovalAnswer
from clisup.backends.elicitation import MOST_CONTENT_CHARS, answer_to_elicitation, elicitation_input, elicitation_tool
from clisup.errors import UsageError

COLOUR = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
ASKED = elicitation_input("Which colour?", server="good", schema=COLOUR)
URL = elicitation_input("Log in.", server="good", url="https://example.org/login")
OPTIONAL = elicitation_input("Which colour?", schema={"type": "object", "properties": {"colour": {"type": "string"}}})
ODD = elicitation_input("What?", schema={"type": "object", "properties": {"deep": {"type": "object"}}})


def allow(**updated_input: Any) -> ApprovalAnswer:
    return ApprovalAnswer("allow", updated_input=updated_input or None)


def refusal(asked: dict[str, Any], answer: ApprovalAnswer) -> UsageError:
    with pytest.raises(UsageError) as refused:
        answer_to_elicitation(asked, answer)
    return refused.value


def test_an_elicitation_has_the_name_of_its_server_or_none() -> None:
    assert elicitation_tool("good") == "mcp__good__elicitation"
    assert elicitation_tool() == "elicitation"
    assert len(elicitation_tool("s" * 1000)) < 300


def test_the_input_is_a_form_or_a_url() -> None:
    assert ASKED == {"message": "Which colour?", "mode": "form", "server": "good", "requested_schema": COLOUR}
    assert URL == {"message": "Log in.", "mode": "url", "server": "good", "url": "https://example.org/login"}
    assert elicitation_input(None, schema=[]) == {"message": "", "mode": "form"}


@pytest.mark.parametrize("asked", [ASKED, URL, OPTIONAL, ODD])
def test_a_deny_declines_and_the_end_of_a_turn_cancels(asked: dict[str, Any]) -> None:
    assert answer_to_elicitation(asked, ApprovalAnswer("deny", message="no")) == {"action": "decline"}
    assert answer_to_elicitation(asked, ApprovalAnswer("cancelled")) == {"action": "cancel"}


def test_an_allow_with_content_accepts() -> None:
    accepted = {"action": "accept", "content": {"colour": "red"}}
    assert answer_to_elicitation(ASKED, allow(content={"colour": "red"})) == accepted
    assert answer_to_elicitation(ASKED, allow(**ASKED, content={"colour": "red"})) == accepted


def test_an_allow_without_content_accepts_where_no_field_is_required() -> None:
    assert answer_to_elicitation(OPTIONAL, allow()) == {"action": "accept", "content": {}}
    assert answer_to_elicitation(URL, allow()) == {"action": "accept"}
    error = refusal(ASKED, allow())
    assert error.kind == "invalid_params" and '"colour" is missing' in error.message


@pytest.mark.parametrize("asked", [ASKED, URL, OPTIONAL, ODD])
def test_an_allow_by_a_rule_never_accepts(asked: dict[str, Any]) -> None:
    assert refusal(asked, ApprovalAnswer("allow", by_rule=True)).kind == "unsupported"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"colour": 1}, '"colour" must be a text'),
        ({"colour": "red", "size": 1}, 'no field "size"'),
        ([], "`content` is no object"),
        ("red", "`content` is no object"),
        (None, "`content` is no object"),
        ({"colour": "x" * MOST_CONTENT_CHARS}, "more than"),
    ],
)
def test_content_that_does_not_fit_is_refused_with_the_reason(content: Any, words: str) -> None:
    error = refusal(ASKED, allow(content=content))
    assert error.kind == "invalid_params" and words in error.message


def test_a_schema_of_an_unknown_form_allows_each_object_within_the_limits() -> None:
    assert answer_to_elicitation(ODD, allow(content={"deep": {"a": [1]}}))["content"] == {"deep": {"a": [1]}}
    deep: Any = {}
    for _ in range(300):
        deep = {"a": deep}
    assert "nested too deep" in refusal(ODD, allow(content=deep)).message
    for _ in range(100_000):
        deep = {"a": deep}
    assert "no JSON" in refusal(ODD, allow(content=deep)).message
    assert "no JSON" in refusal(ODD, allow(content={"a": float("nan")})).message
