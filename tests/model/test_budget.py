"""The rules of budgets: when a limit is reached, what counts, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from clisup.model.sessions.budget import (
    ENDING,
    Breach,
    Budget,
    Used,
    breach_of,
    describe_budget,
    error_of,
    limits_of,
    used_of,
)
from clisup.model.sessions.ledger import Ledger, turn_duration
from clisup.model.usage import SPENDING, Usage


@pytest.mark.parametrize(
    ("budget", "used", "which"),
    [
        (Budget(), Used(usd=9.0, tokens=9, turns=9, wall_s=9), None),
        (Budget(tokens=10), Used(tokens=9), None),
        (Budget(tokens=10), Used(tokens=10), "tokens"),
        (Budget(usd=1.0), Used(usd=None, tokens=10**9), None),
        (Budget(usd=0.3), Used(usd=0.1 + 0.1 + 0.1), "usd"),
        (Budget(usd=1.0), Used(usd=0.7 + 0.2 + 0.1), "usd"),  # 0.9999999999999999
        (Budget(turns=2), Used(turns=1), None),
        (Budget(turns=2), Used(turns=2), "turns"),
        (Budget(wall_s=1.5), Used(wall_s=1.6), "wall_s"),
        (Budget(usd=1.0, tokens=10), Used(usd=2.0, tokens=20), "usd"),
    ],
)
def test_a_limit_is_reached_when_as_much_was_used(budget: Budget, used: Used, which: str | None) -> None:
    breach = breach_of(budget, used)
    assert (breach.which if breach else None) == which


def test_the_number_of_turns_ends_no_turn() -> None:
    assert breach_of(Budget(turns=1), Used(turns=1), among=ENDING) is None


def test_no_budget_is_reached_by_nothing() -> None:
    assert breach_of(None, Used(usd=1e9)) is None
    assert limits_of(None, None) is limits_of(Budget(), None) is limits_of(Budget(turns=1), {}) is None


def test_what_was_set_last_takes_the_place_of_all_before() -> None:
    assert limits_of(Budget(usd=1.0, turns=1), {"tokens": 5}) == Budget(tokens=5)
    assert limits_of(Budget(usd=1.0), None) == Budget(usd=1.0)


@pytest.mark.parametrize(
    "wrong", [{"usd": float("nan")}, {"usd": float("inf")}, {"usd": 0.0}, {"tokens": -1}, {"turns": 2**60}, {"x": 1}]
)
def test_what_is_no_limit_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Budget.model_validate(wrong)


@pytest.mark.parametrize(
    ("breach", "words"),
    [
        (Breach("tokens", 1000, 1234), "the session's budget of 1000 tokens is used up (1234)"),
        (Breach("usd", 0.5, 0.512345678), "the session's budget of 0.5 USD is used up (0.512345678)"),
        (Breach("turns", 2, 2), "the session's budget of 2 turns is used up (2)"),
        (Breach("wall_s", 90, 90.25), "the session's budget of 90 s in turns is used up (90.25)"),
    ],
)
def test_it_is_said_in_words(breach: Breach, words: str) -> None:
    assert breach.words == words
    assert error_of(breach, started=True).message == f"the turn was ended: {words}"
    assert error_of(breach, started=False).kind == "budget"


def test_a_budget_is_told_with_what_was_used() -> None:
    assert describe_budget(None, Used()) is None
    assert describe_budget(Budget(tokens=5, usd=1.0), Used(usd=0.1 + 0.2, tokens=5, turns=1, wall_s=1.23456)) == {
        "limit": {"usd": 1.0, "tokens": 5},
        "used": {"usd": 0.3, "tokens": 5, "turns": 1, "wall_s": 1.235, "unpriced": 0},
        "exhausted": "tokens",
    }


@pytest.mark.parametrize(
    ("began", "ended", "paused", "seconds"),
    [
        ("2026-01-01T00:00:00.500000Z", "2026-01-01T00:01:00.000000Z", 0.0, 59.5),
        ("2026-01-01T00:00:00Z", "2026-01-01T09:00:00Z", 32_000.0, 400.0),
        ("2026-01-01T00:00:10Z", "2026-01-01T00:00:00Z", 0.0, 0.0),  # the clock was set back
        (None, "2026-01-01T00:00:00Z", 0.0, 0.0),
        ("ts1", "ts2", 0.0, 0.0),
    ],
)
def test_a_turn_lasted_as_long_as_the_journal_says(
    began: str | None, ended: str, paused: float, seconds: float
) -> None:
    assert turn_duration(began, ended, paused) == seconds


# -- what the journal says was used ----------------------------------------------------------------------------------


class Journal:
    """Folds events into a ledger as they would come."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.seq = 0

    def add(self, type_: str, turn: str | None = "t1", at: str = "00", **fields: Any) -> None:
        self.seq += 1
        event = {"seq": self.seq, "ts": f"2026-01-01T00:00:{at}Z", "turn_id": turn, "type": type_, **fields}
        self.ledger.fold(type_, event, src=None, memo=fields.pop("memo", None))
        if type_ in SPENDING:
            self.ledger.spend(event)

    @property
    def used(self) -> Used:
        turn = self.ledger.current
        return used_of(self.ledger, running=turn.spending.usage if turn else None)

    def start(self, turn: str = "t1", at: str = "00") -> None:
        self.add("prompt_accepted", turn, delivery="queued")
        self.add("turn_started", turn, at, run=1)

    def say(self, tokens: int, model: str | None = "m", parent: str | None = None) -> None:
        self.add("message_start", model=model, parent_tool_use_id=parent)
        self.add("message_stop", parent_tool_use_id=parent, usage={"input_tokens": tokens, "output_tokens": 1})

    def end(self, turn: str = "t1", at: str = "10", **fields: Any) -> None:
        self.add("turn_completed", turn, at, outcome="completed", **fields)


def test_the_messages_of_a_running_turn_count_and_its_end_takes_their_place() -> None:
    journal = Journal()
    journal.start()
    journal.say(10)
    journal.say(20, model="other", parent="tool")
    assert journal.used == Used(None, 32, 1, 0.0, 0)
    journal.end(usage={"input_tokens": 30, "output_tokens": 2}, cost_usd=0.5, cost_source="reported")
    assert used_of(journal.ledger) == Used(0.5, 32, 1, 10.0, 0)


def test_an_end_that_tells_less_than_the_messages_did_does_not_give_anything_back() -> None:
    journal = Journal()
    journal.start()
    journal.say(100)
    journal.end(usage={"input_tokens": 0, "output_tokens": 0}, memo={"more_tokens": 101})  # as the daemon journals it
    assert journal.used.tokens == 101


def test_what_runs_and_what_it_costs_so_far_is_added() -> None:
    journal = Journal()
    journal.start()
    journal.end(usage={"input_tokens": 5}, cost_usd=0.5, at="04")
    running = Usage(input_tokens=3, output_tokens=4)
    assert used_of(journal.ledger, running=running, running_usd=0.25, running_s=2.0) == Used(0.75, 12, 1, 6.0, 0)


def test_usage_is_kept_by_the_model_that_each_message_named() -> None:
    journal = Journal()
    journal.start()
    journal.add("session_init", model="session")
    journal.add("message_start", model="big")
    journal.say(5, model="small", parent="tool")  # a subagent's, in the middle of it
    journal.add("message_stop", usage={"input_tokens": 7})
    journal.add("usage", usage={"input_tokens": 9, "output_tokens": 2})  # of a CLI that tells each call by itself
    assert journal.ledger.current is not None
    spent = {model: usage.total_tokens for model, usage in journal.ledger.current.spending.by_model.items()}
    assert spent == {"small": 6, "big": 7, "session": 11}


def test_time_in_which_the_machine_slept_is_not_counted() -> None:
    journal = Journal()
    journal.start()
    journal.add("notice", code="resumed", message="m", data={"pause_s": 7.0})
    journal.end(at="10")
    assert used_of(journal.ledger).wall_s == 3.0


def test_a_turn_that_never_began_uses_nothing() -> None:
    journal = Journal()
    journal.add("prompt_accepted", delivery="queued")
    journal.add("turn_completed", outcome="failed", error={"kind": "budget", "message": "m"})
    assert used_of(journal.ledger) == Used()


def test_a_turn_whose_cost_nobody_knows_is_counted_apart() -> None:
    journal = Journal()
    journal.start()
    journal.end(usage={"input_tokens": 5})
    journal.start("t2")
    journal.end("t2", usage={"input_tokens": 5}, cost_usd=0.25, cost_source="estimated")
    assert used_of(journal.ledger).usd == 0.25
    assert used_of(journal.ledger).unpriced == 1
    assert journal.ledger.cost_source == "estimated"


def test_what_an_older_version_stored_counts_as_far_as_it_says() -> None:
    old = Journal()
    old.start()
    old.end(usage={"input_tokens": 5, "output_tokens": 6}, cost_usd=0.5)
    state = old.ledger.snapshot()
    for name in ("tokens", "turns_begun", "wall_s", "unpriced", "cost_source", "budget"):
        del state[name]
    ledger = Ledger()
    ledger.restore(state)
    assert used_of(ledger) == Used(0.5, 11, 1, 0.0, 0)
