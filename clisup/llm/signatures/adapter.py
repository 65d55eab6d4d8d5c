"""Signatures as text: the prompt of a question, and the outputs of an answer. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import to_json

from clisup.llm.failures import usage_error
from clisup.llm.json_text import JsonObject, json_values
from clisup.llm.messages import ImageBlock, Prompt, TextBlock
from clisup.llm.shapes import Misfit, first_fit, problems_of
from clisup.llm.signatures.signature import (
    Signature,
    inputs_of,
    instructions_of,
    kind_of,
    model_of,
    outputs_of,
)


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
