"""`@tool`: a typed function becomes a `Tool` that a model can call.

Its name, docstring and annotations are all that the model is told; pydantic makes the JSON Schema and checks each call
against it. A function that is not async runs in a thread, so that it may block.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar, get_type_hints, overload

import trio
from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from clisup.errors import UsageError
from clisup.llm.docstrings import read_docstring
from clisup.llm.messages import ImageBlock, TextBlock
from clisup.llm.schemas import problems_of, schema_of
from clisup.llm.tools import ToolOutput

__all__ = ["MAX_OUTPUT_CHARS", "FunctionTool", "ToolError", "tool"]

MAX_OUTPUT_CHARS = 400_000
"""A longer text is cut, and the model is told so: about 100,000 tokens, more than most CLIs take of one answer."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_REFUSED = {
    inspect.Parameter.VAR_POSITIONAL: "takes any number of arguments (*{})",
    inspect.Parameter.VAR_KEYWORD: "takes any names (**{})",
    inspect.Parameter.POSITIONAL_ONLY: "takes {} by its place alone",
}
P = ParamSpec("P")
R = TypeVar("R")


class ToolError(Exception):
    """Raise it in a tool to tell the model what went wrong, in these words alone. Other exceptions are told with their class."""


class _Around(NamedTuple):
    """Where the decorator stands. Annotations that are texts may name classes of the function around, but of no other module."""

    module: Mapping[str, Any]
    names: Mapping[str, Any]


class FunctionTool(Generic[P, R]):
    """A function as a `Tool`. It can still be called as the function that it is."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str,
        description: str,
        arguments: type[BaseModel],
        timeout_s: float | None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.name, self.description, self.timeout_s = name, description, timeout_s
        self.input_schema: dict[str, Any] = schema_of(arguments)
        self._call: Callable[..., Any] = function
        self._arguments = arguments

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The function itself, unchecked."""
        value: R = self._call(*args, **kwargs)
        return value

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    async def run(self, arguments: dict[str, Any]) -> ToolOutput:
        """Check the arguments, run the function, and make its value what a model can read.

        Never raises but for cancellation. A cancelled call of a function that is not async leaves its thread to run to its
        end, unheard; a long one may ask `trio.from_thread.check_cancelled()`.
        """
        try:
            given = self._arguments.model_validate(arguments)
        except ValidationError as error:
            problems = "; ".join(problems_of(error, whole="input"))
            return ToolOutput(f"cannot call {self.name} with this input: {problems}", is_error=True)
        named = {_alias(given, name): getattr(given, name) for name in _set(given)}
        try:
            value = await self._called(functools.partial(self._call, **named))
        except (Exception, SystemExit, BaseExceptionGroup) as error:
            # The edge: whatever a tool raises is for the model to read.
            if isinstance(error, BaseExceptionGroup) and error.split((Exception, SystemExit))[1] is not None:
                raise  # a cancellation or Ctrl-C is in it
            return ToolOutput(_cut(_words(error)), is_error=True)
        return _output(value, self.name)

    async def _called(self, call: Callable[[], Any]) -> Any:
        if not _is_async(self._call):
            own = trio.CapacityLimiter(1)  # those that hang keep their threads, and are not to keep trio's others, too
            return await trio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=own)
        return await call()


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...


@overload
def tool(
    *, name: str | None = None, description: str | None = None, timeout_s: float | None = None
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float | None = None,
) -> Any:
    """Make a `Tool` of a typed function, a coroutine function or a bound method: `@tool`, `@tool(timeout_s=30)`, `tool(shop.price)`.

    The name is the function's, the description its docstring, of which `Args:` or `:param x:` describe the parameters; so does
    `Annotated[int, Field(description=..., ge=0)]`. Raises `UsageError` at once where the model could not be told how to call it.
    """
    frame = sys._getframe(1)
    around = _Around(frame.f_globals, frame.f_locals)

    def make(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        doc = read_docstring(function.__doc__)
        chosen = name or str(getattr(function, "__name__", ""))
        told = description or doc.text
        _check(function, chosen, told, timeout_s)
        arguments = _arguments_of(function, chosen, doc.parameters, around)
        return FunctionTool(function, name=chosen, description=told, arguments=arguments, timeout_s=timeout_s)

    return make if function is None else make(function)


def _check(function: Callable[..., Any], name: str, description: str, timeout_s: float | None) -> None:
    problem, hint = "", ""
    if not (inspect.isroutine(function) or isinstance(function, functools.partial)):
        problem, hint = "it is no function or method", "write a function around it"
    elif inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        problem, hint = "it is a generator, and a tool answers once", "return a list"
    elif not _NAME.fullmatch(name):
        problem, hint = "a name is 1 to 64 of a-z, A-Z, 0-9, _ and -", 'choose one: @tool(name="...")'
    elif not description:
        problem, hint = "it has no docstring, and the model would not know when to call it", "write one"
    elif timeout_s is not None and not timeout_s > 0:
        problem, hint = f"timeout_s is {timeout_s}", "give seconds, or None for the daemon's default"
    if problem:
        raise UsageError(f"cannot make a tool of {name or function!r}, because {problem}", kind="usage", hint=hint)


def _arguments_of(function: Callable[..., Any], name: str, told: Mapping[str, str], around: _Around) -> type[BaseModel]:
    """The model of the call's arguments. Its fields have names of ours, for a parameter may be called `schema` or `_x`;
    the parameters' names are the aliases.
    """

    def refuse(why: str, hint: str) -> UsageError:
        return UsageError(f"cannot make a tool of {name}, because {why}", kind="usage", hint=hint)

    try:
        hints = _hints(function, around)
    except NameError as error:
        raise refuse(
            f"an annotation cannot be read: {error}", "import or define what it names before the function"
        ) from None
    fields: dict[str, Any] = {}
    filled_in = function.keywords if isinstance(function, functools.partial) else {}
    for index, parameter in enumerate(inspect.signature(function).parameters.values()):
        if parameter.name in filled_in:  # to inspect, a default that may be overridden; here it is none of the model's
            continue
        if parameter.kind in _REFUSED:
            raise refuse(
                f"it {_REFUSED[parameter.kind].format(parameter.name)}", "give every parameter a name and a type"
            )
        if parameter.name not in hints:
            hint = "make a tool of the bound method: tool(thing.method)" if parameter.name == "self" else "annotate it"
            raise refuse(f"its parameter {parameter.name} has no type", hint)
        annotation = hints[parameter.name]
        fields[f"argument_{index}"] = (annotation, _field(parameter, annotation, told.get(parameter.name)))
    try:
        arguments = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
        schema_of(arguments)
    except PydanticUserError as error:
        raise refuse(
            f"JSON cannot carry its arguments: {error.message}", "use types that pydantic has a JSON Schema of"
        ) from None
    return arguments


def _hints(function: Callable[..., Any], around: _Around) -> dict[str, Any]:
    plain = function.func if isinstance(function, functools.partial) else function
    inner = inspect.unwrap(getattr(plain, "__func__", plain))
    is_here = getattr(inner, "__globals__", None) is around.module
    return get_type_hints(plain, localns=dict(around.names) if is_here else None, include_extras=True)


def _field(parameter: inspect.Parameter, annotation: Any, told: str | None) -> Any:
    about: dict[str, Any] = {"alias": parameter.name}
    annotated = (part for part in getattr(annotation, "__metadata__", ()) if isinstance(part, FieldInfo))
    if told and not any(part.description for part in annotated):
        about["description"] = told
    if parameter.default is parameter.empty:
        return Field(**about)
    try:
        to_jsonable_python(parameter.default)
    except PydanticSerializationError:  # it cannot stand in a schema; the function has it all the same
        return Field(default_factory=lambda: parameter.default, **about)
    return Field(default=parameter.default, **about)


def _set(given: BaseModel) -> list[str]:
    """What the call named: the function knows its own defaults."""
    return [name for name in type(given).model_fields if name in given.model_fields_set]


def _alias(given: BaseModel, name: str) -> str:
    return str(type(given).model_fields[name].alias)


def _is_async(function: Callable[..., Any]) -> bool:
    """Also an async function under a decorator that is not: `functools.wraps` tells."""
    return any(inspect.iscoroutinefunction(one) for one in (function, inspect.unwrap(function)))


def _words(error: BaseException) -> str:
    if isinstance(error, ToolError):
        return str(error)
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_words(one) for one in error.exceptions)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _output(value: Any, name: str) -> ToolOutput:
    if isinstance(value, ToolOutput):
        return value
    if isinstance(value, str):
        return ToolOutput(_cut(value))
    if value is None:
        return ToolOutput("done")
    if isinstance(value, TextBlock | ImageBlock):
        return ToolOutput((value,))
    if isinstance(value, list | tuple) and value and all(isinstance(part, TextBlock | ImageBlock) for part in value):
        return ToolOutput(tuple(value))
    try:
        return ToolOutput(_cut(to_json(value).decode()))
    except PydanticSerializationError as error:
        return ToolOutput(f"{name} has run, but its answer cannot be told as JSON: {error}", is_error=True)


def _cut(text: str) -> str:
    if len(text) <= MAX_OUTPUT_CHARS:
        return text
    return f"{text[:MAX_OUTPUT_CHARS]}\n... cut here: {len(text) - MAX_OUTPUT_CHARS} more characters"
