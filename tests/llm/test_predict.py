"""Predict, ChainOfThought and modules: asking, repairing, budgets and models that hold for what runs within."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from clisup.errors import UsageError
from clisup.llm.answers import Cost, FinishReason
from clisup.llm.budget import Budget
from clisup.llm.chat import ChatOptions, SessionBudget
from clisup.llm.failures import BackendUnavailable, BudgetExhausted, Failed, InvalidRequest, StructureError
from clisup.llm.signatures import ChainOfThought, InputField, Module, OutputField, Predict, Signature, active, using
from clisup.llm.testing import Reply, ScriptedModel, ToolCall
from clisup.model.usage import Usage


class Capital(Signature):
    """Name the capital."""

    country: str = InputField()
    city: str = OutputField()
    people: int = OutputField(ge=0)


ROME = {"city": "Rome", "people": 3}
PRICE = {"usage": Usage(input_tokens=10, output_tokens=5, source="reported"), "cost": Cost(0.25, "reported")}


def priced(answer: dict[str, Any]) -> Reply:
    import json

    return Reply(json.dumps(answer), **PRICE)  # type: ignore[arg-type]


async def test_a_prediction_is_the_typed_whole() -> None:
    model = ScriptedModel(ROME)
    value = await Predict(Capital, model=model)(country="Italy")
    assert value == Capital(country="Italy", city="Rome", people=3)
    assert "<country>\nItaly\n</country>" in model.asked[0].prompt.text
    model.assert_used_up()


async def test_a_backend_with_structured_output_is_asked_with_the_schema() -> None:
    model = ScriptedModel(ROME, structured=True)
    assert (await Predict(Capital, model=model)(country="Italy")).city == "Rome"
    schema = model.asked[0].output_schema
    assert schema is not None
    assert list(schema["properties"]) == ["city", "people"]
    prompt = model.asked[0].prompt.text
    assert "Answer with these fields:\n- city (text)\n- people (integer)" in prompt
    assert "JSON" not in prompt  # the backend says that in its own way


async def test_an_answer_that_does_not_fit_is_put_right_in_the_same_chat() -> None:
    model = ScriptedModel("It is Rome.", {"city": "Rome", "people": -1}, ROME)
    prediction = await Predict(Capital, model=model).run(country="Italy")
    assert prediction.value.people == 3
    assert (model.opened, len(prediction.completions)) == (1, 3)
    assert "there is no JSON object" in model.asked[1].prompt.text
    assert "people: Input should be greater than or equal to 0" in model.asked[2].prompt.text


async def test_what_is_never_put_right_is_an_error_with_its_last_words() -> None:
    model = ScriptedModel("one", "two", '{"city": "Rome"}')
    with pytest.raises(StructureError, match=r"the answer does not fit Capital \(3 answers\): people: is missing") as e:
        await Predict(Capital, model=model)(country="Italy")
    assert (e.value.text, e.value.problems) == ('{"city": "Rome"}', ("people: is missing",))
    model.assert_used_up()


async def test_a_tool_that_was_called_on_the_way_is_told() -> None:
    model = ScriptedModel(Reply(ToolCall("Bash", {"command": "rm x"}, result="ok"), "Done."), then="no")
    with pytest.raises(StructureError) as caught:
        await Predict(Capital, model=model)(country="Italy")
    assert caught.value.side_effects


async def test_no_repairs_is_one_answer() -> None:
    model = ScriptedModel("one", "two")
    with pytest.raises(StructureError):
        await Predict(Capital, model=model, repairs=0)(country="Italy")
    assert len(model.asked) == 1


async def test_a_refusal_is_not_asked_again() -> None:
    model = ScriptedModel(Reply("I will not.", finish_reason=FinishReason.REFUSAL), ROME)
    with pytest.raises(StructureError):
        await Predict(Capital, model=model)(country="Italy")
    assert len(model.asked) == 1


async def test_a_schema_that_the_backend_will_not_take_is_asked_for_in_words() -> None:
    model = ScriptedModel(InvalidRequest("bad schema", kind="invalid_request"), ROME, structured=True)
    assert (await Predict(Capital, model=model)(country="Italy")).city == "Rome"
    assert [asked.output_schema is None for asked in model.asked] == [False, True]
    assert ["JSON Schema" in asked.prompt.text for asked in model.asked] == [False, True]


async def test_a_chat_that_loses_its_structured_output_is_told_the_form_in_words() -> None:
    wrong = Reply('{"city": "Rome"}')
    model = ScriptedModel(wrong, InvalidRequest("no more", kind="unsupported"), wrong, ROME, structured=True)
    assert (await Predict(Capital, model=model)(country="Italy")).people == 3
    prompts = [asked.prompt.text for asked in model.asked]
    assert ["people: is missing" in prompt for prompt in prompts] == [False, True, True, True]
    assert ["JSON Schema" in prompt for prompt in prompts] == [False, False, True, False]


async def test_reasoning_comes_first_and_is_kept() -> None:
    model = ScriptedModel({"reasoning": "Boot.", **ROME})
    prediction = await ChainOfThought(Capital, model=model).run(country="Italy")
    assert (prediction.reasoning, prediction.value.city) == ("Boot.", "Rome")
    assert "- reasoning (text)" in model.asked[0].prompt.text


async def test_a_signature_with_its_own_reasoning_keeps_it() -> None:
    think = ChainOfThought("question -> reasoning, answer: int", model=ScriptedModel({"reasoning": "1+1", "answer": 2}))
    prediction = await think.run(question="?")
    assert (prediction.reasoning, prediction.value.reasoning, prediction.value.answer) == ("1+1", "1+1", 2)


async def test_wrong_inputs_and_no_model_ask_nothing() -> None:
    model = ScriptedModel()
    with pytest.raises(UsageError, match="country: is missing"):
        await Predict(Capital, model=model)()
    with pytest.raises(UsageError, match="no model is set"):
        await Predict(Capital)(country="Italy")
    assert model.opened == 0


async def test_a_model_may_be_given_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("clisup.llm.models.resolve", lambda name: asked.append(name) or ScriptedModel(then=ROME))
    await Predict(Capital, model="claude/opus")(country="Italy")
    with using("codex"):
        await Predict(Capital)(country="Italy")
    assert asked == ["claude/opus", "codex"]


@pytest.mark.parametrize("what", [5, dict, Capital(country="Italy", city="Rome", people=1)])
def test_what_is_no_signature_is_refused(what: Any) -> None:
    with pytest.raises(UsageError, match="is not a signature"):
        Predict(what)


async def test_it_can_ask_in_a_chat_that_is_open() -> None:
    model = ScriptedModel("Hello.", ROME)
    async with model.chat() as chat:
        async for _ in chat.stream("Hi"):
            pass
        prediction = await Predict(Capital).run_in(chat, country="Italy")
    assert prediction.value.city == "Rome"
    assert model.asked[1].messages[0].text == "Hi"
    assert model.opened == 1


# -- budgets ------------------------------------------------------------------------------------------------------------


async def test_every_answer_is_reserved_and_settled_repairs_too() -> None:
    budget = Budget(iterations=2)
    model = ScriptedModel(priced({"city": "Rome"}), priced(ROME), priced(ROME))
    prediction = await Predict(Capital, model=model, budget=budget).run(country="Italy")
    assert (budget.spent.iterations, budget.spent.tokens, budget.spent.usd) == (2, 30, 0.5)
    assert (prediction.usage.output_tokens, prediction.spent.cost) == (10, Cost(0.5, "reported"))
    with pytest.raises(BudgetExhausted):
        await Predict(Capital, model=model, budget=budget)(country="Italy")
    assert model.opened == 1  # refused before a chat was opened


async def test_a_repair_that_no_budget_is_left_for_is_refused() -> None:
    model = ScriptedModel("no", ROME)
    with pytest.raises(BudgetExhausted):
        await Predict(Capital, model=model, budget=Budget(iterations=1))(country="Italy")
    assert len(model.asked) == 1


async def test_what_is_left_is_what_the_session_is_held_to() -> None:
    budget = Budget(usd=1.0, tokens=100)
    model = ScriptedModel(priced(ROME), ROME, ROME)
    for options in (None, None, ChatOptions(budget=SessionBudget(turns=3))):
        await Predict(Capital, model=model, budget=budget, options=options)(country="Italy")
    held = [asked.options.budget for asked in model.asked]
    assert held == [SessionBudget(usd=1.0, tokens=100), SessionBudget(usd=0.75, tokens=85), SessionBudget(turns=3)]


async def test_an_answer_is_cut_short_where_the_seconds_are_over() -> None:
    async def forever() -> None:
        await trio.sleep_forever()

    budget = Budget(wall_s=0.05, clock=lambda: 0.0)  # stands still: only the answer itself takes time
    model = ScriptedModel(Reply("It ", forever, "is"))
    with pytest.raises(BudgetExhausted, match="cut short") as caught:
        await Predict(Capital, model=model, budget=budget)(country="Italy")
    assert (caught.value.data["which"], caught.value.side_effects) == ("wall_s", True)
    assert model.asked[0].outcome == "left"
    assert (budget.spent.answers, budget.spent.unknown_usd) == (1, 1)


async def test_an_answer_that_failed_is_unknown_and_one_that_never_began_is_none() -> None:
    budget = Budget()
    model = ScriptedModel(
        BackendUnavailable("no", kind="backend_unavailable"), Reply("a", error=Failed("crash", kind="crashed"))
    )
    predict = Predict(Capital, model=model, budget=budget)
    with pytest.raises(BackendUnavailable):
        await predict(country="Italy")
    assert (budget.spent.iterations, budget.spent.answers) == (0, 0)
    with pytest.raises(Failed):
        await predict(country="Italy")
    assert (budget.spent.iterations, budget.spent.unknown_tokens) == (1, 1)


# -- modules ------------------------------------------------------------------------------------------------------------


class Twice(Module):
    def __init__(self) -> None:
        self.ask = Predict(Capital)
        self.more = [Predict(Capital), ChainOfThought(Capital)]

    async def forward(self, country: str) -> list[str]:
        return [(await part(country=country)).city for part in (self.ask, self.more[0])]


async def test_a_module_hands_its_model_and_budget_to_its_parts() -> None:
    twice = Twice()
    twice.model, twice.budget = ScriptedModel(priced(ROME), priced(ROME)), Budget()
    assert await twice("Italy") == ["Rome", "Rome"]
    assert twice.budget.spent.usd == 0.5


async def test_a_part_with_a_model_of_its_own_keeps_it() -> None:
    own, around = ScriptedModel(ROME), ScriptedModel(ROME)
    twice = Twice()
    twice.ask.model = own
    with using(around):
        await twice(country="Italy")
    assert (len(own.asked), len(around.asked)) == (1, 1)


async def test_every_budget_around_is_charged_once_and_a_sub_budget_for_all_above() -> None:
    outer, whole = Budget(), Budget()
    part = whole.sub()
    twice = Twice()
    twice.model, twice.budget, twice.ask.budget = ScriptedModel(then=priced(ROME)), whole, part
    with using(budget=outer):
        await twice("Italy")
    assert (outer.spent.usd, whole.spent.usd, part.spent.usd) == (0.5, 0.5, 0.25)


async def test_tasks_have_what_held_where_they_began() -> None:
    async def work(n: int) -> None:
        own = Budget(name=str(n))
        with using(budget=own):
            await Predict(Capital)(country="Italy")
            assert active().budgets == (shared, own)
        assert own.spent.usd == 0.25

    shared = Budget()
    with using(ScriptedModel(then=priced(ROME)), budget=shared):
        async with trio.open_nursery() as nursery:
            for n in range(8):
                nursery.start_soon(work, n)
    assert shared.spent.usd == 2.0
    assert active().model is None


async def test_a_module_without_forward_says_so() -> None:
    with pytest.raises(UsageError, match="Empty has no forward"):

        class Empty(Module):
            pass

        await Empty()()


def test_all_parts_are_listed_with_their_paths() -> None:
    class Whole(Module):
        def __init__(self) -> None:
            self.twice = Twice()
            self.by_name = {"one": Predict(Capital)}

    assert [path for path, _ in Whole().modules()] == [
        "twice",
        "twice.ask",
        "twice.more.0",
        "twice.more.1",
        "by_name.one",
    ]


@pytest.mark.parametrize(
    ("options", "cli_tools"), [(ChatOptions(), "none"), (ChatOptions(cli_tools="default"), "default"), (None, "none")]
)
async def test_a_question_is_asked_without_a_clis_own_tools_unless_its_options_say_so(
    options: ChatOptions | None, cli_tools: str
) -> None:
    model = ScriptedModel({"b": "x"})
    await Predict("a -> b", model=model, options=options)(a="y")
    assert model.asked[0].options.cli_tools == cli_tools
