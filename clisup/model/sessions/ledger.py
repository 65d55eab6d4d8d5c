"""What a session's journal says, folded: queue, running turn, keys, totals. The same journal gives the same ledger.

The daemon keeps no other truth about turns: it changes the ledger only by journaling an event, and after a `kill -9` the
next daemon folds the same lines to the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import asdict

from clisup.model.journal import Record, Source
from clisup.model.sessions.journal_time import lasted
from clisup.model.sessions.spending import Spending
from clisup.model.usage import UNKNOWN_USAGE, Usage, whole_usd

__all__ = ["ANSWERS", "FOLDED", "Ledger", "Position", "Turn"]

DEFAULT_KEYS = 1000
KEPT_ANSWERS = 100  # resolved approvals that are told from unknown ones
KEPT_RESULTS = 100  # turns without a key whose end can still be found by id


class Position(Struct):
    """How far a spool has been journaled: `end` of the last line, ordinal `k` of its last event."""

    start: int = 0
    end: int = 0
    k: int = -1


class Turn(Struct):
    """A turn that is queued or running. `begin` says where its part of the spools begins.

    What a live process does between two turns is kept as one without an id. `spending` is what it was told
    to have used before its end; no record tells it, see `Ledger.spend`.
    """

    id: str
    key: str | None = None
    origin: str = "prompt"
    accepted_seq: int = 0
    run: int = 0
    started: bool = False
    process_started: bool = False
    process_exited: bool = False
    live: bool = False
    transcript_at: int | None = None  # the length of the CLI's transcript when it began, where its run is older
    stderr_events: int = 0
    answered: bool = False
    began: str | None = None
    began_seq: int = 0
    paused_s: float = 0.0
    spending: Spending = field(default_factory=Spending)
    pid: int | None = None
    ending: dict[str, Any] | None = None
    background: dict[str, str | None] | list[str] = field(default_factory=dict)
    approvals: dict[str, dict[str, Any]] = field(default_factory=dict)  # open ones: seq, tool_name, at
    denied: list[str] = field(default_factory=list)  # tools that were asked for and not allowed
    says: list[list[Any]] = field(
        default_factory=list
    )  # [id, name of its file]: said on its stdin, perhaps not heard yet
    begin: dict[str, int] = field(default_factory=lambda: {"out": 0, "err": 0})
    position: dict[str, Position] = field(default_factory=dict)

    def has_journaled(self, spool: str, end: int, k: int = 0) -> bool:
        """Is the `k`-th event of the line that ends there in the journal already?"""
        at = self.position.get(spool)
        return at is not None and (end < at.end or (end == at.end and k <= at.k))


class Ledger(Struct):
    """The folded state. `queue[0]` is the next turn to run; `current` is the one that runs; `resting` is a live process
    that waits for the next one. `settings` are what a client has changed since the session was opened, `budget` the limits that
    it has set since then. `steers` are prompts, by their ids, that were said to a CLI at work and that it has not yet told to be
    part of a turn. `turns_begun`, `tokens` and `wall_s` count towards a budget, `unpriced` the turns whose cost nobody knows.
    """

    current: Turn | None = None
    resting: Turn | None = None
    queue: list[Turn] = field(default_factory=list)
    turns: int = 0
    runs: int = 0
    completed: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    native_session_id: str | None = None
    native_lost: bool = False
    model: str | None = None
    usage: Usage = UNKNOWN_USAGE
    cost_usd: float | None = None
    cost_source: str = "unknown"
    turns_begun: int = 0
    tokens: int = 0
    wall_s: float = 0.0
    unpriced: int = 0
    budget: dict[str, Any] | None = None
    cost_total_usd: float | None = None
    usage_total: dict[str, Any] | None = None
    transcript: dict[str, Any] | None = None  # what it was at the end of the last run
    settings: dict[str, str] = field(default_factory=dict)
    steers: dict[str, dict[str, Any]] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    accepted: dict[str, int] = field(default_factory=dict)
    uncertain: dict[str, dict[str, Any]] = field(default_factory=dict)
    resolved: dict[str, dict[str, Any]] = field(default_factory=dict)
    watchdog_fired: int = 0
    last_error: str | None = None
    last_turn: dict[str, Any] | None = None  # the one that ended last: turn_id, outcome, error_kind, ended_at
    closed: bool = False
    last_event: dict[str, Any] | None = None

    def apply(self, record: Record, *, max_keys: int = DEFAULT_KEYS) -> None:
        """Fold one journal record."""
        if record.snapshot is not None:
            self.restore(record.snapshot)
            return
        event = record.event or {}
        self.fold(event["type"], event, src=record.src, memo=record.memo, max_keys=max_keys)

    def fold(
        self,
        type_: str,
        fields: dict[str, Any],
        *,
        src: Source | None,
        memo: dict[str, Any] | None,
        max_keys: int = DEFAULT_KEYS,
    ) -> None:
        """Fold one event. `fields` needs more than `seq` and `ts` only for the types of `FOLDED`."""
        self.last_event = {"seq": fields["seq"], "type": type_, "ts": fields["ts"]}
        if src is not None:
            self.pass_over(src, answers=type_ in ANSWERS)
        handler = _HANDLERS.get(type_)
        if handler is not None:
            handler(self, fields)
        if memo is not None:
            self._remember(memo)
        if len(self.keys) > max_keys:
            self._forget_oldest_key()

    def spend(self, event: dict[str, Any]) -> None:
        """An event of `SPENDING`, of the turn that runs. `fold` leaves them out: of a turn that is over only its end counts."""
        if self.held is not None:
            self.held.spending.see(event, self.model)

    def pass_over(self, src: Source, *, answers: bool) -> None:
        """Events that it does not read, up to the one at `src`, are journaled; `answers`: some show that the model does."""
        turn = self.held
        if turn is not None and turn.run == src.run:
            turn.position[src.spool] = Position(src.start, src.end, src.k)
            turn.answered = turn.answered or answers

    def _forget_oldest_key(self) -> None:
        turn = self.keys.pop(next(iter(self.keys)))
        if turn in self.keys.values():  # by the key of a prompt that was steered into it
            return
        self.uncertain.pop(turn, None)
        self.ends.pop(turn, None)
        self.accepted.pop(turn, None)

    @property
    def open_steers(self) -> list[str]:
        """The ids of steered prompts that no turn is known to have taken."""
        return [prompt_id for prompt_id, steer in self.steers.items() if not steer.get("over")]

    def end_steers(self, prompt_ids: Iterable[str]) -> None:
        """These are done with: taken by a turn, or dropped."""
        for prompt_id in prompt_ids:
            if prompt_id in self.steers:
                self.steers[prompt_id]["over"] = True

    @property
    def held(self) -> Turn | None:
        """Whose process there is: the running turn's, or the one that waits for the next."""
        return self.current or self.resting

    def turn(self, turn_id: str) -> Turn | None:
        """The running or queued turn of this id."""
        candidates = [*([self.current] if self.current else []), *self.queue]
        return next((turn for turn in candidates if turn.id == turn_id), None)

    def _remember(self, memo: dict[str, Any]) -> None:
        for name in _SESSION_MEMOS:
            if name in memo:
                setattr(self, name, memo[name])
        self.end_steers(memo.get("dropped", ()))
        self.tokens += memo.get("more_tokens", 0)
        if "settings" in memo:
            self.settings = self.settings | memo["settings"]
        if self.held is not None:
            _remember_run(self.held, memo)
            self.runs = max(self.runs, self.held.run)

    def snapshot(self) -> dict[str, Any]:
        """The whole state as JSON values, for the head of a new segment."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        return {
            **plain,
            "usage": msgspec.to_builtins(self.usage),
            "current": _turn_out(self.current) if self.current else None,
            "resting": _turn_out(self.resting) if self.resting else None,
            "queue": [_turn_out(turn) for turn in self.queue],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """The state that `snapshot` gave; an empty mapping is a new session."""
        for name in _PLAIN:
            if name in state:
                setattr(self, name, state[name])
        usage = msgspec.convert(state.get("usage") or {}, Usage)
        self.usage = UNKNOWN_USAGE if usage == UNKNOWN_USAGE else usage
        if "tokens" not in state:  # of a version that knew no budgets
            self.tokens, self.turns_begun = self.usage.total_tokens or 0, sum(self.outcomes.values())
        self.current = _turn_in(state["current"]) if state.get("current") else None
        self.resting = _turn_in(state["resting"]) if state.get("resting") else None
        self.queue = [_turn_in(turn) for turn in state.get("queue", [])]


ANSWERS = frozenset({"message_start", "content_delta", "message", "tool_use", "turn_completed"})
"""What shows that the CLI took the prompt and the model has begun to answer."""

_SESSION_MEMOS = ("cost_total_usd", "usage_total", "native_lost", "transcript", "budget")
_TURN_MEMOS = ("live", "background", "ending", "transcript_at")

_PLAIN = (
    "turns", "runs", "completed", "outcomes", "native_session_id", "native_lost", "model", "cost_usd", "cost_total_usd",
    "usage_total", "transcript", "settings", "steers", "cost_source", "turns_begun", "tokens", "wall_s", "unpriced", "budget",
    "keys", "ends", "accepted", "uncertain", "resolved", "watchdog_fired", "last_error", "last_turn", "closed",
    "last_event",
)  # fmt: skip


def _remember_run(turn: Turn, memo: dict[str, Any]) -> None:
    if "run" in memo:
        turn.run = memo["run"]
        turn.process_started = turn.process_exited = False
        turn.pid = None
        turn.position.clear()
        turn.says = []
    if "begin" in memo:
        turn.begin = memo["begin"]
        turn.position.clear()
    if "pid" in memo:  # a turn that the CLI began by itself goes on in the process of the one before it
        turn.pid, turn.process_started = memo["pid"], True
    for name in _TURN_MEMOS:
        if name in memo:
            setattr(turn, name, memo[name])
    if "heard" in memo:
        turn.says = [said for said in turn.says if said[0] > memo["heard"]]
    if "say" in memo:
        turn.says.append(memo["say"])


_STRUCTS = ("position", "spending")


def _turn_out(turn: Turn) -> dict[str, Any]:
    fields = {name: getattr(turn, name) for name in Turn.__struct_fields__ if name not in _STRUCTS}
    return {
        **fields,
        "spending": asdict(turn.spending),
        "position": {k: [p.start, p.end, p.k] for k, p in turn.position.items()},
    }


def _turn_in(state: dict[str, Any]) -> Turn:
    position = {k: Position(*v) for k, v in state.get("position", {}).items()}
    plain = {k: v for k, v in state.items() if k in Turn.__struct_fields__ and k not in _STRUCTS}
    return Turn(**plain, position=position, spending=Spending(**state.get("spending", {})))


def _prompt_accepted(ledger: Ledger, event: dict[str, Any]) -> None:
    turn_id = event["turn_id"]
    if event["delivery"] == "steered":
        _steered(ledger, turn_id, event)
        return
    ledger.turns = max(ledger.turns, int(turn_id[1:]))
    ledger.queue.append(Turn(turn_id, key=event.get("key"), accepted_seq=event["seq"]))
    if (steer := ledger.steers.get(event.get("prompt_id") or "")) is not None:  # it was said, and not begun
        steer["turn"] = turn_id
    if event.get("key"):
        ledger.keys[event["key"]] = turn_id
        ledger.accepted[turn_id] = event["seq"]


def _steered(ledger: Ledger, turn_id: str, event: dict[str, Any]) -> None:
    ledger.steers[event["prompt_id"]] = {"turn": turn_id, "key": event.get("key"), "seq": event["seq"]}
    if event.get("key"):
        ledger.keys[event["key"]] = turn_id
        ledger.accepted.setdefault(turn_id, event["seq"])
    over = [prompt_id for prompt_id, steer in ledger.steers.items() if steer.get("over")]
    for prompt_id in over[:-KEPT_RESULTS]:
        del ledger.steers[prompt_id]


def _move_steers(ledger: Ledger, turn_id: str, event: dict[str, Any]) -> None:
    """A prompt that could not be merged into the turn it was meant for begins one of its own."""
    for prompt_id in event.get("prompt_ids") or ():
        if (steer := ledger.steers.get(prompt_id)) is not None:
            steer["turn"] = turn_id
            if steer.get("key"):
                ledger.keys[steer["key"]] = turn_id
                ledger.accepted.setdefault(turn_id, steer["seq"])


def _turn_started(ledger: Ledger, event: dict[str, Any]) -> None:
    queued = next((turn for turn in ledger.queue if turn.id == event["turn_id"]), None)
    turn = queued or Turn(event["turn_id"], key=event.get("key"), origin=event.get("origin", "prompt"))
    ledger.queue = [other for other in ledger.queue if other is not turn]
    ledger.turns = max(ledger.turns, int(turn.id[1:]))
    _move_steers(ledger, turn.id, event)
    turn.started, turn.began, turn.began_seq = True, event["ts"], event["seq"]
    ledger.turns_begun += 1
    turn.run = event["run"]
    ledger.runs = max(ledger.runs, turn.run)
    if ledger.resting is not None and ledger.resting.run == turn.run:
        _hand_over(ledger.resting, turn)
    ledger.current, ledger.resting = turn, None


def _hand_over(process: Turn, to: Turn) -> None:
    """The same process goes on."""
    to.live, to.pid, to.process_started = process.live, process.pid, process.process_started
    to.run, to.says, to.begin, to.background = process.run, process.says, process.begin, process.background
    to.approvals = process.approvals


def _process_started(ledger: Ledger, event: dict[str, Any]) -> None:
    if ledger.held:
        ledger.held.process_started = True
        ledger.held.pid = event["pid"]


def _process_exited(ledger: Ledger, event: dict[str, Any]) -> None:
    ledger.resting = None
    if ledger.current:
        ledger.current.process_exited = True


def _session_init(ledger: Ledger, event: dict[str, Any]) -> None:
    ledger.native_session_id = event.get("native_session_id") or ledger.native_session_id
    ledger.model = event.get("model") or ledger.model
    ledger.native_lost = False


def _stderr(ledger: Ledger, event: dict[str, Any]) -> None:
    if ledger.held:
        ledger.held.stderr_events += 1


def _watchdog(ledger: Ledger, event: dict[str, Any]) -> None:
    ledger.watchdog_fired += event["action"] == "fired"


def _approval_requested(ledger: Ledger, event: dict[str, Any]) -> None:
    if ledger.held:
        entry = {"seq": event["seq"], "tool_name": event["tool_name"], "at": event["ts"]}
        ledger.held.approvals[event["approval_id"]] = entry


def _approval_resolved(ledger: Ledger, event: dict[str, Any]) -> None:
    approval_id, turn = event["approval_id"], ledger.held
    if turn is None or turn.approvals.pop(approval_id, None) is None:
        return
    if event["decision"] == "deny" and event.get("tool_name") and event["tool_name"] not in turn.denied:
        turn.denied.append(event["tool_name"])
    ledger.resolved[approval_id] = {
        "decision": event["decision"],
        "by": event.get("by", "backend"),
        "seq": event["seq"],
    }
    for old in list(ledger.resolved)[:-KEPT_ANSWERS]:
        del ledger.resolved[old]


def _turn_completed(ledger: Ledger, event: dict[str, Any]) -> None:
    turn_id, outcome = event["turn_id"], event["outcome"]
    usage = msgspec.convert(event.get("usage") or {}, Usage)
    if ledger.current and ledger.current.id == turn_id:
        over, ledger.current = ledger.current, None
        ledger.wall_s += lasted(over.began, event["ts"], over.paused_s)
        if over.live and over.process_started and not over.process_exited:
            ledger.resting = Turn("")
            _hand_over(over, ledger.resting)
    ledger.queue = [turn for turn in ledger.queue if turn.id != turn_id]
    ledger.outcomes[outcome] = ledger.outcomes.get(outcome, 0) + 1
    ledger.completed += outcome == "completed"
    ledger.last_error = kind = (event.get("error") or {}).get("kind")
    ledger.last_turn = {"turn_id": turn_id, "outcome": outcome, "error_kind": kind, "ended_at": event["ts"]}
    ledger.usage = ledger.usage + usage
    ledger.tokens += usage.total_tokens or 0
    _add_cost(ledger, event, usage)
    ledger.ends[turn_id] = event["seq"]
    ledger.end_steers(event.get("prompt_ids") or ())
    keyed = set(ledger.keys.values())
    if event.get("delivery") == "uncertain" and turn_id in keyed:
        ledger.uncertain[turn_id] = event.get("evidence") or {}
    loose = [turn for turn in ledger.ends if turn not in keyed]
    for old in loose[:-KEPT_RESULTS]:
        del ledger.ends[old]


def _add_cost(ledger: Ledger, event: dict[str, Any], usage: Usage) -> None:
    if event.get("cost_usd") is None:
        ledger.unpriced += bool(usage.total_tokens)
        return
    ledger.cost_usd = whole_usd((ledger.cost_usd or 0.0) + event["cost_usd"])
    if ledger.cost_source != "estimated":  # a sum is as sure as its less sure part
        ledger.cost_source = event.get("cost_source", "reported")


def _notice(ledger: Ledger, event: dict[str, Any]) -> None:
    if event["code"] == "closed":
        ledger.closed = True
    elif event["code"] == "resumed" and ledger.current is not None:
        ledger.current.paused_s += float((event.get("data") or {}).get("pause_s") or 0)


_HANDLERS: dict[str, Callable[[Ledger, dict[str, Any]], None]] = {
    "prompt_accepted": _prompt_accepted,
    "turn_started": _turn_started,
    "process_started": _process_started,
    "process_exited": _process_exited,
    "session_init": _session_init,
    "stderr": _stderr,
    "watchdog": _watchdog,
    "approval_requested": _approval_requested,
    "approval_resolved": _approval_resolved,
    "turn_completed": _turn_completed,
    "notice": _notice,
}

FOLDED = frozenset(_HANDLERS)
"""The event types whose fields the ledger reads; of all others it only keeps the place."""
