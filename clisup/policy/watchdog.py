"""Watchdog rules: the time and the signals to end a silent or retrying turn. Phases come from events. Pure.

The phase gives silence its meaning. Before the first frame silence is a slow start, in the model phase a stalled
stream, in the tool phase a long tool. A hook, a compaction and the refresh of a login are work that the CLI announces and
then does in silence. After the last frame silence is a process that does not exit, or announced background work. Each
phase has its own limit; 0 means never. All times are monotonic seconds, and come from the caller.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from clisup.model.events import (
    ApprovalRequested,
    ApprovalResolved,
    BackendRetry,
    BackendStatus,
    EventBase,
    MessageStart,
    MessageStop,
    ToolProgress,
    ToolResult,
    ToolUse,
    TurnError,
    Unparsed,
)

Phase = Literal[
    "startup", "opening", "model", "tool", "hook", "compaction", "login", "approval", "background", "tail", "linger", "resting",
    "blocked",
]  # fmt: skip

UNKNOWN_PHASE = "unknown_phase"
"""Status of a CLI that announces a state in `detail` that clisup does not know: it may be silent in it, and is not ended soon."""
LATE_TICK_S = 1.0
"""Delay of a tick, in seconds, that proves a pause of the daemon (SIGSTOP, suspend). Silence across the pause is no
evidence, so the watchdog grants a new window."""

_WARN_AT = 0.8


class TurnTimeouts(Struct, frozen=True):
    """Limits in seconds; 0 means never.

    `turn` bounds the whole turn, `int_grace` and `term_grace` follow SIGINT and SIGTERM. `resting` is the longest wait of
    a live process for its next turn.
    """

    startup: float = 60
    opening: float = 300
    model_idle: float = 180
    tool_idle: float = 1800
    hook: float = 1800
    compaction: float = 900
    login: float = 60
    approval: float = 0
    background: float = 660
    tail: float = 2
    linger: float = 5
    resting: float = 600
    turn: float = 0
    int_grace: float = 3
    term_grace: float = 5


PHASE_LIMITS: dict[Phase, str | None] = {
    "startup": "startup",
    "opening": "opening",
    "model": "model_idle",
    "tool": "tool_idle",
    "hook": "hook",
    "compaction": "compaction",
    "login": "login",
    "approval": "approval",
    "background": "background",
    "tail": "tail",
    "linger": "linger",
    "resting": "resting",
    "blocked": None,  # a full disk is not the CLI's fault: the timers are frozen
}

Life = Literal["bytes", "heartbeats", "evidence"]

PHASE_LIFE: dict[Phase, frozenset[Life]] = {
    # Any byte on stdout is life: claude 2.1.329 gives SSE pings every 10 s and an `api_retry` for each retry. A
    # `tool_progress` heartbeat (every 30 s, for as long as the tool takes) proves a living CLI, not a living tool.
    # `evidence` is work seen in the process tree, a bounded number of times.
    "opening": frozenset({"bytes"}),
    "startup": frozenset(),  # a process that only drips bytes must still start
    "model": frozenset({"bytes", "heartbeats"}),
    "tool": frozenset({"bytes", "evidence"}),
    "hook": frozenset({"bytes", "evidence"}),
    # Two requests to a host of the vendor, for which the CLI prints nothing: no process works meanwhile.
    "compaction": frozenset({"bytes", "heartbeats"}),
    "login": frozenset({"bytes", "heartbeats"}),
    "approval": frozenset({"bytes", "heartbeats"}),
    "background": frozenset({"bytes", "heartbeats", "evidence"}),
    "tail": frozenset(),  # an agent that goes on by itself has ended the turn all the same
    "linger": frozenset(),  # and must still exit: limits without life count from the beginning of the phase
    "resting": frozenset(),
    "blocked": frozenset(),
}
# Phases in which a CLI may be waiting for a tool of the session's client.
_HELD = ("model", "tool", "hook", "background")
_NO_TURN = ("resting", "blocked")  # phases in which a turn's own time does not run
_FROM_ENTRY = tuple(phase for phase, life in PHASE_LIFE.items() if not life)

_COMPACTIONS = {"compacting": True, "compacted": False, "compaction_failed": False, "compact_boundary": False}
"""Statuses by which a CLI reports the beginning and the end of a compaction."""
_COMPACTS = ("in_progress", "running", "started")
"""States of a `compaction_update` of the Agent Client Protocol that are not its end."""


class PhaseTracker(Struct):
    """Activity of a turn, folded from its events. `background` is the decoder's list of work beyond the answer.

    `repeats` is the failure of the request that the CLI announced to repeat, until the model answers.
    """

    started: bool = False
    finished: bool = False
    resting: bool = False
    blocked: bool = False
    tools: dict[str, str] = field(default_factory=dict)
    approvals: set[str] = field(default_factory=set)
    hooks: list[str] = field(default_factory=list)
    """Names of the hooks of the CLI's settings that have begun and not ended."""
    compacting: bool = False
    unknown: str = ""
    """State that the CLI has announced and clisup does not know. It has the limit and the evidence of a tool."""
    servers: dict[str, None] = field(default_factory=dict)
    """MCP servers that the CLI starts. codex 0.171.0 asks its model when they have started."""
    background: Collection[str] = ()
    answered: bool = False
    """True after the end of the model's answer. One-shot claude reports nothing more while its sub-agents work
    (2.1.330)."""
    repeats: TurnError | None = None
    calls: dict[str, str] = field(default_factory=dict)
    """Tool calls that the CLI has mentioned without all that an event of them needs."""
    awaits: str = ""
    """Request that the CLI has not answered while it opens its session."""
    ended: bool = False
    """The CLI has told the end of the turn, and the rest of its answer is read."""
    failure: TurnError | None = None
    """Failure that the CLI has told last. The CLI has neither ended the turn nor gone on."""
    unreadable: str = ""
    """Beginning of the turn's last line that is no frame, for the message of an error."""

    @property
    def phase(self) -> Phase:
        """Return the first matching phase."""
        if self.blocked:
            return "blocked"
        if self.background and (self.finished or (self.answered and not self.approvals)):
            return "background"
        if self.finished:
            return "resting" if self.resting else "linger"
        if self.ended:
            return "tail"
        if self.approvals:
            return "approval"
        if self.tools or self.calls or self.unknown:
            return "tool"
        if self.hooks:
            return "hook"
        if self.compacting:
            return "compaction"
        if self.repeats is not None and self.repeats.kind == "authentication":
            return "login"
        if self.servers:
            return "opening"
        if self.started:
            return "model"
        return "opening" if self.awaits else "startup"

    @property
    def at_work(self) -> list[str]:
        """Names of the open tools, hooks or requests, for a message about this phase."""
        match self.phase:
            case "tool":
                return sorted({*self.tools.values(), *self.calls.values(), *([self.unknown] if self.unknown else ())})
            case "hook":
                return sorted({*self.hooks})
            case "opening":
                return (
                    [self.awaits] if self.awaits else [f"the start of the MCP server {name}" for name in self.servers]
                )
        return []

    @property
    def answer_is_whole(self) -> bool:
        """Tell whether the model has ended its answer, and nothing works on: no tool, hook, question or sub-agent."""
        return (self.answered or self.finished or self.ended) and not (
            self.tools or self.calls or self.hooks or self.approvals or self.background
        )

    def follow(
        self,
        background: Collection[str],
        calls: Mapping[str, str],
        awaits: str | None,
        ended: bool,
        failure: TurnError | None,
    ) -> None:
        """Take over what the decoder knows beyond its events."""
        self.background, self.awaits, self.ended, self.failure = background, awaits or "", ended, failure
        if calls or self.calls:
            self.calls = dict(calls)

    def see(self, event: EventBase) -> None:
        """Fold one event of the CLI. Words that are no frame are no start: a launcher may ask a question, and wait."""
        if type(event) is Unparsed and event.reason != "unknown_type":
            whole = event.bytes <= len(event.excerpt.encode())
            # The last word of a cut line may be half a secret, which nothing would hide.
            self.unreadable = event.excerpt if whole else event.excerpt.rpartition(" ")[0]
            return
        self.started = True
        if self.unknown and type(event) is not BackendStatus:
            self.unknown = ""
        if type(event) is ToolUse:
            self.tools[event.tool_use_id] = event.name
        elif type(event) is ToolResult:
            self.tools.pop(event.tool_use_id, None)
        elif type(event) is MessageStart or type(event) is MessageStop:
            self.repeats = self.repeats if type(event) is MessageStop else None
            self.servers.clear()
            if event.parent_tool_use_id is None:
                self.answered = type(event) is MessageStop and event.stop_reason == "end_turn"
        elif type(event) is ApprovalRequested:
            self.approvals.add(event.approval_id)
        elif type(event) is ApprovalResolved:
            self.approvals.discard(event.approval_id)
        elif type(event) is BackendRetry:
            self.repeats = event.error
        elif type(event) is BackendStatus:
            self._see_status(event)

    def _see_status(self, event: BackendStatus) -> None:
        self.unknown = (event.detail or "a state without a name") if event.status == UNKNOWN_PHASE else ""
        name = hook_of(event)
        if event.status == "hook_started":
            self.hooks.append(name)
        elif event.status == "hook_response" and self.hooks:
            self.hooks.remove(name if name in self.hooks else self.hooks[-1])
        elif event.status == "compaction":
            self.compacting = event.detail in _COMPACTS
        elif event.status == "mcp_server":
            self._see_server(event.detail or "")
        self.compacting = _COMPACTIONS.get(event.status, self.compacting)

    def _see_server(self, detail: str) -> None:
        name, told, state = detail.partition(": ")
        if told and state == "starting":
            self.servers[name] = None
        else:
            self.servers.pop(name, None)

    def finish(self) -> None:
        """Record the terminal frame."""
        self.finished = True
        self.tools.clear()
        self.calls = {}
        self.approvals.clear()
        self.hooks.clear()
        self.servers.clear()
        self.unknown = ""
        self.compacting, self.repeats, self.failure = False, None, None

    def rest(self) -> None:
        """Record the terminal frame of a process that stays for the next turn."""
        self.finish()
        self.resting = True

    def wait(self) -> None:
        """Record a terminal frame that is not the last: another frame follows the CLI's background work."""
        self.finished = bool(self.background)

    def follow_up(self) -> None:
        """Record that the CLI continued after its terminal frame."""
        self.finished = self.resting = self.answered = False


def hook_of(event: BackendStatus) -> str:
    """Return the name of the hook that a status tells of: `SessionStart:startup` (claude), `preToolUse` (codex)."""
    name, told, _ = (event.detail or "").rpartition(": ")
    return name if told else event.detail or "hook"


def only_heartbeats(events: Sequence[EventBase]) -> bool:
    """Tell whether these events only show that a tool still runs."""
    return bool(events) and all(type(event) is ToolProgress for event in events)


class Verdict(NamedTuple):
    """Action to take now, and the time of the next poll (monotonic seconds; None: only after the next event)."""

    action: Literal["wait", "warn", "fire"]
    phase: str
    limit_s: float
    idle_s: float
    next_at: float | None


class Watchdog:
    """Timers of one turn. Feed in signs of life and phases, and call `poll` not before `next_at`."""

    __slots__ = ("_entered", "_held", "_life", "_timeouts", "_turn_start", "_turn_warned", "_warned", "phase")

    def __init__(self, timeouts: TurnTimeouts, *, now: float, phase: Phase = "startup") -> None:
        self._timeouts = timeouts
        self._turn_start = self._entered = self._life = now
        self.phase: Phase = phase
        self._warned = self._turn_warned = False
        self._held = False

    @property
    def held(self) -> bool:
        """Tell whether the CLI waits for a tool of the session's client."""
        return self._held

    def hold(self, *, held: bool, now: float) -> None:
        """Start or stop a hold. While `held`, silence is no evidence in the phases of `_HELD`.

        The awaited tool has its own limit. A new window begins at the change.
        """
        if held != self._held:
            self._held = held
            self.alive(now)

    @property
    def last_life(self) -> float:
        """Return the time of the last sign of life."""
        return self._life

    def renew(self, timeouts: TurnTimeouts) -> None:
        """Set new limits from now on. The elapsed time still counts."""
        self._timeouts = timeouts
        self._warned = self._turn_warned = False

    def alive(self, now: float) -> None:
        """Record a sign of life."""
        self._life = now
        self._warned = False

    def enter(self, phase: Phase, now: float) -> None:
        """Enter a phase. A change of phase is a sign of life and opens a new window.

        The time in the phase `blocked` does not count for the turn's own limit either.
        """
        if phase != self.phase:
            if self.phase == "blocked":
                self._turn_start += now - self._entered
            self.phase, self._entered = phase, now
            self.alive(now)

    def credit(self, now: float, pause_s: float) -> None:
        """Record that the daemon was paused for `pause_s` until `now`.

        Silence across the pause is void, and a new window opens.
        """
        self._entered = self._life = now
        self._turn_start += pause_s
        self._warned = False

    def poll(self, now: float) -> Verdict:
        """Return the action at `now`. A reached deadline fires; at 80 % each timer warns once."""
        armed = [timer for timer in (self._phase_timer(), self._turn_timer()) if timer]
        if not armed:
            return Verdict("wait", self.phase, 0, now - self._life, None)
        phase, since, limit = min(armed, key=lambda timer: timer[1] + timer[2])
        if now >= since + limit:
            return Verdict("fire", phase, limit, now - since, None)
        action: Literal["wait", "warn"] = "wait"
        for timer in armed:
            if now >= timer[1] + timer[2] * _WARN_AT and self._warns(timer[0]):
                action, (phase, since, limit) = "warn", timer
                break
        next_at = min(self._next(timer, now) for timer in armed)
        return Verdict(action, phase, limit, now - since, next_at)

    def _warns(self, timer: str) -> bool:
        """Tell whether an unsent warning is due, and mark the warning as sent."""
        if timer == "turn":
            given, self._turn_warned = self._turn_warned, True
            return not given
        if timer in _FROM_ENTRY:
            return False
        given, self._warned = self._warned, True
        return not given

    @staticmethod
    def _next(timer: tuple[str, float, float], now: float) -> float:
        phase, since, limit = timer
        warning = since + limit * _WARN_AT
        return warning if now < warning and phase not in _FROM_ENTRY else since + limit

    def timers(self, now: float) -> list[dict[str, float | str | None]]:
        """Return every armed timer: phase, limit, seconds until it fires and until it warns; for status and
        `session/get`."""
        armed = [timer for timer in (self._phase_timer(), self._turn_timer()) if timer]
        return [self._described(phase, since, limit, now) for phase, since, limit in armed]

    @staticmethod
    def _described(phase: str, since: float, limit: float, now: float) -> dict[str, float | str | None]:
        """Return one timer as a table. `warns_in_s` is null if no warning comes or the warning has passed."""
        warns = since + limit * _WARN_AT - now
        warning = round(warns, 3) if warns > 0 and phase not in _FROM_ENTRY else None
        return {"phase": phase, "limit_s": limit, "fires_in_s": round(since + limit - now, 3), "warns_in_s": warning}

    def _phase_timer(self) -> tuple[str, float, float] | None:
        name = None if self._held and self.phase in _HELD else PHASE_LIMITS[self.phase]
        limit = getattr(self._timeouts, name) if name else 0
        since = self._entered if self.phase in _FROM_ENTRY else self._life
        return (self.phase, since, limit) if limit > 0 else None

    def _turn_timer(self) -> tuple[str, float, float] | None:
        limit = 0 if self.phase in _NO_TURN else self._timeouts.turn
        return ("turn", self._turn_start, limit) if limit > 0 else None


Ladder = list[tuple[str, float]]
LadderKind = Literal["graceful", "term", "kill"]


def ladder_for(kind: LadderKind, timeouts: TurnTimeouts) -> Ladder:
    """Return the steps: `graceful` is SIGINT, then SIGTERM; `term` only SIGTERM; `kill` goes to SIGKILL at once."""
    # SIGINT goes to the CLI alone: claude 2.1.329 then keeps the partial text and exits with 0. SIGTERM goes to the tree.
    steps: dict[LadderKind, Ladder] = {
        "graceful": [("INT", timeouts.int_grace), ("TERM", timeouts.term_grace)],
        "term": [("TERM", timeouts.term_grace)],
        "kill": [],
    }
    return steps[kind]


def is_polite(ladder: Ladder) -> bool:
    """Tell whether the ladder first lets the CLI end its turn in its own way."""
    return bool(ladder) and ladder[0][0] == "INT"


_HOPELESS: dict[str, int] = {"authentication": 3, "permission": 3, "quota_exceeded": 1}
"""Announced retries by kind, after which no further retry helps. After a refused login, claude 2.1.332 reads its store again,
refreshes the login or runs the helper for its key with the retries that it announces first: a rotated login heals."""


class Patience(NamedTuple):
    """Limits on announced retries; 0 means the CLI's own limits (claude 2.1.329: 10 retries, 187 s of 429)."""

    retries: int = 0
    wait_s: float = 0


def out_of_patience(event: BackendRetry, patience: Patience) -> TurnError | None:
    """Return the error that ends the turn after this announced retry. Return None to let the CLI retry.

    A turn ends for a hopeless retry, too many retries, or too long a wait.
    """
    if event.error is None:
        return None
    last = _HOPELESS.get(event.error.kind)
    if last is not None and (event.attempt is None or event.attempt >= last):
        return replace(event.error, retryable=False)
    if patience.wait_s and (event.delay_s or 0) > patience.wait_s:
        return replace(event.error, retry_after_s=event.delay_s)
    if patience.retries and (event.attempt or 0) > patience.retries:
        return event.error
    return None
