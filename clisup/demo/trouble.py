"""What goes wrong on purpose: silence, junk, broken frames, floods and sudden ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from clisup.demo.failures import RETRIES
from clisup.demo.script import Step
from clisup.stream_json.lines import encode_frame, write_all

if TYPE_CHECKING:
    from clisup.demo.player import Player

__all__ = ["PLAYS", "retry"]

_RETRY_DELAY_MS = 50
_JUNK = b"#~junk,~of~no~use\n"
_FLOOD_LINE = b"demo: a line of noise on stderr, of sixty-four bytes in all ...\n"


def retry(player: Player, step: Step) -> None:
    """Announced retries of the model request, with their real delays."""
    kind, count = step.args
    status, error = RETRIES[kind]
    for attempt in range(1, count + 1):
        player.turn.send(player.turn.frames.system(
            "api_retry", attempt=attempt, max_retries=10, retry_delay_ms=_RETRY_DELAY_MS, error_status=status, error=error,
        ))  # fmt: skip
        player.wait(_RETRY_DELAY_MS / 1000)


def _repeat(player: Player, step: Step, action: Callable[[int], Any]) -> None:
    pause, count = step.args
    number = 0
    while count is None or number < count:
        action(number)
        number += 1
        player.wait(pause)


def _stall(player: Player, step: Step) -> None:
    while True:
        player.wait(3600)


def _pings(player: Player, step: Step) -> None:
    _repeat(player, step, lambda _: player.turn.send(player.turn.frames.stream({"type": "ping"}, None)))


def _drip(player: Player, step: Step) -> None:
    _repeat(player, step, lambda number: player.wire.bytes(_JUNK[number % len(_JUNK) :][:1]))
    if step.args[1] is not None and step.args[1] % len(_JUNK):
        player.wire.bytes(b"\n")  # the frames after it begin on a line of their own


def _line(player: Player, step: Step) -> None:
    frame = player.turn.frames.system("informational", content="", level="info")
    empty = len(encode_frame(frame))
    frame["content"] = "x" * max(0, step.args[0] - empty - 1)
    player.turn.send(frame)


def _bytes(player: Player, step: Step) -> None:
    """Whatever stands in a file, also what no prompt can hold. In many small writes where a size is given."""
    path, size = step.args
    with open(path, "rb") as file:
        data = file.read()
    for at in range(0, len(data), size or len(data) or 1):
        player.wire.bytes(data[at : at + size] if size else data)


def _noise(player: Player, step: Step) -> None:
    for line in (b"[debug] request sent, 12 ms", b"", b"Warning: not a frame {", b"\x1b[31mred\x1b[0m"):
        player.wire.line(line)


def _bad(player: Player, step: Step) -> None:
    """Three deltas that no `assistant` frame repeats: bytes that are no UTF-8, a NUL, and half of a surrogate pair."""
    for spoiled in (b"bad \xff\xfe\xc3 bytes", b"a NUL \\u0000 here", b"half a pair \\ud83d"):
        frame = player.turn.frames.stream(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "HERE"}}, None
        )
        player.wire.line(encode_frame(frame).replace(b"HERE", spoiled))


def _unknown(player: Player, step: Step) -> None:
    tail = player.turn.frames.system("from_the_future", detail={"a": [1, 2, 3]})
    player.turn.send({**tail, "type": "from_the_future"})
    player.turn.send(tail)


def _misshapen(player: Player, step: Step) -> None:
    for frame in (
        {"type": "assistant", "message": "no object"},
        {"type": "stream_event", "event": [1, 2]},
        {"type": "user", "message": {"content": [7, None]}},
        {"type": "system", "subtype": 5},
        {"type": ["result"]},
    ):
        player.turn.send(frame)
    player.wire.line(b"[1,2,3]")


def _stderr(player: Player, step: Step) -> None:
    write_all(2, step.args[0].encode() + b"\n")


def _stderr_flood(player: Player, step: Step) -> None:
    left = step.args[0]
    block = _FLOOD_LINE * 1024
    while left > 0:
        write_all(2, block[:left])
        left -= len(block)


def _crash(player: Player, step: Step) -> None:
    whole = encode_frame(player.turn.frames.system("status", status="requesting"))
    player.wire.bytes(whole[: len(whole) // 2])
    write_all(2, b"TypeError: undefined is not an object (evaluating 'demo.crash')\n    at demo (/demo/cli.js:1:1)\n")
    os._exit(1)


def _exit(player: Player, step: Step) -> None:
    sys.exit(step.args[0])


PLAYS: dict[str, Callable[[Player, Step], None]] = {
    "retry": retry,
    "stall": _stall,
    "pings": _pings,
    "drip": _drip,
    "line": _line,
    "raw": lambda player, step: player.wire.line(step.args[0].encode()),
    "bytes": _bytes,
    "noise": _noise,
    "bad": _bad,
    "unknown": _unknown,
    "misshapen": _misshapen,
    "stderr": _stderr,
    "stderr-flood": _stderr_flood,
    "crash": _crash,
    "exit": _exit,
}
