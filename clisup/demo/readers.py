"""Readers of directives' arguments: text in, checked values out, or a ValueError that says what is wrong with the text."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

Reader = Callable[[str], tuple[Any, ...]]


def count(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{text!r} is no whole number")
    return int(text)


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError(f"{text!r} is no number of seconds")
    return value


def seconds_or_ever(text: str) -> float:
    return math.inf if text == "forever" else seconds(text)


def one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"{text!r} is none of {', '.join(choices)}")
        return text

    return read


def exit_code(text: str) -> int:
    if count(text) > 255:
        raise ValueError(f"{text!r} is no exit code (0 to 255)")
    return int(text)


def signal_number(text: str) -> int:
    import signal  # one directive needs it, and every start would pay for it

    name = text.upper().removeprefix("SIG")
    known = {member.name.removeprefix("SIG"): int(member) for member in signal.Signals}
    if name.isdecimal() and int(name) in known.values():
        return int(name)
    if name not in known:
        raise ValueError(f"{text!r} is no signal, such as KILL or 9")
    return known[name]


def fields(*kinds: Callable[[str], Any], defaults: tuple[Any, ...] = ()) -> Reader:
    """Words divided by blanks, the last of them optional where there are `defaults`."""

    def read(rest: str) -> tuple[Any, ...]:
        words = rest.split()
        missing = len(kinds) - len(words)
        if missing < 0:
            raise ValueError(f"it takes {len(kinds)} argument(s), not {len(words)}")
        if missing > len(defaults):
            raise ValueError("an argument is missing")
        values = [kind(word) for kind, word in zip(kinds, words, strict=False)]
        return (*values, *defaults[len(defaults) - missing :])

    return read


def read_text(rest: str) -> tuple[Any, ...]:
    if not rest:
        raise ValueError("an argument is missing")
    return (rest,)


def read_timed_text(rest: str) -> tuple[Any, ...]:
    delay, _, text = rest.partition(" ")
    return (seconds(delay), *read_text(text.strip()))


def read_report(rest: str) -> tuple[Any, ...]:
    delay, text = read_timed_text(rest)
    report, arrow, answer = text.partition(" => ")
    if not arrow:
        raise ValueError("it takes S REPORT => ANSWER")
    return delay, report.strip(), answer.strip()


def read_names(rest: str) -> tuple[Any, ...]:
    return tuple(read_text(rest)[0].split())


def read_json(rest: str) -> tuple[Any, ...]:
    try:
        return (json.loads(rest),)
    except ValueError as error:
        raise ValueError(f"the JSON does not parse: {error}") from None


def read_tool(rest: str) -> tuple[Any, ...]:
    """`NAME [JSON] [=> RESULT]`; the JSON's own end is what divides it from the result."""
    name, _, rest = read_text(rest)[0].partition(" ")
    rest = rest.strip()
    arguments: Any = {}
    if rest.startswith("{"):
        try:
            arguments, end = json.JSONDecoder().raw_decode(rest)
        except ValueError as error:
            raise ValueError(f"the JSON does not parse: {error}") from None
        rest = rest[end:].strip()
    if rest and not rest.startswith("=>"):
        raise ValueError("after the tool's name comes a JSON object, then => and the result")
    return name, arguments, rest.removeprefix("=>").strip() if rest else "ok"


def read_denied(rest: str) -> tuple[Any, ...]:
    if "=>" in rest.rpartition("}")[2]:
        raise ValueError("this tool has no result of the script's")
    return read_tool(rest)[:2]


def read_bash(rest: str) -> tuple[Any, ...]:
    timeout = math.inf
    if rest.startswith("timeout="):
        word, _, rest = rest.partition(" ")
        timeout = seconds(word.removeprefix("timeout="))
    return (*read_text(rest.strip()), timeout)


NOTHING = fields()
