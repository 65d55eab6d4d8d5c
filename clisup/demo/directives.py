"""THE table of the script language: parsing, `--help` and docs/demo-backend.md all come from it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["DIRECTIVES", "ERROR_KINDS", "ORPHAN_KINDS", "RETRY_KINDS", "Directive", "help_text", "markdown_table"]

ERROR_KINDS = (
    "authentication", "login", "rate_limit", "usage_limit", "overloaded", "server", "network", "billing", "context",
    "model_not_found", "invalid_request", "refusal", "max_turns", "budget",
)  # fmt: skip
RETRY_KINDS = ("authentication", "rate_limit", "overloaded", "server", "network")
ORPHAN_KINDS = (
    "plain", "setsid", "pgrp", "double-fork", "holds-stdout", "ignores-term", "clean-env", "stopped", "refork", "respawn",
    "zombie-parent", "many",
)  # fmt: skip

Reader = Callable[[str], tuple[Any, ...]]


class Directive(NamedTuple):
    """One directive: `usage` is its arguments as people write them, `read` checks them and raises ValueError."""

    group: str
    name: str
    usage: str
    meaning: str
    read: Reader


def _count(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{text!r} is no whole number")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError(f"{text!r} is no number of seconds")
    return value


def _seconds_or_ever(text: str) -> float:
    return math.inf if text == "forever" else _seconds(text)


def _word(text: str) -> str:
    return text


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"{text!r} is none of {', '.join(choices)}")
        return text

    return read


def _exit_code(text: str) -> int:
    if _count(text) > 255:
        raise ValueError(f"{text!r} is no exit code (0 to 255)")
    return int(text)


def _signal(text: str) -> int:
    import signal  # noqa: PLC0415  (one directive needs it, and every start would pay for it)

    name = text.upper().removeprefix("SIG")
    known = {member.name.removeprefix("SIG"): int(member) for member in signal.Signals}
    if name.isdecimal() and int(name) in known.values():
        return int(name)
    if name not in known:
        raise ValueError(f"{text!r} is no signal, such as KILL or 9")
    return known[name]


def _fields(*kinds: Callable[[str], Any], defaults: tuple[Any, ...] = ()) -> Reader:
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


def _text(rest: str) -> tuple[Any, ...]:
    if not rest:
        raise ValueError("an argument is missing")
    return (rest,)


def _timed_text(rest: str) -> tuple[Any, ...]:
    seconds, _, text = rest.partition(" ")
    return (_seconds(seconds), *_text(text.strip()))


def _names(rest: str) -> tuple[Any, ...]:
    return tuple(_text(rest)[0].split())


def _json(rest: str) -> tuple[Any, ...]:
    try:
        return (json.loads(rest),)
    except ValueError as error:
        raise ValueError(f"the JSON does not parse: {error}") from None


def _tool(rest: str) -> tuple[Any, ...]:
    """`NAME [JSON] [=> RESULT]`; the JSON's own end is what divides it from the result."""
    name, _, rest = _text(rest)[0].partition(" ")
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


def _denied(rest: str) -> tuple[Any, ...]:
    if "=>" in rest.rpartition("}")[2]:
        raise ValueError("a denied tool has no result of its own")
    return _tool(rest)[:2]


def _bash(rest: str) -> tuple[Any, ...]:
    timeout = math.inf
    if rest.startswith("timeout="):
        word, _, rest = rest.partition(" ")
        timeout = _seconds(word.removeprefix("timeout="))
    return (*_text(rest.strip()), timeout)


_NONE = _fields()

_TABLE: tuple[tuple[str, str, str, str, Reader], ...] = (
    ("Text", "text", "TEXT", "Stream TEXT. A line that is no directive does the same.", _text),
    ("Text", "stream", "N [BYTES] [DELAY_S]", "N numbered text deltas (`chunk 000017`), each of BYTES bytes (13), DELAY_S seconds apart (0).",
     _fields(_count, _count, _seconds, defaults=(13, 0.0))),
    ("Text", "think", "TEXT", "A thinking block.", _text),
    ("Text", "huge", "BYTES", "A text answer of BYTES bytes: deltas, the whole message and the result hold it.", _fields(_count)),
    ("Text", "cut", "", "Some text that is then taken back (`abandoned_blocks`), a retry, and a new message.", _NONE),
    ("Text", "structured", "JSON", "The result holds this as `structured_output`.", _json),
    ("Tools", "tool", "NAME [JSON] [=> RESULT]", "A pretended tool call with the input JSON, which gives RESULT (ok).", _tool),
    ("Tools", "bash", "[timeout=S] CMD", "REALLY run `/bin/sh -c CMD`, in a session of its own. After S seconds it goes on in the background.", _bash),
    ("Tools", "parallel", "", "The tools from here to `@end` in one message; their results come out of order, the last first.", _NONE),
    ("Tools", "end", "", "The end of `@parallel`.", _NONE),
    ("Tools", "denied", "NAME [JSON]", "A tool that needs a permission: refused, where the permission mode does not allow it. Else a Write or Edit is real.",
     _denied),
    ("Tools", "heartbeat", "S", "From here on a running `@bash` reports progress every S seconds (first after 3, then every 30).", _fields(_seconds)),
    ("Tools", "background", "S TEXT", "Announce a background task. It ends S seconds after the result and starts a turn of its own, which says TEXT.",
     _timed_text),
    ("Time", "sleep", "S", "Say nothing for S seconds.", _fields(_seconds)),
    ("Time", "stall", "", "Say nothing for ever.", _NONE),
    ("Time", "pings", "S [N]", "Nothing but a ping frame every S seconds, N times (for ever).", _fields(_seconds, _count, defaults=(None,))),
    ("Time", "drip", "S [N]", "Nothing but a byte of junk every S seconds, N times (for ever).", _fields(_seconds, _count, defaults=(None,))),
    ("Time", "wait-file", "PATH", "Wait until PATH exists: a test steps the script with it.", _text),
    ("Time", "touch", "PATH", "Make the file PATH.", _text),
    ("Time", "linger", "S|forever", "Stay alive for S seconds after the result.", _fields(_seconds_or_ever)),
    ("Errors", "error", "KIND", f"End the turn as the real CLI does when the API fails. KIND: {', '.join(ERROR_KINDS)}.", _fields(_one_of(*ERROR_KINDS))),
    ("Errors", "retry", "KIND N", f"N announced retries of the model request, 50 ms apart. KIND: {', '.join(RETRY_KINDS)}.",
     _fields(_one_of(*RETRY_KINDS), _count)),
    ("Errors", "exit", "CODE", "Exit at once with CODE, without a result.", _fields(_exit_code)),
    ("Errors", "die", "SIGNAL", "End by a signal (KILL, SEGV, 9), without a result.", _fields(_signal)),
    ("Errors", "crash", "", "Half a frame on stdout, a stack trace on stderr, exit code 1.", _NONE),
    ("Errors", "ignore-term", "", "Ignore SIGTERM and SIGHUP from here on.", _NONE),
    ("Errors", "ignore-int", "", "Ignore SIGINT from here on.", _NONE),
    ("Errors", "orphan", "KIND S", f"Leave a process behind that lives S seconds. KIND: {', '.join(ORPHAN_KINDS)}.",
     _fields(_one_of(*ORPHAN_KINDS), _seconds)),
    ("Bytes", "line", "BYTES", "One frame whose line is BYTES bytes long, newline included (512 at least).", _fields(_count)),
    ("Bytes", "raw", "TEXT", "TEXT as a line on stdout, verbatim.", _text),
    ("Bytes", "noise", "", "Lines on stdout that are no JSON.", _NONE),
    ("Bytes", "bad", "", "Text deltas with invalid UTF-8, with a NUL and with a lone surrogate.", _NONE),
    ("Bytes", "unknown", "", "A frame of an unknown type, and one of an unknown subtype.", _NONE),
    ("Bytes", "misshapen", "", "Frames of known types with the wrong shape.", _NONE),
    ("Bytes", "stderr", "TEXT", "TEXT as a line on stderr.", _text),
    ("Bytes", "stderr-flood", "BYTES", "BYTES bytes of lines on stderr.", _fields(_count)),
    ("Facts", "env", "NAME...", "Say for each variable whether it is set: `NAME: present` or `NAME: absent`. Never a value.", _names),
    ("Facts", "env-all", "", "Say the names of all variables, sorted, one a line.", _NONE),
    ("Facts", "say-pid", "", "Say the process id.", _NONE),
    ("Facts", "count", "", "Say which turn of its session this is, from the session's own transcript.", _NONE),
    ("Facts", "recall", "", "Quote the first line of the session's first prompt.", _NONE),
    ("Facts", "no-transcript", "", "This turn leaves no transcript, as if killed too early.", _NONE),
    ("Facts", "usage", "IN OUT", "The turn's input and output tokens, instead of a quarter of the characters.", _fields(_count, _count)),
    ("Facts", "cost", "USD", "The turn's cost, instead of one from its tokens.", _fields(_seconds)),
)  # fmt: skip

DIRECTIVES: dict[str, Directive] = {row[1]: Directive(*row) for row in _TABLE}


def help_text() -> str:
    """What `--help` says about the script language."""
    lines = [_INTRODUCTION]
    group = ""
    for directive in DIRECTIVES.values():
        if directive.group != group:
            group = directive.group
            lines += ["", f"{group}:"]
        lines += [f"  @{directive.name} {directive.usage}".rstrip(), f"      {directive.meaning}"]
    return "\n".join(lines) + "\n"


def markdown_table() -> str:
    """The same table for docs/demo-backend.md."""
    rows = ["| directive | what it does |", "|---|---|"]
    for directive in DIRECTIVES.values():
        usage = f"@{directive.name} {directive.usage}".rstrip().replace("|", "\\|")
        rows.append(f"| `{usage}` | {directive.meaning} |")
    return "\n".join(rows) + "\n"


_INTRODUCTION = """\
usage: python -m clisup.demo -p --output-format stream-json --verbose [claude's flags] < PROMPT

A pretended model CLI that speaks claude's stream-json. The prompt is its script: each line that begins with @name is a
directive, any other line is text of the answer. A prompt without a directive is echoed: "You said: ...".
`@text @name` says what would be a directive. Sessions are kept in $DEMO_CLI_HOME, else in $XDG_STATE_HOME/clisup-demo,
else in ~/.local/state/clisup-demo."""
