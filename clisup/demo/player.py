"""Player of a script: its directives, its result, and the turns that its background tasks start."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from clisup.demo.output import Wire, nap
from clisup.demo.script import Directive, ScriptStep
from clisup.demo.session import DemoSession
from clisup.demo.tools import BackgroundTask, ToolPlayer
from clisup.demo.turn import DemoTurn

__all__ = ["FOLLOW_UP_ORIGIN", "Player", "TurnFailed", "plainest"]

FOLLOW_UP_ORIGIN = {"kind": "task-notification", "producer": "session-task"}
_POLL_S = 0.005
_DEPTH = 32
_LONGEST = 10_000  # characters of a string, items of a list, whatever a schema requires


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


def plainest(schema: dict[str, Any]) -> Any:
    """Return a simple value that fits a JSON schema. Patterns and formats are ignored."""
    return _plain(schema, schema, _DEPTH)


def _plain(schema: Any, root: dict[str, Any], depth: int) -> Any:
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


def _number(schema: dict[str, Any]) -> Any:
    if "exclusiveMinimum" in schema:
        return schema["exclusiveMinimum"] + 1
    least = schema.get("minimum", 0)
    return min(least, schema["maximum"]) if "maximum" in schema else least


def _definition(ref: str, root: dict[str, Any]) -> Any:
    """Return the schema at `#/$defs/Name`, or an empty one."""
    found: Any = root
    for part in ref.removeprefix("#").strip("/").split("/"):
        found = found.get(part.replace("~1", "/").replace("~0", "~"), {}) if isinstance(found, dict) else {}
    return found
