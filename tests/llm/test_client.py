"""A client with fallbacks: what it tries again, when it asks the next model, and what it never repeats."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from harness import Harness, until

from clisup.client.nurseries import open_plain_nursery
from clisup.llm.answers import Completion, Finished, Retracted, StreamEvent, TextDelta, Waiting
from clisup.llm.chat import Chat, ChatOptions
from clisup.llm.failures import (
    Authentication,
    Cancelled,
    Failed,
    InvalidRequest,
    LLMError,
    Overloaded,
    RateLimited,
    Refused,
    Uncertain,
)
from clisup.llm.fallbacks import Fallback, Retry, RetryPolicy, falls_back
from clisup.llm.messages import Message
from clisup.llm.models import Client, resolve
from clisup.llm.testing import Asked, Reply, ScriptedModel, ToolCall

NOW = datetime(2026, 1, 1, tzinfo=UTC)
AT_ONCE = RetryPolicy(first_delay_s=0.0)


def overloaded(**about: Any) -> Overloaded:
    return Overloaded("busy", kind="overloaded", **{"retryable": True, **about})


def dead() -> Authentication:
    return Authentication("not logged in", kind="authentication")


async def all_of(client: Client, *prompts: str, options: ChatOptions | None = None) -> list[StreamEvent]:
    events: list[StreamEvent] = []
    async with client.chat(options) as chat:
        for prompt in prompts:
            events += [event async for event in chat.stream(prompt)]
    return events


def ends(events: list[StreamEvent]) -> list[Completion]:
    return [event.completion for event in events if isinstance(event, Finished)]


# -- the policy


def test_the_pause_grows_and_chance_makes_it_shorter() -> None:
    policy = RetryPolicy(attempts=10, first_delay_s=1.0, factor=3.0, max_delay_s=20.0, jitter=0.5)
    assert [policy.delay_s(overloaded(), n, chance=0.0, now=NOW) for n in (1, 2, 3, 4)] == [1.0, 3.0, 9.0, 20.0]
    assert policy.delay_s(overloaded(), 2, chance=1.0, now=NOW) == 1.5
    assert policy.delay_s(overloaded(), 10, chance=0.0, now=NOW) is None


def test_what_the_backend_says_of_the_time_is_kept_to_and_never_cut_short() -> None:
    policy = RetryPolicy(max_retry_after_s=100.0)
    for chance in (0.0, 0.9):
        delay = policy.delay_s(overloaded(retry_after_s=30.0), 1, chance=chance, now=NOW)
        assert delay is not None and delay >= 30.0
    until = overloaded(resets_at="2026-01-01T00:00:40Z")
    assert policy.delay_s(until, 1, chance=0.0, now=NOW) == 40.0
    assert policy.delay_s(overloaded(retry_after_s=101.0), 1, chance=0.0, now=NOW) is None
    assert policy.delay_s(overloaded(resets_at="soon"), 1, chance=0.0, now=NOW) == 1.0


@pytest.mark.parametrize("error", [overloaded(side_effects=True), overloaded(retryable=False), dead()])
def test_what_is_not_made_again(error: LLMError) -> None:
    assert RetryPolicy().delay_s(error, 1, chance=0.0, now=NOW) is None


@pytest.mark.parametrize(
    ("error", "other_model_helps"),
    [
        (dead(), True),
        (overloaded(), True),
        (Failed("crash", kind="crashed"), True),
        (overloaded(side_effects=True), False),
        (InvalidRequest("bad", kind="invalid_request"), False),
        (Refused("no", kind="refusal"), False),
        (Cancelled("stop", kind="cancelled"), False),
        (Uncertain("?", kind="crashed"), False),
    ],
)
def test_when_another_model_is_asked(error: LLMError, other_model_helps: bool) -> None:
    assert falls_back(error) is other_model_helps


# -- the client


async def test_an_answer_of_the_primary_is_the_answer() -> None:
    spare = ScriptedModel()
    done = await Client(ScriptedModel("Hello."), [spare]).complete("Hi")
    assert (done.text, spare.opened) == ("Hello.", 0)


async def test_a_failure_is_tried_again_and_told_before() -> None:
    told: list[Retry] = []
    model = ScriptedModel(overloaded(), overloaded(), "Hello.")
    events = await all_of(Client(model, retry=AT_ONCE, on_retry=told.append), "Hi")
    assert [(retry.attempt, retry.model) for retry in told] == [(1, "scripted/model"), (2, "scripted/model")]
    assert [event for event in events if isinstance(event, Waiting)] == [Waiting("retry: overloaded", 0.0)] * 2
    assert ends(events)[0].text == "Hello."
    assert model.opened == 1


async def test_the_last_error_is_raised_when_no_model_is_left() -> None:
    models = [ScriptedModel(then=lambda asked: overloaded()), ScriptedModel(dead())]
    with pytest.raises(Authentication):
        await Client(models[0], models[1:], retry=AT_ONCE).complete("Hi")
    assert [len(model.asked) for model in models] == [3, 1]


async def test_the_conversation_goes_along_to_the_next_model_which_keeps_it() -> None:
    told: list[Fallback] = []

    async def tell(fallback: Fallback) -> None:
        await trio.lowlevel.checkpoint()
        told.append(fallback)

    primary = ScriptedModel(Reply(ToolCall("Read", result="x"), "One."), dead(), name="a/1")
    spare = ScriptedModel("Two.", "Three.", name="b/2")
    history = (Message.user("before"), Message.assistant("yes"))
    options = ChatOptions(system="Be.", history=history)
    events = await all_of(Client(primary, [spare], on_fallback=tell), "first", "second", "third", options=options)
    assert [end.text for end in ends(events)] == ["One.", "Two.", "Three."]
    assert [(one.model, one.to, one.error.kind) for one in told] == [("a/1", "b/2", "authentication")]
    assert spare.asked[0].messages == (
        *history,
        Message.user("first"),
        *ends(events)[0].messages,
        Message.user("second"),
    )
    assert spare.asked[0].system == "Be."
    assert [asked.prompt.text for asked in spare.asked] == ["second", "third"]


async def test_who_answers_now_is_told() -> None:
    client = Client(ScriptedModel("One.", dead(), name="a/1"), [ScriptedModel("Two.", name="b/2")])
    async with client.chat() as chat:
        names = [str(chat.model)]
        for prompt in ("first", "second"):
            async for _ in chat.stream(prompt):
                pass
            names.append(str(chat.model))
    assert names == ["a/1", "a/1", "b/2"]


async def test_nothing_is_repeated_after_a_tool_was_called() -> None:
    model = ScriptedModel(Reply(ToolCall("Bash", result="done"), error=overloaded()))
    spare = ScriptedModel()
    with pytest.raises(Overloaded) as failed:
        await Client(model, [spare], retry=AT_ONCE).complete("Hi")
    assert (failed.value.side_effects, len(model.asked), spare.opened) == (True, 1, 0)


async def test_text_that_was_streamed_before_the_failure_is_taken_back() -> None:
    model = ScriptedModel(Reply("Half of", error=overloaded()), "Hello.")
    events = await all_of(Client(model, retry=AT_ONCE), "Hi")
    place = events.index(Retracted("another try, after overloaded", all=True))
    assert any(isinstance(event, TextDelta) for event in events[:place])
    assert "".join(event.text for event in events[place:] if isinstance(event, TextDelta)) == "Hello."


async def test_a_limit_that_lasts_too_long_is_not_waited_for() -> None:
    limited = RateLimited("limit", kind="rate_limit", retryable=True, retry_after_s=7200.0)
    events = await all_of(Client(ScriptedModel(limited), [ScriptedModel("Hello.")]), "Hi")
    assert ends(events)[0].text == "Hello."
    assert not [event for event in events if isinstance(event, Waiting)]


async def test_what_the_user_names_is_fallen_back_on() -> None:
    refused = Refused("no", kind="refusal")
    done = await Client(ScriptedModel(refused), [ScriptedModel("Yes.")], fallback_on=(Refused,)).complete("Hi")
    assert done.text == "Yes."


async def test_a_value_is_asked_for_in_words_where_the_fallback_has_no_way_of_its_own() -> None:
    def answer(asked: Asked) -> str:
        assert "JSON Schema" in asked.prompt.text
        return "[1, 2]"

    client = Client(ScriptedModel(dead(), structured=True), [ScriptedModel(answer)])
    assert (await client.structured("Numbers?", list[int])).value == [1, 2]


async def test_a_stream_of_a_client_that_is_left_is_left_below() -> None:
    model = ScriptedModel("many words are here", "next")
    async with Client(model).chat() as chat:
        async for _ in chat.stream("1"):
            break
        async for _ in chat.stream("2"):
            pass
    assert [asked.outcome for asked in model.asked] == ["left", "finished"]


async def test_a_chat_that_ends_by_itself_is_opened_again_with_what_was_said() -> None:
    """As where the daemon stayed away too long for the tools that were served."""

    class Frail(ScriptedModel):
        ends, ended = trio.Event(), trio.Event()

        @asynccontextmanager
        async def _chat(self, options: ChatOptions) -> AsyncIterator[Chat]:
            try:
                async with super()._chat(options) as chat, open_plain_nursery() as nursery:
                    nursery.start_soon(self._end)
                    yield chat
            finally:
                self.ended.set()

        async def _end(self) -> None:
            await self.ends.wait()
            if self.opened == 1:
                raise Failed("gone", kind="daemon_not_running")

    model = Frail("One.", "Two.")
    async with Client(model).chat() as chat:
        [_ async for _ in chat.stream("first")]
        model.ends.set()
        await model.ended.wait()
        await trio.testing.wait_all_tasks_blocked()
        events = [event async for event in chat.stream("second")]
    assert ends(events)[0].text == "Two."
    assert [message.text for message in model.asked[1].messages] == ["first", "One.", "second"]


async def test_the_prompt_after_one_to_a_session_that_somebody_closed_gets_another_session() -> None:
    model = ScriptedModel("One.", Failed("cannot prompt, because it is closed", kind="session_closed"), "Three.")
    async with Client(model).chat() as chat:
        [_ async for _ in chat.stream("first")]
        with pytest.raises(Failed):
            [_ async for _ in chat.stream("second")]
        [_ async for _ in chat.stream("third")]
    assert model.opened == 2
    assert [message.text for message in model.asked[2].messages] == ["first", "One.", "third"]


def test_a_limit_says_when_it_ends_by_the_name_that_others_have_for_it() -> None:
    assert RateLimited("limit", kind="rate_limit", retry_after_s=3.0).retry_after == 3.0
    assert RateLimited("limit", kind="rate_limit").retry_after is None


async def test_a_cancelled_pause_is_cancelled() -> None:
    client = Client(ScriptedModel(overloaded()), retry=RetryPolicy(first_delay_s=1000.0, jitter=0.0))
    with trio.move_on_after(0.1) as scope:
        await client.complete("Hi")
    assert scope.cancelled_caught


async def test_real_backends_fall_back_and_the_history_goes_along(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    """The first one's account is limited for an hour. The other one quotes the first prompt that it knows of."""
    daemon = serve(raw=f'[backends.other]\nkind = "demo"\nenv = {{ DEMO_CLI_HOME = "{tmp_path}" }}\n')
    here: dict[str, Any] = {"socket": daemon.socket, "cwd": str(daemon.cwd)}
    client = Client(resolve("demo", **here), [resolve("other", **here)], retry=AT_ONCE)
    with trio.fail_after(90):
        async with client.chat() as chat:
            [_ async for _ in chat.stream("My name is Ada.")]
            first = chat.session_id
            assert str(chat.model) == "demo"
            with pytest.raises(RateLimited):
                await resolve("demo", **here).complete("@limit 3600")
            events = [event async for event in chat.stream("@recall")]
            assert str(chat.model) == "other" and chat.session_id != first
    assert "My name is Ada." in str(events)


async def test_a_client_that_is_cancelled_leaves_no_process_and_no_session(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    client = Client(resolve("demo", socket=daemon.socket, cwd=str(daemon.cwd)))
    with trio.fail_after(90):
        with trio.CancelScope() as scope:
            async with client.chat() as chat:
                async for _ in chat.stream("@stream 5\n@stall"):
                    scope.cancel()
        assert scope.cancelled_caught
    until(lambda: not daemon.leftovers(), "its process lives")
    assert daemon.call("session/list")["sessions"] == []
    assert daemon.call("session/list", state="closed")["sessions"] == []


async def test_names_are_resolved_and_a_backend_that_is_not_there_is_passed_over(
    serve: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    daemon = serve()
    monkeypatch.setenv("CLISUP_SOCKET", daemon.socket)
    monkeypatch.chdir(tmp_path)
    with trio.fail_after(90):
        done = await Client("nonsense/model", ["demo"]).complete("Hi")
    assert (done.text, str(done.model)) == ("You said: Hi", "demo")
