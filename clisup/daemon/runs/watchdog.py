"""The watchdog's shell: sleeps to the next deadline, looks before it acts, and weighs the tree where there is a limit for it.

A tick that comes late was slept through (SIGSTOP, suspend) and grants a new window. Before a silent tool or background task
is ended its process tree is looked at: one that works gets a new window, a bounded number of times in a row.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
import trio

from clisup.config.model import LimitsConfig
from clisup.daemon.runs.keeper_link import LADDER_SLACK_S, Leash
from clisup.host import clock
from clisup.host.process.evidence import Evidence, look
from clisup.model.events import EventBase, WatchdogNotice
from clisup.policy.ladder import Ladder, ladder_for
from clisup.policy.watchdog import LATE_TICK_S, PHASE_LIFE, PhaseTracker, Timeouts, Verdict, Watchdog

__all__ = ["Guard", "Guarded"]

UNREAD_PAUSE_S = 0.25
WEIGH_EVERY_S = 1.0
LOOK_APART_S = 0.25
"""At least so long before a look is the one that it is compared with: the kernel counts work by hundredths of a second."""
_FIXED = ("startup", "linger", "resting", "turn")  # deadlines that no byte moves
_LOOKED_AT = tuple(phase for phase, life in PHASE_LIFE.items() if "evidence" in life)


class Guarded(Protocol):
    """What the guard asks of its run."""

    @property
    def cli_pid(self) -> int | None:
        """The CLI's own process."""

    def unread(self) -> bool:
        """Are there bytes in the spool that nobody has read yet?"""

    def grew(self) -> None:
        """Read them."""

    def note(self, event: EventBase) -> None:
        """Journal a word of the daemon's own."""

    def end(self, reason: str, ladder: Ladder, **why: Any) -> None:
        """End the run."""

    def retire(self, reason: str) -> None:
        """Let a live process go that waits for its next turn."""


class Guard:
    """The timers of one run. `alive`, `phase_changed` and `new_turn` are told by the run; `watch` and `weigh` are its tasks."""

    def __init__(
        self, run: Guarded, leash: Leash, tracker: PhaseTracker, timeouts: Timeouts, limits: LimitsConfig
    ) -> None:
        self._run = run
        self._leash = leash
        self._tracker = tracker
        self.timeouts = timeouts
        self._limits = limits
        self._dog = Watchdog(timeouts, now=clock.monotonic())
        self._rearm = trio.Event()
        self._looked_at: set[str] = set()
        self._evidence: Evidence | None = None
        self._grew = False
        self._windows = limits.evidence_windows

    # -- what the run tells ------------------------------------------------------------------------------------------

    def rearm(self) -> None:
        """A deadline may have come nearer."""
        self._rearm.set()

    def alive(self, *, heartbeat: bool = False) -> None:
        """The CLI said something, or only that it is still there: that is no life of a tool."""
        if heartbeat and "heartbeats" not in PHASE_LIFE[self._tracker.phase]:
            return
        self._dog.alive(clock.monotonic())
        self._windows = self._limits.evidence_windows

    def phase_changed(self) -> None:
        """The phase may be another one now."""
        if self._tracker.phase != self._dog.phase:
            self._looked_at.clear()
            self._windows = self._limits.evidence_windows
            self._dog.enter(self._tracker.phase, clock.monotonic())
            self._rearm.set()

    def renew(self, timeouts: Timeouts) -> None:
        """Other limits, from now on."""
        self.timeouts = timeouts
        self._dog.renew(timeouts)
        self._rearm.set()

    def hold(self, *, held: bool) -> None:
        """The CLI waits for a client's tool, which has a time of its own; or does not any more."""
        self._dog.hold(held=held, now=clock.monotonic())
        self._rearm.set()

    def new_turn(self) -> None:
        """The CLI began a turn of its own, which has its own time."""
        held = self._dog.held
        self._dog = Watchdog(self.timeouts, now=clock.monotonic(), phase=self._tracker.phase)
        self._dog.hold(held=held, now=clock.monotonic())
        self._rearm.set()

    # -- the tasks ---------------------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Sleep, look, act, until cancelled."""
        while True:
            self._rearm = trio.Event()
            await self._leash.press()
            verdict = self._dog.poll(clock.monotonic())
            if verdict.action == "fire" and not self._leash.ending:
                await self._fire(verdict)
                continue
            if verdict.action == "warn":
                await self._warn(verdict)
            await self._sleep_until(self._leash.press_at if self._leash.ending else verdict.next_at)

    async def _sleep_until(self, deadline: float | None) -> None:
        if deadline is None:
            await self._rearm.wait()
            return
        with trio.move_on_after(max(0.0, deadline - clock.monotonic())) as scope:
            await self._rearm.wait()
        late = clock.monotonic() - deadline
        if scope.cancelled_caught and late > LATE_TICK_S:
            self._dog.credit(clock.monotonic(), late)
            self._report("credited", self._dog.poll(clock.monotonic()), {"late_s": round(late, 3)})

    async def _warn(self, verdict: Verdict) -> None:
        """At 80 % of the limit: said, and the tree is looked at, to have something to compare with at the end of it."""
        seen = await self._look() if verdict.phase in _LOOKED_AT else None
        self._report("warned", verdict, seen.words() if seen else None)

    async def _fire(self, verdict: Verdict) -> None:
        if verdict.phase == "resting":
            self._run.retire("idle")
            return
        # Bytes that came while nobody looked are life: read them before judging. But a flood has always some unread, and
        # they do not move a deadline that counts from the beginning of the turn or the phase: there it is looked at once.
        if self._run.unread() and not (verdict.phase in _FIXED and verdict.phase in self._looked_at):
            self._looked_at.add(verdict.phase)
            self._run.grew()
            await trio.sleep(UNREAD_PAUSE_S)
            return
        life = self._dog.last_life
        seen = await self._at_work(verdict) if verdict.phase in _LOOKED_AT else None
        if self._leash.ending or self._dog.last_life != life:
            return  # it was ended, or went on, while it was looked at
        if self._grew and self._windows > 0 and verdict.phase in _LOOKED_AT:
            self._windows -= 1
            self._dog.alive(clock.monotonic())
            self._report("credited", verdict, {**(seen or {}), "windows_left": self._windows})
            return
        self._report("fired", verdict, seen)
        repeats = self._tracker.repeats if verdict.phase == "model" else None
        why = {"failure": msgspec.to_builtins(repeats)} if repeats else {}
        ladder = ladder_for("graceful", self.timeouts)
        self._run.end(f"watchdog:{verdict.phase}", ladder, limit_s=verdict.limit_s, **why)

    async def _at_work(self, verdict: Verdict) -> dict[str, Any]:
        """Look again; whether the tree has worked since the last look is what decides."""
        earlier = self._evidence
        if earlier is not None:  # on a busy machine the first look may have taken until now
            await trio.sleep(max(0.0, earlier.at + LOOK_APART_S - clock.monotonic()))
        now = await self._look()
        self._grew = earlier is not None and now.grew_since(earlier)
        return {**now.words(), "grew": self._grew}

    async def _look(self) -> Evidence:
        self._evidence = await trio.to_thread.run_sync(lambda: look(self._leash.keeper_pid, cli_pid=self._run.cli_pid))
        return self._evidence

    async def weigh(self) -> None:
        """Where there is a limit for memory or processes: look every second, and end a run that is over it."""
        limits = self._limits
        while limits.memory or limits.pids:
            seen = await trio.to_thread.run_sync(look, self._leash.keeper_pid)
            if not self._leash.ending and limits.memory and seen.rss_bytes > limits.memory:
                self._run.end("memory", ladder_for("term", self.timeouts), limit=limits.memory, seen=seen.rss_bytes)
            elif not self._leash.ending and limits.pids and seen.processes > limits.pids:
                self._run.end("pids", ladder_for("term", self.timeouts), limit=limits.pids, seen=seen.processes)
            await trio.sleep(WEIGH_EVERY_S)

    # -- what people look at -----------------------------------------------------------------------------------------

    def _report(self, action: Any, verdict: Verdict, evidence: dict[str, Any] | None = None) -> None:
        tools = sorted(self._tracker.tools.values())
        seen = {"open_tools": tools, "tasks": len(self._tracker.background), **(evidence or {})}
        idle = round(verdict.idle_s, 3)
        self._run.note(
            WatchdogNotice(action=action, phase=verdict.phase, limit_s=verdict.limit_s, idle_s=idle, evidence=seen)
        )

    @property
    def idle_s(self) -> float:
        """Seconds since the last sign of life."""
        return round(clock.monotonic() - self._dog.last_life, 3)

    def timers(self) -> list[dict[str, Any]]:
        """Every armed timer."""
        return list(self._dog.timers(clock.monotonic()))

    def describe(self) -> dict[str, Any]:
        """Why the run is still alive, and what happens next: `session/get`'s `watch`."""
        seen = self._evidence
        age = None if seen is None else {"grew": self._grew, "age_s": round(clock.monotonic() - seen.at, 3)}
        ladder = self._leash.ladder if self._leash.ending else ladder_for("graceful", self.timeouts)
        return {
            "phase": self._tracker.phase,
            "timers": self.timers(),
            "idle_s": self.idle_s,
            "evidence": {**seen.words(), **age} if seen and age else None,
            "windows_left": self._windows,
            "ladder": [*map(list, ladder), ["KILL", 0]],
            "next": self._next(),
        }

    def _next(self) -> str:
        if self._leash.unkillable:
            return (
                f"SIGKILL, which is repeated every {LADDER_SLACK_S:g} s, has not ended keeper {self._leash.keeper_pid} and its CLI: "
                "a debugger holds them, or the kernel waits for a disk"
            )
        if self._leash.ending:
            return "the run is being ended"
        timers = sorted(self.timers(), key=lambda timer: float(timer["fires_in_s"]))
        if not timers and self._dog.held:
            return "a tool that the client runs is waited for: its own limit ends the call"
        if not timers:
            return "nothing: no timer is armed" + (" while the disk is full" if self._tracker.blocked else "")
        first = timers[0]
        left = max(0.0, float(first["fires_in_s"]))
        if first["phase"] == "resting":
            return f"the live process is let go in {left:.0f} s, unless a prompt comes"
        if first["phase"] in _FIXED:
            return f"the {first['phase']} limit of {first['limit_s']:g} s ends the run in {left:.0f} s, whatever the CLI says"
        look_first = ", unless its processes are at work," if first["phase"] in _LOOKED_AT and self._windows else ""
        return (
            f"after {first['limit_s']:g} s without a sign of life in phase {first['phase']} the run{look_first} is ended "
            f"in {left:.0f} s"
        )
