"""Ledger of a session: the journal, folded to the queue, the running turn, keys and totals.

The daemon has no other state of turns. The daemon changes the ledger only by journaling an event. After a `kill -9` the
next daemon folds the same lines to the same ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Literal, cast

import msgspec
from msgspec import Struct, field

from clisup.model.journal import Record, Source
from clisup.model.prompts.kept import title_of
from clisup.model.sessions.turn_state import (
    ApprovalEntry,
    EndedTurn,
    NewestEvent,
    Resolution,
    SentMessage,
    SpoolPlace,
    Steer,
    TurnEnding,
    TurnState,
)
from clisup.model.structs import JsonObject
from clisup.model.usage import UNKNOWN_USAGE, Spending, Usage, whole_usd

DEFAULT_KEYS = 1000
KEPT_ANSWERS = 100  # kept resolved approvals
KEPT_RESULTS = 100  # kept ended turns without a key


class Position(Struct, array_like=True):
    """Position of the last journaled event in a spool: `end` of the last line, ordinal `k` of the line's last event."""

    start: int = 0
    end: int = 0
    k: int = -1


class TurnRecord(Struct):
    """Queued or running turn. `begin` is the beginning of the turn's part of the spools.

    Between two turns, a live process has a turn without an id. `spending` is the usage reported before the turn's end,
    see `Ledger.spend`.
    """

    id: str
    key: str | None = None
    origin: str = "prompt"
    run: int = 0
    started: bool = False
    process_started: bool = False
    process_exited: bool = False
    live: bool = False
    transcript_at: int | None = None  # size of the CLI's transcript at the turn's start, if the run is older
    stderr_events: int = 0
    answered: bool = False
    began: str | None = None
    began_seq: int = 0
    paused_s: float = 0.0
    spending: Spending = field(default_factory=Spending)
    pid: int | None = None
    ending: TurnEnding | None = None
    background: dict[str, str | None] | list[str] = field(default_factory=dict)
    approvals: dict[str, ApprovalEntry] = field(default_factory=dict)
    denied: list[str] = field(default_factory=list)  # names of denied tools
    says: list[SentMessage] = field(default_factory=list)  # sent to the CLI's stdin, and not acknowledged yet
    begin: SpoolPlace = field(default_factory=lambda: SpoolPlace(out=0, err=0))
    position: dict[str, Position] = field(default_factory=dict)

    def has_journaled(self, spool: Literal["out", "err"], end: int, k: int = 0) -> bool:
        """Tell whether the journal has the `k`-th event of the line with this `end`, in this turn or an earlier one."""
        if end <= self.begin[spool]:
            return True
        at = self.position.get(spool)
        return at is not None and (end < at.end or (end == at.end and k <= at.k))

    def journaled_to(self, spool: Literal["out", "err"]) -> int:
        """Return the place up to which the journal has the lines of this spool."""
        at = self.position.get(spool)
        return self.begin[spool] if at is None else max(self.begin[spool], at.end)


class Ledger(Struct):
    """Folded state of a session.

    `queue[0]` is the next turn, `current` the running turn, and `resting` a live process between two turns. `settings`,
    `budget` and `title` are changes since the opening of the session. `closed_by` is "client" or "idle". `steers` are the
    steered prompts by id. `turns_begun`, `tokens` and `wall_s` count towards a budget, and `unpriced` counts the turns of
    unknown cost. `opened` is what the session was opened with, and `prompts` are the digests of stored prompts by name:
    the daemon believes no other file of the session.
    """

    opened: JsonObject | None = None
    prompts: dict[str, str] = field(default_factory=dict)

    current: TurnRecord | None = None
    resting: TurnRecord | None = None
    queue: list[TurnRecord] = field(default_factory=list)
    turns: int = 0
    runs: int = 0
    completed: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    native_session_id: str | None = None
    agent: str | None = None
    native_lost: bool = False
    model: str | None = None
    usage: Usage = UNKNOWN_USAGE
    cost_usd: float | None = None
    cost_source: str = "unknown"
    turns_begun: int = 0
    tokens: int = 0
    wall_s: float = 0.0
    unpriced: int = 0
    budget: JsonObject | None = None
    cost_total_usd: float | None = None
    usage_total: JsonObject | None = None
    transcript: JsonObject | None = None  # the CLI's transcript at the end of the last run
    settings: dict[str, str] = field(default_factory=dict)
    steers: dict[str, Steer] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    accepted: dict[str, int] = field(default_factory=dict)
    uncertain: dict[str, JsonObject] = field(default_factory=dict)
    resolved: dict[str, Resolution] = field(default_factory=dict)
    watchdog_fired: int = 0
    last_error: str | None = None
    last_turn: EndedTurn | None = None
    closed: bool = False
    closed_by: str | None = None
    title: str | None = None
    cli_title: str | None = None
    first_words: str | None = None
    last_event: NewestEvent | None = None

    def apply(self, record: Record, *, max_keys: int = DEFAULT_KEYS) -> None:
        """Fold one journal record."""
        if record.snapshot is not None:
            self.restore(record.snapshot)
            return
        event = record.event or {}
        self.fold(event["type"], event, src=record.src, memo=cast("TurnState | None", record.memo), max_keys=max_keys)

    def fold(
        self,
        type_: str,
        fields: JsonObject,
        *,
        src: Source | None,
        memo: TurnState | None,
        max_keys: int = DEFAULT_KEYS,
    ) -> None:
        """Fold one event. `fields` needs only `seq` and `ts`, except for the types of `FOLDED`."""
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

    def spend(self, event: JsonObject) -> None:
        """Fold an event of `SPENDING` of the running turn. `fold` ignores such events: only the end of a turn counts."""
        if self.active_turn is not None:
            self.active_turn.spending.add(event, self.model)

    def pass_over(self, src: Source, *, answers: bool) -> None:
        """Note that all events up to `src` are journaled. `answers`: some of the events show an answer of the model."""
        turn = self.current or self.resting
        if turn is not None and turn.run == src.run:
            turn.position[src.spool] = Position(src.start, src.end, src.k)
            turn.answered = turn.answered or answers

    def _forget_oldest_key(self) -> None:
        turn = self.keys.pop(next(iter(self.keys)))
        if turn in self.keys.values():  # by the key of a steered prompt
            return
        self.uncertain.pop(turn, None)
        self.ends.pop(turn, None)
        self.accepted.pop(turn, None)

    @property
    def open_steers(self) -> list[str]:
        """Return the ids of steered prompts that no turn is known to have taken."""
        return [prompt_id for prompt_id, steer in self.steers.items() if not steer.get("over")]

    @property
    def late_prompts(self) -> int:
        """Return the number of queued turns with a steered prompt that no turn took. They come first in the queue."""
        own = {steer["turn"] for steer in self.steers.values()}
        return sum(turn.id in own for turn in self.queue)

    def end_steers(self, prompt_ids: Iterable[str]) -> None:
        """Close these steers: a turn has taken the prompts, or the prompts were dropped."""
        for prompt_id in prompt_ids:
            self.prompts.pop(prompt_id, None)
            if prompt_id in self.steers:
                self.steers[prompt_id]["over"] = True

    @property
    def active_turn(self) -> TurnRecord | None:
        """Return the turn with the process: the running turn, or the turn without an id of a resting live process."""
        return self.current or self.resting

    def turn(self, turn_id: str) -> TurnRecord | None:
        """Return the running or queued turn of this id."""
        candidates = [*([self.current] if self.current else []), *self.queue]
        return next((turn for turn in candidates if turn.id == turn_id), None)

    def _remember(self, memo: TurnState) -> None:
        self.cost_total_usd = memo.get("cost_total_usd", self.cost_total_usd)
        self.usage_total = memo.get("usage_total", self.usage_total)
        self.native_lost = memo.get("native_lost", self.native_lost)
        self.transcript = memo.get("transcript", self.transcript)
        self.budget = memo.get("budget", self.budget)
        self.title = memo.get("title", self.title)
        self.first_words = memo.get("first_words", self.first_words)
        self.end_steers(memo.get("dropped", ()))
        self.opened = memo.get("opened", self.opened)
        if "prompt" in memo:
            name, digest = memo["prompt"]
            self.prompts[name] = digest
        self.tokens += memo.get("more_tokens", 0)
        if "settings" in memo:
            self.settings = self.settings | memo["settings"]
        if self.active_turn is not None:
            _remember_run(self.active_turn, memo)
            self.runs = max(self.runs, self.active_turn.run)

    def forget_turns(self) -> None:
        """Forget keys and ended turns: a closed session accepts no prompt. With 100 turns they take 15 KB of memory."""
        for kept in (self.keys, self.ends, self.accepted, self.uncertain, self.steers, self.prompts):
            kept.clear()

    def title_of(self, opened: str | None) -> str | None:
        """Return the title: of a client, else of the opening, else of the CLI, else the words of the first prompt."""
        return self.title or opened or self.cli_title or self.first_words

    def snapshot(self) -> JsonObject:
        """Return the whole state as JSON values, for the head of a new segment."""
        state: JsonObject = msgspec.to_builtins(self)
        return state

    def restore(self, state: JsonObject) -> None:
        """Restore the state from `snapshot`. An empty mapping is a new session."""
        for name in _PLAIN:
            if name in state:
                setattr(self, name, state[name])
        usage = msgspec.convert(state.get("usage") or {}, Usage)
        self.usage = UNKNOWN_USAGE if usage == UNKNOWN_USAGE else usage
        if "tokens" not in state:  # of a release without budgets
            self.tokens, self.turns_begun = self.usage.total_tokens or 0, sum(self.outcomes.values())
        self.current = _turn_in(state["current"]) if state.get("current") else None
        self.resting = _turn_in(state["resting"]) if state.get("resting") else None
        self.queue = [_turn_in(turn) for turn in state.get("queue", [])]


ANSWERS = frozenset({"message_start", "content_delta", "message", "tool_use", "turn_completed"})
"""Types of events that prove two facts: the CLI took the prompt, and the model has begun to answer."""

_PLAIN = tuple(name for name in Ledger.__struct_fields__ if name not in ("current", "resting", "queue", "usage"))


def _remember_run(turn: TurnRecord, memo: TurnState) -> None:
    if "run" in memo:
        turn.run = memo["run"]
        turn.process_started = turn.process_exited = False
        turn.pid = None
        turn.position.clear()
        turn.says = []
    if "begin" in memo:
        turn.begin = memo["begin"]
        turn.position.clear()
    if "pid" in memo:  # the CLI began this turn, in the process of the turn before
        turn.pid, turn.process_started = memo["pid"], True
    turn.live = memo.get("live", turn.live)
    turn.background = memo.get("background", turn.background)
    turn.ending = memo.get("ending", turn.ending)
    turn.transcript_at = memo.get("transcript_at", turn.transcript_at)
    if "heard" in memo:
        turn.says = [sent for sent in turn.says if sent.id > memo["heard"]]
    if "say" in memo:
        turn.says.append(SentMessage(*memo["say"]))


_STRUCTS = ("position", "spending", "says")


def _turn_in(state: JsonObject) -> TurnRecord:
    position = {k: Position(*v) for k, v in state.get("position", {}).items()}
    plain = {k: v for k, v in state.items() if k in TurnRecord.__struct_fields__ and k not in _STRUCTS}
    says = [SentMessage(*sent) for sent in state.get("says", ())]
    return TurnRecord(**plain, position=position, says=says, spending=Spending(**state.get("spending", {})))


def _prompt_accepted(ledger: Ledger, event: JsonObject) -> None:
    turn_id = event["turn_id"]
    if event["delivery"] == "steered":
        _steered(ledger, turn_id, event)
        return
    ledger.turns = max(ledger.turns, int(turn_id[1:]))
    turn = TurnRecord(turn_id, key=event.get("key"))
    if (steer := ledger.steers.get(event.get("prompt_id") or "")) is not None:  # sent, but begun by no turn
        ledger.queue.insert(ledger.late_prompts, turn)
        steer["turn"] = turn_id
    else:
        ledger.queue.append(turn)
    if event.get("key"):
        ledger.keys[event["key"]] = turn_id
        ledger.accepted[turn_id] = event["seq"]


def _steered(ledger: Ledger, turn_id: str, event: JsonObject) -> None:
    ledger.steers[event["prompt_id"]] = {"turn": turn_id, "key": event.get("key"), "seq": event["seq"]}
    if event.get("key"):
        ledger.keys[event["key"]] = turn_id
        ledger.accepted.setdefault(turn_id, event["seq"])
    over = [prompt_id for prompt_id, steer in ledger.steers.items() if steer.get("over")]
    for prompt_id in over[:-KEPT_RESULTS]:
        del ledger.steers[prompt_id]


def _move_steers(ledger: Ledger, turn_id: str, event: JsonObject) -> None:
    """Move a steered prompt to the turn that begins with it: the CLI could not merge the prompt into the steered turn."""
    for prompt_id in event.get("prompt_ids") or ():
        if (steer := ledger.steers.get(prompt_id)) is not None:
            steer["turn"] = turn_id
            if key := steer.get("key"):
                ledger.keys[key] = turn_id
                ledger.accepted.setdefault(turn_id, steer["seq"])


def _turn_started(ledger: Ledger, event: JsonObject) -> None:
    queued = next((turn for turn in ledger.queue if turn.id == event["turn_id"]), None)
    turn = queued or TurnRecord(event["turn_id"], key=event.get("key"), origin=event.get("origin", "prompt"))
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


def _hand_over(process: TurnRecord, to: TurnRecord) -> None:
    to.live, to.pid, to.process_started = process.live, process.pid, process.process_started
    to.run, to.says, to.begin, to.background = process.run, process.says, process.begin, process.background
    to.approvals = process.approvals


def _process_started(ledger: Ledger, event: JsonObject) -> None:
    if ledger.active_turn:
        ledger.active_turn.process_started = True
        ledger.active_turn.pid = event["pid"]


def _process_exited(ledger: Ledger, event: JsonObject) -> None:
    ledger.resting = None
    if ledger.current:
        ledger.current.process_exited = True


def _session_init(ledger: Ledger, event: JsonObject) -> None:
    ledger.native_session_id = event.get("native_session_id") or ledger.native_session_id
    ledger.agent = event.get("agent") or ledger.agent
    ledger.model = event.get("model") or ledger.model
    ledger.native_lost = False


def _stderr(ledger: Ledger, event: JsonObject) -> None:
    if ledger.active_turn:
        ledger.active_turn.stderr_events += 1


def _watchdog(ledger: Ledger, event: JsonObject) -> None:
    ledger.watchdog_fired += event["action"] == "fired"


def _approval_requested(ledger: Ledger, event: JsonObject) -> None:
    if ledger.active_turn:
        entry = ApprovalEntry(seq=event["seq"], tool_name=event["tool_name"], at=event["ts"])
        ledger.active_turn.approvals[event["approval_id"]] = entry


def _approval_resolved(ledger: Ledger, event: JsonObject) -> None:
    approval_id, turn = event["approval_id"], ledger.active_turn
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


def _turn_completed(ledger: Ledger, event: JsonObject) -> None:
    turn_id, outcome = event["turn_id"], event["outcome"]
    ledger.prompts.pop(turn_id, None)
    usage = msgspec.convert(event.get("usage") or {}, Usage)
    if ledger.current and ledger.current.id == turn_id:
        over, ledger.current = ledger.current, None
        ledger.wall_s += turn_duration(over.began, event["ts"], over.paused_s)
        if over.live and over.process_started and not over.process_exited:
            ledger.resting = TurnRecord("")
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


def turn_duration(began: str | None, ended: str, paused_s: float) -> float:
    """Return the seconds between two times of the journal, without the suspends of the machine. At least 0."""
    try:
        gone = (datetime.fromisoformat(ended) - datetime.fromisoformat(began or ended)).total_seconds()
    except (TypeError, ValueError):  # in an edited journal
        return 0.0
    return max(0.0, gone - paused_s)


def _add_cost(ledger: Ledger, event: JsonObject, usage: Usage) -> None:
    if event.get("cost_usd") is None:
        ledger.unpriced += bool(usage.total_tokens)
        return
    ledger.cost_usd = whole_usd((ledger.cost_usd or 0.0) + event["cost_usd"])
    if ledger.cost_source != "estimated":  # an estimated part makes the sum an estimate
        ledger.cost_source = event.get("cost_source", "reported")


def _status(ledger: Ledger, event: JsonObject) -> None:
    if event["status"] == "title":
        ledger.cli_title = title_of(event.get("detail") or "") or ledger.cli_title


def _notice(ledger: Ledger, event: JsonObject) -> None:
    if event["code"] == "closed":
        ledger.closed, ledger.closed_by = True, (event.get("data") or {}).get("by", "client")
    elif event["code"] == "resumed" and ledger.current is not None:
        ledger.current.paused_s += float((event.get("data") or {}).get("pause_s") or 0)


_HANDLERS: dict[str, Callable[[Ledger, JsonObject], None]] = {
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
    "status": _status,
    "notice": _notice,
}

FOLDED = frozenset(_HANDLERS)
"""Types of events whose fields the ledger reads. Of all other events, the ledger keeps only the place."""
