"""Budgets with the real claude: its turn is ended in the middle, and the list of prices agrees with its own."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from clisup.errors import ClisupError
from clisup.host.config_file import built_in_prices
from clisup.model.usage import Usage
from clisup.policy.prices import PriceTable
from tests.e2e.lab import ClaudeLab

pytestmark = pytest.mark.e2e
BYPASS = {"permission_mode": "bypassPermissions"}


@pytest.mark.parametrize("mode", ["one-shot", "live"])
@pytest.mark.parametrize("budget", [{"tokens": 1000}, {"usd": 0.001}])
def test_a_turn_is_ended_at_its_tool_when_the_first_call_has_used_the_budget(
    lab: Callable[..., ClaudeLab], mode: str, budget: dict[str, float]
) -> None:
    here = lab("silent_bash_40")
    turn = here.turn(mode=mode, budget=budget, **BYPASS)
    assert (turn["outcome"], turn["error"]["kind"]) == ("failed", "budget")
    assert len(here.api.main_requests) == 1
    with here.client() as client:
        told = client.call("session/get", session_id=turn["session_id"])["budget"]
        with pytest.raises(ClisupError) as refused:
            client.call("session/prompt", session_id=turn["session_id"], prompt="more")
    assert told["used"]["tokens"] > 30_000 and told["used"]["usd"] > 0.001
    assert refused.value.kind == "budget_exhausted"


def test_a_live_process_that_was_ended_for_its_budget_goes_on_when_it_is_raised(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("silent_bash_40")
    turn = here.turn(mode="live", budget={"tokens": 1000}, **BYPASS)
    assert turn["error"]["kind"] == "budget"
    with here.client() as client:
        client.call("session/set_budget", session_id=turn["session_id"], budget={"tokens": 10_000_000})
    again = here.turn(session=turn["session_id"])
    assert again["outcome"] == "completed" and again["text"] == "done"
    assert len(here.events(turn["session_id"], "process_started")) == 1


def test_the_list_of_prices_agrees_with_what_claude_reports(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("tool_ok")
    turn = here.turn(**BYPASS)
    model = here.events(turn["session_id"], "session_init")[0]["model"]
    estimated = PriceTable({}, built_in_prices()).cost({model: msgspec.convert(turn["usage"], Usage)})
    assert turn["cost_source"] == "reported"
    assert estimated == pytest.approx(turn["cost_usd"], rel=0.001)
