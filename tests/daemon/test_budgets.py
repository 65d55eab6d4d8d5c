"""Budgets: prompts are refused, queued turns end without a start, and the turn that uses one up is ended; a kill changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from harness import Harness, until
from session_probe import SessionProbe

from clisup.errors import ClisupError

WORK = "\n".join(["@text Working.", '@bash "echo one"'])


def refused(session: SessionProbe, **params: Any) -> dict[str, Any]:
    """What the refusal of a prompt says."""
    with pytest.raises(ClisupError) as error:
        session.call("prompt", prompt="more", **params)
    assert error.value.kind == "budget_exhausted"
    return error.value.data


def test_a_session_without_a_budget_has_none(daemon: Harness) -> None:
    session = daemon.new()
    session.ask("hello")
    assert session.get()["budget"] is None


def test_what_turns_use_is_summed_and_told(daemon: Harness) -> None:
    session = daemon.new(budget={"usd": 1.0, "tokens": 1000})
    session.ask("@usage 100 20\n@cost 0.25\nhello")
    session.ask("@usage 10 5\n@cost 0.5\nhello")
    budget = session.get()["budget"]
    assert budget["limit"] == {"usd": 1.0, "tokens": 1000}
    assert budget["exhausted"] is None
    assert (budget["used"]["usd"], budget["used"]["tokens"], budget["used"]["turns"]) == (0.75, 135, 2)
    assert 0 < budget["used"]["wall_s"] < 600


@pytest.mark.parametrize(
    ("limit", "used"), [({"tokens": 100}, 120), ({"usd": 0.2}, 0.25), ({"turns": 1}, 1), ({"wall_s": 0.000001}, None)]
)
def test_a_prompt_after_the_end_of_a_budget_is_refused_and_told_why(
    daemon: Harness, limit: dict[str, float], used: float | None
) -> None:
    session = daemon.new(budget=limit)
    turn = session.prompt("@usage 100 20\n@cost 0.25\nhello")
    session.end_of(turn)
    ((name, value),) = limit.items()
    data = refused(session)
    assert (data["which"], data["limit"]) == (name, value)
    assert data["used"] >= value and (used is None or data["used"] == used)
    assert session.get()["budget"]["exhausted"] == name
    assert len(session.events("prompt_accepted")) == 1
