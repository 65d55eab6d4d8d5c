"""The pace of reading: a step is bounded, whatever a CLI says, and runs that have more to read go on one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing
from harness import Harness
from lone_run import LoneRun
from recorder_in_memory import GoodDisk
from wire import Wire

from clisup.backends.base import Carried, LaunchRequest
from clisup.backends.claude.adapter import ClaudeAdapter
from clisup.daemon.runs import reader, run
from clisup.daemon.runs.batch import Batch
from clisup.daemon.runs.reader import CHUNK_LINES, STEP_S, SpoolLines, SpoolReader
from clisup.daemon.runs.stderr import StderrEvents
from clisup.model.sessions.ledger import TurnRecord
from clisup.policy.secrets.redact import Redactor
from clisup.store.session_dir import RunDir

LINES_A_STEP = 10
FLOODS = {
    "no JSON": b"x\n",
    "no frame": b"{}\n",
    "a rate limit": b'{"type":"rate_limit_event","rate_limit_info":{"status":"allowed"}}\n',
    "an unknown frame": b'{"type":"system","subtype":"from_the_future"}\n',
}
DELTA = (
    b'{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}},'
    b'"parent_tool_use_id":null}\n'
)
START = b'{"type":"stream_event","event":{"type":"message_start","message":{"id":"m"}},"parent_tool_use_id":null}\n'


@pytest.fixture
def slow_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the tenth look at the clock a step is over."""
    ticks = count()
    clock = SimpleNamespace(monotonic=lambda: next(ticks) * STEP_S / (LINES_A_STEP - 0.5))
    monkeypatch.setattr(reader, "clock", clock)
    monkeypatch.setattr(run, "clock", clock)


class Owner:
    """Takes lines as a run does, and counts them."""

    def __init__(self, out: SpoolLines) -> None:
        self._out = out
        self.taken = 0
        self.behind = True

    async def take_bytes(self, data: bytes, until: float) -> None:
        if data:
            self._out.cut(data)
        while self._out.waiting:
            self._out.waiting.popleft()
            self.taken += 1
            if reader.clock.monotonic() >= until:
                return

    def caught_up(self) -> None:
        self.behind = False


class Reading:
    """A reader of two files, without a run."""

    def __init__(self, tmp_path: Path, out: bytes, err: bytes = b"", shared: trio.Lock | None = None) -> None:
        tmp_path.mkdir(exist_ok=True)
        (tmp_path / "out").write_bytes(out)
        (tmp_path / "err").write_bytes(err)
        disk: Any = GoodDisk()
        batch = Batch(cast("Any", None), cast("Any", None), disk, lambda _: None)
        self.err = SpoolLines(str(tmp_path / "err"), 0, 1 << 20)
        stderr = StderrEvents(batch, lambda: TurnRecord("t1"), Redactor([]), RunDir("/runs/1"), -1)
        self.out = SpoolLines(str(tmp_path / "out"), 0, 1 << 20)
        self.owner, self.size = Owner(self.out), len(out)
        self.reader = SpoolReader(
            self.out, self.err, stderr, batch, disk, shared or trio.Lock(), take_bytes=self.owner.take_bytes,
            stored=lambda: None, caught_up=self.owner.caught_up, behind=len(out),
        )  # fmt: skip

    async def pump(self) -> None:
        await self.reader.pump(lambda: True)
        self.out.close()
        self.err.close()


async def most_between_two_rounds(counted: Callable[[], int], until_done: Callable[[], bool]) -> int:
    """The most that was counted while this task waited for its next turn. In a round tasks run in any order, so two steps may lie
    between two turns of a task."""
    most = 0
    while not until_done():
        before = counted()
        await trio.lowlevel.checkpoint()
        most = max(most, counted() - before)
    return most


@pytest.mark.fault(78)
@pytest.mark.usefixtures("slow_clock")
@pytest.mark.parametrize("floods", [1, 4, 20])
def test_others_have_their_turn_between_two_steps_however_many_clis_flood(tmp_path: Path, floods: int) -> None:
    lines, shared = 500, trio.Lock()
    found: list[int] = []

    async def main() -> None:
        readings = [Reading(tmp_path / str(number), b"x\n" * lines, shared=shared) for number in range(floods)]
        taken = lambda: sum(reading.owner.taken for reading in readings)  # noqa: E731
        async with trio.open_nursery() as nursery:
            for reading in readings:
                nursery.start_soon(reading.pump)
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()  # the first step of each run waits for nobody
            assert taken() <= (floods + 2) * LINES_A_STEP
            found.append(await most_between_two_rounds(taken, lambda: taken() == floods * lines))
        assert all(reading.owner.taken == lines and not reading.owner.behind for reading in readings)

    trio.run(main)
    assert found[0] <= 2 * LINES_A_STEP


@pytest.mark.usefixtures("slow_clock")
def test_runs_with_more_to_read_go_on_in_turn(tmp_path: Path) -> None:
    spread: list[int] = []

    async def main() -> None:
        shared = trio.Lock()
        readings = [Reading(tmp_path / str(number), b"x\n" * 400, shared=shared) for number in range(3)]
        async with trio.open_nursery() as nursery:
            for reading in readings:
                nursery.start_soon(reading.pump)
            while (taken := [reading.owner.taken for reading in readings]) != [400] * 3:
                spread.append(max(taken) - min(taken))
                await trio.lowlevel.checkpoint()

    trio.run(main)
    assert max(spread) <= 2 * LINES_A_STEP


@pytest.mark.usefixtures("slow_clock")
def test_a_listener_takes_one_step_and_leaves_the_rest_to_the_pump(tmp_path: Path) -> None:
    async def main() -> None:
        reading = Reading(tmp_path, b"x\n" * 300)
        for more in range(64):  # words of the keeper that came together
            await reading.reader.take(reading.size + more, 0)
        assert reading.owner.taken <= LINES_A_STEP
        assert reading.owner.behind, "the daemon may say nothing before all lines of before are taken"
        await reading.pump()
        assert reading.owner.taken == 300 and not reading.owner.behind

    trio.run(main)


@pytest.mark.usefixtures("slow_clock")
@pytest.mark.parametrize(("out", "err"), [(30, 0), (0, 30), (30, 30)])
def test_what_was_said_while_lines_waited_is_read_before_the_run_is_over(tmp_path: Path, out: int, err: int) -> None:
    async def main() -> None:
        reading = Reading(tmp_path, b"x\n" * out, b"y\n" * err)
        await reading.reader.take(2 * out, 2 * err)
        for name, lines in (("out", out), ("err", err)):
            with (tmp_path / name).open("ab") as spool:
                spool.write(b"z\n" * lines)
        await reading.pump()
        assert reading.owner.taken == 2 * out
        assert reading.err.place == 4 * err

    trio.run(main)


@pytest.mark.fault(78)
@pytest.mark.usefixtures("slow_clock")
def test_a_flood_on_stderr_is_taken_in_steps_and_its_place_is_what_was_taken(tmp_path: Path) -> None:
    lines, places, found = 500, list[int](), list[int]()

    async def main() -> None:
        reading = Reading(tmp_path, b"", b"x\n" * lines)

        def place() -> int:
            places.append(reading.err.place)
            return places[-1] // 2

        async with trio.open_nursery() as nursery:
            nursery.start_soon(reading.pump)
            await trio.lowlevel.checkpoint()
            assert place() <= 2 * LINES_A_STEP
            found.append(await most_between_two_rounds(place, lambda: reading.err.place == 2 * lines))

    trio.run(main)
    assert found[0] <= 2 * LINES_A_STEP
    assert places == sorted(places)


def run_of(**limits: Any) -> LoneRun:
    request = LaunchRequest(("claude",), "go", None, False, "/")
    return LoneRun(ClaudeAdapter(), request, Carried(0.0), by_chunk=True, **limits)


@pytest.mark.fault(78)
@pytest.mark.usefixtures("slow_clock")
@pytest.mark.parametrize("line", FLOODS.values(), ids=list(FLOODS))
async def test_a_step_of_a_run_ends_after_few_lines_whatever_they_are(line: bytes) -> None:
    lone = run_of()
    await lone.take(START)
    spool, lines = lone.run._out, 300
    await lone.run.take_bytes(line * lines, reader.clock.monotonic() + STEP_S)
    left = [spool.place]
    while spool.waiting:
        await lone.run.take_bytes(b"", reader.clock.monotonic() + STEP_S)
        left.append(spool.place)
    taken = [(then - before) // len(line) for before, then in zip([len(START), *left], left, strict=False)]
    assert sum(taken) == lines
    assert max(taken) <= LINES_A_STEP


@pytest.mark.fault(78)
@pytest.mark.usefixtures("slow_clock")
@pytest.mark.parametrize("plain", [DELTA, b"\n"], ids=["deltas", "empty lines"])
async def test_plain_lines_are_taken_by_the_chunk_with_a_look_at_the_clock_after_each(plain: bytes) -> None:
    lone = run_of()
    await lone.take(START + DELTA)
    spool, lines, steps = lone.run._out, 3000, 0
    await lone.run.take_bytes(plain * lines, reader.clock.monotonic() + STEP_S)
    while spool.waiting:
        before = spool.place
        await lone.run.take_bytes(b"", reader.clock.monotonic() + STEP_S)
        assert (spool.place - before) // len(plain) <= CHUNK_LINES * LINES_A_STEP
        steps += 1
    assert steps >= lines // (CHUNK_LINES * LINES_A_STEP)
    await lone.run._batch.store()
    assert sum(b'"content_delta"' in event for event in lone.journal) == (lines + 1 if plain is DELTA else 1)


def pings_while(daemon: Harness, over: Callable[[], bool]) -> Iterator[int]:
    """Ping after ping, until it is over."""
    with Wire(daemon.socket) as wire:
        for number in count(1):
            wire.call("ping")
            yield number
            if over():
                return


@pytest.mark.fault(78)
def test_a_client_is_answered_all_the_while_a_cli_floods(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon, lines = serve(), 100_000
    (tmp_path / "said").write_bytes(b"x\n" * lines)
    session = daemon.new()
    turn = session.prompt(f"before\n@bytes {tmp_path}/said\nafter")
    session.await_event("unparsed")
    answered = max(pings_while(daemon, lambda: session.get()["state"] != "running"))
    assert session.end_of(turn)["outcome"] == "completed"
    events = session.events("unparsed")
    assert sum(event.get("lines", 1) for event in events) == lines
    # One step takes about a hundred of these lines; without steps a chunk of 32,768 would be one.
    assert answered >= lines // 3000


async def test_lines_that_wait_for_the_next_step_are_unread() -> None:
    lone, over = run_of(), 0.0
    await lone.run.take_bytes(b"x\ny\n", over)
    assert lone.run._has_unread()  # the watchdog does not take a flood for silence
    await lone.run.take_bytes(b"", over)
    assert not lone.run._has_unread()
