"""Values of a shape: what is asked, what is taken for an answer, and what is sent back how often."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
import trio
from harness import Harness
from pydantic import BaseModel, Field

from clisup.errors import UsageError
from clisup.llm.answers import Cost, FinishReason
from clisup.llm.failures import InvalidRequest, Overloaded, StructureError
from clisup.llm.models import resolve
from clisup.llm.shapes import Misfit, Shape
from clisup.llm.testing import Asked, Reply, ScriptedModel, ToolCall
from clisup.model.usage import Usage


class City(BaseModel):
    name: str
    people: int = Field(ge=0)
    founded: dt.date | None = None


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "on": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "number"}},
    },
    "required": ["n"],
    "additionalProperties": False,
}
ADA = '{"name": "Ada", "people": 3}'


# -- shapes


@pytest.mark.parametrize(
    "text",
    [
        ADA,
        f"```json\n{ADA}\n```",
        f"Sure:\n{ADA}\nAnything else?",
        '{"name": "Ada", "people": "3",}',
        f'It is not {{"name": 1, "and": "much longer", "than": "that"}} but {ADA}.',
    ],
)
def test_a_model_is_found_in_a_text_however_it_is_wrapped(text: str) -> None:
    assert Shape.of(City).value_in(text) == City(name="Ada", people=3)


def test_what_does_not_fit_is_told_by_place_and_reason() -> None:
    with pytest.raises(Misfit) as misfit:
        Shape.of(City).value_in('{"name": "Ada", "people": -1, "founded": "never"}')
    assert [problem.partition(":")[0] for problem in misfit.value.problems] == ["people", "founded"]
    with pytest.raises(Misfit, match="no JSON"):
        Shape.of(City).value_in("I would rather not.")


def test_a_value_of_json_is_read_as_json_dates_too() -> None:
    assert Shape.of(City).value_of({"name": "", "people": 0, "founded": "2020-01-02"}).founded == dt.date(2020, 1, 2)


def test_what_is_no_object_is_asked_for_in_one_and_taken_without_it_too() -> None:
    shape: Shape[list[City]] = Shape.of(list[City])
    assert shape.wrapped and shape.schema["type"] == "object" and "$defs" in shape.schema
    assert shape.value_in(f'{{"value": [{ADA}]}}') == shape.value_in(f"[{ADA}]") == [City(name="Ada", people=3)]
    assert Shape.of(int).value_in("```\n42\n```") == 42


def test_a_json_schema_is_checked_and_numbers_in_strings_are_numbers() -> None:
    shape: Shape[Any] = Shape.of(SCHEMA)
    assert shape.value_of({"n": "3", "on": "True", "tags": ["1.5", 2]}) == {"n": 3, "on": True, "tags": [1.5, 2]}
    for wrong in ({"n": "three"}, {"n": "1.5"}, {"n": "true"}, {}, {"n": 1, "more": 1}, [1]):
        with pytest.raises(Misfit):
            shape.value_of(wrong)
    assert Shape.of({"type": "array", "items": {"type": "integer"}}).value_in("[1, 2]") == [1, 2]


def test_what_is_no_schema_is_refused() -> None:
    with pytest.raises(UsageError, match="not a JSON Schema: 'nonsense' is not valid"):
        Shape.of({"type": "nonsense"})
    with pytest.raises(UsageError, match="pydantic"):
        Shape.of(trio.Event)


# -- asking


async def test_the_schema_is_in_the_words_where_the_backend_has_no_way_of_its_own() -> None:
    model = ScriptedModel(ADA)
    found = await model.structured("Which city?", City)
    assert (found.value, found.repairs) == (City(name="Ada", people=3), 0)
    (asked,) = model.asked
    assert asked.output_schema is None
    assert (
        asked.prompt.text.startswith("Which city?\n\nAnswer with one JSON object") and '"people"' in asked.prompt.text
    )


async def test_the_backends_own_way_is_taken_where_there_is_one() -> None:
    model = ScriptedModel(Reply("Done.", structured={"name": "Ada", "people": 3}), structured=True)
    assert (await model.structured("Which city?", City)).value == City(name="Ada", people=3)
    (asked,) = model.asked
    assert asked.prompt.text == "Which city?"
    assert asked.output_schema is not None and asked.output_schema["type"] == "object"


async def test_a_backend_that_refuses_the_schema_is_asked_in_words() -> None:
    """codex's API takes a part of JSON Schema only."""
    model = ScriptedModel(InvalidRequest("schema", kind="invalid_request"), ADA, structured=True)
    assert (await model.structured("Which city?", City)).value.name == "Ada"
    assert [asked.output_schema is None for asked in model.asked] == [False, True]


async def test_a_request_that_is_refused_after_a_tool_call_is_not_made_again() -> None:
    model = ScriptedModel(
        Reply(ToolCall("Bash", result=""), error=InvalidRequest("x", kind="invalid_request")), structured=True
    )
    with pytest.raises(InvalidRequest):
        await model.structured("Which city?", City)


async def test_an_answer_that_does_not_fit_is_sent_back_with_what_is_wrong() -> None:
    spent = Usage(input_tokens=10, output_tokens=2)
    model = ScriptedModel(
        Reply("No.", usage=spent, cost=Cost(1.0, "reported")),
        Reply('{"name": "Ada", "people": -1}', usage=spent, cost=Cost(1.0, "estimated")),
        Reply(ADA, usage=spent, cost=Cost(1.0, "reported")),
    )
    found = await model.structured("Which city?", City)
    assert found.repairs == 2
    assert "no JSON in the answer" in model.asked[1].prompt.text
    assert "people: Input should be greater than or equal to 0" in model.asked[2].prompt.text
    assert (found.completion.usage.input_tokens, found.completion.cost) == (30, Cost(3.0, "estimated"))
    assert [message.role for message in found.completion.messages] == ["assistant", "user"] * 2 + ["assistant"]
    assert model.opened == 1


async def test_it_is_sent_back_so_often_and_no_more() -> None:
    model = ScriptedModel(then="I would rather talk.")
    with pytest.raises(StructureError, match="no JSON") as failed:
        await model.structured("Which city?", City, repairs=1)
    assert (len(model.asked), failed.value.text, failed.value.retryable) == (2, "I would rather talk.", False)
    with pytest.raises(StructureError):
        await model.structured("Which city?", City, repairs=0)
    assert len(model.asked) == 3


async def test_a_refusal_is_not_argued_with() -> None:
    model = ScriptedModel(Reply("I cannot.", finish_reason=FinishReason.REFUSAL))
    with pytest.raises(StructureError):
        await model.structured("Which city?", City)


async def test_other_failures_come_through() -> None:
    with pytest.raises(Overloaded):
        await ScriptedModel(Overloaded("busy", kind="overloaded")).structured("Which city?", City)


async def test_history_and_system_are_those_of_the_call() -> None:
    def check(asked: Asked) -> str:
        assert asked.system == "Be brief."
        return ADA

    await ScriptedModel(check).structured("Which city?", City, system="Be brief.")


async def test_a_real_daemon_gives_a_value(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    model = resolve("demo", socket=daemon.socket, cwd=str(daemon.cwd))
    with trio.fail_after(90):
        given = await model.structured(f"@structured {ADA}", City)
        in_words = await model.structured(f"@unstructured\n@text {ADA}", City)
        with pytest.raises(StructureError):
            await model.structured("@unstructured\n@text nothing", list[int], repairs=0)
    assert given.value == in_words.value == City(name="Ada", people=3)
    assert given.completion.structured == {"name": "Ada", "people": 3}
