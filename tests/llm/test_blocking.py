"""The blocking twin says and does what the asynchronous one does, from any thread, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from harness import ENVIRONMENT, PATIENCE_S, Harness, until

import clisup
from clisup.llm import blocking
from clisup.llm.answers import Finished, TextDelta
from clisup.llm.blocking import the_portal
from clisup.llm.chat import ChatOptions
from clisup.llm.failures import Authentication, DaemonUnavailable, InvalidRequest, Overloaded
from clisup.llm.signatures import using
from clisup.llm.testing import Reply, ScriptedModel
from clisup.llm.workflow import Loop, Stage, StageRun


def of(*steps: Any, **options: Any) -> tuple[blocking.BlockingModel, ScriptedModel]:
    model = ScriptedModel(*steps, **options)
    return blocking.BlockingModel(model), model


def test_one_call_gives_a_whole_answer_and_errors_come_as_they_are() -> None:
    model, _ = of("Hello.", Overloaded("busy", kind="overloaded"), "[1]")
    assert model.complete("Hi").text == "Hello."
    with pytest.raises(Overloaded, match="busy"):
        model.complete("Hi")
    assert model.structured("Numbers?", list[int]).value == [1]


def test_a_chat_streams_event_by_event() -> None:
    model, asked = of("One two.", "Three.", "Four.")
    with model.chat(ChatOptions(system="Be.")) as chat:
        events = list(chat.stream("first"))
        assert isinstance(events[-1], Finished)
        with chat.stream("second") as stream:
            assert stream.finish().text == "Three." and stream.completion is not None
        assert chat.complete("third").text == "Four."
        assert (str(chat.model), chat.session_id) == ("scripted/model", None)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "One two."
    assert [len(one.messages) for one in asked.asked] == [1, 3, 5]


def test_a_stream_that_is_left_is_left_below() -> None:
    model, asked = of("many words are here", "more words are here")
    with model.chat() as chat, chat.stream("first") as stream:
        next(stream)
    with model.stream("second") as stream:
        for _ in stream:
            break
    assert [one.outcome for one in asked.asked] == ["left", "left"]


def test_a_stream_without_its_block_says_what_to_write() -> None:
    model, asked = of("many words are here")
    with pytest.raises(TypeError, match=r"write `with model.stream\(...\) as events:`"):
        list(model.stream("first"))
    assert asked.opened == 0


def test_one_fallback_may_stand_alone() -> None:
    assert repr(blocking.Client("claude/opus", fallbacks="codex").model) == "Client(claude/opus, codex)"


def test_a_client_falls_back() -> None:
    primary, _ = of(Authentication("no", kind="authentication"))
    assert blocking.Client(primary, [ScriptedModel("Hello.")]).complete("Hi").text == "Hello."


def test_a_conversation_is_had_in_a_block() -> None:
    model, asked = of("One.", "Two words.", "Three.")
    with blocking.Conversation(model, system="Be.") as conversation:
        assert conversation.send("first").text == "One."
        assert isinstance(list(conversation.stream("second"))[-1], Finished)
        with conversation.stream("third") as stream:
            stream.finish()
    assert [turn.text for turn in conversation.turns] == ["One.", "Two words.", "Three."]
    assert len(conversation.messages) == 6
    assert asked.asked[2].system == "Be." and len(asked.asked[2].messages) == 5


def test_threads_call_side_by_side() -> None:
    both, running = trio.Event(), [0]

    async def meet() -> None:
        running[0] += 1
        if running[0] == 2:
            both.set()
        await both.wait()

    model, _ = of(then=Reply(meet, "Met."))
    texts: list[str] = []
    threads = [threading.Thread(target=lambda: texts.append(model.complete("Hi").text)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert texts == ["Met.", "Met."]


async def test_trio_code_is_told_that_this_is_no_place_for_it() -> None:
    await trio.lowlevel.checkpoint()
    with pytest.raises(RuntimeError, match="blocking"):
        blocking.BlockingModel(ScriptedModel("Hello.")).complete("Hi")


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, TimeoutError])
def test_a_call_that_is_interrupted_is_cancelled(
    monkeypatch: pytest.MonkeyPatch, interrupt: type[BaseException]
) -> None:
    """By Ctrl-C, or by what the program's own handler of a signal raises."""
    cancelled = threading.Event()

    async def wait() -> None:
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    def interrupted(run: Callable[..., Any], *, trio_token: trio.lowlevel.TrioToken) -> None:
        trio_token.run_sync_soon(trio.lowlevel.spawn_system_task, run)
        raise interrupt

    portal = the_portal()
    monkeypatch.setattr(trio.from_thread, "run", interrupted)
    with pytest.raises(interrupt):
        portal.call(wait)
    assert cancelled.wait(PATIENCE_S)


def test_what_goes_wrong_at_the_end_of_a_block_is_raised_to_who_leaves_it() -> None:
    class Sour(ScriptedModel):
        def chat(self, options: ChatOptions | None = None) -> Any:
            return self._sour()

        from contextlib import asynccontextmanager

        @asynccontextmanager
        async def _sour(self) -> Any:
            await trio.lowlevel.checkpoint()
            yield object()
            raise Overloaded("at the end", kind="overloaded")

    with pytest.raises(Overloaded, match="at the end"), blocking.BlockingModel(Sour()).chat():
        pass
    assert of("still there")[0].complete("Hi").text == "still there"


def test_a_real_backend_answers_and_nothing_is_left(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve()
    with pytest.raises(DaemonUnavailable):
        blocking.resolve("demo", socket=str(tmp_path / "nobody")).complete("Hi")
    model = blocking.resolve("demo", socket=daemon.socket, cwd=str(daemon.cwd))
    assert model.complete("Hi").text == "You said: Hi"
    with model.chat() as chat:
        chat.complete("one")
        assert "2" in chat.complete("@count").text
        with chat.stream("@stream 5\n@stall") as stream:
            next(stream)
    until(lambda: not daemon.leftovers(), "a process lives")
    assert daemon.call("session/list", state="closed")["sessions"] == []


def test_a_prompt_that_is_larger_than_the_daemon_reads_is_an_invalid_request(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon={"max_frame_bytes": 4096})
    with pytest.raises(InvalidRequest, match="more than 4096 bytes"):
        blocking.resolve("demo", socket=daemon.socket, cwd=str(daemon.cwd)).complete("x" * 5000)


def test_a_program_that_ends_in_the_middle_ends_its_chats(serve: Callable[..., Harness]) -> None:
    """By an exception that nobody catches, with a chat that no block closes."""
    daemon = serve()
    program = (
        "from clisup.llm import blocking\n"
        f"model = blocking.resolve('demo', socket={daemon.socket!r}, cwd={str(daemon.cwd)!r})\n"
        "chat = model.chat()\n"
        "stream = chat.__enter__().stream('@stream 5\\n@stall')\n"
        "next(stream)\n"
        "raise SystemExit(7)\n"
    )
    env = {**ENVIRONMENT, "PYTHONPATH": str(Path(clisup.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (7, "")
    until(lambda: not daemon.leftovers(), "a process lives")
    assert daemon.call("session/list")["sessions"] == []


# -- typed questions and workflows


def test_a_typed_question_gives_a_value() -> None:
    model, asked = of({"answer": "Rome", "sure": True}, {"reasoning": "It is known.", "answer": "Rome", "sure": True})
    ask = blocking.Predict("question -> answer, sure: bool", model=model)
    assert ask(question="Which city?").sure is True
    found = blocking.ChainOfThought("question -> answer, sure: bool", model=model).run(question="Which city?")
    assert (found.reasoning, found.value.answer) == ("It is known.", "Rome")
    assert [one.options.cli_tools for one in asked.asked] == ["none", "none"]


def test_a_typed_question_finds_the_model_around_it() -> None:
    model = ScriptedModel({"answer": "Rome"}, Overloaded("busy", kind="overloaded"))
    with using(model):
        assert blocking.Predict("question -> answer")(question="Which city?").answer == "Rome"
        with pytest.raises(Overloaded):
            blocking.Predict("question -> answer")(question="Which city?")


def test_a_workflow_runs_to_its_end(tmp_path: Path) -> None:
    async def write(run: StageRun) -> str:
        return (await run.ask(f"Write: {run.task}")).text

    model, asked = of("A daemon.", then="Never.")
    for _ in range(2):  # the second time from its trace
        result = blocking.run_workflow(Loop(Stage("write", write)), "one", model=model, trace=tmp_path / "work.jsonl")
        assert (result.outcome, result.result) == ("done", "A daemon.")
    assert len(asked.asked) == 1
