"""Names of the program's own for models: what they stand for, what goes wrong with them, and what goes on behind them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
from harness import Harness

from clisup.errors import UsageError
from clisup.llm import blocking
from clisup.llm.answers import ModelName
from clisup.llm.chat import ChatOptions
from clisup.llm.conversation.conversation import Conversation
from clisup.llm.failures import BackendUnavailable, Overloaded, RateLimited
from clisup.llm.fallbacks import Fallback, RetryPolicy
from clisup.llm.messages import Message, ToolResultBlock
from clisup.llm.models import Client, as_model, resolve
from clisup.llm.registry import register, registered, unregister
from clisup.llm.signatures import Predict, using
from clisup.llm.testing import Reply, ScriptedModel, ToolCall
from clisup.llm.tools import tool

BOUND_S = 60.0


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    for name in registered():
        unregister(name)


def busy() -> Overloaded:
    return Overloaded("busy", kind="overloaded")


async def test_a_name_stands_for_a_name_a_model_or_what_a_function_gives() -> None:
    made = ScriptedModel("one", "two", "three", "four")
    register("mine", made)
    register("fast", "mine")
    register("new", lambda: made)
    assert [(await resolve(name).complete("Hi")).text for name in ("mine", "fast", "new")] == ["one", "two", "three"]
    with using("fast") as here:
        assert (await here.model.complete("Hi")).text == "four"  # type: ignore[union-attr]
    assert registered() == ("fast", "mine", "new")
    assert str(resolve("fast")) == "fast"


async def test_a_name_of_a_backend_keeps_the_options_that_it_is_resolved_with() -> None:
    register("fast", "demo/small")
    model = resolve("fast", system="Be brief.", socket="/nowhere")
    assert (model.name, model.settings.socket, model.defaults.system) == (
        ModelName("demo", "small"),
        "/nowhere",
        "Be brief.",
    )


async def test_a_list_of_names_is_a_client_with_fallbacks_and_options_go_to_each() -> None:
    first, second = ScriptedModel(busy(), name="first/a"), ScriptedModel("Hello.", name="second/b")
    register("second", second)
    register("fast", [first, "second"])
    done = await resolve("fast", system="Be brief.").complete("Hi")
    assert (done.text, str(done.model)) == ("Hello.", "second/b")
    assert second.asked[0].system == "Be brief."


async def test_a_client_tells_of_the_fallbacks_behind_a_name() -> None:
    register("fast", [ScriptedModel(busy(), name="first/a"), ScriptedModel(busy(), name="second/b")])
    told: list[Fallback] = []
    client = Client("fast", [ScriptedModel("At last.")], retry=RetryPolicy(attempts=1), on_fallback=told.append)
    assert (await client.complete("Hi")).text == "At last."
    assert [(step.model, step.to) for step in told] == [("first/a", "second/b"), ("second/b", "scripted/model")]


async def test_a_name_goes_wherever_a_model_goes() -> None:
    register("mine", ScriptedModel("one", "two", {"b": "three"}))
    async with Conversation("mine") as conversation:
        assert (await conversation.send("Hi")).text == "one"
    assert (await as_model("mine").complete("Hi")).text == "two"  # type: ignore[attr-defined]
    assert (await Predict("a -> b", model="mine")(a="x")).b == "three"


def test_blocking_code_has_the_same_names() -> None:
    register("mine", ScriptedModel("one", "two"))
    assert blocking.resolve("mine").complete("Hi").text == "one"
    assert blocking.Client("mine").complete("Hi").text == "two"


@pytest.mark.parametrize(
    ("names", "path"),
    [({"a": "a"}, "a -> a"), ({"a": "b", "b": ["demo", "c"], "c": "a"}, "a -> b -> c -> a")],
)
def test_names_that_lead_back_to_themselves_are_refused(names: dict[str, Any], path: str) -> None:
    for name, model in names.items():
        register(name, model)
    with pytest.raises(UsageError, match=path):
        resolve("a")


@pytest.mark.parametrize(
    ("name", "model"), [("", "demo"), ("a b", "demo"), (1, "demo"), ("a", []), ("a", 3), ("a", [lambda: None])]
)
def test_what_is_no_name_or_no_model_is_refused(name: Any, model: Any) -> None:
    with pytest.raises(UsageError):
        register(name, model)
    assert registered() == ()


def test_a_function_that_gives_no_model_is_refused() -> None:
    register("a", lambda: 3)  # type: ignore[arg-type,return-value]
    with pytest.raises(UsageError, match="is not a model"):
        resolve("a")


def test_a_name_that_is_not_there_suggests_those_that_are_spelled_nearly_so() -> None:
    register("fast", "demo")
    with pytest.raises(UsageError, match="did you mean 'fast'"):
        unregister("fats")


async def test_an_unknown_backend_suggests_near_names(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    register("quick", "demo")
    with trio.fail_after(BOUND_S):
        for name, near in (("quik", "quick"), ("dmeo", "demo")):
            with pytest.raises(BackendUnavailable, match=f"did you mean '{near}'"):
                await resolve(name, socket=daemon.socket).complete("Hi")


def test_many_threads_may_register_and_resolve() -> None:
    failures: list[BaseException] = []

    def work(mark: int) -> None:
        try:
            for turn in range(100):
                register(f"n{mark}", [f"n{mark}-{turn}", "demo"])
                resolve(f"n{mark}")
                unregister(f"n{mark}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and registered() == ()


# -- from the subscription to the key


async def test_the_limit_of_an_account_hands_the_conversation_with_its_tool_calls_to_the_next_model(
    serve: Callable[..., Harness],
) -> None:
    """`Client("claude/opus", ["anthropic-api/..."])`, with the demo as both: the second one is the demo, too, by another name."""
    daemon = serve()
    told: list[Fallback] = []

    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    first = resolve("demo", socket=daemon.socket, cwd=str(daemon.cwd), labels={"pays": "subscription"})
    second = ScriptedModel(Reply("It is 3.", ToolCall("add", {"a": 3, "b": 4}), "It is 7."), name="key/model")
    client = Client(first, [second], retry=RetryPolicy(attempts=1), on_fallback=told.append)
    with trio.fail_after(BOUND_S):
        async with Conversation(client, tools=[add]) as conversation:
            one = await conversation.send('@usage 10 2\n@cost 0.25\n@mcp add {"a": 1, "b": 2}\nThat is it.')
            two = await conversation.send("@error usage_limit")
    (asked,) = second.asked
    assert isinstance(told[0].error, RateLimited) and (told[0].model, told[0].to) == ("demo", "key/model")
    blocks = [block for message in asked.messages for block in message.content]
    assert [block.text for block in blocks if isinstance(block, ToolResultBlock)] == ["3"], "the call went along"
    assert asked.messages[-1] == Message.user("@error usage_limit")
    assert [(turn.model, turn.outcome) for turn in (one, two)] == [("demo", "completed"), ("key/model", "completed")]
    assert [call.essence for call in two.calls] == [("add", {"a": 3, "b": 4}, "7", False)]
    assert (one.usage.input_tokens, one.cost and one.cost.usd) == (10, 0.25)
    assert conversation.usage.input_tokens == 10 and conversation.cost == one.cost, "the failed try is no second answer"


async def test_the_next_chat_begins_with_the_first_model_again() -> None:
    first = ScriptedModel(RateLimited("limit", kind="rate_limit"), "Hello again.")
    client = Client(first, [ScriptedModel("Hello.")], retry=RetryPolicy(attempts=1))
    texts = []
    for _ in range(2):
        async with client.chat(ChatOptions()) as chat:
            texts += [event.completion.text async for event in chat.stream("Hi") if hasattr(event, "completion")]
    assert texts == ["Hello.", "Hello again."]
