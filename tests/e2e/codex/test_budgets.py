"""Budgets with the real codex: it tells tokens and no cost, app-server after each call, exec at the turn's end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clisup.errors import ClisupError
from tests.e2e.codex.lab import CodexLab
from tests.e2e.codex.scenarios import SLOW, Scenario, run

pytestmark = pytest.mark.e2e


def test_an_app_server_turn_is_ended_when_a_call_has_used_the_budget(lab: Callable[..., CodexLab]) -> None:
    """codex tells what a call has used when its tool has answered (after 10 s it leaves it alone): the next request may be on its way."""
    here = lab(Scenario("slow", run(SLOW)))
    turn = here.turn(budget={"tokens": 500}, permission_mode="danger-full-access")
    assert (turn["outcome"], turn["error"]["kind"]) == ("failed", "budget")
    assert len(here.api.main_requests) <= 2
    assert turn["usage"]["output_tokens"] > 0


def test_a_turns_cost_is_estimated_and_the_next_prompt_refused(lab: Callable[..., CodexLab], kind: str) -> None:
    here = lab("text", kind=kind)
    session = here.open(budget={"usd": 0.000001}, model="gpt-5.2")
    turn = here.turn(session=session)
    usage = turn["usage"]
    cost = usage["input_tokens"] * 1.75 + usage["cache_read_input_tokens"] * 0.175 + usage["output_tokens"] * 14
    assert turn["cost_source"] == "estimated"
    assert turn["cost_usd"] == pytest.approx(cost / 1e6)
    with here.client() as client, pytest.raises(ClisupError) as refused:
        client.call("session/prompt", session_id=session, prompt="more")
    assert refused.value.kind == "budget_exhausted"
