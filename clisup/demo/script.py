"""A prompt to steps. Pure: it reads no file and starts nothing."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from clisup.demo.directives import DIRECTIVES

__all__ = ["ECHO", "PARALLEL_TOOLS", "BadScript", "Step", "parse_script"]

ECHO = "echo"
"""The one step of a prompt without directives."""

PARALLEL_TOOLS = ("tool", "bash", "denied", "ask", "run", "mcp")

# `@path/to/file` and `@someone, ...` are no directives: a prompt that mentions a file must reach the model as text.
_DIRECTIVE = re.compile(r"@([a-z][a-z-]*)(?:[ \t]+(.*))?")


class BadScript(Exception):
    """A script that cannot be played. The message names the line and what is wrong in it."""


class Step(NamedTuple):
    """One thing to do. `inner` holds the tools of a `@parallel` block."""

    name: str
    args: tuple[Any, ...]
    line: int
    inner: tuple[Step, ...] = ()


def parse_script(prompt: str) -> list[Step]:
    """The steps of a prompt; runs of plain lines become one text step. Raises `BadScript`."""
    found = [(number, line, _DIRECTIVE.fullmatch(line.rstrip())) for number, line in enumerate(prompt.split("\n"), 1)]
    if not any(match for _, _, match in found):
        return [Step(ECHO, (prompt.rstrip("\n"),), 1)]
    steps: list[Step] = []
    text: list[tuple[int, str]] = []
    for number, line, match in found:
        if match is None:
            text.append((number, line))
            continue
        steps += _text_step(text)
        text.clear()
        steps.append(_directive(number, match[1], (match[2] or "").strip()))
    steps = _fold_parallel(steps + _text_step(text))
    if len(steps) > 1 and (played := next((step for step in steps if step.name == "play"), None)):
        raise BadScript(f"line {played.line}: @play stands alone: a recording has a beginning and an end of its own")
    return steps


def _text_step(lines: list[tuple[int, str]]) -> list[Step]:
    """Plain lines between two directives; blank ones around them only divide the script."""
    text = "\n".join(line for _, line in lines).strip("\r\n")
    return [Step("text", (text,), lines[0][0])] if text.strip() else []


def _directive(number: int, name: str, rest: str) -> Step:
    directive = DIRECTIVES.get(name)
    if directive is None:
        raise BadScript(f"line {number}: unknown directive @{name}{_suggestion(name)}")
    try:
        return Step(name, directive.read(rest), number)
    except ValueError as error:
        raise BadScript(f"line {number}: @{name}: {error}; usage: @{name} {directive.usage}".rstrip()) from None


def _suggestion(name: str) -> str:
    import difflib  # for mistakes only, not for every start

    near = difflib.get_close_matches(name, DIRECTIVES, n=1)
    return f"; did you mean @{near[0]}?" if near else "; --help lists them all"


def _fold_parallel(steps: list[Step]) -> list[Step]:
    """Put the tools between @parallel and @end inside the @parallel step."""
    folded: list[Step] = []
    block: Step | None = None
    for step in steps:
        if block is None and step.name == "end":
            raise BadScript(f"line {step.line}: @end without @parallel")
        if block is None:
            block = step if step.name == "parallel" else None
            folded += [] if block else [step]
        elif step.name == "end":
            if not block.inner:
                raise BadScript(f"line {block.line}: @parallel holds no tools")
            folded.append(block)
            block = None
        elif step.name in PARALLEL_TOOLS:
            block = block._replace(inner=(*block.inner, step))
        else:
            raise BadScript(f"line {step.line}: @{step.name} cannot stand inside @parallel, only tools can")
    if block is not None:
        raise BadScript(f"line {block.line}: @parallel without @end")
    return folded
