"""Plays a script: one function a directive, found by name in `PLAYS`."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from clisup.demo import failures, trouble
from clisup.demo.script import ECHO, Step
from clisup.demo.signals import nap, tolerate
from clisup.demo.toolplay import Background, ToolPlayer

if TYPE_CHECKING:
    from clisup.demo.session import Session
    from clisup.demo.turn import Turn
    from clisup.demo.wire import Wire

__all__ = ["PLAYS", "Player"]

_POLL_S = 0.005
_ECHO_PIECE = 16
_PIECE = 64 * 1024


class Player:
    """Plays one turn, then what the turn has left to do after its result.

    A live process plays many, and hears what it is told while it waits and breathes. `left` is what is still to be played.
    """

    def __init__(self, wire: Wire, turn: Turn, session: Session) -> None:
        self.wire: Wire = wire
        self.turn: Turn = turn
        self.session: Session = session
        self.tools = ToolPlayer(turn, session.id)
        self.linger_s = 0.0
        self.images = 0
        self.left: list[Step] = []
        self.begin_again: Callable[[], None] = lambda: None
        self.wait: Callable[[float], None] = nap
        self.breathe: Callable[[], None] = lambda: None

    def play(self, steps: list[Step]) -> int:
        """The whole script, its result, its background tasks; gives the exit code."""
        self.turn.holds_results = any(step.name == "delegate" for step in steps)
        code = self.script(steps)
        for task in () if code else self.tools.background:
            self._follow_up(task)
        self.turn.release_results()
        return self.after(code)

    def script(self, steps: list[Step]) -> int:
        """The script and its result; gives the exit code of a process that ends with it."""
        self.left = list(steps)
        while self.left:
            step = self.left.pop(0)
            if step.name == "error":
                failures.fail_turn(self.turn, step.args[0])
                return 1
            if step.name == "limit":
                failures.use_up(self.turn, time.time() + step.args[0])
                return 1
            PLAYS[step.name](self, step)
            self.breathe()
        if self.turn.schema is not None:
            from clisup.demo.structured import answer  # few turns are asked for it

            if answer(self.turn, steps):
                return 0
        self.turn.succeed()
        return 0

    def _follow_up(self, task: Background) -> None:
        """Wait in silence for a background task, then run the turn that it starts."""
        while not self._is_over(task):
            time.sleep(_POLL_S)
        self.tools.close(task)
        self.begin_again()
        self.turn.text(task.follow_up)
        self.turn.succeed(origin={"kind": "task-notification", "producer": "session-task"})

    def _is_over(self, task: Background) -> bool:
        with self.wire.whole():  # as in `ToolPlayer._look`
            return task.is_over()

    def after(self, code: int) -> int:
        nap(self.linger_s)
        return code


def _text(player: Player, step: Step) -> None:
    player.turn.text(step.args[0])


def _echo(player: Player, step: Step) -> None:
    text = f"You said: {step.args[0]}"
    player.turn.text(text[:_ECHO_PIECE])
    for start in range(_ECHO_PIECE, len(text), _ECHO_PIECE):
        player.turn.delta(text[start : start + _ECHO_PIECE])
        player.breathe()


def _stream(player: Player, step: Step) -> None:
    count, size, delay = step.args
    for number in range(count):
        if delay and number:
            player.wait(delay)
        player.breathe()
        chunk = f"chunk {number:06d}"
        player.turn.delta(f"{chunk:.<{max(size - 1, len(chunk))}}\n")


def _huge(player: Player, step: Step) -> None:
    for start in range(0, step.args[0], _PIECE):
        player.breathe()
        player.turn.delta("x" * min(_PIECE, step.args[0] - start))


def _cut(player: Player, step: Step) -> None:
    player.turn.end_message("end_turn")
    player.turn.delta("This text is ")
    player.turn.delta("taken back.")
    player.turn.abandon_message()
    trouble.retry(player, Step("retry", ("network", 1), step.line))
    player.turn.delta("This text stays.")


def _env(player: Player, step: Step) -> None:
    said = (f"{name}: {'present' if name in os.environ else 'absent'}" for name in step.args)
    player.turn.text("\n".join(said))


def _recall(player: Player, step: Step) -> None:
    first = next((line for line in player.session.prompts[0].splitlines() if line.strip()), "")
    player.turn.text(f"The first prompt was: {first}")


def _history(player: Player, step: Step) -> None:
    lines = [json.dumps(said) for said in player.session.said[: player.session.said_before]]
    player.turn.text("\n".join(lines) or "nothing")


def _wait_file(player: Player, step: Step) -> None:
    while not os.path.exists(step.args[0]):
        player.wait(_POLL_S)


def _touch(player: Player, step: Step) -> None:
    with open(step.args[0], "ab"):
        pass


def _orphan(player: Player, step: Step) -> None:
    from clisup.demo.orphans import leave_behind  # brings subprocess, which most scripts do not need

    kind, seconds = step.args
    player.turn.text(f"orphan {kind}: pid {leave_behind(kind, seconds)}")


def _set(name: str) -> Callable[[Player, Step], None]:
    def play(player: Player, step: Step) -> None:
        setattr(player.turn, name, step.args[0])

    return play


def _usage(player: Player, step: Step) -> None:
    from clisup.stream_json.frames import token_usage  # loaded already; the name is needed here alone

    player.turn.usage = token_usage(*step.args)


def _linger(player: Player, step: Step) -> None:
    player.linger_s = step.args[0]


def _heartbeat(player: Player, step: Step) -> None:
    player.tools.first_beat_s = player.tools.beat_s = step.args[0]


def _die(player: Player, step: Step) -> NoReturn:
    if step.args[0] not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(step.args[0], signal.SIG_DFL)
    os.kill(os.getpid(), step.args[0])
    sys.exit(0)  # a signal that does not end a process, such as CHLD


PLAYS: dict[str, Callable[[Player, Step], None]] = {
    ECHO: _echo,
    "text": _text,
    "stream": _stream,
    "think": lambda player, step: player.turn.think(step.args[0]),
    "huge": _huge,
    "cut": _cut,
    "structured": _set("structured"),
    "unstructured": lambda player, step: None,
    "tool": lambda player, step: player.tools.play((step,)),
    "bash": lambda player, step: player.tools.play((step,)),
    "denied": lambda player, step: player.tools.play((step,)),
    "ask": lambda player, step: player.tools.play((step,)),
    "run": lambda player, step: player.tools.play((step,)),
    "mcp": lambda player, step: player.tools.play((step,)),
    "parallel": lambda player, step: player.tools.play(step.inner),
    "heartbeat": _heartbeat,
    "background": lambda player, step: player.tools.announce(*step.args),
    "delegate": lambda player, step: player.tools.delegate(*step.args),
    "sleep": lambda player, step: player.wait(step.args[0]),
    "wait-file": _wait_file,
    "touch": _touch,
    "linger": _linger,
    "ignore-term": lambda player, step: tolerate(signal.SIGTERM, signal.SIGHUP),
    "ignore-int": lambda player, step: tolerate(signal.SIGINT),
    "orphan": _orphan,
    "die": _die,
    "env": _env,
    "env-all": lambda player, step: player.turn.text("\n".join(sorted(os.environ))),
    "say-pid": lambda player, step: player.turn.text(f"pid {os.getpid()}"),
    "count": lambda player, step: player.turn.text(f"turn {len(player.session.prompts)}"),
    "recall": _recall,
    "history": _history,
    "images": lambda player, step: player.turn.text(f"images: {player.images}"),
    "no-transcript": lambda player, step: None,
    "usage": _usage,
    "cost": _set("cost_usd"),
    **trouble.PLAYS,
}
