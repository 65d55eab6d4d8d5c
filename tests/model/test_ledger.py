"""The folded state of a journal: the same lines give the same state, however often it was stored and taken up again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clisup.model.envelope import FRAME_BEGIN, FRAME_END
from clisup.model.journal import Record, Source, blocks_of, encode_block, encode_snapshot, read_entries
from clisup.model.sessions.ledger import FOLDED, KEPT_ANSWERS, KEPT_RESULTS, Ledger, Position


class Journal:
    """Writes legal sequences of records: what a daemon may journal, in the order in which it may."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.turns = 0
        self.runs = 0
        self.end = 0
        self.queue: list[str] = []
        self.current: str | None = None

    def add(self, type_: str, *, src: Source | None = None, memo: dict[str, Any] | None = None, **fields: Any) -> None:
        seq = len(self.records) + 1
        event = {"session_id": "s", "seq": seq, "ts": f"ts{seq}", "turn_id": self.current, "type": type_, **fields}
        self.records.append(Record(event=event, src=src, memo=memo))

    def accept(self, key: str | None = None) -> str:
        self.turns += 1
        turn = f"t{self.turns}"
        self.queue.append(turn)
        self.add("prompt_accepted", turn_id=turn, delivery="queued", **({"key": key} if key else {}))
        return turn

    def start(self) -> None:
        if self.current or not self.queue:
            return
        self.current = self.queue.pop(0)
        self.runs += 1
        self.add("turn_started", run=self.runs, memo={"begin": {"out": 0, "err": 0}})
        self.add("process_started", pid=self.runs + 100)

    def speak(self, type_: str = "content_delta", **fields: Any) -> None:
        if self.current:
            src = Source(self.runs, "err" if type_ == "stderr" else "out", self.end, self.end + 10, 0)
            self.end += 10
            self.add(type_, src=src, **fields)

    def finish(self, outcome: str = "completed", **fields: Any) -> None:
        if self.current:
            self.add("process_exited", exit_code=0)
            memo = {"cost_total_usd": 1.5} if outcome == "completed" else {"native_lost": True}
            self.add("turn_completed", outcome=outcome, memo=memo, **fields)
            self.current = None

    def drop(self) -> None:
        """A queued turn that is taken back."""
        if self.queue:
            turn = self.queue.pop()
            self.add("turn_completed", turn_id=turn, outcome="interrupted", error={"kind": "cancelled", "message": "m"})


def folded(records: list[Record], **options: int) -> Ledger:
    ledger = Ledger()
    for record in records:
        ledger.apply(record, **options)
    return ledger


def stored(ledger: Ledger) -> dict[str, Any]:
    """As the head of a segment holds it."""
    return dict(json.loads(json.dumps(ledger.snapshot())))


USAGE = {"input_tokens": 3, "output_tokens": 4, "source": "reported"}
steps = st.lists(
    st.sampled_from(
        ["accept", "accept_key", "start", "speak", "init", "stderr", "watchdog", "finish", "fail", "drop", "run", "end"]
        + ["resumed", "budget"]
    ),
    max_size=60,
)


def written(script: list[str]) -> Journal:
    journal = Journal()
    actions: dict[str, Any] = {
        "accept": journal.accept,
        "accept_key": lambda: journal.accept(f"key-{len(journal.records)}"),
        "start": journal.start,
        "speak": journal.speak,
        "init": lambda: journal.speak("session_init", native_session_id="n", model="m"),
        "stderr": lambda: journal.speak("stderr", text="oops"),
        "resumed": lambda: journal.add("notice", code="resumed", message="m", data={"pause_s": 1.5}),
        "budget": lambda: journal.add("notice", code="budget_set", message="m", memo={"budget": {"turns": 5}}),
        "watchdog": lambda: journal.add("watchdog", action="fired", phase="model"),
        "finish": lambda: journal.finish(usage=USAGE, cost_usd=0.5),
        "fail": lambda: journal.finish("failed", error={"kind": "crashed", "message": "m"}),
        "drop": journal.drop,
        "run": lambda: journal.add("notice", code="run_replaced", message="m", memo={"run": journal.runs}),
        "end": lambda: journal.add("notice", code="x", message="m", memo={"ending": {"reason": "client"}}),
    }
    for step in script:
        actions[step]()
    return journal


@settings(max_examples=100)
@given(steps, st.integers(0, 200), st.integers(1, 4))
def test_a_snapshot_at_any_place_and_the_rest_give_the_same_as_everything(
    script: list[str], at: int, max_keys: int
) -> None:
    records = written(script).records
    state = stored(folded(records[:at], max_keys=max_keys))
    taken_up = folded([Record(event=None, snapshot=state), *records[at:]], max_keys=max_keys)
    assert taken_up == folded(records, max_keys=max_keys)
    assert stored(taken_up) == stored(folded(records, max_keys=max_keys))


@settings(max_examples=50)
@given(steps)
def test_the_totals_are_those_of_the_journal(script: list[str]) -> None:
    journal = written(script)
    ledger = folded(journal.records)
    ends = [record.event for record in journal.records if record.event and record.event["type"] == "turn_completed"]
    assert sum(ledger.outcomes.values()) == len(ends)
    assert ledger.completed == sum(end["outcome"] == "completed" for end in ends)
    assert ledger.usage.input_tokens == (3 * ledger.completed or None)
    assert ledger.cost_usd == (0.5 * ledger.completed or None)
    assert [turn.id for turn in ledger.queue] == journal.queue
    assert (ledger.current.id if ledger.current else None) == journal.current
    assert (ledger.turns, ledger.runs) == (journal.turns, journal.runs)


def test_a_sum_of_costs_has_no_digits_of_floats() -> None:
    journal = Journal()
    for _ in range(3):
        journal.accept()
        journal.start()
        journal.finish(usage=USAGE, cost_usd=0.1)
    assert folded(journal.records).cost_usd == 0.3


def test_taking_a_snapshot_up_leaves_the_snapshot_as_it_was() -> None:
    journal = written(["accept", "start", "speak"])
    state = stored(folded(journal.records))
    before = json.dumps(state)
    first, second = Ledger(), Ledger()
    first.restore(state)
    second.restore(state)
    assert json.dumps(state) == before
    assert first == second


def test_an_empty_snapshot_is_a_new_session() -> None:
    ledger = Ledger()
    ledger.restore({})
    assert ledger == Ledger()


@pytest.mark.parametrize("max_keys", [1, 3])
def test_the_newest_keys_are_remembered_and_no_more(max_keys: int) -> None:
    journal = Journal()
    for number in range(10):
        journal.accept(f"k{number}")
        journal.start()
        journal.finish()
    ledger = folded(journal.records, max_keys=max_keys)
    assert list(ledger.keys) == [f"k{number}" for number in range(10)][-max_keys:]
    assert set(ledger.ends) == set(ledger.accepted) == set(ledger.keys.values())


def test_turns_without_a_key_are_found_by_id_for_a_while() -> None:
    journal = Journal()
    for _ in range(KEPT_RESULTS + 20):
        journal.accept()
        journal.start()
        journal.finish()
    ledger = folded(journal.records)
    assert len(ledger.ends) == KEPT_RESULTS
    assert f"t{KEPT_RESULTS + 20}" in ledger.ends
    assert ledger.accepted == {}


def test_a_position_is_kept_for_each_spool_of_the_running_turn_and_goes_with_a_new_run() -> None:
    journal = written(["accept", "start", "speak", "stderr", "speak"])
    turn = folded(journal.records).current
    assert turn is not None
    assert turn.position == {"out": Position(20, 30, 0), "err": Position(10, 20, 0)}
    journal.add("notice", code="run_replaced", message="m", memo={"run": 2, "begin": {"out": 5, "err": 6}})
    turn = folded(journal.records).current
    assert turn is not None
    assert (turn.run, turn.position, turn.begin, turn.pid) == (2, {}, {"out": 5, "err": 6}, None)
    assert not turn.process_started


def test_an_event_of_another_run_moves_no_position() -> None:
    journal = written(["accept", "start"])
    journal.add("content_delta", src=Source(9, "out", 0, 50, 0))
    turn = folded(journal.records).current
    assert turn is not None
    assert turn.position == {}


@pytest.mark.fault(66)
def test_a_turn_that_the_cli_began_itself_is_counted_as_a_turn_of_its_own() -> None:
    journal = written(["accept", "start", "finish"])
    journal.current = "t2"
    journal.add("turn_started", run=1, origin="backend")
    ledger = folded(journal.records)
    assert ledger.current is not None
    assert (ledger.current.id, ledger.current.origin, ledger.turns, ledger.runs) == ("t2", "backend", 2, 1)


def test_a_queued_or_running_turn_is_found_by_its_id() -> None:
    ledger = folded(written(["accept", "start", "accept"]).records)
    assert [turn.id for name in ("t1", "t2", "t3") if (turn := ledger.turn(name))] == ["t1", "t2"]


def test_closing_is_for_good_and_other_notices_close_nothing() -> None:
    journal = Journal()
    journal.add("notice", code="adopted", message="m")
    assert not folded(journal.records).closed
    journal.add("notice", code="closed", message="m")
    assert folded(journal.records).closed


def test_the_last_error_is_that_of_the_last_turn() -> None:
    journal = written(["accept", "start", "fail"])
    assert folded(journal.records).last_error == "crashed"
    failed = {"turn_id": "t1", "outcome": "failed", "error_kind": "crashed", "ended_at": "ts5"}
    assert folded(journal.records).last_turn == failed
    for step in (journal.accept, journal.start, journal.finish):
        step()
    ledger = folded(journal.records)
    assert ledger.last_error is None
    assert ledger.last_turn == {"turn_id": "t2", "outcome": "completed", "error_kind": None, "ended_at": "ts10"}
    again = Ledger()
    again.restore(ledger.snapshot())
    assert again.last_turn == ledger.last_turn


def test_a_native_session_that_was_lost_is_found_again_by_the_next_init() -> None:
    journal = written(["accept", "start", "fail", "accept", "start"])
    assert folded(journal.records).native_lost
    journal.speak("session_init", native_session_id="other")
    ledger = folded(journal.records)
    assert (ledger.native_lost, ledger.native_session_id) == (False, "other")


def test_of_every_other_event_only_its_place_is_kept() -> None:
    assert "content_delta" not in FOLDED
    journal = written(["accept", "start", "speak"])
    assert folded(journal.records).last_event == {"seq": 4, "type": "content_delta", "ts": "ts4"}


def asking(*ids: str) -> tuple[Journal, Ledger]:
    """A journal whose running turn has asked for these approvals, and its ledger."""
    journal = Journal()
    journal.accept()
    journal.start()
    for name in ids:
        journal.speak("approval_requested", approval_id=name, tool_name=f"tool {name}")
    return journal, folded(journal.records)


def test_an_approval_is_open_until_it_is_resolved_and_known_after_that() -> None:
    journal, ledger = asking("1:a", "1:b")
    assert ledger.current is not None
    assert ledger.current.approvals["1:a"] == {"seq": 4, "tool_name": "tool 1:a", "at": "ts4"}
    journal.add("approval_resolved", approval_id="1:a", tool_name="tool 1:a", decision="deny", by="rule")
    ledger = folded(journal.records)
    assert ledger.current is not None and list(ledger.current.approvals) == ["1:b"]
    assert ledger.resolved == {"1:a": {"decision": "deny", "by": "rule", "seq": 6}}
    assert ledger.current.denied == ["tool 1:a"]
    again = Ledger()
    again.restore(json.loads(json.dumps(ledger.snapshot())))
    assert again == ledger


def test_the_first_word_on_an_approval_stays_and_one_on_nothing_is_none() -> None:
    journal, _ = asking("1:a")
    for decision in ("allow", "deny"):
        journal.add("approval_resolved", approval_id="1:a", tool_name="t", decision=decision, by="client")
    journal.add("approval_resolved", approval_id="1:z", decision="cancelled")
    ledger = folded(journal.records)
    assert ledger.resolved == {"1:a": {"decision": "allow", "by": "client", "seq": 5}}
    assert ledger.current is not None and ledger.current.denied == []


def test_only_so_many_resolved_approvals_are_remembered() -> None:
    names = [f"1:{number}" for number in range(KEPT_ANSWERS + 20)]
    journal, _ = asking(*names)
    for name in names:
        journal.add("approval_resolved", approval_id=name, tool_name="t", decision="allow", by="client")
    assert list(folded(journal.records).resolved) == names[20:]


TURN = {
    "turn_started": {"run": 1},
    "process_started": {"pid": 7},
    "session_init": {},
    "stderr": {},
    "process_exited": {},
}
SAID = ("message_start", "content_delta", "message", "tool_use", "tool_result", "message_stop", "unparsed")


def frame(seq: int, kind: str) -> bytes:
    fields = "".join(f',"{name}":{value}' for name, value in TURN.get(kind, {}).items())
    head = f'"session_id":"s","seq":{seq},"ts":"2026-01-02T03:04:05.000006Z","turn_id":"t1","source":"backend"'
    return FRAME_BEGIN + f'{{{head},"type":"{kind}"{fields}}}'.encode() + FRAME_END


def source(seq: int, kind: str, spool: str) -> Source | None:
    return Source(1, spool, 10 * seq, 10 * seq + 9, seq % 2) if kind in SAID else None  # type: ignore[arg-type]


kinds = st.sampled_from([*TURN, *SAID, *SAID])
memos = st.none() | st.sampled_from([{"begin": {"out": 5, "err": 0}}, {"run": 1}, {"pid": 9}, {"background": ["b"]}])


@settings(max_examples=200)
@given(st.lists(st.tuples(kinds, st.sampled_from(["out", "err"]), memos), max_size=30))
def test_what_is_read_past_changes_nothing(events: list[tuple[str, str, dict[str, Any] | None]]) -> None:
    told = list(enumerate([("turn_started", "out", None), *events], 2))
    frames, sources = [frame(seq, kind) for seq, (kind, _, _) in told], [source(seq, *each[:2]) for seq, each in told]
    memos = {seq: memo for seq, (_, _, memo) in told if memo is not None}
    data = encode_snapshot({}) + b"".join(map(encode_block, blocks_of(2, frames, sources, memos)))
    all_of_it, some_of_it = Ledger(), Ledger()
    for record in read_entries(data)[0]:
        all_of_it.apply(record)
    for record in read_entries(data, FOLDED)[0]:
        some_of_it.apply(record)
    assert some_of_it == all_of_it


def test_a_steered_prompt_that_no_turn_took_comes_before_what_was_queued() -> None:
    journal = Journal()
    journal.accept()
    journal.start()
    running = journal.current
    for name in ("a", "b"):
        journal.add("prompt_accepted", delivery="steered", prompt_id=name)
    journal.accept()
    journal.add("turn_completed", outcome="completed")
    for name, turn in (("a", "t3"), ("b", "t4")):
        journal.add("prompt_accepted", turn_id=turn, delivery="queued", prompt_id=name, memo={"dropped": [name]})
    ledger = Ledger()
    for record in journal.records:
        ledger.apply(record)
    assert running == "t1" and [turn.id for turn in ledger.queue] == ["t3", "t4", "t2"]
    assert ledger.open_steers == [] and ledger.late_prompts == 2
