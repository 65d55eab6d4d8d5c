"""What a chat cannot be opened with is said before a session is opened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from clisup.errors import UsageError
from clisup.llm.answers import parse_model
from clisup.llm.budget import Budget
from clisup.llm.chat import ChatOptions
from clisup.llm.conversation import Conversation
from clisup.llm.failures import InvalidRequest
from clisup.llm.models import Client, resolve
from clisup.llm.signatures import Predict, signature, using
from clisup.llm.testing import ScriptedModel
from clisup.llm.tools import tool


def abs_(n: int) -> int:
    """Without its sign."""
    return abs(n)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"budget": Budget(usd=1.0)},
            "the budget of a chat is a SessionBudget, not of type Budget; give SessionBudget",
        ),
        ({"budget": {"usd": 1.0}}, "the budget of a chat is a SessionBudget, not of type dict"),
        ({"labels": ["docs"]}, "labels map texts to texts, unlike .*; give a dict"),
        ({"labels": {"team": 5}}, "labels map texts to texts"),
        ({"session": 5}, "params of a session are a mapping, not of type int"),
        ({"tools": tool(abs_)}, "tools= is a list of tools, unlike <tool abs_>; give tools="),
        (
            {"history": [{"role": "user", "content": "Hi"}]},
            "a value of type dict, which is not a message; give messages",
        ),
    ],
)
def test_options_that_are_none_are_refused(options: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        ChatOptions(**options)


@pytest.mark.parametrize(
    "make",
    [
        lambda: resolve("demo", labels=["docs"]),
        lambda: Conversation("demo", labels={"team": None}),
        lambda: Conversation(None),
        lambda: Conversation("demo", tools=tool(abs_)),
        lambda: Client("demo", fallbacks=[5]),
        lambda: Client("demo", retry=0),
        lambda: resolve("demo").chat({"system": "Be brief."}),
        lambda: resolve("demo").stream("Hi", sytem="Be brief."),
        lambda: using({"model": "demo"}).__enter__(),
        lambda: Predict("question -> answer", examples=[{"question": "Why?"}]),
        *(lambda limit=limit: Budget(usd=limit) for limit in ("1", True, [], float("nan"))),
    ],
)
def test_arguments_of_another_kind_are_refused_before_anything_is_asked(make: Callable[[], Any]) -> None:
    with pytest.raises(UsageError) as refused:
        make()
    assert refused.value.hint and refused.value.message


def test_examples_are_whatever_has_the_fields_of_the_signature() -> None:
    made = [signature("question -> answer")(question=str(number), answer="x") for number in range(3)]
    assert Predict("question -> answer", examples=iter(made)).examples == tuple(made)
    with pytest.raises(UsageError, match="has no mood"):
        Predict("question -> answer, mood", examples=made)


@pytest.mark.parametrize("name", [None, 5, "", "demo/", "/opus", "de mo"])
def test_what_is_no_name_of_a_model_is_refused(name: Any) -> None:
    with pytest.raises(UsageError, match="not of the form backend/model"):
        parse_model(name)


def test_a_program_of_asyncio_is_told_that_it_needs_trio() -> None:
    with pytest.raises(InvalidRequest, match="because it needs trio"):
        asyncio.run(resolve("demo").complete("Hi"))


async def test_an_option_that_is_none_is_left_out_and_one_answer_is_asked_for_at_least() -> None:
    assert (await ScriptedModel("Hello.").complete("Hi", history=None, tools=None)).text == "Hello."  # type: ignore[arg-type]
    assert (await ScriptedModel("[1]").structured("Numbers?", list[int], repairs=-1)).value == [1]
