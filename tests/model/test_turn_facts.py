"""What a journal says of one turn: where its output lies, when it came, and what was known before it."""

from __future__ import annotations

from typing import Any

from clisup.model.journal import Record, Source
from clisup.model.sessions.turn_facts import TurnBook, TurnFacts

T0 = "2026-01-02T03:04:0{}.000000Z"


class Journal:
    def __init__(self) -> None:
        self.records: list[Record] = []

    def add(
        self, type_: str, turn: str | None, second: int, *, src: Source | None = None, memo: Any = None, **fields: Any
    ) -> None:
        event = {"seq": len(self.records) + 1, "ts": T0.format(second), "type": type_, "turn_id": turn, **fields}
        self.records.append(Record(event, src=src, memo=memo))

    def line(self, turn: str, second: int, end: int, run: int = 1, type_: str = "status", **fields: Any) -> None:
        self.add(type_, turn, second, src=Source(run, "out", 0, end, 0), **{"status": "x", **fields})

    def found(self, wanted: str | None = None) -> TurnFacts | None:
        book = TurnBook(wanted)
        for record in self.records:
            book.apply(record)
        return book.found


def one_turn(journal: Journal, turn: str, run: int = 1) -> None:
    journal.add(
        "turn_started", turn, 0, run=run, memo={"begin": {"out": 0, "err": 0}}, prompt_preview="hi", prompt_bytes=2
    )
    journal.add("process_started", turn, 0, pid=1, argv=["cli", "-p"], env_names=["HOME"])
    journal.line(turn, 1, 10, run, "session_init", backend_version="2.0")
    journal.line(turn, 1, 20, run)
    journal.line(turn, 3, 30, run)
    journal.add("process_exited", turn, 4)
    memo = {"cost_total_usd": 0.5, "usage_total": {"input_tokens": 3}}
    journal.add("turn_completed", turn, 4, outcome="completed", memo=memo)


def test_the_last_offset_of_each_moment_is_kept_with_the_seconds_since_the_beginning() -> None:
    journal = Journal()
    one_turn(journal, "t1")
    facts = journal.found()
    assert facts is not None
    assert facts.timing == [(20, 1.0), (30, 3.0)]
    assert (facts.version, facts.argv, facts.env_names) == ("2.0", ["cli", "-p"], ["HOME"])


def test_running_totals_are_those_before_the_turn() -> None:
    journal = Journal()
    one_turn(journal, "t1")
    one_turn(journal, "t2", run=2)
    first, second = journal.found("t1"), journal.found()
    assert first is not None and second is not None
    assert (first.id, first.cost_total_usd, first.usage_total) == ("t1", None, None)
    assert (second.id, second.cost_total_usd, second.usage_total) == ("t2", 0.5, {"input_tokens": 3})


def test_a_run_that_took_the_place_of_another_one_is_the_one_that_counts() -> None:
    journal = Journal()
    journal.add("turn_started", "t1", 0, run=1, memo={"begin": {"out": 0, "err": 0}})
    journal.line("t1", 1, 500)
    memo = {"run": 2, "begin": {"out": 0, "err": 0}}
    journal.add("notice", "t1", 2, code="run_replaced", message="", memo=memo)
    journal.line("t1", 3, 40, run=2)
    journal.add("turn_completed", "t1", 4, outcome="completed")
    facts = journal.found()
    assert facts is not None
    assert (facts.run, facts.timing) == (2, [(40, 1.0)])


def test_a_turn_that_the_cli_began_by_itself_divides_the_output_of_its_run() -> None:
    journal = Journal()
    one_turn(journal, "t1")
    memo = {"begin": {"out": 30, "err": 5}, "background": ["b1"], "pid": 1}
    journal.add("turn_started", "t2", 5, run=1, origin="backend", memo=memo)
    journal.line("t2", 5, 45)
    journal.add("turn_completed", "t2", 6, outcome="completed")
    first, second = journal.found("t1"), journal.found("t2")
    assert first is not None and second is not None
    assert (first.begin, first.end) == ({"out": 0, "err": 0}, {"out": 30, "err": 5})
    assert (second.begin, second.end, second.timing) == ({"out": 30, "err": 5}, None, [(15, 0.0)])
    assert (second.background, second.argv) == (["b1"], ["cli", "-p"])


def test_a_turn_that_runs_or_never_ran_is_not_found() -> None:
    journal = Journal()
    journal.add("prompt_accepted", "t1", 0, delivery="delivered")
    journal.add("turn_completed", "t1", 1, outcome="failed")
    journal.add("turn_started", "t2", 2, run=1)
    assert journal.found() is None


def test_a_journal_that_begins_with_a_snapshot_tells_the_totals_too() -> None:
    journal = Journal()
    journal.records.append(Record(None, snapshot={"cost_total_usd": 2.0, "turns": 4}))
    one_turn(journal, "t5")
    facts = journal.found()
    assert facts is not None
    assert facts.cost_total_usd == 2.0
