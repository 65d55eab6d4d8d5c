"""The guard's looks take their time, and what came meanwhile counts: an end is decided on what is so by then."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from clisup.config.model import LimitsConfig
from clisup.daemon.runs import watchdog as guard_module
from clisup.daemon.runs.watchdog import WatchdogTask
from clisup.host import clock
from clisup.host.process.evidence import Evidence
from clisup.model.events import EventBase, ToolResult, ToolUse, WatchdogNotice
from clisup.policy.watchdog import Ladder, PhaseTracker, TurnTimeouts

LIMIT_S = 20.0


class KeeperLink:
    """A keeper that nobody has ordered anything yet."""

    keeper_pid = 1
    send_end_at: float | None = None
    ladder: Ladder = []

    def __init__(self) -> None:
        self.ending = self.unkillable = False
        self.pressed = trio.Event()

    async def send_end(self) -> None:
        self.pressed.set()


class Run:
    turn = SimpleNamespace(pid=None)

    def __init__(self, leash: KeeperLink) -> None:
        self.leash = leash
        self.ends: list[str] = []
        self.ended = trio.Event()
        self.said: list[EventBase] = []

    def unread(self) -> bool:
        return False

    def grew(self) -> None: ...

    def note(self, event: EventBase) -> None:
        self.said.append(event)

    def end(self, reason: str, ladder: Ladder, **why: Any) -> None:
        self.leash.ending = True
        self.ends.append(reason)
        self.ended.set()

    def retire(self, reason: str) -> None: ...


def guard_of(run: Run, tracker: PhaseTracker, timeouts: TurnTimeouts) -> WatchdogTask:
    fake = cast("Any", run)
    return WatchdogTask(fake, cast("Any", run.leash), fake, tracker, timeouts, LimitsConfig(),
                        tells_work=True, note=run.note, has_unread=run.unread, read=run.grew, settle=trio.lowlevel.checkpoint)  # fmt: skip


class Scene:
    """A tool that is silent beyond its limit, and the look before its end under way: `meanwhile`, then the look goes on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, timeouts: TurnTimeouts) -> None:
        self.leash, self.tracker = KeeperLink(), PhaseTracker()
        self.run = Run(self.leash)
        self.tracker.see(ToolUse(tool_use_id="x", name="Bash", input={}))
        self._looking, self._go_on = trio.Event(), threading.Event()
        self._due = clock.monotonic() + timeouts.tool_idle
        self.guard = guard_of(self.run, self.tracker, timeouts)
        self.guard.phase_changed()
        monkeypatch.setattr(guard_module, "look", self._look)

    def _look(self, _keeper: int | None, **_: Any) -> Evidence:
        if clock.monotonic() >= self._due:  # no look at 80 %
            trio.from_thread.run_sync(self._looking.set)
            assert self._go_on.wait(LIMIT_S)
        return Evidence(0, 0.0, {})

    async def play(self, meanwhile: Callable[[], None], until: Callable[[], trio.Event]) -> None:
        with trio.fail_after(LIMIT_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.guard.watch)
                await self._looking.wait()
                meanwhile()
                seen = until()
                self._go_on.set()
                await seen.wait()
                nursery.cancel_scope.cancel()


@pytest.mark.fault(15)
async def test_a_tool_that_ends_while_it_is_looked_at_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, TurnTimeouts(tool_idle=0.1, model_idle=0.1))

    def result() -> None:
        scene.tracker.see(ToolResult(tool_use_id="x", content="done"))
        scene.guard.alive()
        scene.guard.phase_changed()

    await scene.play(result, lambda: scene.run.ended)
    assert scene.run.ends == ["watchdog:model"]  # which has its own time, after that


async def test_a_run_that_is_being_ended_is_not_hastened_by_a_look_that_began_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, TurnTimeouts(tool_idle=0.1))

    def ended_by_a_client() -> None:
        scene.leash.ending = True
        scene.leash.pressed = trio.Event()

    await scene.play(ended_by_a_client, lambda: scene.leash.pressed)
    assert scene.run.ends == []
    assert "fired" not in [event.action for event in scene.run.said if isinstance(event, WatchdogNotice)]


def test_why_a_run_is_still_alive_names_a_keeper_that_no_signal_ends() -> None:
    leash = KeeperLink()
    guard = guard_of(Run(leash), PhaseTracker(), TurnTimeouts())
    leash.ending = True
    assert guard.describe()["next"] == "the run is being ended"
    leash.unkillable = True
    assert "SIGKILL, which is repeated every 20 s, has not ended keeper 1 and its CLI" in guard.describe()["next"]
