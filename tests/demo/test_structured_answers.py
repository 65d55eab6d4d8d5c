"""What the demo CLI answers by a schema, and what it knows of a transcript that somebody else wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import BaseModel, Field

from clisup.backends.claude.transcript import ClaudeSeed
from clisup.backends.demo import DemoAdapter
from clisup.backends.transcripts import Seed
from clisup.demo.directives import plainest
from clisup.model.prompts.history import HistoryMessage
from tests.fakecli import COMMAND

FLAGS = ("-p", "--output-format", "stream-json", "--verbose")
SESSION = "7c9e6679-7425-40de-944b-e07fc1f90ae7"


class Point(BaseModel):
    x: int = Field(ge=3)
    y: float = Field(gt=1.5, le=9)


class Shape(BaseModel):
    name: str = Field(min_length=6, max_length=8)
    kind: str = Field(json_schema_extra={"enum": ["round", "flat"]})
    points: list[Point] = Field(min_length=2)
    best: Point | None
    closed: bool
    tags: dict[str, int]
    note: str = "none"


def demo(tmp_path: Path, prompt: str, *flags: str) -> subprocess.CompletedProcess[str]:
    argv = [*COMMAND, *FLAGS, *flags]
    env = {"DEMO_CLI_HOME": str(tmp_path / "demo"), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        argv, input=prompt, env=env, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )


def frames(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("schema", [Shape.model_json_schema(), Point.model_json_schema(), {"type": "object"}])
def test_the_plainest_value_fits(schema: dict[str, Any]) -> None:
    jsonschema.validate(plainest(schema), schema)


def test_a_schema_without_end_or_sense_has_some_value() -> None:
    endless = {"type": "object", "properties": {"a": {"$ref": "#"}}}
    assert isinstance(plainest(endless), dict)
    assert plainest({"type": "object", "properties": {"a": {"$ref": "#/nowhere"}, "b": True, "c": {"type": []}}}) == {
        "a": None, "b": None, "c": None,
    }  # fmt: skip


def test_the_answer_is_a_tool_call_and_the_last_word_as_with_claude(tmp_path: Path) -> None:
    said = frames(demo(tmp_path, "hello", "--json-schema", json.dumps(Point.model_json_schema())))
    calls = [
        block
        for f in said
        if f["type"] == "assistant"
        for block in f["message"]["content"]
        if block["type"] == "tool_use"
    ]
    assert [(call["name"], call["input"]) for call in calls] == [("StructuredOutput", {"x": 3, "y": 2.5})]
    result = said[-1]
    assert (result["subtype"], result["stop_reason"], result["structured_output"]) == (
        "success",
        "tool_use",
        {"x": 3, "y": 2.5},
    )
    assert result["result"] == '{"x":3,"y":2.5}'


def test_a_prompt_that_is_an_object_and_the_script_say_what_the_value_is(tmp_path: Path) -> None:
    flags = ("--json-schema", '{"type": "object"}')
    assert frames(demo(tmp_path, '{"a": 5}', *flags))[-1]["structured_output"] == {"a": 5}
    assert frames(demo(tmp_path, '@structured {"b": 1}', *flags))[-1]["structured_output"] == {"b": 1}
    alone = frames(demo(tmp_path, "words\n@unstructured", *flags))[-1]
    assert alone["result"] == "words" and "structured_output" not in alone


@pytest.mark.parametrize(("schema", "words"), [("{no", "is not valid JSON"), ("[1]", "must be a JSON object")])
def test_a_schema_that_is_none_is_refused_as_by_claude(tmp_path: Path, schema: str, words: str) -> None:
    done = demo(tmp_path, "hello", "--json-schema", schema)
    assert (done.returncode, done.stdout) == (1, "") and words in done.stderr


def test_a_transcript_of_somebody_elses_is_gone_on_from(tmp_path: Path) -> None:
    history = [
        HistoryMessage(role="user", content="first words\nand more"),
        HistoryMessage.model_validate(
            {"role": "assistant", "content": [{"type": "tool_use", "id": "u", "name": "Grep", "input": {}}]}
        ),
        HistoryMessage.model_validate(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "u", "content": "x"}]}
        ),
        HistoryMessage.model_validate({"role": "user", "content": [{"type": "text", "text": "second"}]}),
        HistoryMessage(role="assistant", content="b"),
    ]
    path = tmp_path / "demo" / "projects" / "-somewhere" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(ClaudeSeed().lines(Seed(history, SESSION, "/w", None, "2026-01-01T00:00:00Z"))))
    before = path.read_bytes()
    result = frames(demo(tmp_path, "@recall\n@count\n@history", "--resume", SESSION))[-1]["result"]
    first, number, *said = result.splitlines()
    assert (first, number) == ("The first prompt was: first words", "turn 3")
    assert [json.loads(line)["role"] for line in said] == ["user", "assistant", "user", "user", "assistant"]
    assert path.read_bytes().startswith(before)
    again = frames(demo(tmp_path, "@count", "--resume", SESSION))[-1]
    assert again["result"] == "turn 4"


def test_the_file_is_run_without_anything_installed() -> None:
    assert DemoAdapter.default_command[:3] == (sys.executable, "-I", "-S")
