"""Signatures: typed inputs and outputs of a question to a model. The docstring contains the instructions.

    class Triage(Signature):
        \"\"\"Say of which kind a ticket is.\"\"\"

        ticket: str = InputField(description="what the customer wrote")
        kind: Literal["bug", "question"] = OutputField()
        urgency: int = OutputField(description="5 is the most urgent", ge=1, le=5)

An instance has typed inputs and outputs. Pure.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from copy import copy
from enum import Enum
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, Field, JsonValue, create_model
from pydantic.fields import FieldInfo

from clisup.llm.failures import usage_error
from clisup.llm.json_text import JsonObject
from clisup.llm.shapes import schema_of


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
