"""Tests of a program that asks a model, without a daemon, a CLI or a network.

python -m pytest llm_testing.py
"""

from typing import Literal

import pytest
import trio
from pydantic import BaseModel

from clisup.llm import Client, Overloaded, RetryPolicy
from clisup.llm.calls import ModelCalls
from clisup.llm.testing import Asked, Reply, ScriptedModel, ToolCall

# -- the program


class Ticket(BaseModel):
    """What it is about."""

    kind: Literal["bug", "wish", "praise"]


async def sort_ticket(model: ModelCalls, text: str) -> str:
    """What kind of ticket is it? It takes any model, so a test can give it one of its own."""
    return (await model.structured(text, Ticket, system="You sort tickets.")).value.kind


# -- its tests


def test_a_ticket_is_sorted_by_what_the_model_says() -> None:
    model = ScriptedModel({"kind": "bug"})
    assert trio.run(sort_ticket, model, "It crashes.") == "bug"
    assert model.asked[0].system == "You sort tickets."
    assert model.asked[0].prompt.text.startswith("It crashes.")


def test_an_answer_that_is_no_kind_is_sent_back() -> None:
    model = ScriptedModel("I would say: a nuisance.", {"kind": "bug"})
    assert trio.run(sort_ticket, model, "It crashes.") == "bug"
    model.assert_used_up()


def test_a_busy_model_is_asked_again_but_not_after_it_used_a_tool() -> None:
    busy = Overloaded("busy", kind="overloaded", retryable=True)
    policy = RetryPolicy(first_delay_s=0)
    assert trio.run(sort_ticket, Client(ScriptedModel(busy, {"kind": "wish"}), retry=policy), "Make it blue.") == "wish"
    with pytest.raises(Overloaded):
        trio.run(sort_ticket, Client(ScriptedModel(Reply(ToolCall("Bash", result=""), error=busy)), retry=policy), "?")


def test_an_answer_may_depend_on_the_question() -> None:
    def sort(asked: Asked) -> dict[str, str]:
        return {"kind": "praise" if "thank you" in asked.prompt.text.lower() else "bug"}

    model = ScriptedModel(then=sort)
    assert [trio.run(sort_ticket, model, text) for text in ("Thank you!", "It crashes.")] == ["praise", "bug"]
