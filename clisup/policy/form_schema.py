"""Schemas of forms: the fields that an elicitation asks for, and the check of their values. Pure.

The Model Context Protocol and the Agent Client Protocol allow a flat object of texts, numbers, booleans, choices, and lists of
choices. The terminal makes a form from the fields; the daemon checks an answer by them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, Literal, NamedTuple

__all__ = ["MOST_CHOICES", "MOST_FIELDS", "FormField", "fields_of", "problem_of"]

MOST_FIELDS = 50
MOST_CHOICES = 200
"""Limits of a form. No form is made for a schema over them."""

_NAME_CHARS = 60
_FORMATS = {
    "email": ("an email address", re.compile(r"[^\s@]+@[^\s@]+")),
    "uri": ("a URL", re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")),
    "date": ("a date, as 2026-01-31", re.compile(r"\d{4}-\d\d-\d\d")),
    "date-time": ("a date with a time, as 2026-01-31T12:00:00Z", re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d.*")),
}


class FormField(NamedTuple):
    """Field of a form.

    `choices` are values with their titles, `abouts` their descriptions, if any. `least` and `most` bound the number, or the length
    of the text or list.
    """

    name: str
    kind: Literal["text", "number", "integer", "boolean", "choice", "choices"]
    title: str = ""
    about: str = ""
    required: bool = False
    choices: tuple[tuple[str, str], ...] = ()
    abouts: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    format: str = ""
    default: Any = None
    secret: bool = False

    @property
    def wanted(self) -> str:
        """Return the allowed values in words."""
        between = _between(self.least, self.most)
        if self.kind == "boolean":
            return "true or false"
        if self.kind == "choice":
            return f"one of {_listed(self.choices)}"
        if self.kind == "choices":
            return f"a list of {between + ' ' if between else ''}different values, each one of {_listed(self.choices)}"
        if self.kind == "text":
            what = _FORMATS[self.format][0] if self.format in _FORMATS else "a text"
            return f"{what} of {between} characters" if between else what
        what = "a whole number" if self.kind == "integer" else "a number"
        return f"{what}, {between}" if between else what

    def problem(self, value: Any) -> str | None:
        """Return the reason why the value does not fit, or None."""
        return None if self._fits(value) else f"{_quoted(self.name)} must be {self.wanted}"

    def _fits(self, value: Any) -> bool:
        if self.kind == "boolean":
            return isinstance(value, bool)
        if self.kind == "choice":
            return isinstance(value, str) and value in self._values
        if self.kind == "choices":
            return (
                isinstance(value, list)
                and all(isinstance(item, str) and item in self._values for item in value)
                and len(set(value)) == len(value)
                and self._within(len(value))
            )
        if self.kind == "text":
            return isinstance(value, str) and self._within(len(value)) and _of_format(self.format, value)
        return (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and (isinstance(value, int) or math.isfinite(value))
            and (self.kind == "number" or value == int(value))
            and self._within(value)
        )

    @property
    def _values(self) -> set[str]:
        return {value for value, _ in self.choices}

    def _within(self, value: float) -> bool:
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)


def fields_of(schema: Any) -> tuple[FormField, ...] | None:
    """Return the fields of a schema in their order, or None for a schema of another form or over the limits."""
    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        return None
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, Mapping) or len(properties) > MOST_FIELDS or not isinstance(required, list):
        return None
    fields = [_field(str(name), given, required=name in required) for name, given in properties.items()]
    whole = tuple(field for field in fields if field is not None)
    known = {field.name for field in whole}
    all_known = all(isinstance(name, str) and name in known for name in required)
    return whole if len(whole) == len(fields) and all_known else None


def problem_of(fields: Sequence[FormField], content: Mapping[str, Any]) -> str | None:
    """Return the first reason why the values do not fit the fields, or None. The reason names the field."""
    known = {field.name: field for field in fields}
    for name, value in content.items():
        if name not in known:
            return f"the form has no field {_quoted(name)}"
        if (problem := known[name].problem(value)) is not None:
            return problem
    missing = next((field for field in fields if field.required and field.name not in content), None)
    return None if missing is None else f"{_quoted(missing.name)} is missing; it must be {missing.wanted}"


def _field(name: str, given: Any, *, required: bool) -> FormField | None:
    """Return a field of a schema, or None for one of another form."""
    if not isinstance(given, Mapping):
        return None
    field = FormField(
        name, "text", _text(given, "title"), _text(given, "description"), required, format=_text(given, "format"),
        default=given.get("default"), secret=given.get("writeOnly") is True or given.get("format") == "password",
    )  # fmt: skip
    type_ = given.get("type")
    if type_ == "string" or (type_ is None and ("enum" in given or "oneOf" in given)):
        if not {"enum", "oneOf", "anyOf", "const"} & given.keys():
            return _bounded(field, given, "minLength", "maxLength")
        return _chosen(field._replace(kind="choice"), given)
    if type_ == "boolean":
        return field._replace(kind="boolean")
    if type_ == "number" or type_ == "integer":
        return _bounded(field._replace(kind="number" if type_ == "number" else "integer"), given, "minimum", "maximum")
    if type_ == "array":
        items = given.get("items")
        if not isinstance(items, Mapping) or items.get("type", "string") != "string":
            return None
        several = _chosen(field._replace(kind="choices"), items)
        return _bounded(several, given, "minItems", "maxItems") if several is not None else None
    return None


def _bounded(field: FormField, given: Mapping[str, Any], least: str, most: str) -> FormField | None:
    """Return the field with its bounds, or None if they are no numbers or contradict each other."""
    bounds = [given.get(least), given.get(most)]
    for bound in bounds:
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int | float) or abs(bound) > 1e300):
            return None
    if None not in bounds and bounds[0] > bounds[1]:  # type: ignore[operator]
        return None
    return field._replace(least=bounds[0], most=bounds[1])


def _chosen(field: FormField, given: Mapping[str, Any]) -> FormField | None:
    """Return the field with its choices, or None for an enum of another form."""
    choices = _choices(given)
    if not choices:
        return None
    parts = () if "enum" in given else given.get("oneOf", given.get("anyOf", ()))
    return field._replace(choices=choices, abouts=tuple(_text(part, "description") for part in parts))


def _choices(given: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the values of an enum with their titles, or nothing for an enum of another form."""
    if "enum" in given:
        values, titles = given["enum"], given.get("enumNames")
        named = isinstance(titles, list) and isinstance(values, list) and len(titles) == len(values)
        pairs = [(v, titles[at] if named else v) for at, v in enumerate(values)] if isinstance(values, list) else []  # type: ignore[index]
    else:
        parts = given.get("oneOf", given.get("anyOf"))
        parts = [part if isinstance(part, Mapping) else {} for part in parts] if isinstance(parts, list) else []
        pairs = [(part.get("const"), part.get("title", part.get("const"))) for part in parts]
    are_texts = all(isinstance(value, str) and isinstance(title, str) for value, title in pairs)
    is_set = len({value for value, _ in pairs}) == len(pairs) if are_texts else False
    return tuple(pairs) if is_set and 0 < len(pairs) <= MOST_CHOICES else ()


def _of_format(name: str, value: str) -> bool:
    """Tell whether a text has the format. An unknown format allows each text."""
    if name not in _FORMATS:
        return True
    if _FORMATS[name][1].fullmatch(value) is None:
        return False
    try:
        if name == "date":
            date.fromisoformat(value)
        elif name == "date-time":
            datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _between(least: float | None, most: float | None) -> str:
    if least is not None and most is not None:
        return f"{_number(least)} to {_number(most)}"
    if least is not None:
        return f"at least {_number(least)}"
    return f"at most {_number(most)}" if most is not None else ""


def _number(value: float) -> str:
    return f"{value:g}" if abs(value) < 1e6 else str(value)


def _listed(choices: Sequence[tuple[str, str]]) -> str:
    shown = ", ".join(_quoted(value) for value, _ in choices[:10])
    return f"{shown}, ..." if len(choices) > 10 else shown


def _quoted(text: str) -> str:
    return json.dumps(text[:_NAME_CHARS], ensure_ascii=False)


def _text(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name)
    return value if isinstance(value, str) else ""
