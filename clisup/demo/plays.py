"""Functions that play the directives of a script, by name."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from clisup.demo import trouble
from clisup.demo.script import ECHO, Step
from clisup.demo.signals import tolerate

if TYPE_CHECKING:
    from clisup.demo.player import Play, Player

__all__ = ["PLAYS"]

_POLL_S = 0.005
_ECHO_PIECE = 16
_PIECE = 64 * 1024


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


def _set(name: str) -> Play:
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


PLAYS: dict[str, Play] = {
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
