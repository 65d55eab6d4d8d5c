"""Script language of the demo CLI: parse a prompt into steps. Pure: no file is read and nothing is started."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

__all__ = [
    "BadScript", "Directive", "ScriptStep", "count", "fields", "one_of", "parse_script", "read_bash", "read_call", "read_json",
    "read_report", "read_text", "read_tool", "read_words", "seconds",
]  # fmt: skip

Reader = Callable[[str], tuple[Any, ...]]
Play = Callable[[Any, "ScriptStep"], None]  # of a `Player` and a step

# `@path/to/file` and `@someone, ...` are no directives: a prompt that mentions a file must reach the model as text.
_DIRECTIVE = re.compile(r"@([a-z][a-z-]*)(?:[ \t]+(.*))?")


class BadScript(Exception):
    """Script that cannot be played. The message names the line and the mistake."""


class Directive(NamedTuple):
    """Row of the table of directives. `read` parses the arguments and raises `ValueError`; `play` carries out a step."""

    group: str
    usage: str
    meaning: str
    read: Reader
    play: Play
    is_tool: bool = False
    """True if @parallel may hold the directive."""


class ScriptStep(NamedTuple):
    """Directive with its arguments. `inner` holds the tools of a @parallel block."""

    name: str
    args: tuple[Any, ...]
    line: int
    inner: tuple[ScriptStep, ...] = ()


def parse_script(prompt: str, directives: Mapping[str, Directive]) -> list[ScriptStep]:
    """Return the steps of a prompt. Consecutive lines of text are one step. Raises `BadScript`."""
    found = [(number, line, _DIRECTIVE.fullmatch(line.rstrip())) for number, line in enumerate(prompt.split("\n"), 1)]
    if not any(match for _, _, match in found):
        return [ScriptStep("echo", (prompt.rstrip("\n"),), 1)]
    steps: list[ScriptStep] = []
    text: list[tuple[int, str]] = []
    for number, line, match in found:
        if match is None:
            text.append((number, line))
            continue
        steps += _text_step(text)
        text.clear()
        steps.append(_read(number, match[1], (match[2] or "").strip(), directives))
    steps = _fold_parallel(steps + _text_step(text), directives)
    if len(steps) > 1 and (played := next((step for step in steps if step.name == "play"), None)):
        raise BadScript(f"line {played.line}: @play must be the only directive: a recording is a whole run")
    return steps


def _text_step(lines: list[tuple[int, str]]) -> list[ScriptStep]:
    text = "\n".join(line for _, line in lines).strip("\r\n")
    return [ScriptStep("text", (text,), lines[0][0])] if text.strip() else []


def _read(number: int, name: str, rest: str, directives: Mapping[str, Directive]) -> ScriptStep:
    directive = directives.get(name)
    if directive is None:
        import difflib  # slow to load, and only mistakes need it

        near = difflib.get_close_matches(name, directives, n=1)
        hint = f"did you mean @{near[0]}?" if near else "--help lists them all"
        raise BadScript(f"line {number}: unknown directive @{name}; {hint}")
    try:
        return ScriptStep(name, directive.read(rest), number)
    except ValueError as error:
        raise BadScript(f"line {number}: @{name}: {error}; usage: @{name} {directive.usage}".rstrip()) from None


def _fold_parallel(steps: list[ScriptStep], directives: Mapping[str, Directive]) -> list[ScriptStep]:
    """Put the tools between @parallel and @end inside the @parallel step."""
    folded: list[ScriptStep] = []
    block: ScriptStep | None = None
    for step in steps:
        if block is None:
            if step.name == "end":
                raise BadScript(f"line {step.line}: @end without @parallel")
            block = step if step.name == "parallel" else None
            folded += [] if block else [step]
        elif step.name == "end":
            if not block.inner:
                raise BadScript(f"line {block.line}: @parallel holds no tools")
            folded.append(block)
            block = None
        elif directives[step.name].is_tool:
            block = block._replace(inner=(*block.inner, step))
        else:
            raise BadScript(f"line {step.line}: @{step.name} is no tool, and @parallel holds only tools")
    if block is not None:
        raise BadScript(f"line {block.line}: @parallel without @end")
    return folded


# Readers of arguments: text in, values out. They raise `ValueError` with the mistake.


def count(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError(f"{text!r} is not a number of seconds")
    return value


def one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"{text!r} is none of {', '.join(choices)}")
        return text

    return read


def fields(*kinds: Callable[[str], Any], defaults: tuple[Any, ...] = ()) -> Reader:
    """Return a reader of words. The last words are optional where there are `defaults`."""

    def read(rest: str) -> tuple[Any, ...]:
        words = rest.split()
        missing = len(kinds) - len(words)
        if missing < 0:
            raise ValueError(f"at most {len(kinds)} argument(s), not {len(words)}")
        if missing > len(defaults):
            raise ValueError("an argument is missing")
        values = [kind(word) for kind, word in zip(kinds, words, strict=False)]
        return (*values, *defaults[len(defaults) - missing :])

    return read


def read_text(rest: str) -> tuple[str]:
    if not rest:
        raise ValueError("an argument is missing")
    return (rest,)


def read_words(rest: str) -> tuple[str, ...]:
    return tuple(read_text(rest)[0].split())


def read_json(rest: str) -> tuple[Any]:
    try:
        return (json.loads(rest),)
    except ValueError as error:
        raise ValueError(f"wrong JSON: {error}") from None


def read_call(rest: str) -> tuple[Any, ...]:
    """Read `NAME [JSON]`."""
    name, arguments, result = _read_tool(rest)
    if result:
        raise ValueError("only a JSON object may follow the name of the tool")
    return name, arguments


def read_tool(rest: str) -> tuple[Any, ...]:
    """Read `NAME [JSON] [=> RESULT]`."""
    name, arguments, result = _read_tool(rest)
    if result and not result.startswith("=>"):
        raise ValueError("a JSON object and then => RESULT may follow the name of the tool")
    return name, arguments, result.removeprefix("=>").strip() if result else "ok"


def _read_tool(rest: str) -> tuple[str, Any, str]:
    name, _, rest = read_text(rest)[0].partition(" ")
    rest = rest.strip()
    if not rest.startswith("{"):
        return name, {}, rest
    try:
        arguments, end = json.JSONDecoder().raw_decode(rest)
    except ValueError as error:
        raise ValueError(f"wrong JSON: {error}") from None
    return name, arguments, rest[end:].strip()


def read_bash(rest: str) -> tuple[Any, ...]:
    timeout = math.inf
    if rest.startswith("timeout="):
        word, _, rest = rest.partition(" ")
        timeout = seconds(word.removeprefix("timeout="))
    return *read_text(rest.strip()), timeout


def read_report(rest: str) -> tuple[Any, ...]:
    """Read `S REPORT => ANSWER`."""
    delay, _, text = rest.partition(" ")
    report, arrow, answer = text.partition(" => ")
    if not arrow:
        raise ValueError("an argument is missing")
    return seconds(delay), report.strip(), answer.strip()
