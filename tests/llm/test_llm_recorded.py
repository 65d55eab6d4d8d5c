"""A recording says again what was said, to who asks the same, and nothing to who asks anything else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from harness import Harness

from clisup.errors import UsageError
from clisup.llm.answers import Cost, StreamEvent
from clisup.llm.chat import ChatOptions, LanguageModel
from clisup.llm.failures import RateLimited
from clisup.llm.messages import Message
from clisup.llm.models import resolve
from clisup.llm.testing import RecordingModel, ReplayingModel, Reply, ScriptedModel, ScriptError, Thinking, ToolCall
from clisup.llm.testing.recorded import RecordedAnswer
from clisup.model.usage import Usage


async def all_of(model: LanguageModel, *prompts: str, options: ChatOptions | None = None) -> list[StreamEvent]:
    events: list[StreamEvent] = []
    async with model.chat(options) as chat:
        for prompt in prompts:
            events += [event async for event in chat.stream(prompt)]
    return events


def script() -> ScriptedModel:
    usage = Usage(input_tokens=3, source="reported")
    return ScriptedModel(
        Reply(Thinking("Hm."), ToolCall("Read", {"f": 1}, result="x"), "One.", usage=usage, cost=Cost(0.5, "reported")),
        Reply(ToolCall("Task", inside=["Inside."]), "Two.", structured={"a": [1]}),
        structured=True,
    )


async def test_what_was_said_is_said_again_event_by_event(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    options = ChatOptions(system="Be.", history=(Message.user("a"), Message.assistant("b")))
    heard = await all_of(RecordingModel(script(), path), "first", "second", options=options)
    model = ReplayingModel(path)
    with pytest.raises(ScriptError, match=r"2 answers .* never asked for"):
        model.assert_used_up()
    assert await all_of(model, "first", "second", options=options) == heard
    model.assert_used_up()


async def test_who_asks_something_else_is_told_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    await all_of(RecordingModel(script(), path), "first")
    with pytest.raises(ScriptError, match=r"differs in messages:[^$]*other[^$]*first"):
        await all_of(ReplayingModel(path), "other")
    with pytest.raises(ScriptError, match="differs in system"):
        await all_of(ReplayingModel(path), "first", options=ChatOptions(system="Be."))
    with pytest.raises(ScriptError, match="differs in output_schema"):
        async with ReplayingModel(path).chat() as chat:
            await anext(aiter(chat.stream("first", output_schema={"type": "object"})))
    model = ReplayingModel(path)
    await all_of(model, "first")
    with pytest.raises(ScriptError, match="all answers are used"):
        await all_of(model, "first")


async def test_answers_are_found_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    recording = RecordingModel(ScriptedModel("One.", "Two."), path)
    for prompt in ("first", "second"):
        await recording.complete(prompt)
    model = ReplayingModel(path)
    assert [(await model.complete(prompt)).text for prompt in ("second", "first")] == ["Two.", "One."]


async def test_a_failure_fails_again_with_all_that_it_told(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    limited = RateLimited("wait", kind="rate_limit", hint="later", retryable=True, retry_after_s=7.0, resets_at="soon")
    recording = RecordingModel(ScriptedModel(Reply(ToolCall("Bash", result=""), error=limited)), path)
    with pytest.raises(RateLimited):
        await recording.complete("first")
    with pytest.raises(RateLimited) as failed:
        await ReplayingModel(path).complete("first")
    told = failed.value
    assert (told.kind, told.message, told.hint, told.retryable) == ("rate_limit", "wait", "later", True)
    assert (told.retry_after_s, told.side_effects, told.data) == (7.0, True, {"resets_at": "soon"})


async def test_a_stream_that_was_left_can_be_left_again_and_has_no_end(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    async with RecordingModel(ScriptedModel("many words are here"), path).stream("first") as events:
        first = await anext(events)
    async with ReplayingModel(path).stream("first") as events:
        assert await anext(events) == first
    with pytest.raises(ScriptError, match="was abandoned during the recording"):
        await ReplayingModel(path).complete("first")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match=r"cannot replay .*/none.jsonl: No such file .*; record it"):
        ReplayingModel(tmp_path / "none.jsonl")


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    for text, reason in (
        ('{"format": "clisup-llm-recording", "version": 2}\n', "version 2.*record it again"),
        ("nonsense\n", "not a recording"),
        ("", "not a recording of a model: it has no whole line"),
        ('{"format": "clisup-llm-recording", "version": 1}\n{"events": 1}\n', "not a recording"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=reason):
            ReplayingModel(path)


async def test_a_line_that_was_cut_and_what_a_newer_version_adds_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    heard = await all_of(RecordingModel(ScriptedModel("One."), path), "first")
    header, line = path.read_text().splitlines()
    record = json.loads(line) | {"new": 1}
    record["events"].append({"type": "Newer", "field": 1})
    path.write_text(f"{header}\n{json.dumps(record)}\n{line[:50]}")
    assert await all_of(ReplayingModel(path), "first") == heard


def test_an_answer_is_one_line_whatever_is_in_it() -> None:
    line = RecordedAnswer({"messages": ["a\nb\u2028c"]}).line()
    assert line.count("\n") == 1 and line.endswith("\n")


async def test_a_real_backend_is_recorded_and_replayed(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve()
    path = tmp_path / "tape.jsonl"
    model = resolve("demo", socket=daemon.socket, cwd=str(daemon.cwd))
    with trio.fail_after(90):
        heard = await all_of(RecordingModel(model, path), "@think Hm.\n@tool Read => x\nDone.", "@count")
        assert await all_of(ReplayingModel(path), "@think Hm.\n@tool Read => x\nDone.", "@count") == heard
