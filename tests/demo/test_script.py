"""The script language: what is a directive, what is text, and how a mistake is told."""

from __future__ import annotations

import pytest

from clisup.demo import failures, orphans
from clisup.demo.directives import DIRECTIVES, ERROR_KINDS, ORPHAN_KINDS, RETRY_KINDS
from clisup.demo.plays import PLAYS
from clisup.demo.script import ECHO, BadScript, parse_script


def test_a_prompt_without_directives_is_one_echo() -> None:
    assert [(step.name, step.args) for step in parse_script("hello\nworld\n")] == [(ECHO, ("hello\nworld",))]


@pytest.mark.parametrize(
    "prompt", ["read @/etc/passwd", "@src/main.py says what?", "@README.md", "me@example.org", "\n/cost"]
)
def test_a_mention_is_no_directive(prompt: str) -> None:
    assert parse_script(prompt)[0].name == ECHO


def test_plain_lines_between_directives_are_text() -> None:
    steps = parse_script("\none\ntwo\n\n@sleep 0.5\n\nthree\n")
    assert [(step.name, step.args, step.line) for step in steps] == [
        ("text", ("one\ntwo",), 1), ("sleep", (0.5,), 5), ("text", ("three",), 6),
    ]  # fmt: skip


def test_a_tool_takes_json_and_a_result() -> None:
    assert parse_script('@tool Read {"a": "=> }"} => x => y')[0].args == ("Read", {"a": "=> }"}, "x => y")
    assert parse_script("@tool Read")[0].args == ("Read", {}, "ok")


def test_parallel_holds_its_tools() -> None:
    (step,) = parse_script("@parallel\n@tool A\n@bash echo hi\n@end")
    assert [inner.name for inner in step.inner] == ["tool", "bash"]


@pytest.mark.parametrize(
    ("script", "line", "said"),
    [
        ("@strem 5", 1, "did you mean @stream?"),
        ("fine\n@sleep soon", 2, "'soon' is no number of seconds"),
        ("@stream", 1, "an argument is missing; usage: @stream N"),
        ("@sleep 1 2", 1, "it takes 1 argument(s), not 2"),
        ("@sleep nan", 1, "no number of seconds"),
        ("@tool A {", 1, "the JSON does not parse"),
        ("@tool A 5", 1, "a JSON object"),
        ("@structured {", 1, "the JSON does not parse"),
        ("@error odd", 1, "'odd' is none of authentication"),
        ("@die NOTHING", 1, "is no signal"),
        ("@exit 256", 1, "is no exit code"),
        ("@text", 1, "an argument is missing"),
        ("@end", 1, "@end without @parallel"),
        ("x\n@parallel\n@tool A", 2, "@parallel without @end"),
        ("@parallel\n@end", 1, "holds no tools"),
        ("@parallel\n@sleep 1\n@end", 2, "cannot stand inside @parallel"),
    ],
)
def test_a_mistake_names_its_line(script: str, line: int, said: str) -> None:
    with pytest.raises(BadScript) as caught:
        parse_script(script)
    assert str(caught.value).startswith(f"line {line}: ")
    assert said in str(caught.value)


def test_every_directive_can_be_played() -> None:
    assert set(DIRECTIVES) - {"end", "error", "limit", "play"} == set(PLAYS) - {ECHO}


def test_every_kind_of_the_table_exists() -> None:
    assert set(ORPHAN_KINDS) == set(orphans.KINDS)
    assert set(RETRY_KINDS) == set(failures.RETRIES)
    assert set(ERROR_KINDS) - {"refusal", "max_turns", "budget"} == set(failures.API_FAILURES)
