"""One turn with two sub-agents has the same tokens and the same cost, wherever a program reads them: the sum that the API served."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import trio

from clisup.client.aio import AsyncClient, open_client
from clisup.llm.budget import Budget
from clisup.llm.models import resolve
from clisup.model.usage import Usage
from clisup.web.cost_book import CostBook
from clisup.web.views.cost import TurnSum
from tests.e2e.lab import ClaudeLab
from tests.e2e.scenarios import Scenario, with_async_agents

pytestmark = pytest.mark.e2e
TWO_AGENTS = Scenario("agents", with_async_agents(0, 1))
BYPASS = {"permission_mode": "bypassPermissions"}
PLENTY = {"tokens": 10_000_000, "usd": 1000.0}
_INPUT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
Sums = tuple[int, int]
"""Tokens of input, cached or not, and tokens of output."""


def sums(usage: dict[str, Any]) -> Sums:
    return sum(usage[name] or 0 for name in _INPUT), usage["output_tokens"]


def of_web(here: ClaudeLab) -> TurnSum:
    """Return the sum over all rows of the page of costs."""

    async def main() -> TurnSum:
        async with open_client(here.socket, name="e2e") as client:

            async def connected() -> AsyncClient:
                return client

            book = CostBook(connected)
            await book.refresh(30.0)
        return sum((day for kept in book.spending.values() for day in kept.days.values()), TurnSum())

    return trio.run(main)


@pytest.mark.parametrize("mode", ["one-shot", "live"])
def test_every_reader_of_a_turn_with_sub_agents_sees_the_sum_that_was_served(
    lab: Callable[..., ClaudeLab], mode: str
) -> None:
    here = lab(TWO_AGENTS)
    answer = here.turn("Delegate.", mode=mode, budget=PLENTY, **BYPASS)
    session = answer["session_id"]
    (end,) = here.events(session, "turn_completed")
    with here.client() as client:
        row = client.call("session/get", session_id=session)
    counted = {labels["kind"]: count for labels, count in here.counted("clisup_tokens_total")}
    exported = json.loads(here.command("export", session, "--format", "json").stdout)
    web = of_web(here)
    served = here.api.served.so_far()
    right = (served["input_tokens"], served["output_tokens"])
    told = {
        "event": sums(end["usage"]),
        "answer": sums(answer["usage"]),
        "session/get": sums(row["tokens"]),
        "metrics": (counted["input"] + counted["cache_creation"] + counted["cache_read"], counted["output"]),
        "web": (web.usage.total_input_tokens, web.usage.output_tokens),
        "export": sums(exported["turns"][0]["end"]["usage"]),
        "export, session": sums(exported["session"]["tokens"]),
    }
    print(f"\n{mode}: served {right}, told {told}, budget {row['budget']['used']}")
    assert told == dict.fromkeys(told, right)
    assert row["budget"]["used"]["tokens"] == sum(right)
    costs = [answer["cost_usd"], row["cost_usd"], row["budget"]["used"]["usd"], web.usd]
    costs += [exported["turns"][0]["end"]["cost_usd"], exported["session"]["cost_usd"]]
    assert end["cost_usd"] > 0 and costs == [pytest.approx(end["cost_usd"])] * len(costs)


@pytest.mark.parametrize("mode", ["one-shot", "live"])
def test_the_model_layer_and_its_budget_count_the_sub_agents_of_a_turn(
    lab: Callable[..., ClaudeLab], mode: str
) -> None:
    here = lab(TWO_AGENTS)
    model = resolve("claude", socket=here.socket, cwd=str(here.cwd), mode=mode, **BYPASS)
    budget = Budget(tokens=10_000_000)
    with budget.reserve() as reservation:
        completion = trio.run(model.complete, "Delegate.")
        reservation.settle(completion)
    served = here.api.served.so_far()
    right = (served["input_tokens"], served["output_tokens"])
    for usage in (completion.usage, budget.spent.usage):
        assert isinstance(usage, Usage) and (usage.total_input_tokens, usage.output_tokens) == right
    assert completion.cost is not None and completion.cost == budget.spent.cost
