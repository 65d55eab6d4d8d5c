"""Fields of an elicitation as questions for a person: one question each, with a typed answer. Pure.

`form.py` asks them like the questions of a CLI. `FieldQuestion.read` turns a typed line into the value of the field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from clisup.cli.views.events import WIDTH, visible
from clisup.policy.form_schema import FormField, fields_of

__all__ = ["DENY", "NUMBERS", "PREVIEW_LINES", "SKIPPED", "FieldQuestion", "FormError", "barred", "field_questions"]

DENY = "/deny"
"""Typed in place of an answer, this refuses the questions. Words after it go to the model."""

PREVIEW_LINES = 12
NUMBERS = re.compile(r"\d{1,6}(?:[\s,]+\d{1,6})*")
SKIPPED = object()
"""Answer to an optional question that a person skipped."""

_WHOLE = FormField("content", "text")
_BOOLEANS = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}


class FormError(ValueError):
    """Answer that does not fit its question. The text tells a person what to type."""


class FieldQuestion(NamedTuple):
    """Question for the value of a field. `is_whole`: the answer is the whole content as JSON, for a schema of an unknown form."""

    field: FormField
    is_whole: bool = False

    @property
    def text(self) -> str:
        """Return the name under which the answer is sent."""
        return self.field.name

    @property
    def header(self) -> str:
        return self.field.name

    @property
    def secret(self) -> bool:
        return self.field.secret

    def lines(self) -> list[str]:
        """Return the field and its numbered choices for a terminal."""
        if self.is_whole:
            return ["  | the answer as a JSON object (clisup approvals --json shows its schema)"]
        lines = barred(self.field.title or self.field.name, PREVIEW_LINES)
        lines += [f"    {visible(self.field.about)[:WIDTH]}"] if self.field.about else []
        abouts = self.field.abouts or ("",) * len(self.field.choices)
        for number, ((value, title), text) in enumerate(zip(self.field.choices, abouts, strict=True), 1):
            about = f" - {visible(text)[:WIDTH]}" if text else ""
            lines.append(f"  {number}) {visible(title or value)[:WIDTH]}{about}")
        return lines

    @property
    def prompt(self) -> str:
        """Return the words before the typed answer."""
        return f"  answer ({self._wanted}{self._empty}; {DENY} refuses): "

    @property
    def _wanted(self) -> str:
        count = len(self.field.choices)
        if self.field.kind == "choice":
            return f"1-{count}"
        if self.field.kind == "choices":
            return f"1-{count}, or several as 1,2" + (", or none" if self._may_be_none else "")
        return "yes or no" if self.field.kind == "boolean" else "JSON" if self.is_whole else self.field.wanted

    @property
    def _empty(self) -> str:
        if self._default is not SKIPPED:
            shown = json.dumps(self._default, ensure_ascii=False)
            return "; an empty line takes the default" + ("" if self.secret else f", {visible(shown)[:60]}")
        return "" if self.field.required else "; an empty line skips it"

    @property
    def _default(self) -> Any:
        given = self.field.default
        return SKIPPED if given is None or self.field.problem(given) is not None else given

    @property
    def _may_be_none(self) -> bool:
        return not self.field.least and all("none" not in (v, title) for v, title in self.field.choices)

    def read(self, typed: str) -> Any:
        """Return the value of a typed line, or `SKIPPED`. Raises `FormError`.

        `=` before a text takes the text as it is: a choice by its value, or words that begin with `=` or `/`.
        """
        text = typed.strip()
        if not text and not self.is_whole:
            if self._default is SKIPPED and self.field.required:
                raise FormError(f"type an answer, or {DENY}")
            return self._default
        value = self._value(text)
        if not self.is_whole and self.field.problem(value) is not None:
            raise FormError(f"type {self._wanted}")
        return value

    def _value(self, text: str) -> Any:
        if self.is_whole:
            return _object(text)
        exact = text[1:].strip() if text.startswith("=") else ""
        if self.field.kind == "text":
            return exact or text
        if self.field.kind == "boolean":
            return _BOOLEANS.get(text.casefold())
        if self.field.kind in ("number", "integer"):
            return _number(text)
        if exact:
            return exact if self.field.kind == "choice" else [exact]
        return self._chosen(text)

    def _chosen(self, text: str) -> Any:
        """Return the value or values of numbers, or of titles and values."""
        several = self.field.kind == "choices"
        if several and text.casefold() == "none" and self._may_be_none:
            return []
        if NUMBERS.fullmatch(text):
            parts: list[str] = [self._numbered(int(part)) for part in re.split(r"[\s,]+", text)]
        elif (value := self._named(text)) is not None:
            parts = [value]
        else:
            parts = [self._named(part.strip()) or part for part in text.split(",")] if several else [text]
        parts = list(dict.fromkeys(parts))
        if several:
            return parts
        if len(parts) > 1:
            raise FormError("only one choice can be taken: type one number")
        return parts[0]

    def _numbered(self, number: int) -> str:
        choices = self.field.choices
        if not 1 <= number <= len(choices):
            raise FormError(f"there is no choice {number}: type 1 to {len(choices)}")
        return choices[number - 1][0]

    def _named(self, text: str) -> str | None:
        name = text.casefold()
        return next((v for v, title in self.field.choices if name in (v.casefold(), title.casefold())), None)


def field_questions(schema: Any) -> tuple[FieldQuestion, ...]:
    """Return a question for each field of a schema, or one for the whole content if the schema has another form."""
    fields = fields_of(schema) if isinstance(schema, Mapping) else ()
    if fields is None:
        return (FieldQuestion(_WHOLE, is_whole=True),)
    return tuple(FieldQuestion(field) for field in fields)


def barred(text: str, most: int) -> list[str]:
    """Return the lines of a text behind bars, so that no text can look like the form itself."""
    parts = text.rstrip().split("\n")
    shown = [f"  | {visible(part.rstrip()[:WIDTH])}".rstrip() for part in parts[:most]]
    cut = len(parts) > most or any(len(part) > WIDTH for part in parts[:most])
    return [*shown, "  [cut: clisup approvals --json shows the whole input]"] if cut else shown


def _number(text: str) -> int | float | None:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return None


def _object(text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise FormError('type a JSON object, such as {"name": "value"}')
    return value
