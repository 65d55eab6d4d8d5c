"""The short way of deltas: the same items as the long one, and whatever is more than a delta is left to that."""

from __future__ import annotations

from clisup.backends.base import Decoded
from clisup.core.config import LimitsConfig
from clisup.core.drift import FrameSample
from clisup.core.events import ContentDelta, EventBase, MessageStop
from clisup.core.framing import Line, LineFramer
from clisup.core.journal import Source
from clisup.core.ledger import Position, Turn
from clisup.core.terminal import Terminal
from clisup.core.watchdog import Timeouts
from clisup.daemon.deltas import Taken, take_deltas
from clisup.daemon.recorder import Item
from clisup.daemon.run_parts import RunSettings

LINES = LineFramer().feed(b"a\nb\nc\nd\n")
DELTA = ContentDelta(kind="text", text="x")


def take(
    decoded: dict[bytes, Decoded], turn: Turn | None = None, *, lines: list[Line] = LINES, begin: int = 0
) -> Taken:
    def decode(line: Line) -> Decoded:
        return decoded.get(line.data, Decoded((DELTA,)))

    limits = LimitsConfig(inline_bytes=1024)
    settings = RunSettings("s", 3, Timeouts(), limits, None, None, FrameSample(None), set())  # type: ignore[arg-type]
    return take_deltas(lines, begin, turn or Turn("t1", run=3), settings, decode)


def item(at: int) -> Item:
    return Item(DELTA, "t1", Source(3, "out", 2 * at, 2 * at + 2, 0))


def test_deltas_are_taken_to_the_last_line() -> None:
    assert take({}) == Taken([item(0), item(1), item(2), item(3)], 4, None)
    assert take({}, begin=3) == Taken([item(3)], 1, None)


def test_a_line_that_is_more_than_a_delta_is_handed_back_decoded() -> None:
    stop = MessageStop()
    two: tuple[EventBase, ...] = (DELTA, DELTA)
    for other in (
        Decoded(()),
        Decoded((stop,)),
        Decoded(two),
        Decoded((DELTA,), terminal=Terminal(is_error=False)),
        Decoded((DELTA,), replies=("yes\n",)),
    ):
        taken = take({b"c": other})
        assert taken.items == [item(0), item(1)]
        assert taken.taken == 2
        assert taken.other is other


def test_what_may_be_journaled_already_is_handed_back() -> None:
    turn = Turn("t1", run=3, position={"out": Position(2, 4, 0)})
    assert take({}, turn) == Taken([], 0, Decoded((DELTA,)))
    assert take({}, turn, begin=2).items == [item(2), item(3)]


def test_a_line_over_the_inline_limit_is_handed_back_for_its_payload() -> None:
    long = LineFramer().feed(b"a\n" + b"x" * 2000 + b"\n")
    taken = take({}, lines=long)
    assert (taken.taken, taken.other) == (1, Decoded((DELTA,)))
