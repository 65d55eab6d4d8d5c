"""What a chat cannot be opened with is said before a session is opened."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from clisup.errors import UsageError
from clisup.llm.budget import Budget
from clisup.llm.chat import ChatOptions
from clisup.llm.failures import InvalidRequest
from clisup.llm.models import resolve
from clisup.llm.names import parse_model


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"budget": Budget(usd=1.0)}, "cannot hold a chat to a budget of type Budget, .*; give SessionBudget"),
        ({"budget": {"usd": 1.0}}, "cannot hold a chat to a budget of type dict"),
        ({"history": [{"role": "user", "content": "Hi"}]}, "a value of type dict is no message; give messages"),
    ],
)
def test_options_that_are_none_are_refused(options: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        ChatOptions(**options)


@pytest.mark.parametrize("name", [None, 5, "", "demo/", "/opus", "de mo"])
def test_what_is_no_name_of_a_model_is_refused(name: Any) -> None:
    with pytest.raises(UsageError, match="not of the form backend/model"):
        parse_model(name)


def test_a_program_of_asyncio_is_told_that_it_needs_trio() -> None:
    with pytest.raises(InvalidRequest, match="because it needs trio"):
        asyncio.run(resolve("demo").complete("Hi"))
