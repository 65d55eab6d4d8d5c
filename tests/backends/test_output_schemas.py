"""Where an output schema goes with each CLI, and how its value comes back."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from clisup.backends.base import Carried, LaunchRequest
from clisup.backends.claude.adapter import ClaudeAdapter
from clisup.backends.codex.adapter import CodexAdapter
from clisup.backends.codex.exec import CodexExecAdapter
from clisup.backends.codex.protocol import strict_schema
from clisup.backends.qwen.adapter import QwenAdapter
from clisup.model.lines.framing import Line

SESSION = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
SCHEMA: dict[str, Any] = {
    "type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False,
}  # fmt: skip
REQUEST = LaunchRequest(
    command=("cli",),
    prompt="hello",
    native_session_id=SESSION,
    resume=False,
    cwd="/work",
    output_schema=SCHEMA,
    scratch="/s",
)


def line(frame: dict[str, Any]) -> Line:
    return Line(0, 1, json.dumps(frame).encode())


def test_claude_gets_it_as_a_word_that_cannot_be_a_flag() -> None:
    argv = ClaudeAdapter().launch(REQUEST).argv
    assert json.loads(argv[argv.index("--json-schema") + 1]) == SCHEMA
    assert "--json-schema" not in ClaudeAdapter().launch(dataclasses.replace(REQUEST, output_schema=None)).argv


def test_codex_gets_it_with_the_turn_and_argv_has_nothing_of_it() -> None:
    adapter = CodexAdapter()
    decoder = adapter.decoder(Carried(), REQUEST)
    said = decoder.decode(line({"id": 2, "result": {"thread": {"id": SESSION}}})).replies[0]
    assert isinstance(said, str) and json.loads(said)["params"]["outputSchema"] == SCHEMA
    assert not [word for word in adapter.launch(REQUEST).argv if "integer" in word]


def test_codex_exec_gets_it_as_a_file() -> None:
    spec = CodexExecAdapter().launch(REQUEST)
    assert "--output-schema=/s/output-schema.json" in spec.argv
    assert json.loads(spec.files["output-schema.json"]) == SCHEMA


def test_qwen_gets_it_as_a_file_and_says_the_value_in_its_result() -> None:
    adapter = QwenAdapter()
    spec = adapter.launch(REQUEST)
    assert "--json-schema=@/s/qwen-output-schema.json" in spec.argv
    assert json.loads(spec.files["qwen-output-schema.json"]) == SCHEMA
    result = {"type": "result", "subtype": "success", "is_error": False, "result": "{}", "structured_result": {"a": 1}}
    end = adapter.decoder(Carried(), REQUEST).decode(line(result)).terminal
    assert end is not None and end.structured == {"a": 1}


@pytest.mark.parametrize(("text", "value"), [('{"a": 1}', {"a": 1}), ("words", None), ("[1]", None), ('{"a": ', None)])
def test_a_text_that_is_an_object_is_the_value(text: str, value: Any) -> None:
    frames = [
        {"type": "item.completed", "item": {"id": "i", "type": "agent_message", "text": text}},
        {"type": "turn.completed", "usage": {}},
    ]
    decoders = [
        CodexExecAdapter().decoder(Carried(), dataclasses.replace(REQUEST, output_schema=s)) for s in (SCHEMA, None)
    ]
    ends = [[decoder.decode(line(frame)).terminal for frame in frames][-1] for decoder in decoders]
    assert [end and (end.text, end.structured) for end in ends] == [(text, value), (text, None)]


def test_a_turn_that_failed_has_no_value() -> None:
    decoder = CodexExecAdapter().decoder(Carried(), REQUEST)
    decoder.decode(line({"type": "item.completed", "item": {"id": "i", "type": "agent_message", "text": "{}"}}))
    end = decoder.decode(line({"type": "turn.failed", "error": {"message": "no"}})).terminal
    assert end is not None and end.is_error and end.structured is None


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (SCHEMA, SCHEMA),
        # a property may be called as a keyword is
        (
            {"type": "object", "properties": {"default": {"type": "string", "default": "x"}, "required": {}}},
            {"type": "object", "properties": {"default": {"type": "string"}, "required": {}}, "additionalProperties": False,
             "required": ["default", "required"]},
        ),
        # free-form objects and maps: nothing of them can be named
        ({"type": "object"}, {"type": "object"}),
        (
            {"type": "object", "additionalProperties": {"properties": {"b": {}}}},
            {"type": "object", "additionalProperties": {"properties": {"b": {}}, "additionalProperties": False, "required": ["b"]}},
        ),
        (
            {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}, "l": {"items": {"properties": {"c": {}}}}},
             "$defs": {"A": {"properties": {"b": {}}}}},
            {"type": "object", "properties": {
                "a": {"$ref": "#/$defs/A"}, "l": {"items": {"properties": {"c": {}}, "additionalProperties": False, "required": ["c"]}}},
             "$defs": {"A": {"properties": {"b": {}}, "additionalProperties": False, "required": ["b"]}},
             "additionalProperties": False, "required": ["a", "l"]},
        ),
    ],
)  # fmt: skip
def test_the_strict_form_names_every_property_and_allows_no_other(
    schema: dict[str, Any], strict: dict[str, Any]
) -> None:
    assert strict_schema(schema) == strict
    assert strict_schema(strict) == strict
