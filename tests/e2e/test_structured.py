"""`output_schema` of session/prompt with the real claude."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.lab import ClaudeLab
from tests.e2e.scenarios import Body, Reply, Scenario, in_turn, say, tool, use

pytestmark = pytest.mark.e2e
SCHEMA: dict[str, Any] = {
    "type": "object", "properties": {"answer": {"$ref": "#/$defs/Number"}}, "required": ["answer"],
    "$defs": {"Number": {"type": "integer", "description": "\u00fc \u2028 'quoted' \"too\""}},
}  # fmt: skip
OTHER: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def by_schema(body: Body, n: int) -> Reply:
    """What a model does that is offered the tool for the answer: it takes it, with a value that fits."""
    offered = next((t["input_schema"] for t in body["tools"] if t["name"] == "StructuredOutput"), None)
    if offered is None:
        return say("Words alone.")(body, n)
    value = {"answer": 42} if "answer" in offered["properties"] else {"name": "Ada"}
    return use(tool("StructuredOutput", f"so{n}", value))(body, n)


BY_SCHEMA = Scenario("by_schema", by_schema)


@pytest.mark.parametrize("mode", ["one-shot", "live"])
def test_each_turn_has_its_own_schema_and_the_conversation_goes_on(lab: Callable[..., ClaudeLab], mode: str) -> None:
    here = lab(BY_SCHEMA)
    session = here.open(mode=mode)
    first = here.turn("First.", session=session, output_schema=SCHEMA)
    assert (first["outcome"], first["structured"], json.loads(first["text"])) == (
        "completed",
        {"answer": 42},
        {"answer": 42},
    )
    assert here.turn("Second.", session=session, output_schema=OTHER)["structured"] == {"name": "Ada"}
    plain = here.turn("Third.", session=session)
    assert plain["text"] == "Words alone." and "structured" not in plain
    said = json.dumps(here.api.main_requests[-1].body["messages"])
    assert all(text in said for text in ("First.", "Second.", "Third."))
    assert not here.events(session, "approval_requested", "permission_denied", "unparsed")


def test_the_api_is_offered_the_schema_as_it_is(lab: Callable[..., ClaudeLab]) -> None:
    here = lab(BY_SCHEMA)
    here.turn("Go.", output_schema=SCHEMA)
    (offered,) = [t["input_schema"] for t in here.api.main_requests[0].body["tools"] if t["name"] == "StructuredOutput"]
    assert offered == SCHEMA


def test_the_cli_has_the_model_mend_a_value_that_does_not_fit(lab: Callable[..., ClaudeLab]) -> None:
    wrong = use(tool("StructuredOutput", "wrong", {"answer": "many"}))
    here = lab(Scenario("mended", in_turn(wrong, use(tool("StructuredOutput", "right", {"answer": 42})))))
    turn = here.turn("Go.", output_schema=SCHEMA)
    assert turn["structured"] == {"answer": 42}
    assert [e.get("is_error", False) for e in here.events(turn["session_id"], "tool_result")] == [True, False]


def test_a_model_that_answers_in_words_completes_without_a_value(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("json_schema_text")
    turn = here.turn("Go.", output_schema=SCHEMA)
    assert (turn["outcome"], turn["text"]) == ("completed", "Forty-two.") and "structured" not in turn


def test_a_schema_that_is_none_fails_the_turn_as_a_mistake_of_the_callers(lab: Callable[..., ClaudeLab]) -> None:
    here = lab(BY_SCHEMA)
    turn = here.turn("Go.", output_schema={"type": "object", "properties": {"a": {"type": "nonsense"}}})
    assert (turn["outcome"], turn["error"]["kind"]) == ("failed", "invalid_request")
    assert "not a valid JSON Schema" in turn["error"]["message"]


def test_the_longest_schema_fits_on_the_command_line(lab: Callable[..., ClaudeLab]) -> None:
    here = lab(BY_SCHEMA)
    turn = here.turn("Go.", output_schema={**SCHEMA, "description": "x" * 98_000})
    assert turn["structured"] == {"answer": 42}


def test_a_session_with_a_history_answers_by_a_schema_at_once(lab: Callable[..., ClaudeLab]) -> None:
    here = lab(BY_SCHEMA)
    history = [{"role": "user", "content": "My name is Ada."}, {"role": "assistant", "content": "Hello."}]
    assert here.turn("Who am I?", history=history, output_schema=OTHER)["structured"] == {"name": "Ada"}
    assert "My name is Ada." in json.dumps(here.api.main_requests[-1].body["messages"])
