"""Workflows: stages, rounds, budgets, and going on from a trace without asking again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from pydantic import BaseModel

from clisup.errors import UsageError
from clisup.llm.answers import Cost
from clisup.llm.budget import Budget
from clisup.llm.chat import ChatOptions, SessionBudget
from clisup.llm.failures import Overloaded
from clisup.llm.messages import Message, ToolResultBlock, ToolUseBlock
from clisup.llm.signatures import OutputField, Predict, Signature, using
from clisup.llm.testing import Reply, ScriptedChat, ScriptedModel, ToolCall
from clisup.llm.workflow import Loop, Reflection, Stage, StageDone, StageRun, ThinkPlanDoReflect
from clisup.llm.workflow.loop import NOTED_RESULT_BYTES
from clisup.model.usage import Usage


def said(words: str) -> Callable[[StageRun], Any]:
    async def stage(run: StageRun) -> str:
        return (await run.ask(f"{words} {run.round}")).text

    return stage


def two() -> Loop:
    return Loop(Stage("draft", said("Draft")), Stage("check", said("Check")), max_rounds=2)


PRICE = {"usage": Usage(input_tokens=10, output_tokens=5, source="reported"), "cost": Cost(0.25, "reported")}


def priced(text: str) -> Reply:
    return Reply(text, **PRICE)  # type: ignore[arg-type]


def lines(trace: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in trace.read_text().splitlines()]


# -- running ------------------------------------------------------------------------------------------------------------


async def test_stages_run_in_order_round_after_round_in_one_conversation() -> None:
    model = ScriptedModel("d1", "c1", "d2", "c2")
    result = await two().run("the task", model=model)
    assert (result.outcome, result.result) == ("done", "c2")
    assert result.rounds == ({"draft": "d1", "check": "c1"}, {"draft": "d2", "check": "c2"})
    assert model.opened == 1
    assert [message.text for message in model.asked[-1].messages] == [
        "Draft 1",
        "d1",
        "Check 1",
        "c1",
        "Draft 2",
        "d2",
        "Check 2",
    ]


async def test_a_stage_sees_the_task_and_what_came_before() -> None:
    seen: list[Any] = []

    async def look(run: StageRun) -> int:
        seen.append((run.task, run.round, run.stage, run.attempt, dict(run.results), [dict(one) for one in run.rounds]))
        return len(seen)

    await Loop(Stage("a", look), Stage("b", look), max_rounds=2).run({"x": 1}, model=ScriptedModel())
    assert seen == [
        ({"x": 1}, 1, "a", 1, {}, []),
        ({"x": 1}, 1, "b", 1, {"a": 1}, []),
        ({"x": 1}, 2, "a", 1, {}, [{"a": 1, "b": 2}]),
        ({"x": 1}, 2, "b", 1, {"a": 3}, [{"a": 1, "b": 2}]),
    ]


async def test_until_ends_it_early_and_its_rounds_end_it_else() -> None:
    loop = Loop(Stage("draft", said("Draft")), max_rounds=3, until=lambda rounds: rounds[-1]["draft"] == "good")
    result = await loop.run(model=ScriptedModel("bad", "good"))
    assert (result.outcome, result.result, len(result.rounds)) == ("done", "good", 2)
    result = await loop.run(model=ScriptedModel(then="bad"))
    assert (result.outcome, result.result, len(result.rounds)) == ("max_rounds", "bad", 3)


class Size(BaseModel):
    width: int


async def test_a_result_is_what_its_record_has_of_it() -> None:
    async def tuple_(run: StageRun) -> Any:
        return (1, 2)

    async def model(run: StageRun) -> Any:
        assert run.results["plain"] == [1, 2]
        return {"width": "3"}

    result = await Loop(Stage("plain", tuple_), Stage("typed", model, Size)).run(model=ScriptedModel())
    assert result.rounds[0] == {"plain": [1, 2], "typed": Size(width=3)}


async def test_questions_in_chats_of_their_own_are_charged_too() -> None:
    class Answer(Signature):
        answer: int = OutputField()

    async def ask(run: StageRun) -> int:
        return (await Predict(Answer)()).answer + (await run.predict(Answer)).value.answer

    budget = Budget()
    model = ScriptedModel(priced('{"answer": 1}'), priced('{"answer": 2}'))
    result = await Loop(Stage("ask", ask)).run(model=model, budget=budget)
    assert (result.result, budget.spent.usd, result.spent.usd, model.opened) == (3, 0.5, 0.5, 2)


async def test_without_a_chat_no_session_is_opened() -> None:
    async def work(run: StageRun) -> str:
        with pytest.raises(UsageError, match="has no chat"):
            await run.ask("Hi")
        return "worked"

    model = ScriptedModel()
    assert (await Loop(Stage("work", work), chat=False).run(model=model)).result == "worked"
    assert model.opened == 0


async def test_the_options_are_those_of_the_conversation() -> None:
    history = (Message.user("Hi"), Message.assistant("Hello"))
    model = ScriptedModel("d", "c")
    options = ChatOptions(system="Be brief.", history=history)
    await Loop(Stage("a", said("A"))).run(model=model, options=options, budget=Budget(usd=2.0, iterations=1))
    assert model.asked[0].system == "Be brief."
    assert model.asked[0].messages[:2] == history
    assert model.asked[0].options.budget == SessionBudget(usd=2.0)


async def test_what_cannot_run_says_why(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it has no stages"):
        Loop()
    with pytest.raises(UsageError, match="names of their own"):
        Loop(Stage("a", said("")), Stage("a", said("")))
    with pytest.raises(UsageError, match="is not a stage; write Loop"):
        Loop([Stage("a", said(""))])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a Budget, not of type int; give Budget"):
        await two().run(model=ScriptedModel(), budget=5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="max_rounds is 0"):
        Loop(Stage("a", said("")), max_rounds=0)
    with pytest.raises(UsageError, match="no model is set"):
        await two().run(trace=tmp_path / "t")
    assert not (tmp_path / "t").exists()
    with pytest.raises(UsageError, match=r"the task of .* is not JSON"):
        await two().run(object(), model=ScriptedModel())


async def test_a_plain_function_is_no_stage_and_no_step() -> None:
    def plain(*_run: StageRun) -> str:
        return "done"

    async def stepping(run: StageRun) -> Any:
        return await run.step("one", plain)  # type: ignore[arg-type]

    for stage, what in ((plain, "stage work"), (stepping, "step one of stage work")):
        with pytest.raises(UsageError, match=f"the function of {what} is not async"):
            await Loop(Stage("work", stage)).run(model=ScriptedModel())  # type: ignore[arg-type]


async def test_a_model_may_be_given_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    model, asked = ScriptedModel("d", "c", "d", "c"), []
    monkeypatch.setattr("clisup.llm.models.resolve", lambda name: asked.append(name) or model)
    assert (await two().run(model="claude/opus")).result == "c"
    assert asked == ["claude/opus"]


@pytest.mark.parametrize("value", [object(), float("nan"), "caf\udce9"], ids=["object", "nan", "surrogate"])
async def test_a_result_that_json_cannot_carry_is_refused(tmp_path: Path, value: object) -> None:
    """It is what its record has of it: NaN would be null after a crash."""

    async def odd(run: StageRun) -> object:
        return value

    async def stepping(run: StageRun) -> object:
        async def work() -> object:
            return value

        return await run.step("one", work)

    async def fine(run: StageRun) -> int:
        return 1

    with pytest.raises(UsageError, match="the result of stage odd is not JSON"):
        await Loop(Stage("odd", odd)).run(model=ScriptedModel(), trace=tmp_path / "t")
    assert [line["type"] for line in lines(tmp_path / "t")] == ["workflow_started", "stage_started", "stage_failed"]
    with pytest.raises(UsageError, match="the result of step one is not JSON"):
        await Loop(Stage("odd", stepping)).run(model=ScriptedModel())
    with pytest.raises(UsageError, match="the task of loop is not JSON"):
        await Loop(Stage("fine", fine)).run(value, model=ScriptedModel())
    with pytest.raises(UsageError, match="the result of loop is not JSON"):
        await Loop(Stage("fine", fine), result=lambda _rounds: value).run(model=ScriptedModel())


async def test_a_stage_that_fails_with_a_file_that_is_no_utf_8_is_recorded(tmp_path: Path) -> None:
    async def fails(run: StageRun) -> None:
        raise ValueError("no caf\udce9")

    with pytest.raises(ValueError, match="no caf"):
        await Loop(Stage("fails", fails)).run(model=ScriptedModel(), trace=tmp_path / "t")
    assert lines(tmp_path / "t")[-1]["error"]["message"] == "no caf?"


async def test_the_model_around_will_do() -> None:
    with using(ScriptedModel("yes")):
        assert (await Loop(Stage("a", said("A"))).run()).result == "yes"


# -- budgets ------------------------------------------------------------------------------------------------------------


async def test_an_iteration_of_the_budget_is_a_round(tmp_path: Path) -> None:
    budget = Budget(iterations=1)
    model = ScriptedModel(then="yes")
    result = await two().run(model=model, budget=budget, trace=tmp_path / "t")
    assert (result.outcome, len(model.asked), result.result) == ("budget", 2, "yes")
    assert result.error is not None
    assert result.error.data["which"] == "iterations"
    more = await two().run(model=model, budget=Budget(iterations=2), trace=tmp_path / "t")
    assert (more.outcome, len(model.asked)) == ("done", 4)


async def test_a_budget_that_is_used_up_in_a_stage_pauses_there(tmp_path: Path) -> None:
    trace = tmp_path / "t"
    model = ScriptedModel(priced("d1"), priced("c1"), priced("d2"), priced("c2"))
    result = await two().run(model=model, budget=Budget(usd=0.75), trace=trace)
    assert (result.outcome, result.result, result.spent.usd) == ("budget", "c1", 0.75)
    assert lines(trace)[-1]["type"] == "workflow_paused"
    assert lines(trace)[-2]["error"]["kind"] == "budget_exhausted"
    await two().run(model=model, budget=Budget(usd=0.75), trace=trace)  # the same is as used up as before
    assert len(model.asked) == 3
    assert [line["type"] for line in lines(trace)].count("workflow_paused") == 1
    result = await two().run(model=model, budget=Budget(usd=1.0), trace=trace)
    assert (result.outcome, result.result, result.spent.usd) == ("done", "c2", 1.0)


async def test_a_budget_that_was_there_counts_nothing_twice(tmp_path: Path) -> None:
    budget = Budget()
    model = ScriptedModel(priced("d1"), Overloaded("busy", kind="overloaded"), priced("c1"), priced("d2"), priced("c2"))
    with pytest.raises(Overloaded):
        await two().run(model=model, budget=budget, trace=tmp_path / "t")
    await two().run(model=model, budget=budget, trace=tmp_path / "t")
    assert (budget.spent.usd, budget.spent.iterations, budget.spent.unknown_usd) == (1.0, 2, 1)
    other = Budget()
    await two().run(model=model, budget=other, trace=tmp_path / "t")
    assert (other.spent.usd, other.spent.iterations, other.spent.unknown_usd) == (1.0, 2, 1)


async def test_seconds_of_earlier_runs_count(tmp_path: Path) -> None:
    now = 0.0

    async def slow(run: StageRun) -> None:
        nonlocal now
        now += 40

    loop = Loop(Stage("slow", slow), max_rounds=3)
    first = await loop.run(model=ScriptedModel(), budget=Budget(wall_s=60, clock=lambda: now), trace=tmp_path / "t")
    assert (first.outcome, len(first.rounds), first.spent.wall_s) == ("budget", 2, 80)
    again = await loop.run(model=ScriptedModel(), budget=Budget(wall_s=60, clock=lambda: now), trace=tmp_path / "t")
    assert (again.outcome, len(again.rounds)) == ("budget", 2)


# -- going on -----------------------------------------------------------------------------------------------------------


async def test_a_stage_that_failed_is_tried_again_and_nothing_else_is(tmp_path: Path) -> None:
    trace = tmp_path / "t"
    model = ScriptedModel("d1", "c1", Overloaded("busy", kind="overloaded"), "d2", "c2")
    with pytest.raises(Overloaded):
        await two().run("x", model=model, trace=trace)
    failed = lines(trace)[-1]
    assert (failed["type"], failed["round"], failed["stage"]) == ("stage_failed", 2, "draft")
    assert failed["error"] == {"kind": "overloaded", "message": "busy"}
    result = await two().run("x", model=model, trace=trace)
    assert (result.outcome, result.result) == ("done", "c2")
    model.assert_used_up()
    assert lines(trace)[-4]["attempt"] == 2


async def test_the_conversation_goes_on_with_what_was_said(tmp_path: Path) -> None:
    model = ScriptedModel("d1", "c1", Overloaded("busy", kind="overloaded"), "d2", "c2")
    with pytest.raises(Overloaded):
        await two().run("x", model=model, trace=tmp_path / "t", options=ChatOptions(system="S"))
    await two().run("x", model=model, trace=tmp_path / "t", options=ChatOptions(system="S"))
    again = model.asked[3]
    assert [message.text for message in again.options.history] == ["Draft 1", "d1", "Check 1", "c1"]
    assert again.system == "S"


async def test_a_finished_trace_gives_its_result_and_asks_nothing(tmp_path: Path) -> None:
    model = ScriptedModel("d1", "c1", "d2", "c2")
    first = await two().run("x", model=model, trace=tmp_path / "t")
    before = (tmp_path / "t").read_bytes()
    again = await two().run("x", model=model, trace=tmp_path / "t")
    assert (again.result, again.rounds, again.run_id, again.outcome) == (
        first.result,
        first.rounds,
        first.run_id,
        "done",
    )
    assert (tmp_path / "t").read_bytes() == before
    assert model.opened == 1


async def test_more_rounds_go_on_where_the_rounds_were_over(tmp_path: Path) -> None:
    model = ScriptedModel("bad", "good")

    def loop(rounds: int) -> Loop:
        return Loop(Stage("a", said("A")), max_rounds=rounds, until=lambda done: done[-1]["a"] == "good")

    assert (await loop(1).run(model=model, trace=tmp_path / "t")).outcome == "max_rounds"
    assert (await loop(2).run(model=model, trace=tmp_path / "t")).outcome == "done"


@pytest.mark.parametrize(
    ("other", "task", "what"),
    [
        (Loop(Stage("a", said("")), name="loop"), "x", "stages"),
        (Loop(Stage("draft", said("")), Stage("check", said("")), name="another"), "x", "name"),
        (two(), "y", "task"),
    ],
)
async def test_the_trace_of_another_workflow_is_left_alone(tmp_path: Path, other: Loop, task: str, what: str) -> None:
    await two().run("x", model=ScriptedModel(then="yes"), trace=tmp_path / "t")
    before = (tmp_path / "t").read_bytes()
    with pytest.raises(UsageError, match=f"its {what} is different"):
        await other.run(task, model=ScriptedModel(), trace=tmp_path / "t")
    assert (tmp_path / "t").read_bytes() == before


async def test_a_result_of_a_type_that_has_changed_is_told() -> None:
    stage = Stage("a", said(""), Size)
    with pytest.raises(UsageError, match="the recorded result of stage a does not fit"):
        stage.from_json({"height": 3})


async def test_a_workflow_that_runs_cannot_be_run_beside_itself(tmp_path: Path) -> None:
    async def inner(run: StageRun) -> None:
        with pytest.raises(UsageError, match="is running already"):
            await Loop(Stage("a", inner)).run(model=ScriptedModel(), trace=tmp_path / "t")

    await Loop(Stage("a", inner)).run(model=ScriptedModel(), trace=tmp_path / "t")


async def test_a_step_that_is_done_is_not_done_again(tmp_path: Path) -> None:
    fetched: list[int] = []

    async def work(run: StageRun) -> Any:
        async def fetch() -> tuple[str, int]:
            fetched.append(run.attempt)
            return (await run.ask("Fetch.")).text, run.attempt

        found = await run.step("fetch", fetch)
        return [*found, (await run.ask("Sort.")).text, run.attempt]

    model = ScriptedModel(priced("found"), Overloaded("busy", kind="overloaded"), priced("sorted"))
    budget = Budget()
    with pytest.raises(Overloaded):
        await Loop(Stage("work", work)).run(model=model, trace=tmp_path / "t")
    result = await Loop(Stage("work", work)).run(model=model, trace=tmp_path / "t", budget=budget)
    assert (result.result, fetched) == (["found", 1, "sorted", 2], [1])
    assert [message.text for message in model.asked[-1].messages] == ["Fetch.", "found", "Sort."]
    completed = lines(tmp_path / "t")[-2]
    assert [message["content"][0]["text"] for message in completed["messages"]] == [
        "Fetch.",
        "found",
        "Sort.",
        "sorted",
    ]
    assert (budget.spent.usd, budget.spent.answers) == (0.5, 3)


async def test_a_step_has_a_name_of_its_own_and_gives_json() -> None:
    async def one() -> int:
        return 1

    async def odd() -> object:
        return object()

    async def twice(run: StageRun) -> int:
        assert await run.step("one", one) == 1
        with pytest.raises(UsageError, match="the result of step odd is not JSON"):
            await run.step("odd", odd)
        with pytest.raises(UsageError, match="step one of stage work came twice"):
            await run.step("one", one)
        return 2

    loop = Loop(Stage("work", twice), max_rounds=2)  # in the next round it is another step
    assert (await loop.run(model=ScriptedModel())).result == 2


async def test_what_the_steps_of_a_dead_process_took_is_known(tmp_path: Path) -> None:
    done: list[StageRun] = []

    async def work(run: StageRun) -> int:
        async def ask() -> str:
            return (await run.ask("Hi")).text

        await run.step("ask", ask)
        done.append(run)
        return 1

    await Loop(Stage("work", work)).run(model=ScriptedModel(priced("a")), trace=tmp_path / "t")
    died = (tmp_path / "t").read_bytes().splitlines(keepends=True)[:3]  # begun, stage, step
    (tmp_path / "t").write_bytes(b"".join(died))
    result = await Loop(Stage("work", work)).run(model=ScriptedModel(), trace=tmp_path / "t")
    assert (result.spent.usd, result.spent.unknown_usd, done[-1].attempt) == (0.25, 1, 2)


async def test_a_conversation_goes_on_after_a_structured_output_that_nothing_was_said_to(tmp_path: Path) -> None:
    class Answer(Signature):
        answer: int = OutputField()

    async def ask(run: StageRun) -> int:
        return (await run.predict(Answer)).value.answer

    native = Reply([ToolCall("StructuredOutput", {"answer": 1}, result="ok")], structured={"answer": 1})
    model = ScriptedModel(native, Overloaded("busy", kind="overloaded"), "c", structured=True)
    loop = Loop(Stage("ask", ask), Stage("check", said("Check")))
    with pytest.raises(Overloaded):
        await loop.run(model=model, trace=tmp_path / "t")
    await loop.run(model=model, trace=tmp_path / "t")
    history = model.asked[2].options.history
    assert [message.role for message in history] == ["user", "assistant", "user", "assistant"]
    assert history[-1].text == '{"answer":1}'


async def test_sessions_of_a_process_that_died_are_ended_before_it_goes_on(tmp_path: Path) -> None:
    ended: list[Any] = []

    class Model(ScriptedModel):
        async def end_sessions(self, labels: Any) -> int:
            assert len(self.asked) == 2
            ended.append(labels)
            return 1

    model = Model("d1", Overloaded("busy", kind="overloaded"), then="yes")
    with pytest.raises(Overloaded):
        await two().run(model=model, trace=tmp_path / "t")
    assert ended == []
    result = await two().run(model=model, trace=tmp_path / "t")
    assert ended == [{"clisup.workflow": result.run_id}]
    assert all(asked.options.labels == ended[0] for asked in model.asked)


async def test_a_cancelled_stage_is_recorded_as_such(tmp_path: Path) -> None:
    begun = trio.Event()

    async def stuck(run: StageRun) -> None:
        begun.set()
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: Loop(Stage("stuck", stuck)).run(model=ScriptedModel(), trace=tmp_path / "t"))
        await begun.wait()
        nursery.cancel_scope.cancel()
    assert lines(tmp_path / "t")[-1]["error"]["kind"] == "cancelled"


async def test_budgets_used_up_in_tasks_of_a_stage_pause_it_too(tmp_path: Path) -> None:
    async def many(run: StageRun) -> None:
        async def one() -> None:
            await trio.lowlevel.checkpoint()
            run.budget.reserve()

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(one)

    budget = Budget(usd=0.5)

    async def spend(run: StageRun) -> None:
        await run.ask("Spend")

    loop = Loop(Stage("spend", spend), Stage("many", many))
    result = await loop.run(model=ScriptedModel(priced("a"), then=priced("b")), budget=budget)
    assert result.outcome == "done"
    budget = Budget(usd=0.25)
    result = await loop.run(model=ScriptedModel(then=priced("a")), budget=budget)
    assert result.outcome == "budget"


# -- being told ---------------------------------------------------------------------------------------------------------


async def test_on_stage_is_told_once_the_record_is_there_and_of_recorded_ones_first(tmp_path: Path) -> None:
    trace = tmp_path / "t"
    told: list[tuple[int, str, Any, bool]] = []

    async def on_stage(done: StageDone) -> None:
        if not done.replayed:
            assert lines(trace)[-1]["stage"] == done.record.stage
        told.append((done.record.round, done.record.stage, done.value, done.replayed))

    model = ScriptedModel("d1", Overloaded("busy", kind="overloaded"), "c1")
    loop = Loop(Stage("draft", said("Draft")), Stage("check", said("Check")))
    with pytest.raises(Overloaded):
        await loop.run(model=model, trace=trace, on_stage=on_stage)
    await loop.run(model=model, trace=trace, on_stage=on_stage)
    assert told == [(1, "draft", "d1", False), (1, "draft", "d1", True), (1, "check", "c1", False)]


async def test_a_plain_function_will_do_for_on_stage() -> None:
    told: list[StageDone] = []
    await two().run(model=ScriptedModel(then="yes"), on_stage=told.append)
    assert len(told) == 4


async def test_stages_are_noted_in_the_event_log_without_a_large_result(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[tuple[str, str, Any]] = []

    async def note(self: ScriptedChat, code: str, message: str, data: Any = None) -> None:
        notes.append((code, message, data))

    monkeypatch.setattr(ScriptedChat, "note", note)
    result = await Loop(Stage("a", said("A")), Stage("b", said("B"))).run(
        model=ScriptedModel(priced("short"), "x" * NOTED_RESULT_BYTES)
    )
    (code, message, data), (_, _, large) = notes
    assert (code, message) == ("client.workflow", "workflow loop: round 1, stage a is done")
    assert (data["run_id"], data["round"], data["stage"], data["result"]) == (result.run_id, 1, "a", "short")
    assert data["spent"]["cost_usd"] == 0.25
    assert "result" not in large
    assert large["result_bytes"] == NOTED_RESULT_BYTES + 2


async def test_a_note_that_fails_fails_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def note(self: ScriptedChat, code: str, message: str, data: Any = None) -> None:
        raise Overloaded("full", kind="overloaded")

    monkeypatch.setattr(ScriptedChat, "note", note)
    assert (await Loop(Stage("a", said("A"))).run(model=ScriptedModel("yes"))).result == "yes"
    assert "cannot note workflow loop: round 1, stage a is done" in caplog.text


# -- think, plan, do, reflect -------------------------------------------------------------------------------------------


async def test_it_goes_round_until_the_reflection_says_done(tmp_path: Path) -> None:
    model = ScriptedModel(
        "Thoughts.",
        {"steps": ["one"]},
        "Did it.",
        {"done": False, "answer": "half", "lesson": "look twice"},
        "More thoughts.",
        {"steps": ["two"]},
        "Did more.",
        {"done": True, "answer": "whole"},
    )
    result = await ThinkPlanDoReflect().run("Count the words.", model=model, trace=tmp_path / "t")
    assert (result.outcome, result.result, len(result.rounds)) == ("done", "whole", 2)
    assert result.rounds[0]["plan"].steps == ["one"]
    assert result.rounds[0]["reflect"] == Reflection(done=False, answer="half", lesson="look twice")
    assert "<task>\nCount the words.\n</task>" in model.asked[0].prompt.text
    assert model.asked[4].prompt.text.endswith("Round 2. It is not done yet. Of the last round: look twice")
    assert "few steps" in model.asked[1].prompt.text
    model.assert_used_up()


async def test_each_of_the_four_can_be_other_words_or_a_function() -> None:
    async def do(run: StageRun) -> int:
        return len(run.results["plan"].steps)

    model = ScriptedModel("T", {"steps": ["a", "b"]}, {"done": True, "answer": "2"})
    result = await ThinkPlanDoReflect(think="Ponder.", plan="Two steps.", do=do).run({"n": 2}, model=model)
    assert result.rounds[0]["do"] == 2
    assert model.asked[0].prompt.text == 'Ponder.\n\n<task>\n{"n":2}\n</task>'
    assert model.asked[1].prompt.text.startswith("Two steps.\n")


async def test_a_cycle_that_is_never_done_stops() -> None:
    answers = ["T", {"steps": ["a"]}, "D", {"done": False, "answer": "no"}] * 2
    result = await ThinkPlanDoReflect(max_rounds=2).run("x", model=ScriptedModel(*answers))  # type: ignore[arg-type]
    assert (result.outcome, result.result) == ("max_rounds", "no")


async def test_a_workflow_goes_on_though_its_cli_counted_the_ids_of_calls_anew(tmp_path: Path) -> None:
    answers = [Reply(ToolCall("Read", result=text), text) for text in ("d1", "c1")]
    with pytest.raises(Overloaded):
        await two().run("t", model=ScriptedModel(*answers, Overloaded("busy", kind="overloaded")), trace=tmp_path / "t")
    model = ScriptedModel("d2", "c2")
    await two().run("t", model=model, trace=tmp_path / "t")
    blocks = [block for message in model.asked[0].options.history for block in message.content]
    calls = [block.id for block in blocks if isinstance(block, ToolUseBlock)]
    assert len(calls) == len(set(calls)) == 2
    assert [block.tool_use_id for block in blocks if isinstance(block, ToolResultBlock)] == calls


@pytest.mark.parametrize(("options", "cli_tools"), [(None, "none"), (ChatOptions(cli_tools="default"), "default")])
async def test_the_stages_talk_without_a_clis_own_tools_unless_the_options_say_so(
    options: ChatOptions | None, cli_tools: str
) -> None:
    async def write(run: StageRun) -> str:
        return (await run.ask("Write.")).text

    model = ScriptedModel("Done.")
    await Loop(Stage("write", write)).run(model=model, options=options)
    assert model.asked[0].options.cli_tools == cli_tools
