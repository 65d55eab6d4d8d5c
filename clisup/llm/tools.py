"""Tools that a model may call: definitions for the model, and `@tool`, which makes a `Tool` of a typed function.

The model sees the function's name, docstring and annotations. pydantic makes the JSON Schema and checks each call. A function
that is not async runs in a thread, so it may block.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import cleandoc
from typing import Any, Generic, NamedTuple, ParamSpec, Protocol, TypeVar, get_type_hints, overload

import trio
from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from clisup.client.raw import JsonObject
from clisup.errors import UsageError
from clisup.llm.failures import usage_error
from clisup.llm.messages import ImageBlock, TextBlock
from clisup.llm.shapes import problems_of, schema_of

PARKED_S = 600.0
"""Default seconds that a call of a `ToolDefinition` waits for its result."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class ToolOutput(NamedTuple):
    """Answer of a tool."""

    content: str | Sequence[TextBlock | ImageBlock]
    is_error: bool = False


class Tool(Protocol):
    """Tool that this program runs. `@tool` makes one from a typed function. Any object with these members is a tool."""

    @property
    def name(self) -> str:
        """Name: 1 to 64 of `a-zA-Z0-9_-`."""

    @property
    def description(self) -> str:
        """Description, by which the model decides to call the tool."""

    @property
    def input_schema(self) -> JsonObject:
        """JSON Schema of the input, of type object."""

    @property
    def timeout_s(self) -> float | None:
        """Seconds that a call may take. None is the daemon's default."""

    async def run(self, arguments: JsonObject) -> ToolOutput:
        """Run the tool. Failures are `is_error` outputs for the model. Raises nothing but cancellation."""


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """Tool that the caller runs: a call ends the stream, and the next prompt brings the result.

    A call waits `timeout_s` for its result, by default `PARKED_S`. Raises `UsageError` for a name or schema that no API takes.
    """

    name: str
    description: str
    input_schema: JsonObject
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        problem, hint = "", ""
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            problem, hint = "its name is not 1 to 64 of a-z, A-Z, 0-9, _ and -", "choose another name"
        elif not isinstance(self.description, str):
            problem, hint = "its description is not a text", 'write one, or ""'
        elif not isinstance(self.input_schema, Mapping) or self.input_schema.get("type") != "object":
            problem, hint = "its input_schema is not a JSON Schema of type object", 'give {"type": "object", ...}'
        elif self.timeout_s is not None and not self.timeout_s > 0:
            problem, hint = f"its timeout_s is {self.timeout_s}", f"give seconds, or None for {PARKED_S:g}"
        if problem:
            raise usage_error(f"the tool {self.name!r:.100} cannot be defined: {problem}", hint)

    @property
    def waits_s(self) -> float:
        """Seconds that a call waits for its result."""
        return PARKED_S if self.timeout_s is None else float(self.timeout_s)


AnyTool = Tool | ToolDefinition | Mapping[str, Any]
"""Values of `tools=`: tools that run here, definitions of the caller's tools, or such definitions as mappings."""


def as_tools(tools: Sequence[AnyTool]) -> tuple[Tool | ToolDefinition, ...]:
    """Return the tools, with each mapping as a `ToolDefinition`.

    Raises `UsageError` for other values, most often a function without `@tool`.
    """
    if not isinstance(tools, Iterable) or isinstance(tools, Mapping):
        raise usage_error(f"tools= is a list of tools, unlike {tools!r:.100}", "give tools=[...]")
    return tuple(_defined(tool) if isinstance(tool, Mapping) else _checked(tool) for tool in tools)


def definitions_of(tools: Iterable[Tool | ToolDefinition]) -> tuple[ToolDefinition, ...]:
    """Return the tools that the caller runs."""
    return tuple(tool for tool in tools if isinstance(tool, ToolDefinition))


def runnable_of(tools: Iterable[Tool | ToolDefinition]) -> tuple[Tool, ...]:
    """Return the tools that run here."""
    return tuple(tool for tool in tools if not isinstance(tool, ToolDefinition))


def _checked(tool: Any) -> Tool | ToolDefinition:
    if isinstance(tool, ToolDefinition):
        return tool
    if not all(hasattr(tool, name) for name in ("name", "description", "input_schema", "timeout_s", "run")):
        called = getattr(tool, "__name__", repr(tool))
        raise UsageError(
            f"{called} is not a tool",
            hint=f"decorate it with @tool, or give tool({called})",
        )
    found: Tool = tool
    return found


def _defined(given: Mapping[str, Any]) -> ToolDefinition:
    """Make a definition of a mapping, with clisup's keys or OpenAI's `{"type": "function", "function": {...}}`."""
    about = given
    if given.get("type") == "function" and isinstance(given.get("function"), Mapping):
        theirs = given["function"]
        about = {"name": theirs.get("name"), "description": theirs.get("description") or ""}
        about["input_schema"] = theirs.get("parameters") or {"type": "object", "properties": {}}
    unknown = sorted(about.keys() - {"name", "description", "input_schema", "timeout_s"})
    if unknown or "name" not in about or "input_schema" not in about:
        why = f"it has the unknown key {unknown[0]!r}" if unknown else "name or input_schema is missing"
        raise usage_error(
            f"the mapping {dict(given)!r:.100} defines no tool: {why}",
            "give name, description, input_schema and timeout_s, or OpenAI's form with type and function",
        )
    return ToolDefinition(
        about["name"], about.get("description") or "", about["input_schema"], timeout_s=about.get("timeout_s")
    )


_SECTION = re.compile(
    r"(Args|Arguments|Parameters|Params|Returns?|Yields?|Raises|Examples?|Notes?|See Also|Warnings?):\s*$"
)
_PARAMETER_SECTIONS = frozenset({"Args", "Arguments", "Parameters", "Params"})
_SPOKEN_SECTIONS = frozenset({"Example", "Examples", "Note", "Notes", "Warning", "Warnings"})
_ITEM = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_FIELD = re.compile(r":(?P<what>\w+)(?:\s+[^:]*?(?P<name>\w+))?:\s*(?P<text>.*)$")


class FunctionDoc(NamedTuple):
    """Docstring of a function: the text about the function, and the descriptions of parameters by name."""

    text: str
    parameters: dict[str, str]


def read_docstring(docstring: str | None) -> FunctionDoc:
    """Parse a docstring in Google's or Sphinx's style. Results and exceptions are left out, because a caller sees them anyway.

    Parameters come from `Args:` (also Arguments, Parameters, Params) with indented lines `name: text` or `name (type): text`, and
    from `:param name: text`. Everything else stays in the text.
    """
    text: list[str] = []
    parameters: dict[str, list[str]] = {}
    section, item, depth = "", "", 0
    for line in cleandoc(docstring or "").splitlines():
        indent = len(line) - len(line.lstrip())
        if indent == 0 and line.strip():
            field = _FIELD.match(line)
            heading = _SECTION.match(line)
            section = "Field" if field else heading.group(1) if heading else ""
            item, depth = "", 0
            if field and field["what"] == "param" and field["name"]:
                item = field["name"]
                parameters[item] = [field["text"]]
                continue
        if section in _PARAMETER_SECTIONS and indent:
            depth = depth or indent
            if indent == depth and (found := _ITEM.match(line.strip())):
                item = found.group(1)
                parameters[item] = [found.group(2)]
                continue
        if item and line.strip():
            parameters[item].append(line.strip())
        elif section == "" or section in _SPOKEN_SECTIONS:
            text.append(line)
    return FunctionDoc("\n".join(text).strip(), {name: " ".join(lines).strip() for name, lines in parameters.items()})


MAX_OUTPUT_CHARS = 400_000
"""Longest text of an answer, about 100,000 tokens. Most CLIs take less. A longer text is cut, with a note to the model."""

_REFUSED = {
    inspect.Parameter.VAR_POSITIONAL: "takes any number of arguments (*{})",
    inspect.Parameter.VAR_KEYWORD: "takes any names (**{})",
    inspect.Parameter.POSITIONAL_ONLY: "takes {} by its place alone",
}
P = ParamSpec("P")
R = TypeVar("R")


class ToolError(Exception):
    """Failure of a tool in words for the model. Other exceptions reach the model with the name of their class."""


class _Around(NamedTuple):
    """Namespaces of the decorator. Text annotations may name local classes of the surrounding function."""

    module: Mapping[str, Any]
    names: Mapping[str, Any]


class FunctionTool(Generic[P, R]):
    """Function as a `Tool`. Calling the object calls the function."""

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
        self.input_schema: JsonObject = schema_of(arguments)
        self._call: Callable[..., Any] = function
        self._arguments = arguments

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function without checks."""
        value: R = self._call(*args, **kwargs)
        return value

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    async def run(self, arguments: JsonObject) -> ToolOutput:
        """Check the arguments, run the function, and return its value in a form for the model.

        Raises nothing but cancellation. A cancelled function that is not async runs to its end in its thread, without effect on
        the answer. A long one may call `trio.from_thread.check_cancelled()`.
        """
        try:
            given = self._arguments.model_validate(arguments)
        except ValidationError as error:
            problems = "; ".join(problems_of(error, whole="input"))
            return ToolOutput(f"cannot call {self.name} with this input: {problems}", is_error=True)
        fields = type(given).model_fields
        named = {str(fields[name].alias): getattr(given, name) for name in fields if name in given.model_fields_set}
        try:
            value = await self._called(functools.partial(self._call, **named))
        except (Exception, SystemExit, BaseExceptionGroup) as error:
            # every other exception of a tool is an answer for the model
            if isinstance(error, BaseExceptionGroup) and error.split((Exception, SystemExit))[1] is not None:
                raise  # a cancellation or Ctrl-C is in it
            return ToolOutput(_cut(_words(error)), is_error=True)
        return _output(value, self.name)

    async def _called(self, call: Callable[[], Any]) -> Any:
        if not _is_async(self._call):
            own = trio.CapacityLimiter(1)  # a hanging tool keeps its own thread, not one of trio's pool
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

    The default name is the function's, the default description its docstring. `Args:`, `:param x:` and
    `Annotated[int, Field(description=..., ge=0)]` describe parameters. Raises `UsageError` for a function that cannot be described.
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
        problem, hint = "it is not a function or method", "write a function around it"
    elif inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        problem, hint = "it is a generator, and a tool answers once", "return a list"
    elif not _NAME.fullmatch(name):
        problem, hint = "a name is 1 to 64 of a-z, A-Z, 0-9, _ and -", 'choose one: @tool(name="...")'
    elif not description:
        problem, hint = "it has no docstring, by which the model decides to call it", "write one"
    elif timeout_s is not None and not timeout_s > 0:
        problem, hint = f"timeout_s is {timeout_s}", "give seconds, or None for the daemon's default"
    if problem:
        raise usage_error(f"{name or function!r} cannot be a tool: {problem}", hint)


def _arguments_of(function: Callable[..., Any], name: str, told: Mapping[str, str], around: _Around) -> type[BaseModel]:
    """Return a model of the call's arguments.

    The parameters' names are aliases, because pydantic refuses fields such as `schema` or `_x`.
    """

    def refuse(why: str, hint: str) -> UsageError:
        return usage_error(f"{name} cannot be a tool: {why}", hint)

    try:
        hints = _hints(function, around)
    except NameError as error:
        raise refuse(
            f"an annotation cannot be read: {error}", "import or define its names before the function"
        ) from None
    fields: dict[str, Any] = {}
    filled_in = function.keywords if isinstance(function, functools.partial) else {}
    for index, parameter in enumerate(inspect.signature(function).parameters.values()):
        if parameter.name in filled_in:  # a fixed argument, which inspect shows as a default
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
            f"JSON cannot carry its arguments: {error.message}", "use types with a JSON Schema in pydantic"
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
    except PydanticSerializationError:  # the function has a default that JSON has not
        return Field(default_factory=lambda: parameter.default, **about)
    return Field(default=parameter.default, **about)


def _is_async(function: Callable[..., Any]) -> bool:
    """Return whether the function is async, also below a decorator with `functools.wraps`."""
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
        return ToolOutput(f"{name} has run, but its answer has no JSON form: {error}", is_error=True)


def _cut(text: str) -> str:
    if len(text) <= MAX_OUTPUT_CHARS:
        return text
    return f"{text[:MAX_OUTPUT_CHARS]}\n... cut here: {len(text) - MAX_OUTPUT_CHARS} more characters"
