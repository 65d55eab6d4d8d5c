"""`@tool`: what the model is told of a function, how a call is checked, and what comes back."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import threading
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
import trio
from pydantic import BaseModel, Field

from clisup.errors import UsageError
from clisup.llm.chat import ChatOptions
from clisup.llm.conversation.conversation import Conversation
from clisup.llm.messages import ImageBlock, TextBlock
from clisup.llm.tools import MAX_OUTPUT_CHARS, Tool, ToolError, ToolOutput, tool


@tool
def weather(city: str, unit: Literal["celsius", "kelvin"] = "celsius") -> str:
    """The weather of a city.

    Args:
        city: Its name.
        unit: Of the temperature.
    """
    return f"{city}: 20 {unit}"


# -- what the model is told ---------------------------------------------------------------------------------------------


def test_name_text_and_schema_come_from_the_function() -> None:
    assert (weather.name, weather.description, weather.timeout_s) == ("weather", "The weather of a city.", None)
    assert weather.input_schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Its name."},
            "unit": {
                "type": "string",
                "enum": ["celsius", "kelvin"],
                "default": "celsius",
                "description": "Of the temperature.",
            },
        },
        "required": ["city"],
        "additionalProperties": False,
    }


def test_it_is_a_tool_and_still_a_function() -> None:
    as_tool: Tool = weather
    assert as_tool.name == "weather"
    assert weather("Rome", unit="kelvin") == "Rome: 20 kelvin"
    assert weather.__doc__ is not None
    assert repr(weather) == "<tool weather>"


def test_what_the_decorator_is_given_goes_before_the_function() -> None:
    @tool(name="look-up", description="Look a word up.", timeout_s=3)
    def find(word: str) -> str:
        return word

    assert (find.name, find.description, find.timeout_s) == ("look-up", "Look a word up.", 3)


def test_annotations_say_more_than_the_docstring() -> None:
    @tool
    def take(count: Annotated[int, Field(ge=1, description="How many.")]) -> None:
        """Take some.

        :param count: Not this.
        """

    assert take.input_schema["properties"]["count"] == {"type": "integer", "minimum": 1, "description": "How many."}


class Colour(Enum):
    RED = "red"


class Address(BaseModel):
    """Where somebody lives."""

    street: str
    title: str | None = None


async def test_models_dates_enums_and_lists_arrive_as_what_they_are() -> None:
    seen: list[Any] = []

    @tool
    def note(at: datetime.date, to: Address, colours: list[Colour], more: dict[str, int] | None = None) -> None:
        """Note it."""
        seen.extend([at, to, colours, more])

    assert "title" in note.input_schema["$defs"]["Address"]["properties"]
    answer = await note.run({"at": "2026-11-22", "to": {"street": "Elm"}, "colours": ["red"], "more": {"a": 1}})
    assert answer == ToolOutput("done")
    assert seen == [datetime.date(2026, 11, 22), Address(street="Elm"), [Colour.RED], {"a": 1}]


async def test_a_class_of_the_function_around_may_be_named() -> None:
    class Local(BaseModel):
        size: int

    @tool
    def measure(thing: Local) -> int:
        """Measure it."""
        return thing.size

    assert await measure.run({"thing": {"size": 3}}) == ToolOutput("3")


def test_a_function_of_another_module_is_read_by_its_own_names() -> None:
    class Path:  # the function means another one
        pass

    source = (
        "from __future__ import annotations\nfrom pathlib import Path\ndef size(path: Path) -> int:\n    'Its size.'\n"
    )
    module: dict[str, Any] = {}
    exec(source, module)
    assert tool(module["size"]).input_schema["properties"]["path"] == {"type": "string", "format": "path"}


async def test_any_parameter_name_will_do() -> None:
    @tool
    def odd(schema: str, _hidden: int, model_config: str, copy: bool = False) -> dict[str, Any]:
        """Names that pydantic has plans for."""
        return {"schema": schema, "_hidden": _hidden, "model_config": model_config, "copy": copy}

    answer = await odd.run({"schema": "a", "_hidden": 1, "model_config": "b"})
    assert answer.content == '{"schema":"a","_hidden":1,"model_config":"b","copy":false}'


async def test_a_default_that_json_cannot_carry_is_the_functions_own_business() -> None:
    marker = object()

    @tool
    def maybe(limit: Any = marker) -> bool:
        """Maybe."""
        return limit is marker

    assert "default" not in maybe.input_schema["properties"]["limit"]
    assert await maybe.run({}) == ToolOutput("true")


async def test_a_bound_method_is_a_tool() -> None:
    class Shop:
        def price(self, what: str) -> int:
            """The price of a thing."""
            return len(what)

    assert await tool(Shop().price).run({"what": "pen"}) == ToolOutput("3")


async def test_a_part_of_a_function_is_a_tool_with_a_name() -> None:
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    more = tool(name="add_one", description="One more.")(functools.partial(add, b=1))
    assert await more.run({"a": 2}) == ToolOutput("3")


async def test_what_a_part_of_a_function_has_already_is_not_told_and_not_taken() -> None:
    def fetch(host: str, key: str, path: str) -> str:
        """Fetch it."""
        return f"{key}@{host}{path}"

    filled_in = functools.partial(functools.partial(fetch, "example.org"), key="secret")
    bound = tool(name="fetch", description="Fetch it.")(filled_in)
    assert list(bound.input_schema["properties"]) == ["path"] and "secret" not in str(bound.input_schema)
    assert await bound.run({"path": "/a"}) == ToolOutput("secret@example.org/a")
    refused = await bound.run({"path": "/a", "key": "another"})
    assert refused.is_error and "key: Extra inputs are not permitted" in str(refused.content)


def generator() -> Any:
    """Give one after the other."""
    yield 1


def typed(word: str) -> None:
    """Do it."""


def untyped(a) -> None:  # type: ignore[no-untyped-def]
    """Do it."""


def starred(*words: str) -> None:
    """Do it."""


def unheard(**words: str) -> None:
    """Do it."""


def placed(word: str, /) -> None:
    """Do it."""


def silent(word: str) -> None: ...


def called_back(done: Callable[[], None]) -> None:
    """Do it."""


def unknown(thing: Nowhere) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Do it."""


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (generator, "generator"),
        (untyped, "its parameter a has no type"),
        (starred, r"takes any number of arguments \(\*words\)"),
        (unheard, r"takes any names \(\*\*words\)"),
        (placed, "takes word by its place alone"),
        (silent, "no docstring"),
        (called_back, "JSON cannot carry"),
        (unknown, "Nowhere"),
        (lambda: 1, "a name is 1 to 64"),
        (Address, "not a function or method"),
        (Address.model_dump_json, "its parameter self has no type"),
    ],
)
def test_what_no_model_could_call_is_refused_at_once(function: Any, why: str) -> None:
    with pytest.raises(UsageError, match=f"cannot be a tool: .*{why}") as caught:
        tool(function)
    assert caught.value.hint


def test_a_time_limit_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="timeout_s is 0"):
        tool(timeout_s=0)(typed)


# -- a call -------------------------------------------------------------------------------------------------------------


async def test_a_wrong_call_is_an_answer_that_says_all_that_is_wrong_and_runs_nothing() -> None:
    answer = await weather.run({"unit": "miles", "when": "now"})
    assert answer.is_error
    assert isinstance(answer.content, str)
    assert answer.content.startswith("cannot call weather with this input: ")
    for part in ("city: Field required", "unit: Input should be 'celsius' or 'kelvin'", "when: Extra inputs"):
        assert part in answer.content


async def test_the_function_keeps_its_own_defaults() -> None:
    assert await weather.run({"city": "Rome"}) == ToolOutput("Rome: 20 celsius")


async def test_a_plain_function_runs_in_a_thread_and_a_coroutine_in_the_loop() -> None:
    threads: list[threading.Thread] = []

    @tool
    def blocking() -> None:
        """Block."""
        threads.append(threading.current_thread())

    @tool
    async def waiting() -> None:
        """Wait."""
        await trio.lowlevel.checkpoint()
        threads.append(threading.current_thread())

    await blocking.run({})
    await waiting.run({})
    assert threads[0] is not threading.main_thread()
    assert threads[1] is threading.current_thread()


async def test_a_coroutine_function_under_a_decorator_that_hides_it_is_awaited() -> None:
    def hiding(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @tool
    @hiding
    async def answer(a: int) -> int:
        """Answer."""
        return a

    assert await answer.run({"a": 1}) == ToolOutput("1")


async def test_calls_that_hang_hold_up_neither_others_nor_the_program() -> None:
    let_go = threading.Event()

    @tool
    def hang() -> None:
        """Hang."""
        let_go.wait(60)

    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    threads = int(trio.to_thread.current_default_thread_limiter().total_tokens)
    try:
        with trio.move_on_after(10):
            async with trio.open_nursery() as nursery:
                for _ in range(threads):
                    nursery.start_soon(hang.run, {})
                assert (await add.run({"a": 1, "b": 2})).content == "3"
                assert await trio.to_thread.run_sync(lambda: "saved") == "saved"
                nursery.cancel_scope.cancel()
            return
        pytest.fail("the threads were all taken")
    finally:
        let_go.set()


async def test_a_blocked_call_can_be_cancelled() -> None:
    begun, let_go = threading.Event(), threading.Event()

    @tool
    def stuck() -> None:
        """Wait for long."""
        begun.set()
        let_go.wait(30)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stuck.run, {})
        await trio.to_thread.run_sync(begun.wait, 30)
        nursery.cancel_scope.cancel()
    let_go.set()


# -- what comes back ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", "text"),
        (None, "done"),
        (1.5, "1.5"),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        (Address(street="Elm"), '{"street":"Elm","title":null}'),
        ([Point(1)], '[{"x":1}]'),
        ([], "[]"),
        (TextBlock(text="a"), (TextBlock(text="a"),)),
        (
            [TextBlock(text="a"), ImageBlock.of(b"x", "image/png")],
            (TextBlock(text="a"), ImageBlock.of(b"x", "image/png")),
        ),
        (ToolOutput("no", is_error=True), "no"),
    ],
)
async def test_a_value_becomes_what_a_model_can_read(value: Any, content: Any) -> None:
    @tool
    def give() -> Any:
        """Give it."""
        return value

    answer = await give.run({})
    assert answer.content == content
    assert answer.is_error == isinstance(value, ToolOutput)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ToolError("the shop is closed"), "the shop is closed"),
        (KeyError("pen"), "KeyError: 'pen'"),
        (TimeoutError(), "TimeoutError"),
        (SystemExit(3), "SystemExit: 3"),
        (ExceptionGroup("many", [ValueError("a"), ToolError("b")]), "ValueError: a; b"),
        (BaseExceptionGroup("a nursery's", [SystemExit(3)]), "SystemExit: 3"),
    ],
)
async def test_what_a_tool_raises_is_an_error_that_the_model_can_read(error: BaseException, told: str) -> None:
    @tool
    def fail() -> None:
        """Fail."""
        raise error

    @tool
    async def fail_later() -> None:
        """Fail."""
        raise error

    assert await fail.run({}) == await fail_later.run({}) == ToolOutput(told, is_error=True)


async def test_ctrl_c_in_a_nursery_of_a_tool_is_not_for_the_model() -> None:
    @tool
    async def fail() -> None:
        """Fail."""
        raise BaseExceptionGroup("a nursery's", [KeyboardInterrupt(), ValueError("a")])

    with pytest.raises(BaseExceptionGroup, match="a nursery's"):
        await fail.run({})


async def test_a_value_that_json_cannot_carry_is_told_to_have_happened() -> None:
    @tool
    def give() -> Any:
        """Give it."""
        return object()

    answer = await give.run({})
    assert answer.is_error
    assert "give has run, but its answer has no JSON form" in str(answer.content)


async def test_a_text_without_end_is_cut_and_says_so() -> None:
    @tool
    def shout() -> str:
        """Shout."""
        return "a" * (MAX_OUTPUT_CHARS + 7)

    answer = await shout.run({})
    assert str(answer.content).endswith("\n... cut here: 7 more characters")


@pytest.mark.parametrize(
    "offer", [lambda tools: ChatOptions(tools=tools), lambda tools: Conversation("demo", tools=tools)]
)
def test_a_function_that_nobody_decorated_is_no_tool(offer: Any) -> None:
    def plain(a: int) -> int:
        """Something."""
        return a

    with pytest.raises(UsageError, match=r"plain is not a tool; decorate it with @tool"):
        offer([plain])
    offer([tool(plain)])
