"""`output_schema` of session/prompt with the real codex, in both ways to run it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.codex.fake_api import message, said
from tests.e2e.codex.lab import CodexLab
from tests.e2e.codex.scenarios import Scenario
from tests.e2e.scenarios import Body, Reply

pytestmark = pytest.mark.e2e
SCHEMA: dict[str, Any] = {
    "type": "object", "properties": {"answer": {"type": "integer", "description": "\u00fc 'quoted' \"too\""}},
    "required": ["answer"], "additionalProperties": False,
}  # fmt: skip


def by_schema(body: Body, n: int) -> Reply:
    """What the API does: it holds the model to the schema, where it was given one."""
    return said(n, message(*(['{"answer"', ": 42}"] if "format" in body.get("text", {}) else ["Words alone."])))


BY_SCHEMA = Scenario("by_schema", by_schema)


def test_a_turn_with_a_schema_has_the_value_and_the_next_one_is_free(lab: Callable[..., CodexLab], kind: str) -> None:
    here = lab(BY_SCHEMA, kind=kind)
    session = here.open()
    first = here.turn("First.", session=session, output_schema=SCHEMA)
    assert (first["outcome"], first["structured"]) == ("completed", {"answer": 42})
    assert json.loads(first["text"]) == {"answer": 42}
    asked = here.api.requests[-1].body["text"]["format"]
    assert (asked["type"], asked["schema"]) == ("json_schema", SCHEMA)
    second = here.turn("Second.", session=session)
    assert second["text"] == "Words alone." and "structured" not in second
    assert here.turn("Third.", session=session, output_schema=SCHEMA)["structured"] == {"answer": 42}
    assert "First." in json.dumps(here.api.requests[-1].body)


def test_an_answer_that_is_no_object_gives_no_value(lab: Callable[..., CodexLab], kind: str) -> None:
    here = lab(Scenario("words", lambda body, n: said(n, message("Forty-two."))), kind=kind)
    turn = here.turn("Go.", output_schema=SCHEMA)
    assert (turn["outcome"], turn["text"]) == ("completed", "Forty-two.") and "structured" not in turn


def test_the_api_gets_a_form_that_it_takes_of_any_schema(lab: Callable[..., CodexLab], kind: str) -> None:
    here = lab(BY_SCHEMA, kind=kind)
    part = {"type": "object", "properties": {"b": {"type": "string"}}}
    loose = {
        "type": "object",
        "properties": {"answer": {"type": "integer", "default": 1}, "more": {"anyOf": [part, {"type": "null"}]}},
    }
    here.turn("Go.", output_schema=loose)
    strict = {"additionalProperties": False}
    inner = {**part, "required": ["b"], **strict}
    assert here.api.requests[-1].body["text"]["format"]["schema"] == {
        "type": "object", "properties": {"answer": {"type": "integer"}, "more": {"anyOf": [inner, {"type": "null"}]}},
        "required": ["answer", "more"], **strict,
    }  # fmt: skip


def test_the_longest_schema_is_taken(lab: Callable[..., CodexLab], kind: str) -> None:
    here = lab(BY_SCHEMA, kind=kind)
    turn = here.turn("Go.", output_schema={**SCHEMA, "description": "x" * 98_000})
    assert turn["structured"] == {"answer": 42}
