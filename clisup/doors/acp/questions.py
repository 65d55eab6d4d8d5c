"""Approvals as dialogs of an editor: permission requests, and forms for questions and elicitations. Pure.

Each function returns the params of a request, or reads the editor's answer. The answer None leaves the approval open for others.
"""

from __future__ import annotations

import json
from typing import Any, Literal, NamedTuple

from clisup.client.answers import Answer
from clisup.client.events import ApprovalRequested
from clisup.client.raw import JsonObject
from clisup.policy.approval_options import ApprovalOption, needs_choice, options_of

__all__ = ["EditorDialog", "answer_of_choices", "answer_of_form", "answer_of_permission", "dialog_of", "goes_on"]

_QUESTION_TOOLS = ("AskUserQuestion", "request_user_input", "ask_user_question")
_PLAN_TOOLS = ("ExitPlanMode", "exit_plan_mode")
_ELICITATION = "elicitation"
KEEP_PLANNING = "The user has not approved the plan. Keep planning."
MAX_QUESTIONS = 20
MAX_CHOICES = 50
"""Limits of a form. An approval over them is shown as a plain tool call."""

_ALLOW = {"optionId": "allow", "name": "Allow", "kind": "allow_once"}
_ALWAYS = {"optionId": "always", "name": "Always allow", "kind": "allow_always"}
_DENY = {"optionId": "deny", "name": "Deny", "kind": "reject_once"}
_ACCEPT = {**_ALLOW, "name": "Accept"}
_APPROVE = {**_ALLOW, "name": "Approve the plan"}
_PLAN_ON = {**_DENY, "name": "Keep planning"}


class EditorDialog(NamedTuple):
    """Dialog for one approval.

    `form` is the params of `elicitation/create`, if the editor can show it. `permissions` are the params of
    `session/request_permission`, one after the other: more than one for several questions, none if only a form can be answered.
    `options` are those of the session's own agent, if it offers several answers.
    """

    kind: Literal["tool", "plan", "questions", "elicitation"]
    permissions: tuple[JsonObject, ...]
    form: JsonObject | None = None
    options: tuple[ApprovalOption, ...] = ()


def dialog_of(approval: ApprovalRequested, call: JsonObject) -> EditorDialog:
    """Return the dialog of an approval. `call` is its tool call, as the editor knows it."""
    name, given = approval.tool_name, approval.input
    if name in _QUESTION_TOOLS and (questions := _questions(given.get("questions"))):
        return _question_dialog(questions, call)
    if name in _PLAN_TOOLS:
        plan = given.get("plan")
        text = plan if isinstance(plan, str) and plan.strip() else "(The CLI sent no plan: see its last message.)"
        return EditorDialog("plan", (_permission({**call, "content": [_text(text)]}, [_APPROVE, _PLAN_ON]),))
    if (name == _ELICITATION or name.endswith(f"__{_ELICITATION}")) and isinstance(given.get("message"), str):
        return _elicitation_dialog(given, call)
    about = {**call, "content": [*call.get("content", []), _text(approval.reason)]} if approval.reason else call
    if needs_choice(options := options_of(approval.suggestions)):
        return EditorDialog(
            "tool", (_permission(about, [_as_permission(option) for option in options]),), options=options
        )
    return EditorDialog("tool", (_permission(about, [_ALLOW, _ALWAYS, _DENY]),))


def _as_permission(option: ApprovalOption) -> JsonObject:
    kind = option.kind if option.has_known_kind else "allow_once" if option.decision == "allow" else "reject_once"
    return {"optionId": option.id, "name": option.label, "kind": kind}


def answer_of_permission(dialog: EditorDialog, result: Any) -> Answer | None:
    """Return the answer that a permission request of a tool, a plan or an elicitation brought."""
    if dialog.options:
        chosen = next((option for option in dialog.options if option.id == _chosen(result)), None)
        return None if chosen is None else Answer(chosen.decision, option=chosen.id)
    match _chosen(result):
        case "allow":
            return Answer("allow", updated_input={"content": {}} if dialog.kind == "elicitation" else None)
        case "always":
            return Answer("allow", remember=True)
        case "deny":
            return Answer("deny", message=KEEP_PLANNING if dialog.kind == "plan" else None)
    return None


def answer_of_choices(approval: ApprovalRequested, results: list[Any]) -> Answer | None:
    """Return the answer that the permission requests of several questions brought, in their order.

    One that was denied denies all, and the others need not have been asked.
    """
    answers: dict[str, str] = {}
    for question, result in zip(_questions(approval.input.get("questions")) or [], results, strict=False):
        labels, chosen = _labels(question), _chosen(result)
        if chosen is None or chosen == "deny":
            return None if chosen is None else Answer("deny")
        if not chosen.isdecimal() or int(chosen) >= len(labels):
            return None
        answers[question["question"]] = labels[int(chosen)]
    return _answered(approval, answers)


def goes_on(result: Any) -> bool:
    """Tell whether the next question can be asked: this one was answered."""
    return _chosen(result) not in (None, "deny")


def answer_of_form(dialog: EditorDialog, approval: ApprovalRequested, result: Any) -> Answer | None:
    """Return the answer that a form brought."""
    action = result.get("action") if isinstance(result, dict) else None
    if action == "decline":
        return Answer("deny")
    if action != "accept":
        return None
    content = result.get("content")
    values: JsonObject = content if isinstance(content, dict) else {}
    if dialog.kind == "elicitation":
        return Answer("allow", updated_input={"content": values})
    questions = _questions(approval.input.get("questions")) or []
    given = {q["question"]: values.get(f"question_{n}") for n, q in enumerate(questions, 1)}
    return _answered(approval, {text: _words(value) for text, value in given.items() if value not in (None, "", [])})


def _answered(approval: ApprovalRequested, answers: dict[str, str]) -> Answer:
    return Answer("allow", updated_input={**approval.input, "answers": answers})


def _words(value: Any) -> str:
    """Return an answer as claude reads it: several labels are joined by commas, quoted where a label has one."""
    if not isinstance(value, list):
        return str(value)
    return ", ".join(
        json.dumps(str(item), ensure_ascii=False) if ", " in str(item) or '"' in str(item) else str(item)
        for item in value
    )


def _chosen(result: Any) -> str | None:
    outcome = result.get("outcome") if isinstance(result, dict) else None
    if not isinstance(outcome, dict) or outcome.get("outcome") != "selected":
        return None
    option = outcome.get("optionId")
    return option if isinstance(option, str) else None


def _permission(call: JsonObject, options: list[JsonObject]) -> JsonObject:
    return {"toolCall": {**call, "status": "pending"}, "options": options}


# -- questions ----------------------------------------------------------------------------------------------------------


def _question_dialog(questions: list[JsonObject], call: JsonObject) -> EditorDialog:
    fields = {f"question_{number}": _field(question) for number, question in enumerate(questions, 1)}
    words = questions[0]["question"] if len(questions) == 1 else f"{len(questions)} questions"
    form = {
        "mode": "form",
        "message": words,
        "toolCallId": call["toolCallId"],
        "requestedSchema": {"type": "object", "properties": fields},
    }
    asked = (
        tuple(_question_permission(question, call) for question in questions) if all(map(_labels, questions)) else ()
    )
    return EditorDialog("questions", asked, form)


def _question_permission(question: JsonObject, call: JsonObject) -> JsonObject:
    abouts = [
        f"- {option['label']}: {option['description']}"
        for option in question["options"]
        if isinstance(option.get("description"), str)
    ]
    options = [
        {"optionId": str(place), "name": label, "kind": "allow_once"} for place, label in enumerate(_labels(question))
    ]
    text = "\n".join([question["question"], *abouts])
    return _permission({**call, "title": question["question"], "content": [_text(text)]}, [*options, _DENY])


def _field(question: JsonObject) -> JsonObject:
    """Return the field of a form for a question. An own answer is possible where there are no choices."""
    named = {"title": str(question.get("header") or question["question"]), "description": question["question"]}
    choices = [
        {"const": option["label"], "title": _titled(option)}
        for option in question.get("options") or ()
        if "label" in option
    ]
    if not choices:
        return {"type": "number" if question.get("kind") == "number" else "string", **named}
    if question.get("multiSelect") is True:
        return {"type": "array", "items": {"anyOf": choices}, **named}
    return {"type": "string", "oneOf": choices, **named}


def _titled(option: JsonObject) -> str:
    about = option.get("description")
    return f"{option['label']}: {about}" if isinstance(about, str) and about else str(option["label"])


def _labels(question: JsonObject) -> list[str]:
    return [option["label"] for option in question.get("options") or ()]


def _questions(given: Any) -> list[JsonObject] | None:
    """Return the questions of an input, or None if one of them cannot be shown."""
    if not isinstance(given, list) or not 0 < len(given) <= MAX_QUESTIONS:
        return None
    return given if all(map(_is_question, given)) else None


def _is_question(item: Any) -> bool:
    if not isinstance(item, dict) or not isinstance(item.get("question"), str):
        return False
    options = item.get("options") or []
    return (
        isinstance(options, list)
        and len(options) <= MAX_CHOICES
        and all(isinstance(option, dict) and isinstance(option.get("label"), str) for option in options)
    )


# -- elicitations ---------------------------------------------------------------------------------------------------------


def _elicitation_dialog(given: JsonObject, call: JsonObject) -> EditorDialog:
    """Return the dialog of an elicitation. Without forms, only one that asks for a yes or no can be accepted."""
    schema, url = given.get("requested_schema"), given.get("url")
    asker = f"{given['server']}: " if isinstance(given.get("server"), str) else ""
    text = f"{asker}{given['message']}" + (f"\n\n{url}" if isinstance(url, str) else "")
    about = {**call, "title": given["message"], "content": [_text(text)]}
    fields = schema.get("properties") if isinstance(schema, dict) else None
    if given.get("mode") == "url" or not fields:
        return EditorDialog("elicitation", (_permission(about, [_ACCEPT, _DENY]),))
    form = {"mode": "form", "message": text, "toolCallId": call["toolCallId"], "requestedSchema": schema}
    hint = _text("This editor shows no forms: answer with `clisup approvals answer`.")
    declining = _permission({**about, "content": [*about["content"], hint]}, [{**_DENY, "name": "Decline"}])
    return EditorDialog("elicitation", (declining,), form)


def _text(text: str) -> JsonObject:
    return {"type": "content", "content": {"type": "text", "text": text}}
