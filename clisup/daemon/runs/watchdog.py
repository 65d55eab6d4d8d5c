"""Watchdog of a run: waits for the next deadline, checks the processes before any action, and enforces process limits.

A late tick proves a pause (SIGSTOP, suspend), and grants a new window. Before the end of a silent tool or background
task, the watchdog probes the process tree. Working processes get a new window, a limited number of times.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import trio

from clisup.config.model import LimitsConfig
from clisup.daemon.runs.keeper_link import LADDER_SLACK_S, KeeperLink
from clisup.daemon.runs.run_parts import RunSink
from clisup.daemon.runs.termination import Termination
from clisup.host import clock
from clisup.host.process.evidence import Evidence, look, names_below
from clisup.host.threads import in_thread
from clisup.model.events import EventBase, WatchdogNotice
from clisup.policy.watchdog import LATE_TICK_S, PHASE_LIFE, PhaseTracker, TurnTimeouts, Verdict, Watchdog, ladder_for

__all__ = ["WatchdogTask"]

UNREAD_PAUSE_S = 0.25
LIMITS_CHECK_S = 1.0
PROBES_APART_S = 0.25
"""Shortest time between two probes that are compared: the kernel counts CPU time in hundredths of a second."""
_FIXED = ("startup", "tail", "linger", "resting", "turn")  # phases with a deadline that no output moves
_BEGINS = ("startup", "opening")  # a CLI waits here for an MCP server of its user's settings, and does not say so
_PROBED = frozenset(phase for phase, life in PHASE_LIFE.items() if "evidence" in life)


class WatchdogTask:
    """Timers of one run. The run calls `alive`, `phase_changed` and `new_turn`. `watch` and `check_limits` are tasks.

    `note` journals an event. `has_unread` tells whether output is unread, and `read` requests a read. `settle` ends a turn in
    the phase `tail`. `tells_work` is the adapter's.
    """

    def __init__(
        self,
        sink: RunSink,
        keeper: KeeperLink,
        termination: Termination,
        tracker: PhaseTracker,
        timeouts: TurnTimeouts,
        limits: LimitsConfig,
        *,
        tells_work: bool,
        note: Callable[[EventBase], None],
        has_unread: Callable[[], bool],
        read: Callable[[], None],
        settle: Callable[[], Awaitable[None]],
    ) -> None:
        self._sink = sink
        self._keeper = keeper
        self._termination = termination
        self._tracker = tracker
        self.timeouts = timeouts
        self._limits = limits
        # A CLI that does not tell its tools and hooks is silent while they work, as if the model were to answer.
        self._probes = _PROBED if tells_work else _PROBED | {"model"}
        self._note = note
        self._has_unread = has_unread
        self._read = read
        self._settle = settle
        self._dog = Watchdog(timeouts, now=clock.monotonic())
        self._rearm = trio.Event()
        self._probed: set[str] = set()
        self._evidence: Evidence | None = None
        self._grew = False
        self._windows = limits.evidence_windows

    # -- changes of the run ------------------------------------------------------------------------------------------

    def rearm(self) -> None:
        """Check the deadlines again."""
        self._rearm.set()

    def alive(self, *, heartbeat: bool = False) -> None:
        """Note output of the CLI. A heartbeat is no sign of life of a tool."""
        if heartbeat and "heartbeats" not in PHASE_LIFE[self._tracker.phase]:
            return
        self._dog.alive(clock.monotonic())
        self._windows = self._limits.evidence_windows

    def phase_changed(self) -> None:
        """Enter the tracker's phase if it has changed."""
        if self._tracker.phase != self._dog.phase:
            self._probed.clear()
            self._windows = self._limits.evidence_windows
            self._dog.enter(self._tracker.phase, clock.monotonic())
            self._rearm.set()

    def set_timeouts(self, timeouts: TurnTimeouts) -> None:
        """Change the timers."""
        self.timeouts = timeouts
        self._dog.renew(timeouts)
        self._rearm.set()

    def hold(self, *, held: bool) -> None:
        """Pause the timers while the CLI waits for a client's tool. Such a tool has its own limit."""
        self._dog.hold(held=held, now=clock.monotonic())
        self._rearm.set()

    def new_turn(self) -> None:
        """Begin the timers of another turn."""
        held = self._dog.held
        self._dog = Watchdog(self.timeouts, now=clock.monotonic(), phase=self._tracker.phase)
        self._dog.hold(held=held, now=clock.monotonic())
        self._rearm.set()

    # -- the tasks ---------------------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Enforce the deadlines until cancelled."""
        while True:
            self._rearm = trio.Event()
            await self._keeper.send_end()
            verdict = self._dog.poll(clock.monotonic())
            if verdict.action == "fire" and not self._keeper.ending:
                await self._fire(verdict)
                continue
            if verdict.action == "warn":
                await self._warn(verdict)
            await self._sleep_until(self._keeper.send_end_at if self._keeper.ending else verdict.next_at)

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
        """Journal a warning at 80 % of the limit, and probe the tree for a later comparison."""
        seen = await self._probe() if verdict.phase in self._probes else None
        self._report("warned", verdict, seen.words() if seen else None)

    async def _fire(self, verdict: Verdict) -> None:
        if verdict.phase == "resting":
            await self._termination.retire("idle")
            return
        # Unread output is a sign of life, so read before the decision. No output moves a fixed deadline, so read only once
        # there: in a flood some output is always unread.
        if self._has_unread() and not (verdict.phase in _FIXED and verdict.phase in self._probed):
            self._probed.add(verdict.phase)
            self._read()
            await trio.sleep(UNREAD_PAUSE_S)
            return
        if verdict.phase == "tail":
            await self._settle()
            return
        life = self._dog.last_life
        seen = await self._at_work() if verdict.phase in self._probes else None
        children = await self._children() if verdict.phase in _BEGINS else []
        if self._keeper.ending or self._dog.last_life != life:
            return  # the run was ended, or continued, during the probe
        # A tool in an endless loop always shows work, so the number of new windows in a row is limited.
        if self._grew and self._windows > 0 and verdict.phase in self._probes:
            self._windows -= 1
            self._dog.alive(clock.monotonic())
            self._report("credited", verdict, {**(seen or {}), "windows_left": self._windows})
            return
        self._report("fired", verdict, seen)
        failed = (self._tracker.repeats or self._tracker.failure) if verdict.phase in ("model", "login") else None
        why: dict[str, Any] = {"failure": msgspec.to_builtins(failed)} if failed else {}
        why |= {"at_work": names} if (names := self._tracker.at_work) else {}
        why |= {"children": children} if children else {}
        ladder = ladder_for("graceful", self.timeouts)
        self._termination.end(f"watchdog:{verdict.phase}", ladder, limit_s=verdict.limit_s, **why)

    async def _children(self) -> list[str]:
        return await in_thread(lambda: names_below(self._keeper.keeper_pid, cli_pid=self._sink.turn.pid))

    async def _at_work(self) -> dict[str, Any]:
        """Probe again, and note whether the tree has worked since the last probe."""
        earlier = self._evidence
        if earlier is not None:  # on a busy machine the first probe may have taken until now
            await trio.sleep(max(0.0, earlier.at + PROBES_APART_S - clock.monotonic()))
        now = await self._probe()
        self._grew = earlier is not None and now.grew_since(earlier)
        return {**now.words(), "grew": self._grew}

    async def _probe(self) -> Evidence:
        self._evidence = await in_thread(lambda: look(self._keeper.keeper_pid, cli_pid=self._sink.turn.pid))
        return self._evidence

    async def check_limits(self) -> None:
        """Check the limits of memory and processes every second, and end a run over a limit."""
        limits = self._limits
        while limits.memory or limits.pids:
            seen = await in_thread(look, self._keeper.keeper_pid)
            if not self._keeper.ending and limits.memory and seen.rss_bytes > limits.memory:
                self._termination.end(
                    "memory", ladder_for("term", self.timeouts), limit=limits.memory, seen=seen.rss_bytes
                )
            elif not self._keeper.ending and limits.pids and seen.processes > limits.pids:
                self._termination.end("pids", ladder_for("term", self.timeouts), limit=limits.pids, seen=seen.processes)
            await trio.sleep(LIMITS_CHECK_S)

    # -- reports -----------------------------------------------------------------------------------------------------

    def _report(self, action: Any, verdict: Verdict, evidence: dict[str, Any] | None = None) -> None:
        tools, hooks = sorted(self._tracker.tools.values()), sorted(self._tracker.hooks)
        seen = {
            "open_tools": tools,
            **({"open_hooks": hooks} if hooks else {}),
            "tasks": len(self._tracker.background),
            **(evidence or {}),
        }
        idle = round(verdict.idle_s, 3)
        self._note(
            WatchdogNotice(action=action, phase=verdict.phase, limit_s=verdict.limit_s, idle_s=idle, evidence=seen)
        )

    @property
    def idle_s(self) -> float:
        """Return the seconds since the last sign of life."""
        return round(clock.monotonic() - self._dog.last_life, 3)

    def timers(self) -> list[dict[str, Any]]:
        """Return every armed timer."""
        return list(self._dog.timers(clock.monotonic()))

    def describe(self) -> dict[str, Any]:
        """Return the run's timers, evidence, ladder and next step, as `watch` of `session/get`."""
        seen = self._evidence
        age = None if seen is None else {"grew": self._grew, "age_s": round(clock.monotonic() - seen.at, 3)}
        ladder = self._keeper.ladder if self._keeper.ending else ladder_for("graceful", self.timeouts)
        return {
            "phase": self._tracker.phase,
            "timers": self.timers(),
            "idle_s": self.idle_s,
            "evidence": {**seen.words(), **age} if seen and age else None,
            "probed": self._tracker.phase in self._probes,
            "windows_left": self._windows,
            "ladder": [*map(list, ladder), ["KILL", 0]],
            "next": self._next(),
        }

    def _next(self) -> str:
        if self._keeper.unkillable:
            return (
                f"SIGKILL, which is repeated every {LADDER_SLACK_S:g} s, has not ended keeper {self._keeper.keeper_pid} and its CLI: "
                "a debugger holds them, or the kernel waits for a disk"
            )
        if self._keeper.ending:
            return "the run is being ended"
        timers = sorted(self.timers(), key=lambda timer: float(timer["fires_in_s"]))
        if not timers and self._dog.held:
            return "a tool that the client runs is waited for: its own limit ends the call"
        if not timers:
            return "nothing: no timer is armed" + (" while the disk is full" if self._tracker.blocked else "")
        first = timers[0]
        if first["phase"] == "resting":
            return "the live process is let go when the timer fires, unless a prompt comes before"
        if first["phase"] == "tail":
            return "the turn ends when the timer fires, or when the agent answers"
        if first["phase"] in _FIXED:
            return f"the {first['phase']} timer ends the run, whatever the CLI says"
        works = " or its processes are at work" if first["phase"] in self._probes and self._windows else ""
        return f"the {first['phase']} timer ends the run, unless the CLI gives a sign of life before{works}"
