"""Pending approvals as forms of a page, and the answer that a sent form gives. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

from clisup.cli.export.diffs import call_diff
from clisup.cli.export.page import diff_html, pre_html
from clisup.cli.export.parts import Text
from clisup.cli.status.columns import directory
from clisup.cli.views.fields import FieldQuestion
from clisup.cli.views.form import KEEP_PLANNING, Form, FormError, FormQuestion, answer_of, form_of
from clisup.cli.views.terminal import clip, plain, session_name
from clisup.client.raw import JsonObject

__all__ = ["SHOWN_BYTES", "AskChoice", "AskQuestion", "AskedApproval", "answer_to", "ask_key", "ask_of"]

SHOWN_BYTES = 1024 * 1024
"""Bytes of one input on the page at most. An approval with more is marked as cut."""


class AskChoice(NamedTuple):
    """Choice of a question, and the value that a form sends for it."""

    value: str
    label: str
    about: str


class AskQuestion(NamedTuple):
    """Question with choices, or for a text. `several`: more than one choice may be taken."""

    name: str
    text: str
    header: str
    note: str
    choices: list[AskChoice]
    several: bool
    own_words: bool
    secret: bool
    required: bool


class AskedApproval(NamedTuple):
    """Approval on the page. `body` is safe HTML: the whole command, diff, plan or input."""

    session_id: str
    approval_id: str
    key: str
    kind: str
    title: str
    session: str
    place: str
    reason: str
    body: str
    questions: list[AskQuestion]
    can_remember: bool


def ask_key(approval: JsonObject) -> str:
    """Return an id for the element on the page."""
    return "a-" + "".join(c if c.isalnum() else "-" for c in f"{approval['session_id']}-{approval['approval_id']}")


def ask_of(approval: JsonObject) -> AskedApproval:
    """Return the view of an approval."""
    form = form_of(approval)
    return AskedApproval(
        str(approval["session_id"]),
        str(approval["approval_id"]),
        ask_key(approval),
        form.kind,
        _title(form),
        session_name(approval.get("title"), approval["session_id"]),
        plain(f"{approval.get('backend') or ''} in {directory(approval.get('cwd'))}".strip()),
        clip(str(approval.get("reason") or ""), 400),
        _body(form),
        [_question(number, question) for number, question in enumerate(form.questions)],
        form.kind == "tool",
    )


def answer_to(approval: JsonObject, get: Callable[[str], str], chosen: Callable[[str], list[str]]) -> JsonObject:
    """Return the params of `approval/respond` for a sent form. `get` and `chosen` read its fields. Raises `FormError`."""
    form, decision, message = form_of(approval), get("decision"), get("message").strip()
    if decision == "deny":
        words = message or (KEEP_PLANNING if form.kind == "plan" else "")
        return {"decision": "deny"} | ({"message": words} if words else {})
    if decision not in ("allow", "always"):
        raise FormError("choose an answer")
    if form.kind == "questions":
        return answer_of(form, [_typed(n, question, get, chosen) for n, question in enumerate(form.questions)])
    return {"decision": "allow"} | ({"remember": True} if decision == "always" and form.kind == "tool" else {})


def _typed(
    number: int, question: FormQuestion | FieldQuestion, get: Callable[[str], str], chosen: Callable[[str], list[str]]
) -> str:
    """Return the answer as a person types it in a terminal. Own words come before a choice."""
    if not (words := get(f"w{number}").strip()):
        return ",".join(chosen(f"c{number}"))
    if isinstance(question, FieldQuestion):
        return f"={words}" if question.field.kind == "text" and not question.is_whole else words
    return words if question.kind == "number" else f"={words}"


def _title(form: Form) -> str:
    if form.asker:
        return clip(f"{form.asker} asks", 80)
    if form.options:
        return clip(f"Use {form.approval['tool_name']}?", 80)
    titles = {"questions": "The model has a question", "plan": "The model has a plan"}
    return titles.get(form.kind) or clip(f"Use {form.approval['tool_name']}?", 80)


def _body(form: Form) -> str:
    given: JsonObject = form.approval.get("input") or {}
    if form.kind == "plan":
        return pre_html(_text(form.plan))
    if form.asker:
        url = f"\n\n{given['url']}" if given.get("mode") == "url" else ""
        return pre_html(_text(f"{given['message']}{url}"))
    if form.kind == "questions" and not form.options:
        return ""
    if diff := call_diff(given):
        return diff_html(_text(diff))
    command = given.get("command")
    rest = {name: value for name, value in given.items() if name != "command" or not isinstance(command, str)}
    parts = [command] if isinstance(command, str) else []
    parts += [json.dumps(rest, ensure_ascii=False, indent=2)] if rest else []
    return "".join(pre_html(_text(part)) for part in parts)


def _text(text: str) -> Text:
    data = text.encode("utf-8", "replace")
    return Text(data[:SHOWN_BYTES].decode("utf-8", "ignore"), max(0, len(data) - SHOWN_BYTES))


def _question(number: int, question: FormQuestion | FieldQuestion) -> AskQuestion:
    name = str(number)
    if isinstance(question, FieldQuestion):
        field = question.field
        abouts = field.abouts or ("",) * len(field.choices)
        shown = [AskChoice(str(at), plain(title or value), plain(about))
                 for at, ((value, title), about) in enumerate(zip(field.choices, abouts, strict=True), 1)]  # fmt: skip
        if field.kind == "boolean":
            shown = [AskChoice("yes", "Yes", ""), AskChoice("no", "No", "")]
        text = "the answer as a JSON object" if question.is_whole else field.title or field.name
        return AskQuestion(name, plain(text), "", plain(field.about), shown, field.kind == "choices", not shown,
                           field.secret, field.required and not shown)  # fmt: skip
    shown = [
        AskChoice(str(at), plain(c.label), plain(c.description or c.preview))
        for at, c in enumerate(question.choices, 1)
    ]
    return AskQuestion(name, plain(question.text), plain(question.header), plain(question.note), shown, question.several,
                       not question.closed, question.secret, not shown)  # fmt: skip
