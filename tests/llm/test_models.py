"""Models of a real daemon with the demo backend: calls, chats, and what is left when they end, however they end."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from harness import Harness, until

from clisup.errors import UsageError
from clisup.llm.answers import (
    Finished,
    FinishReason,
    MessageDone,
    ModelName,
    Retracted,
    TextDelta,
    ToolEnded,
    ToolInputDelta,
    ToolStarted,
    Waiting,
)
from clisup.llm.chat import ChatOptions, SessionBudget
from clisup.llm.failures import (
    BackendUnavailable,
    BudgetExhausted,
    Cancelled,
    DaemonUnavailable,
    Failed,
    InvalidRequest,
    LLMError,
    Overloaded,
    RateLimited,
    Refused,
)
from clisup.llm.messages import ImageBlock, Message, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from clisup.llm.models import Model, resolve
from clisup.llm.tools import tool

BOUND_S = 90.0
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360f8cfc0000000030001"
    "5bd5d4590000000049454e44ae426082"
)


@asynccontextmanager
async def bounded() -> AsyncIterator[None]:
    with trio.fail_after(BOUND_S):
        yield


def demo(daemon: Harness, **options: Any) -> Model:
    return resolve("demo", socket=daemon.socket, cwd=str(daemon.cwd), **options)


def sessions(daemon: Harness) -> list[dict[str, Any]]:
    open_ones = daemon.call("session/list")["sessions"]
    return [*open_ones, *daemon.call("session/list", state="closed")["sessions"]]


def processes(daemon: Harness) -> list[str]:
    """Keepers and CLIs of the daemon."""
    return list(daemon.leftovers().values())


@pytest.fixture
def daemon(serve: Callable[..., Harness]) -> Harness:
    return serve()


async def test_a_call_gives_a_whole_answer_and_leaves_no_session(daemon: Harness) -> None:
    async with bounded():
        done = await demo(daemon).complete("@usage 12 3\n@cost 0.5\n@text Hello there.")
    assert (done.text, done.finish_reason, str(done.model)) == ("Hello there.", FinishReason.STOP, "demo")
    assert (done.usage.input_tokens, done.usage.output_tokens) == (12, 3)
    assert done.cost is not None and (done.cost.usd, done.cost.source) == (0.5, "reported")
    assert done.messages == (Message.assistant("Hello there."),)
    assert sessions(daemon) == []


async def test_a_session_that_is_to_be_kept_stays_with_its_labels(daemon: Harness) -> None:
    async with bounded():
        done = await demo(daemon, keep=True, labels={"job": "a"}).complete("Hi", labels={"part": "b"})
    (kept,) = sessions(daemon)
    assert (kept["session_id"], kept["state"], kept["labels"]) == (
        done.session_id,
        "closed",
        {"job": "a", "part": "b"},
    )


async def test_a_chat_remembers_what_was_said(daemon: Harness) -> None:
    async with bounded(), demo(daemon).chat() as chat:
        texts = []
        for prompt in ("one", "@count", "@recall"):
            async with chat.stream(prompt) as events:  # type: ignore[attr-defined]
                texts.append((await events.finish()).text)
        assert chat.session_id is not None
    assert texts[0] == "You said: one"
    assert "2" in texts[1]
    assert "one" in texts[2]


async def test_a_stream_gives_text_tools_and_the_end_in_order(daemon: Harness) -> None:
    prompt = 'Let me look.\n@tool Read {"f": 1} => inside\nThat was all.'
    async with bounded(), demo(daemon).stream(prompt) as events:
        told = [event async for event in events]
    kinds = [type(event) for event in told if not isinstance(event, TextDelta | ToolInputDelta)]
    assert kinds == [ToolStarted, MessageDone, ToolEnded, MessageDone, Finished]
    assert "".join(event.text for event in told if isinstance(event, TextDelta)) == "Let me look.That was all."
    assert events.completion is not None and events.completion.text == "That was all."
    started = next(event for event in told if isinstance(event, ToolStarted))
    assert (started.name, started.input, started.ours) == ("Read", {"f": 1}, False)
    pieces = [event for event in told if isinstance(event, ToolInputDelta)]
    assert json.loads("".join(piece.json for piece in pieces)) == {"f": 1}
    assert {(piece.parent, piece.index) for piece in pieces} == {(None, 1)}
    assert told.index(pieces[-1]) < told.index(started)
    assert started.at.endswith("Z")


async def test_text_that_is_taken_back_and_retries_are_told(daemon: Harness) -> None:
    async with bounded(), demo(daemon).stream("@cut\n@retry overloaded 1\nDone.") as events:
        told = [event async for event in events]
    assert any(isinstance(event, Retracted) for event in told)
    assert any(isinstance(event, Waiting) and event.reason == "retry: overloaded" for event in told)
    assert "taken back" not in told[-1].completion.messages[0].text  # type: ignore[union-attr]


async def test_payloads_that_are_too_large_for_events_come_whole(serve: Callable[..., Harness]) -> None:
    daemon = serve(limits={"inline_bytes": 5000})
    result = "x" * 20_000
    async with bounded(), demo(daemon).stream(f'@huge 30000\n@tool Read {{"f": "{result}"}} => {result}') as events:
        told = [event async for event in events]
    assert len("".join(event.text for event in told if isinstance(event, TextDelta)).removesuffix("Done.")) == 30_000
    done = told[-1].completion  # type: ignore[union-attr]
    assert len(done.messages[0].text) == 30_000
    assert done.messages[0].content[-1].input == {"f": result}
    assert done.messages[1].content == (ToolResultBlock(tool_use_id=done.messages[0].content[-1].id, content=result),)


async def test_a_prompt_may_hold_images_and_a_conversation_its_past(
    daemon: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = ImageBlock.of(PNG, "image/png")
    async with bounded():
        monkeypatch.chdir(daemon.root)
        there = await resolve("demo", socket=daemon.socket, cwd="work").complete("@bash pwd")
        with_image = await demo(daemon).complete([TextBlock(text="@images"), image])
        history = [Message.user("My name is Ada."), Message.assistant("Hello Ada."), Message.user("@recall")]
        with_past = await demo(daemon).complete(history)
        with pytest.raises(InvalidRequest, match="no call waits for one"):
            await demo(daemon).complete(Message.user([ToolResultBlock(tool_use_id="a", content="b")]))
    assert str(daemon.cwd) in str(there.messages)
    assert "1" in with_image.text
    assert "My name is Ada." in with_past.text


@pytest.mark.parametrize(
    ("script", "failure", "kind"),
    [
        ("@error rate_limit", RateLimited, "rate_limit"),
        ("@error overloaded", Overloaded, "overloaded"),
        ("@error refusal", Refused, "refusal"),
        ("@error max_turns", Failed, "max_turns"),
        ("@crash", Failed, "crashed"),
    ],
)
async def test_a_turn_that_fails_is_raised_by_its_kind(
    daemon: Harness, script: str, failure: type[LLMError], kind: str
) -> None:
    async with bounded():
        with pytest.raises(failure) as raised:
            await demo(daemon).complete(script)
        with pytest.raises(failure) as after_a_tool:
            await demo(daemon).complete(f"@tool Read\n{script}")
    assert (raised.value.kind, raised.value.side_effects) == (kind, False)
    assert after_a_tool.value.side_effects
    assert sessions(daemon) == []


async def test_a_limited_account_refuses_at_once_or_is_waited_for(daemon: Harness) -> None:
    async with bounded():
        with pytest.raises(RateLimited):
            await demo(daemon).complete("@limit 2")
        with pytest.raises(RateLimited) as held:
            await demo(daemon).complete("Hi")
        assert held.value.retry_after_s is not None and held.value.retryable
        async with demo(daemon, when_limited="wait").stream("Hi") as events:
            told = [event async for event in events]
    assert Waiting("held") in told
    assert isinstance(told[-1], Finished)


async def test_what_the_daemon_refuses_is_raised_by_its_kind(daemon: Harness, tmp_path: Path) -> None:
    async with bounded():
        with pytest.raises(BackendUnavailable, match="nonsense"):
            await resolve("nonsense/model", socket=daemon.socket).complete("Hi")
        with pytest.raises(InvalidRequest):
            await demo(daemon, permission_mode="no such mode").complete("Hi")
        with pytest.raises(DaemonUnavailable):
            await resolve("demo", socket=str(tmp_path / "nobody")).complete("Hi")
    with pytest.raises(UsageError, match="backend/model"):
        resolve("no name")
    assert resolve("claude/opus").name == ModelName("claude", "opus")


async def test_leaving_a_stream_interrupts_its_turn_and_leaves_no_process(daemon: Harness) -> None:
    """By the end of the block that began it: at once, with the chat still open."""
    async with bounded(), demo(daemon).chat() as chat:
        async with chat.stream("@stream 5\n@stall") as events:  # type: ignore[attr-defined]
            assert isinstance(await anext(events), TextDelta)
            assert processes(daemon)
        until(lambda: not processes(daemon), "its process lives")
        (turn,) = daemon.call("session/events", session_id=chat.session_id, types=["turn_completed"])["events"]
        assert turn["outcome"] == "interrupted"
        async with chat.stream("And now?") as events:  # type: ignore[attr-defined]
            assert (await events.finish()).text == "You said: And now?"


async def test_a_break_out_of_the_loop_interrupts_the_turn_too(daemon: Harness) -> None:
    async with bounded(), demo(daemon).chat() as chat:
        async for _ in chat.stream("@stream 5\n@stall"):
            break
        with trio.fail_after(30):
            while processes(daemon):
                await trio.sleep(0.05)
        events = [event async for event in chat.stream("And now?")]
        assert isinstance(events[-1], Finished)


async def test_a_stream_that_is_still_held_is_ended_by_the_next(daemon: Harness) -> None:
    async with bounded(), demo(daemon).chat() as chat:
        first = chat.stream("@stream 5\n@stall")
        await anext(first)
        events = [event async for event in chat.stream("And now?")]
        assert isinstance(events[-1], Finished)
        with pytest.raises(StopAsyncIteration):
            await anext(first)


@pytest.mark.parametrize("after", [0, 1, 20])
async def test_a_call_that_is_cancelled_leaves_no_process_and_no_session(daemon: Harness, after: int) -> None:
    """Before the first event, too, when nobody knows whether the prompt was heard."""
    async with bounded():
        with trio.CancelScope() as scope:
            async with demo(daemon).stream("@stream 50 30 0.01\n@stall") as events:
                for _ in range(after):
                    await anext(events)
                scope.cancel()
                await anext(events)
        assert scope.cancelled_caught
    until(lambda: not processes(daemon), "its process lives")
    assert sessions(daemon) == []


async def test_somebody_elses_interrupt_is_raised(daemon: Harness) -> None:
    async with bounded():
        with pytest.raises(Cancelled):
            async with demo(daemon).stream("@stream 3\n@stall") as events:
                await anext(events)
                (session,) = daemon.call("session/list")["sessions"]
                await trio.to_thread.run_sync(
                    lambda: daemon.call("session/interrupt", session_id=session["session_id"])
                )
                await events.finish()


async def test_tools_are_run_here_when_the_real_process_calls_them(daemon: Harness) -> None:
    """Two in one message; the chat's own, by their own names, with results that are in the messages."""
    called: list[int] = []

    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        called.append(a)
        return a + b

    prompt = '@parallel\n@mcp add {"a": 1, "b": 2}\n@mcp add {"a": 3, "b": "four"}\n@end\nDone.'
    async with bounded(), demo(daemon).stream(prompt, tools=[add]) as events:
        told = [event async for event in events]
    started = [event for event in told if isinstance(event, ToolStarted)]
    assert [(event.name, event.ours) for event in started] == [("add", True)] * 2
    results = {event.result.tool_use_id: event.result for event in told if isinstance(event, ToolEnded)}
    assert (results[started[0].id].text, results[started[0].id].is_error) == ("3", False)
    assert results[started[1].id].is_error and called == [1]
    done = told[-1].completion  # type: ignore[union-attr]
    assert [block.type for block in done.messages[0].content] == ["tool_use"] * 2
    assert {block.name for block in done.messages[0].content} == {"add"}
    assert done.text == "Done."


async def test_a_backend_without_tools_refuses_them(serve: Callable[..., Harness]) -> None:
    daemon = serve(raw='[backends.acp]\nkind = "acp"\ncommand = ["true"]\n')

    @tool
    def ping() -> str:
        """Ping."""
        return "pong"

    async with bounded():
        with pytest.raises(LLMError) as refused:
            await resolve("acp", socket=daemon.socket, cwd=str(daemon.cwd)).complete("Hi", tools=[ping])
    assert refused.value.kind == "unsupported"


async def test_a_turn_with_a_tool_at_work_is_left_like_any_other(daemon: Harness) -> None:
    begun, ended = trio.Event(), trio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    async with bounded(), demo(daemon).stream("@mcp wait", tools=[wait]) as events:
        await anext(events)
        await begun.wait()
    assert ended.is_set()
    until(lambda: not processes(daemon), "its process lives")
    assert sessions(daemon) == []


async def test_a_session_is_held_to_its_budget(daemon: Harness) -> None:
    async with bounded(), demo(daemon).chat(ChatOptions(budget=SessionBudget(usd=1.0))) as chat:
        [_ async for _ in chat.stream("@cost 1.5")]  # its answer is there: nothing to end
        with pytest.raises(BudgetExhausted) as refused:
            [_ async for _ in chat.stream("Hi")]
    assert (refused.value.kind, refused.value.data["which"]) == ("budget_exhausted", "usd")
    limit = SessionBudget(tokens=10)
    async with bounded():
        with pytest.raises(BudgetExhausted) as ended:
            await demo(daemon).complete("@usage 100 1\n@tool Read => x\n@stall", budget=limit)
    assert (ended.value.kind, ended.value.side_effects) == ("budget", True)


async def test_a_model_is_asked_side_by_side(daemon: Harness) -> None:
    model, texts = demo(daemon), {}

    async def ask(n: int) -> None:
        texts[n] = (await model.complete(f"number {n}")).text

    async with bounded(), trio.open_nursery() as nursery:
        for n in range(8):
            nursery.start_soon(ask, n)
    assert texts == {n: f"You said: number {n}" for n in range(8)}
    assert sessions(daemon) == []


async def test_a_history_as_codex_tells_it_is_taken(daemon: Harness) -> None:
    """Reasoning, text and calls are messages of their own there; an API takes no empty ones."""
    call = ToolUseBlock(id="c1", name="shell", input={"a": 1})
    history = [
        Message.user("My name is Ada."),
        Message.assistant([ThinkingBlock(text="Hm.")]),
        Message.assistant("Let me see."),
        Message.assistant([call]),
        Message.user([ToolResultBlock(tool_use_id="c1", content="")]),
        Message.assistant([ThinkingBlock(text="So."), TextBlock(text="")]),
        Message.assistant("Hello Ada."),
    ]
    async with bounded():
        done = await demo(daemon).complete("@recall", history=history)
    assert "My name is Ada." in done.text


async def test_a_backend_that_takes_no_history_reads_it_as_text(
    daemon: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(client: object, backend: str) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        return {}

    monkeypatch.setattr("clisup.llm.sessions.opening._capabilities", nothing)
    image = ImageBlock.of(PNG, "image/png")
    history = [Message.user([TextBlock(text="My name is Ada."), image]), Message.assistant("Hello.")]
    async with bounded(), demo(daemon).chat(ChatOptions(system="Be brief.", history=history)) as chat:
        first, second = [
            [event async for event in chat.stream(prompt)][-1].completion.text  # type: ignore[union-attr]
            for prompt in ("Who am I?", "And now?")
        ]
    told = ["Be brief.", "<user>\nMy name is Ada.\n[an image, image/png]\n</user>", "<assistant>\nHello.", "Who am I?"]
    assert all(words in first for words in told) and "Ada" not in second


async def test_a_chat_writes_notes_into_its_journal(daemon: Harness) -> None:
    async with bounded(), demo(daemon).chat() as chat:
        await chat.note("client.test", "A note.", {"a": 1})  # type: ignore[attr-defined]
        (note,) = daemon.call("session/events", session_id=chat.session_id, types=["notice"])["events"]
        assert (note["code"], note["data"]) == ("client.test", {"a": 1})


async def test_a_chat_ends_well_though_the_daemon_stays_away(daemon: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clisup.llm.sessions.session_chat.CLOSING_S", 0.2)
    async with bounded(), demo(daemon).chat() as chat:
        async for _ in chat.stream("Hi"):
            pass
        daemon.kill()
    daemon.start()
    assert len(sessions(daemon)) == 1


async def test_the_end_of_a_chat_waits_for_a_daemon_that_restarts(daemon: Harness) -> None:
    async with bounded(), trio.open_nursery() as nursery, demo(daemon).chat() as chat:
        async for _ in chat.stream("Hi"):
            pass
        daemon.kill()
        nursery.start_soon(trio.to_thread.run_sync, daemon.start)
    assert sessions(daemon) == []


@pytest.mark.parametrize("way", ["kill", "in-place"])
async def test_no_event_is_lost_or_doubled_though_the_daemon_goes_away_in_the_middle(
    daemon: Harness, tmp_path: Path, way: str
) -> None:
    """What the stream gives is what it gives without the accident: the same text, piece by piece, and the same messages."""
    script = f"@stream 40\n@tool Read => inside\n@wait-file {tmp_path}/go\n@stream 40\n@tool Bash => ran\nThe end."
    told, accidents = [], 0

    def accident() -> None:
        if way == "kill":
            daemon.restart()
        else:
            before = daemon.identity()["instance_id"]
            daemon.call("daemon/restart")
            daemon.await_successor(before)
        (tmp_path / "go").touch()

    async with bounded(), demo(daemon).stream(script) as events:
        async for event in events:
            told.append(event)
            if len(told) == 20:
                accidents += 1
                await trio.to_thread.run_sync(accident)
    chunks = [f"chunk {n:06d}" for n in range(40)]
    text = "".join(event.text for event in told if isinstance(event, TextDelta))
    assert accidents == 1
    assert [text.count(chunk) for chunk in chunks] == [2] * 40
    assert [type(event).__name__ for event in told if not isinstance(event, TextDelta | ToolInputDelta)] == [
        "ToolStarted", "MessageDone", "ToolEnded", "ToolStarted", "MessageDone", "ToolEnded", "MessageDone", "Finished"
    ]  # fmt: skip
    done = events.completion
    assert done is not None and done.text == "The end."
    assert [message.role for message in done.messages] == ["assistant", "user", "assistant", "user", "assistant"]
    assert "".join(message.text for message in done.messages if message.role == "assistant") == text
