"""Budgets of a program: refuse before, settle after, shared by sub-budgets, threads and tasks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from clisup.errors import UsageError
from clisup.llm.answers import Completion, Cost, ModelName
from clisup.llm.budget import Budget, Left, Spent, ask_within
from clisup.llm.chat import SessionBudget
from clisup.llm.failures import BudgetExhausted
from clisup.llm.messages import Message
from clisup.llm.testing import ScriptedModel
from clisup.model.usage import Usage


def answer(*, tokens: int | None = 0, usd: float | None = 0.0) -> Completion:
    usage = Usage() if tokens is None else Usage(input_tokens=tokens, output_tokens=0, source="reported")
    cost = None if usd is None else Cost(usd, "reported")
    return Completion(Message.assistant("yes"), ModelName("scripted"), usage=usage, cost=cost)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


# -- refusing and settling ----------------------------------------------------------------------------------------------


def test_iterations_are_counted_before_and_refused_at_the_limit() -> None:
    budget = Budget(iterations=2, name="the search")
    for _ in range(2):
        budget.reserve().settle(answer())
    with pytest.raises(BudgetExhausted, match="the search is used up: 2 of 2 iterations") as refused:
        budget.reserve()
    assert refused.value.kind == "budget_exhausted"
    assert refused.value.data == {"which": "iterations", "limit": 2, "used": 2, "budget": "the search"}
    assert budget.spent.iterations == 2


@pytest.mark.parametrize(("limits", "which", "used"), [({"usd": 0.5}, "usd", 0.6), ({"tokens": 100}, "tokens", 120)])
def test_what_was_used_is_counted_after_and_refuses_the_next(limits: dict[str, Any], which: str, used: float) -> None:
    budget = Budget(**limits)
    budget.reserve().settle(answer(tokens=60, usd=0.3))
    budget.reserve().settle(answer(tokens=60, usd=0.3))  # there was something left when it began
    with pytest.raises(BudgetExhausted) as refused:
        budget.reserve()
    assert (refused.value.data["which"], refused.value.data["used"]) == (which, pytest.approx(used))


def test_tokens_are_all_of_the_input_and_the_output() -> None:
    usage = Usage(
        input_tokens=1,
        cache_read_input_tokens=10,
        cache_creation_input_tokens=100,
        output_tokens=1000,
        reasoning_tokens=7,
    )
    assert Spent(usage=usage).tokens == 1111


def test_wall_seconds_run_from_the_first_reservation() -> None:
    clock = Clock()
    budget = Budget(wall_s=10, clock=clock)
    clock.now += 1000
    budget.reserve()
    clock.now += 9
    budget.reserve()
    assert budget.left.wall_s == 1
    clock.now += 1
    with pytest.raises(BudgetExhausted) as refused:
        budget.reserve()
    assert refused.value.data == {"which": "wall_s", "limit": 10, "used": 10, "budget": "the budget"}
    assert budget.spent.wall_s == 10


def test_an_amount_that_is_held_back_is_not_there_for_others() -> None:
    budget = Budget(usd=1.0, tokens=1000)
    first = budget.reserve(usd=0.7, tokens=700)
    with pytest.raises(BudgetExhausted):
        budget.reserve(usd=0.4)
    with pytest.raises(BudgetExhausted):
        budget.reserve(tokens=301)
    assert budget.left == Left(usd=0.3, tokens=300)
    first.settle(answer(usd=0.1, tokens=50))
    budget.reserve(usd=0.9, tokens=950)


def test_sums_of_tenths_of_a_dollar_come_to_the_limit_exactly() -> None:
    used, held = Budget(usd=0.8), Budget(usd=0.3)
    for _ in range(8):
        used.reserve().settle(answer(usd=0.1))
    with pytest.raises(BudgetExhausted):
        used.reserve()
    assert (used.spent.usd, used.left.usd) == (0.8, 0.0)
    calls = [held.reserve(usd=0.1) for _ in range(3)]
    assert held.left.usd == 0.0
    for call in calls:
        call.release()
    assert held.left.usd == 0.3


def test_a_call_that_never_began_gives_all_of_it_back() -> None:
    budget = Budget(usd=1.0, iterations=1, clock=Clock())
    budget.reserve(usd=1.0).release()
    assert budget.spent == Spent()
    budget.reserve(usd=1.0)


def test_to_look_counts_nothing() -> None:
    budget = Budget(iterations=1, usd=1.0)
    for _ in range(3):
        budget.check()
    assert budget.session_budget() == SessionBudget(usd=1.0)
    budget.reserve(usd=1.0)
    with pytest.raises(BudgetExhausted):
        budget.check()
    with pytest.raises(BudgetExhausted):
        budget.check(iterations=0)


def test_less_than_nothing_cannot_be_reserved() -> None:
    with pytest.raises(UsageError, match="negative amount"):
        Budget().reserve(usd=-1.0)


def test_a_reservation_is_settled_once() -> None:
    call = Budget().reserve()
    call.settle(answer())
    with pytest.raises(UsageError, match="was settled or released"):
        call.settle(answer())
    with pytest.raises(UsageError, match="was settled or released"):
        call.release()


def test_a_call_that_failed_is_unknown_and_what_it_held_is_free_again() -> None:
    budget = Budget(usd=1.0, clock=Clock())
    with pytest.raises(RuntimeError), budget.reserve(usd=1.0):
        raise RuntimeError
    assert budget.spent == Spent(iterations=1, answers=1, unknown_tokens=1, unknown_usd=1)
    budget.reserve(usd=1.0)


@pytest.mark.parametrize(
    "limits", [{"usd": 0}, {"tokens": -1}, {"iterations": 0}, {"wall_s": 0.0}, {"usd": float("nan")}]
)
def test_a_limit_of_nothing_is_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="is not an int or a float above 0"):
        Budget(**limits)


# -- unknown is not zero ------------------------------------------------------------------------------------------------


def test_what_nobody_told_is_counted_as_unknown_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    budget = Budget(usd=1.0, tokens=100)
    with caplog.at_level(logging.WARNING, "clisup.llm.budget"):
        for _ in range(3):
            budget.reserve().settle(answer(tokens=None, usd=None))
        budget.reserve().settle(answer(tokens=7, usd=0.25))
    spent = budget.spent
    assert (spent.answers, spent.unknown_usd, spent.unknown_tokens) == (4, 3, 3)
    assert (spent.usd, spent.tokens) == (0.25, 7)
    assert "3 of 4 answers not wholly known" in str(spent)
    assert [record.getMessage() for record in caplog.records] == [
        "the budget cannot hold its limit of 1 usd: an answer came without them and counts as unknown",
        "the budget cannot hold its limit of 100 tokens: an answer came without them and counts as unknown",
    ]


def test_an_answer_that_told_only_half_of_its_tokens_is_unknown_too() -> None:
    half = Completion(Message.assistant(""), ModelName("scripted"), usage=Usage(output_tokens=5, source="reported"))
    assert (Spent.of(half).tokens, Spent.of(half).unknown_tokens) == (5, 1)


@pytest.mark.parametrize(("limits", "told"), [({"usd": 1.0}, {"usd": None}), ({"tokens": 10}, {"tokens": None})])
def test_a_budget_that_must_know_allows_nothing_after_an_unknown(limits: Any, told: Any) -> None:
    budget = Budget(**limits, unknown="refuse")
    budget.reserve().settle(answer(**told))
    with pytest.raises(BudgetExhausted, match="1 answers came without their") as refused:
        budget.reserve()
    assert refused.value.data["used"] is None
    Budget(iterations=2, unknown="refuse").reserve().settle(answer(**told))


def test_an_estimated_cost_makes_the_sum_an_estimate() -> None:
    budget = Budget()
    for source in ("reported", "estimated", "reported"):
        budget.settle(Completion(Message.assistant(""), ModelName("m"), cost=Cost(1.0, source)))
    assert budget.spent.cost == Cost(3.0, "estimated")
    assert str(budget.spent).startswith("~$3.0000")


# -- sub-budgets --------------------------------------------------------------------------------------------------------


def test_what_a_part_uses_the_whole_has_used() -> None:
    whole = Budget(usd=1.0)
    one, other = whole.sub(usd=0.8, name="one"), whole.sub(name="other")
    one.reserve().settle(answer(usd=0.5, tokens=5))
    other.reserve().settle(answer(usd=0.5, tokens=6))
    assert (whole.spent.usd, whole.spent.tokens, whole.spent.iterations) == (1.0, 11, 2)
    assert one.spent.usd == 0.5
    with pytest.raises(BudgetExhausted, match="the budget is used up"):
        one.reserve()  # its own limit is not reached, that of the whole is


def test_a_refusal_below_counts_nothing_above() -> None:
    whole = Budget(iterations=10)
    part = whole.sub(iterations=1, name="part")
    part.reserve()
    with pytest.raises(BudgetExhausted, match="part is used up"):
        part.reserve()
    assert whole.spent.iterations == 1


def test_a_part_with_iterations_of_its_own_leaves_those_above_alone() -> None:
    whole = Budget(iterations=1, usd=1.0)
    rounds = whole.reserve()
    calls = whole.sub(own_iterations=True)
    for _ in range(3):
        calls.reserve().settle(answer(usd=0.1))
    rounds.release()
    assert (whole.spent.iterations, calls.spent.iterations) == (0, 3)
    assert whole.spent.usd == pytest.approx(0.3)
    assert calls.left.iterations is None


def test_what_is_left_is_by_the_tightest_limit_above() -> None:
    clock = Clock()
    whole = Budget(usd=1.0, wall_s=60, clock=clock)
    part = whole.sub(usd=5.0, tokens=10).sub(iterations=3)
    part.reserve(usd=0.25)
    clock.now += 20
    assert part.left == Left(usd=0.75, tokens=10, iterations=2, wall_s=40)


def test_what_is_left_for_a_call_is_what_its_session_is_held_to() -> None:
    clock = Clock()
    budget = Budget(usd=1.0, tokens=100, wall_s=60, iterations=9, clock=clock)
    call = budget.reserve(usd=0.25)
    budget.reserve(usd=0.5)
    clock.now += 15
    assert call.session_budget() == SessionBudget(usd=0.5, tokens=100, wall_s=45)
    budget.settle(answer(usd=9.0, tokens=900))
    clock.now += 100
    nothing = call.session_budget().to_wire()
    assert nothing["usd"] > 0  # 0 would be no limit at all
    assert nothing["tokens"] == 1
    assert nothing["wall_s"] > 0
    assert Budget().reserve().session_budget() == SessionBudget()


def test_what_was_used_before_is_charged() -> None:
    clock = Clock()
    budget = Budget(iterations=3, wall_s=60, clock=clock)
    budget.charge(Spent(iterations=2, wall_s=50.0))
    budget.reserve()
    clock.now += 9
    assert budget.left == Left(iterations=0, wall_s=1)


# -- threads and tasks --------------------------------------------------------------------------------------------------

_Call = tuple[int, int]  # tokens held, tokens used of them
CALLS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=40)


def spend(part: Budget, call: _Call, refused: list[int], pause: Callable[[], object] = lambda: None) -> None:
    held, used = max(call), min(call)
    try:
        reservation = part.reserve(tokens=held)
    except BudgetExhausted:
        refused.append(held)
        return
    pause()
    reservation.settle(answer(tokens=used, usd=0.001))


def check(whole: Budget, parts: list[Budget], calls: int, refused: list[int]) -> None:
    """Whatever the order was: nothing is lost, nothing counted twice, no limit passed, nothing held at the end."""
    spent = whole.spent
    assert spent.tokens == sum(part.spent.tokens for part in parts) <= 100
    assert spent.iterations == spent.answers == sum(part.spent.iterations for part in parts) == calls - len(refused)
    assert all(part.spent.iterations <= 9 for part in parts)
    assert whole.left.tokens == 100 - spent.tokens


@settings(max_examples=60)
@given(CALLS)
def test_threads_never_pass_a_limit_together(calls: list[_Call]) -> None:
    whole = Budget(tokens=100)
    parts = [whole.sub(iterations=9, name=str(n)) for n in range(3)]
    refused: list[int] = []
    start = threading.Barrier(4)

    def work(worker: int) -> None:
        start.wait(10)
        for n, call in enumerate(calls):
            if n % 4 == worker:
                spend(parts[n % 3], call, refused)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    check(whole, parts, len(calls), refused)


@settings(max_examples=60)
@given(CALLS)
def test_tasks_never_pass_a_limit_together(calls: list[_Call]) -> None:
    whole = Budget(tokens=100)
    parts = [whole.sub(iterations=9, name=str(n)) for n in range(3)]
    refused: list[int] = []

    async def work(part: Budget, call: _Call) -> None:
        held, used = max(call), min(call)
        try:
            reservation = part.reserve(tokens=held)
        except BudgetExhausted:
            refused.append(held)
            return
        await trio.lowlevel.checkpoint()
        reservation.settle(answer(tokens=used))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for n, call in enumerate(calls):
                nursery.start_soon(work, parts[n % 3], call)

    trio.run(main)
    check(whole, parts, len(calls), refused)


def test_four_threads_count_every_one_of_many_calls() -> None:
    budget = Budget(iterations=3000)
    refused: list[int] = []

    def work() -> None:
        for _ in range(1000):
            spend(budget, (1, 1), refused)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (budget.spent.iterations, budget.spent.tokens, len(refused)) == (3000, 3000, 1000)


async def test_where_one_of_several_budgets_refuses_the_others_count_nothing() -> None:
    first, second, spare = (
        Budget(iterations=10, unknown="refuse", usd=1),
        Budget(iterations=1),
        ScriptedModel("one", "two"),
    )
    async with spare.chat() as chat:
        await ask_within([second], chat, "Hi")
        with pytest.raises(BudgetExhausted):
            await ask_within([first, second], chat, "Hi")
    assert (first.spent.iterations, first.spent.answers, len(spare.asked)) == (0, 0, 1)
