"""The script language: what is a directive, what is text, and how a mistake is told."""

from __future__ import annotations

import pytest

from clisup.demo import script
from clisup.demo.directives import DIRECTIVES
from clisup.demo.script import BadScript, ScriptStep
from tests.fakecli import orphans
from tests.fakecli.directives import MORE, ORPHAN_KINDS


def parse_script(prompt: str) -> list[ScriptStep]:
    return script.parse_script(prompt, DIRECTIVES | MORE)


def test_a_prompt_without_directives_is_one_echo() -> None:
    assert [(step.name, step.args) for step in parse_script("hello\nworld\n")] == [("echo", ("hello\nworld",))]


@pytest.mark.parametrize(
    "prompt", ["read @/etc/passwd", "@src/main.py says what?", "@README.md", "me@example.org", "\n/cost"]
)
def test_a_mention_is_no_directive(prompt: str) -> None:
    assert parse_script(prompt)[0].name == "echo"


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
        ("fine\n@sleep soon", 2, "'soon' is not a number of seconds"),
        ("@stream", 1, "an argument is missing; usage: @stream N"),
        ("@sleep 1 2", 1, "at most 1 argument(s), not 2"),
        ("@sleep nan", 1, "not a number of seconds"),
        ("@tool A {", 1, "wrong JSON"),
        ("@tool A 5", 1, "a JSON object"),
        ("@structured {", 1, "wrong JSON"),
        ("@error odd", 1, "'odd' is none of authentication"),
        ("@die NOTHING", 1, "is no signal"),
        ("@exit 256", 1, "is no exit code"),
        ("@text", 1, "an argument is missing"),
        ("@end", 1, "@end without @parallel"),
        ("x\n@parallel\n@tool A", 2, "@parallel without @end"),
        ("@parallel\n@end", 1, "holds no tools"),
        ("@parallel\n@sleep 1\n@end", 2, "is no tool, and @parallel holds only tools"),
    ],
)
def test_a_mistake_names_its_line(script: str, line: int, said: str) -> None:
    with pytest.raises(BadScript) as caught:
        parse_script(script)
    assert str(caught.value).startswith(f"line {line}: ")
    assert said in str(caught.value)


def test_every_kind_of_orphan_exists() -> None:
    assert set(ORPHAN_KINDS) == set(orphans.KINDS)
