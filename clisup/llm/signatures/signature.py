"""Signatures: typed inputs and outputs of a question to a model. The docstring contains the instructions.

    class Triage(Signature):
        \"\"\"Say of which kind a ticket is.\"\"\"

        ticket: str = InputField(description="what the customer wrote")
        kind: Literal["bug", "question"] = OutputField()
        urgency: int = OutputField(description="5 is the most urgent", ge=1, le=5)

An instance has typed inputs and outputs. `prompt_of` makes the prompt of a question, and `read_answer` reads its outputs. Pure.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from enum import Enum
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import to_json

from clisup.client.raw import JsonObject
from clisup.llm.failures import usage_error
from clisup.llm.messages import ImageBlock, Prompt, TextBlock
from clisup.llm.shapes import Misfit, first_fit, problems_of, schema_of
from clisup.stream_json.json_texts import json_values


class _Side(Enum):
    INPUT = "input"
    OUTPUT = "output"


def InputField(  # noqa: N802 (it stands where pydantic's Field does)
    default: Any = ..., *, description: str | None = None, **constraints: Any
) -> Any:
    """Return an input. `constraints` are those of `pydantic.Field`: `ge`, `max_length`, `pattern`, `examples` ..."""
    return _field(_Side.INPUT, default, description, constraints)


def OutputField(  # noqa: N802 (it stands where pydantic's Field does)
    default: Any = ..., *, description: str | None = None, **constraints: Any
) -> Any:
    """Return an output. With a default it is optional. The model gets the `constraints`, and its answer is checked."""
    return _field(_Side.OUTPUT, default, description, constraints)


def _field(side: _Side, default: Any, description: str | None, constraints: Mapping[str, Any]) -> FieldInfo:
    field: FieldInfo = Field(default, description=description, **constraints)
    field.metadata.append(side)
    return field


class Signature(BaseModel):
    """Base of all signatures. Each field is an `InputField` or an `OutputField`, and at least one is an output."""

    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        unmarked = [name for name, field in cls.model_fields.items() if _side(field) is None]
        if unmarked:
            raise usage_error(
                f"in the signature {cls.__name__}, {unmarked[0]} is neither an input nor an output",
                f"write {unmarked[0]}: ... = InputField() or OutputField()",
            )
        if cls.model_fields and not outputs_of(cls):
            raise usage_error(f"the signature {cls.__name__} has no output", "add an OutputField()")


def _side(field: FieldInfo) -> _Side | None:
    return next((part for part in field.metadata if isinstance(part, _Side)), None)


def inputs_of(signature: type[Signature]) -> dict[str, FieldInfo]:
    """Return the inputs, in order."""
    return {name: field for name, field in signature.model_fields.items() if _side(field) is _Side.INPUT}


def outputs_of(signature: type[Signature]) -> dict[str, FieldInfo]:
    """Return the outputs, in order."""
    return {name: field for name, field in signature.model_fields.items() if _side(field) is _Side.OUTPUT}


def instructions_of(signature: type[Signature]) -> str:
    """Return the docstring, or a plain sentence about the fields."""
    if signature.__doc__:
        return inspect.cleandoc(signature.__doc__)
    given, wanted = ", ".join(inputs_of(signature)), ", ".join(outputs_of(signature))
    return f"Given {given}, give {wanted}." if given else f"Give {wanted}."


def model_of(name: str, fields: Mapping[str, FieldInfo]) -> type[BaseModel]:
    """Return a model of some fields, to check these alone."""
    config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)
    parts: dict[str, Any] = {field: (info.annotation, copy(info)) for field, info in fields.items()}
    return create_model(name, __config__=config, **parts)


def schema_of_outputs(signature: type[Signature], *, reasoning: bool = False) -> JsonObject:
    """Return the JSON Schema of the answer. All outputs are required, for the strict modes of backends.

    With `reasoning`, a text of this name comes first, so that the model writes it before the outputs.
    """
    first = (
        {"reasoning": FieldInfo(annotation=str, description="Think step by step, before all else.")}
        if reasoning
        else {}
    )
    schema = schema_of(model_of(signature.__name__, {**first, **outputs_of(signature)}))
    schema.pop("description", None)
    schema["required"] = list(schema["properties"])
    return schema


# -- the short form -----------------------------------------------------------------------------------------------------

_TYPES: dict[str, Any] = {
    "str": str,
    "string": str,
    "int": int,
    "integer": int,
    "float": float,
    "number": float,
    "bool": bool,
    "boolean": bool,
    "json": JsonValue,
}
_LIST = re.compile(r"list\[(?P<inner>.+)\]")
_ONE = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9_]*)\s*(?::\s*(?P<type>[\w\[\]]+(?:\s*\?)?)\s*)?")


def signature(fields: str, instructions: str = "", *, name: str = "Answer") -> type[Signature]:
    """Make a signature of a text: `signature("question, notes: list[str] -> answer, sure: float", "Use the notes alone.")`.

    Types are str (the default), int, float, bool, json, `list[...]` of them, and `type?` for optional values. Raises `UsageError`.
    """
    given, arrow, wanted = fields.partition("->")
    if not arrow or not wanted.strip():
        raise usage_error(f"{fields!r} is not a signature: it has no outputs", 'write "question -> answer"')
    parts: dict[str, Any] = {}
    for side, texts in ((InputField, given), (OutputField, wanted)):
        for text in filter(None, (part.strip() for part in texts.split(","))):
            one = _ONE.fullmatch(text)
            if one is None or one["name"] in parts:
                why = "a field is a name, or name: type" if one is None else "the name is there twice"
                raise usage_error(f"{text!r} is not a field of a signature: {why}")
            parts[one["name"]] = (_type(one["type"] or "str"), side())
    return create_model(name, __base__=Signature, __doc__=instructions or None, **parts)


def _type(text: str) -> Any:
    text = text.strip()
    if text.endswith("?"):
        return _type(text[:-1]) | None
    if inner := _LIST.fullmatch(text):
        return list[_type(inner["inner"])]  # type: ignore[misc]
    if text not in _TYPES:
        raise usage_error(
            f"{text!r} is not a type of a signature; there are {', '.join(_TYPES)} and list[...]",
            "for other types write a class: class Answer(Signature): ...",
        )
    return _TYPES[text]


def kind_of(field: FieldInfo) -> str:
    """Return a type in one or two words, for a prompt."""
    annotation: Any = field.annotation
    if annotation is JsonValue:
        return "any JSON"
    names = {str: "text", int: "integer", float: "number", bool: "true or false"}
    if annotation in names:
        return names[annotation]
    literals = get_args(annotation)
    return " or ".join(map(repr, literals)) if literals and all(isinstance(one, str) for one in literals) else "JSON"


class Answered(NamedTuple):
    """Inputs and outputs as one value, and the requested reasoning."""

    value: Signature
    reasoning: str | None


# -- asking -------------------------------------------------------------------------------------------------------------


def check_inputs(signature: type[Signature], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the typed inputs. Raises `UsageError` for missing, unknown and wrong ones."""
    try:
        checked = model_of(signature.__name__, inputs_of(signature)).model_validate(dict(given))
    except ValidationError as error:
        takes = ", ".join(inputs_of(signature)) or "nothing"
        raise usage_error(
            f"wrong inputs of {signature.__name__}: {'; '.join(_problems(error))}", f"it takes {takes}"
        ) from None
    return {name: getattr(checked, name) for name in inputs_of(signature)}


def prompt_of(
    signature: type[Signature],
    inputs: Mapping[str, Any],
    *,
    examples: Sequence[Signature] = (),
    reasoning: bool = False,
) -> Prompt:
    """Return the whole question. Images of the inputs are blocks, all other inputs are text."""
    images = [value for value in inputs.values() if isinstance(value, ImageBlock)]
    parts = [instructions_of(signature)]
    for example in examples:
        outputs = to_json({name: getattr(example, name) for name in outputs_of(signature)}).decode()
        given = _inputs(signature, {name: getattr(example, name) for name in inputs_of(signature)})
        parts.append(f"<example>\n{given}\n<answer>\n{outputs}\n</answer>\n</example>")
    parts.append(_inputs(signature, inputs))
    parts.append(_form(signature, reasoning=reasoning))
    text = "\n\n".join(part for part in parts if part)
    return [TextBlock(text=text), *images] if images else text


def _inputs(signature: type[Signature], inputs: Mapping[str, Any]) -> str:
    lines = []
    for name, field in inputs_of(signature).items():
        about = f"{name} ({field.description})" if field.description else name
        lines.append(f"{about}:\n{_fenced(name, inputs[name])}")
    return "\n\n".join(lines)


def _fenced(name: str, value: Any) -> str:
    """Return the value between tags of the field's name. A text that contains the closing tag becomes JSON."""
    if isinstance(value, ImageBlock):
        return "(attached as an image)"
    text = value if isinstance(value, str) and f"</{name}" not in value else to_json(value).decode()
    return f"<{name}>\n{text}\n</{name}>"


def _form(signature: type[Signature], *, reasoning: bool) -> str:
    """Return the description of the outputs. A backend without structured output gets the JSON Schema beside it."""
    lines = ["Answer with these fields:"]
    if reasoning:
        lines.append("- reasoning (text): think step by step here, before all else")
    for name, field in outputs_of(signature).items():
        about = f": {field.description}" if field.description else ""
        lines.append(f"- {name} ({kind_of(field)}){about}")
    return "\n".join(lines)


# -- reading ------------------------------------------------------------------------------------------------------------


def read_answer(
    signature: type[Signature], inputs: Mapping[str, Any], text: str, structured: Any = None, *, reasoning: bool = False
) -> Answered:
    """Return the outputs of a backend's structured output, or else of the text. Raises `Misfit`.

    The text may have fences and prose, other spellings of names, an object around the outputs, and JSON within texts. pydantic
    turns texts into numbers.
    """
    values = json_values(text) if structured is None else iter([structured])
    candidates = (candidate for value in values for candidate in _candidates(signature, value))
    return first_fit(
        candidates, lambda said: _fit(signature, inputs, said, reasoning), "there is no JSON object in the answer"
    )


def _candidates(signature: type[Signature], value: Any) -> Iterator[JsonObject]:
    """Return the possible meanings of an answer, the likeliest first."""
    names = list(outputs_of(signature))
    if isinstance(value, dict):
        named = {_same(str(key), names): part for key, part in value.items()}
        if len(value) != 1 or set(names) & set(named):
            yield named
        for part in value.values() if len(value) == 1 and not set(names) & set(named) else ():
            if isinstance(part, dict):  # {"answer": {...}} around it
                yield {_same(str(key), names): inner for key, inner in part.items()}
        if set(names) & set(named):
            return
    if len(names) == 1:  # the value alone
        yield {names[0]: value}
    elif isinstance(value, dict) and len(value) == 1:
        yield {}


def _same(key: str, names: Sequence[str]) -> str:
    """Return the output of this spelling: `"Due date"` is `due_date`. Return other keys in plain letters."""
    if key in names:
        return key
    plain = re.sub(r"[^a-z0-9]+", "_", key.strip().lower()).strip("_")
    return next((name for name in names if name.lower() == plain), plain)


def _fit(signature: type[Signature], inputs: Mapping[str, Any], said: Mapping[str, Any], reasoning: bool) -> Answered:
    names = outputs_of(signature)
    outputs = {name: said[name] for name in names if name in said}
    try:
        value = _validated(signature, inputs, outputs)
    except ValidationError as error:
        raise Misfit(_problems(error)) from None
    if not outputs:  # each output may be optional, but an answer has at least one
        raise Misfit([f"it has none of the fields {', '.join(names)}"])
    thought = said.get("reasoning") if reasoning else None
    return Answered(value, thought if isinstance(thought, str) else None)


def _validated(signature: type[Signature], inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Signature:
    try:
        return signature.model_validate({**inputs, **outputs})
    except ValidationError as error:
        opened = _opened(error, outputs)
        if not opened:
            raise
    return signature.model_validate({**inputs, **outputs, **opened})


def _opened(error: ValidationError, outputs: Mapping[str, Any]) -> JsonObject:
    """Return wrong outputs that are texts with JSON, as JSON."""
    opened: JsonObject = {}
    for name in {str(one["loc"][0]) for one in error.errors(include_url=False) if one["loc"]}:
        if isinstance(text := outputs.get(name), str):
            for value in json_values(text):
                opened[name] = value
                break
    return opened


def _problems(error: ValidationError) -> list[str]:
    return problems_of(error, whole="the whole", missing="is missing")
