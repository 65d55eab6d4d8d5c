"""THE table of directives, which parsing, `--help` and docs/backends/demo.md use, and the player of a script."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from clisup.demo.script import (
    Directive,
    ScriptStep,
    count,
    fields,
    one_of,
    read_bash,
    read_call,
    read_json,
    read_report,
    read_text,
    read_tool,
    read_words,
    seconds,
)  # fmt: skip
from clisup.demo.stdio import Wire, nap
from clisup.demo.tools import BackgroundTask, ToolPlayer
from clisup.demo.turn import DemoSession, DemoTurn
from clisup.stream_json.frames import Frame
from clisup.stream_json.lines import encode_frame, write_all

__all__ = [
    "API_FAILURES",
    "DIRECTIVES",
    "FOLLOW_UP_ORIGIN",
    "ApiFailure",
    "Player",
    "TurnFailed",
    "fail",
    "fail_api",
    "help_text",
    "markdown_table",
    "plainest",
]

FOLLOW_UP_ORIGIN = {"kind": "task-notification", "producer": "session-task"}
"""Origin in the result of a turn that a background task starts."""

_ECHO_PIECE = 16
_POLL_S = 0.005
_SCHEMA_DEPTH = 32
_LONGEST = 10_000  # characters of a string, items of a list, whatever a schema requires


class ApiFailure(NamedTuple):
    """Failure of the API: claude's text, its `error`, the API's status and type, and claude's `terminal_reason`."""

    text: str
    error: str
    status: int | None = None
    type: str | None = None
    terminal_reason: str = "api_error"
    api_error: str | None = None


API_FAILURES: dict[str, ApiFailure] = {
    "authentication": ApiFailure("Failed to authenticate. API Error: 401 Invalid bearer token", "authentication_failed", 401,
                                 "authentication_error"),
    "login": ApiFailure("Not logged in · Please run /login", "authentication_failed"),
    "rate_limit": ApiFailure("API Error: Request rejected (429) · Too many requests", "rate_limit", 429, "rate_limit_error"),
    "overloaded": ApiFailure("API Error: Repeated 529 Overloaded errors. The API is at capacity — this is usually temporary. "
                             "Try again in a moment.", "server_error", 529, "overloaded_error"),
    "server": ApiFailure("API Error: 500 Internal server error. This is a server-side issue, usually temporary — try again in a "
                         "moment.", "server_error", 500, "api_error"),
    "network": ApiFailure("API Error: Connection refused — a firewall or proxy may be blocking it (ECONNREFUSED)", "server_error",
                          api_error="connection_failed"),
    "billing": ApiFailure("Credit balance is too low", "billing_error", 400, "invalid_request_error"),
    "context": ApiFailure("Prompt is too long · the request is ~250000 tokens (limit 200000)", "invalid_request", 400,
                          "invalid_request_error", "prompt_too_long"),
    "model_not_found": ApiFailure("There's an issue with the selected model (MODEL). It may not exist or you may not have "
                                  "access to it. Run --model to pick a different model.", "model_not_found", 404, "not_found_error"),
    "invalid_request": ApiFailure("API Error: 400 messages.0: something is wrong", "unknown", 400, "invalid_request_error"),
}  # fmt: skip
"""Texts and fields of claude 2.1.329."""


def fail_api(turn: DemoTurn, kind: str, text: str | None = None) -> None:
    """End the turn with a failure of the API. `text` replaces the text of the table."""
    failure = API_FAILURES[kind]
    fail(turn, failure._replace(text=text or failure.text.replace("MODEL", turn.frames.model)))


def fail(turn: DemoTurn, failure: ApiFailure) -> None:
    turn.end_message("end_turn")
    known = {"api_error_status": failure.status, "api_error_type": failure.type, "api_error": failure.api_error}
    more: dict[str, object] = {name: value for name, value in known.items() if value is not None}
    turn.send(turn.frames.synthetic(failure.text, error=failure.error, is_api_error_message=True, **more))
    turn.finish(subtype="success", is_error=True, terminal_reason=failure.terminal_reason, stop_reason="stop_sequence",
                result=failure.text, **{"api_error_status": None, **more})  # fmt: skip


def _error(player: Player, step: ScriptStep) -> NoReturn:
    fail_api(player.turn, step.args[0])
    raise TurnFailed


def _echo(player: Player, step: ScriptStep) -> None:
    text = f"You said: {step.args[0]}"
    player.turn.text(text[:_ECHO_PIECE])
    for start in range(_ECHO_PIECE, len(text), _ECHO_PIECE):
        player.turn.delta(text[start : start + _ECHO_PIECE])
        player.breathe()


def _stream(player: Player, step: ScriptStep) -> None:
    number, size, delay = step.args
    for serial in range(number):
        if delay and serial:
            player.wait(delay)
        player.breathe()
        chunk = f"chunk {serial:06d}"
        player.turn.delta(f"{chunk:.<{max(size - 1, len(chunk))}}\n")


def _structured(player: Player, step: ScriptStep) -> None:
    player.turn.structured = step.args[0]


def _tool(player: Player, step: ScriptStep) -> None:
    player.tools.play(step.inner or (step,))


def _stall(player: Player, step: ScriptStep) -> None:
    while True:
        player.wait(3600)


def _crash(player: Player, step: ScriptStep) -> None:
    frame = encode_frame(player.turn.frames.system("status", status="requesting"))
    player.wire.bytes(frame[: len(frame) // 2])
    write_all(2, b"TypeError: undefined is not an object (evaluating 'demo.crash')\n    at demo (/demo/cli.js:1:1)\n")
    os._exit(1)


def _env(player: Player, step: ScriptStep) -> None:
    player.turn.text("\n".join(f"{name}: {'present' if name in os.environ else 'absent'}" for name in step.args))


def _recall(player: Player, step: ScriptStep) -> None:
    first = next((line for line in player.session.prompts[0].splitlines() if line.strip()), "")
    player.turn.text(f"The first prompt was: {first}")


def _history(player: Player, step: ScriptStep) -> None:
    lines = [json.dumps(message) for message in player.session.messages[: player.session.messages_before]]
    player.turn.text("\n".join(lines) or "nothing")


def _nothing(player: Player, step: ScriptStep) -> None:
    """@end is part of @parallel, and @play is played before the turn."""


DIRECTIVES: dict[str, Directive] = {
    "echo": Directive("Text", "TEXT", "Stream `You said: TEXT`.", read_text, _echo),
    "text": Directive("Text", "TEXT", "Stream TEXT, even if it looks like a directive.", read_text,
        lambda player, step: player.turn.text(step.args[0])),
    "stream": Directive("Text", "N [BYTES] [DELAY_S]",
        "Stream N numbered deltas (`chunk 000017`) of BYTES bytes (13), DELAY_S seconds apart (0).",
        fields(count, count, seconds, defaults=(13, 0.0)), _stream),
    "think": Directive("Text", "TEXT", "Send a thinking block.", read_text, lambda player, step: player.turn.think(step.args[0])),
    "structured": Directive("Text", "JSON", "Set `structured_output` of the result.", read_json, _structured),
    "tool": Directive("Tools", "NAME [JSON] [=> RESULT]", "Pretend a tool call with the input JSON and the RESULT (ok).",
        read_tool, _tool, is_tool=True),
    "bash": Directive("Tools", "[timeout=S] CMD",
        "REALLY run `/bin/sh -c CMD`. After S seconds the command goes on in the background.",
        read_bash, _tool, is_tool=True),
    "ask": Directive("Tools", "NAME [JSON]",
        "Pretend a tool that needs a permission: a live process asks, other runs refuse, unless the mode allows the tool. "
        "The NAME `mcp__SERVER__elicitation` asks for values with this JSON.",
        read_call, _tool, is_tool=True),
    "run": Directive("Tools", "NAME [JSON]",
        "As `@ask`, but an allowed Bash, Write or Edit REALLY runs.",
        read_call, _tool, is_tool=True),
    "mcp": Directive("Tools", "NAME [JSON]",
        "REALLY call `mcp__SERVER__TOOL`, or TOOL of the server `clisup`.",
        read_call, _tool, is_tool=True),
    "parallel": Directive("Tools", "", "Put the tools up to `@end` into one message.", fields(), _tool),
    "end": Directive("Tools", "", "End `@parallel`.", fields(), _nothing),
    "delegate": Directive("Tools", "S REPORT => ANSWER",
        "Pretend a sub-agent in the background. After S seconds it gives REPORT, and the turn goes on with ANSWER.",
        read_report, lambda player, step: player.tools.delegate(*step.args)),
    "sleep": Directive("Time", "S", "Be silent for S seconds.", fields(seconds), lambda player, step: player.wait(step.args[0])),
    "stall": Directive("Time", "", "Be silent for ever.", fields(), _stall),
    "error": Directive("Errors", "KIND", f"End the turn with an error of the API. KIND: {', '.join(API_FAILURES)}.",
        fields(one_of(*API_FAILURES)), _error),
    "crash": Directive("Errors", "", "Send half a frame and a stack trace, and exit with code 1.", fields(), _crash),
    "play": Directive("Recordings", "FILE [SPEED]",
        "Play a [recording](../how-to/recordings.md) instead of a turn, SPEED times as fast (1). 0 is without pauses.",
        fields(str, seconds, defaults=(1.0,)), _nothing),
    "env": Directive("Facts", "NAME...", "Say whether each variable is set.", read_words, _env),
    "count": Directive("Facts", "", "Say the number of this turn in its session.", fields(),
        lambda player, step: player.turn.text(f"turn {len(player.session.prompts)}")),
    "recall": Directive("Facts", "", "Quote the first line of the first prompt.", fields(), _recall),
    "history": Directive("Facts", "", "List the messages of the session as lines of JSON.", fields(), _history),
}  # fmt: skip

_INTRODUCTION = """\
usage: python -m clisup.demo -p --output-format stream-json --verbose [claude's flags] < PROMPT
       python -m clisup.demo --play FILE [SPEED] [any CLI's flags]     play a recording of any CLI, SPEED times as fast

A small CLI that speaks claude's stream-json. The prompt is its script: a line that begins with @name is a directive,
and any other line is text of the answer. A prompt without directives is echoed: "You said: ...".
`@text @name` is text. Sessions are kept in $DEMO_CLI_HOME, else in $XDG_STATE_HOME/clisup-demo,
else in ~/.local/state/clisup-demo."""


def help_text() -> str:
    lines = [_INTRODUCTION]
    group = ""
    for name, directive in DIRECTIVES.items():
        if directive.group != group:
            group = directive.group
            lines += ["", f"{group}:"]
        lines += [f"  @{name} {directive.usage}".rstrip(), f"      {directive.meaning}"]
    return "\n".join(lines) + "\n"


def markdown_table() -> str:
    """Return the table for docs/backends/demo.md."""
    rows = ["| directive | effect |", "|---|---|"]
    for name, directive in DIRECTIVES.items():
        usage = f"@{name} {directive.usage}".rstrip().replace("|", "\\|")
        rows.append(f"| `{usage}` | {directive.meaning} |")
    return "\n".join(rows) + "\n"


# -- the player ---------------------------------------------------------------------------------------------------------


class TurnFailed(Exception):
    """The script has ended its turn with an error. The exit code is 1."""


class Player:
    """Plays the scripts of a process. A live process replaces `wait` and `breathe`, to read stdin meanwhile.

    `left` are the steps still to be played, `images` counts the images of the prompt.
    """

    def __init__(self, wire: Wire, turn: DemoTurn, session: DemoSession, directives: Mapping[str, Directive]) -> None:
        self._directives = directives
        self.wire, self.turn, self.session = wire, turn, session
        self.tools = ToolPlayer(turn, session.id)
        self.linger_s = 0.0
        self.images = 0
        self.in_words = False
        self.left: list[ScriptStep] = []
        self.begin_again: Callable[[], None] = lambda: None
        self.wait: Callable[[float], None] = nap
        self.breathe: Callable[[], None] = lambda: None

    def play(self, steps: list[ScriptStep]) -> int:
        """Play a script and the follow-ups of its background tasks. Return the exit code."""
        self.turn.holds_results = any(step.name == "delegate" for step in steps)
        code = self.script(steps)
        for task in () if code else self.tools.background:
            while not self._is_over(task):
                time.sleep(_POLL_S)
            self.tools.close(task)
            self.begin_again()
            self.turn.text(task.follow_up)
            self.turn.succeed(origin=FOLLOW_UP_ORIGIN)
        self.turn.release_results()
        nap(self.linger_s)
        return code

    def script(self, steps: list[ScriptStep]) -> int:
        """Play a script to its result. Return the exit code of a process that ends with this turn."""
        self.left = list(steps)
        self.in_words = False
        try:
            while self.left:
                step = self.left.pop(0)
                self._directives[step.name].play(self, step)
                self.breathe()
        except TurnFailed:
            return 1
        if self.turn.schema is None or self.in_words:
            self.turn.succeed()
        else:
            self.turn.succeed_with_value(self._value(steps))
        return 0

    def _value(self, steps: list[ScriptStep]) -> Any:
        """Return the answer for --json-schema: from @structured, a prompt that is a JSON object, or the schema."""
        if self.turn.structured is not None:
            return self.turn.structured
        value = None
        if len(steps) == 1 and steps[0].name == "echo":
            try:
                value = json.loads(steps[0].args[0])
            except ValueError:
                pass
        return value if value and isinstance(value, dict) else plainest(self.turn.schema or {})

    def _is_over(self, task: BackgroundTask) -> bool:
        with self.wire.whole():  # as in `ToolPlayer`
            return task.is_over()


def plainest(schema: Frame) -> Any:
    """Return a simple value that fits a JSON schema. Patterns and formats are ignored."""
    return _plain(schema, schema, _SCHEMA_DEPTH)


def _plain(schema: Any, root: Frame, depth: int) -> Any:
    if not isinstance(schema, dict) or depth <= 0:
        return None
    for name in ("const", "default"):
        if name in schema:
            return schema[name]
    for name in ("enum", "examples"):
        if isinstance(schema.get(name), list) and schema[name]:
            return schema[name][0]
    if isinstance(ref := schema.get("$ref"), str):
        return _plain(_definition(ref, root), root, depth - 1)
    for name in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(name), list) and schema[name]:
            return _plain(schema[name][0], root, depth - 1)
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object" or (kind is None and "properties" in schema):
        return {name: _plain(field, root, depth - 1) for name, field in (schema.get("properties") or {}).items()}
    if kind == "array":
        count = min(int(schema.get("minItems", 1)), _LONGEST)
        return [_plain(schema.get("items", {}), root, depth - 1) for _ in range(count)]
    if kind == "string":
        text = "demo".ljust(min(int(schema.get("minLength", 0)), _LONGEST), ".")
        return text[: schema.get("maxLength", len(text))]
    return _number(schema) if kind in ("integer", "number") else False if kind == "boolean" else None


def _number(schema: Frame) -> Any:
    if "exclusiveMinimum" in schema:
        return schema["exclusiveMinimum"] + 1
    least = schema.get("minimum", 0)
    return min(least, schema["maximum"]) if "maximum" in schema else least


def _definition(ref: str, root: Frame) -> Any:
    """Return the schema at `#/$defs/Name`, or an empty one."""
    found: Any = root
    for part in ref.removeprefix("#").strip("/").split("/"):
        found = found.get(part.replace("~1", "/").replace("~0", "~"), {}) if isinstance(found, dict) else {}
    return found
