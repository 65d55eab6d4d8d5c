"""Player of a script: one function a directive, found by name (`clisup.demo.plays`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from clisup.demo import failures
from clisup.demo.script import Step
from clisup.demo.signals import nap
from clisup.demo.toolplay import Background, ToolPlayer

if TYPE_CHECKING:
    from clisup.demo.session import Session
    from clisup.demo.turn import Turn
    from clisup.demo.wire import Wire

__all__ = ["Play", "Player"]

_POLL_S = 0.005


class Player:
    """Plays one turn, then what the turn has left to do after its result.

    A live process plays many, and hears what it is told while it waits and breathes. `left` is what is still to be played.
    """

    def __init__(self, wire: Wire, turn: Turn, session: Session, plays: Mapping[str, Play]) -> None:
        self._plays = plays
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
            self._plays[step.name](self, step)
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


Play = Callable[[Player, Step], None]
"""Function that plays one directive."""
