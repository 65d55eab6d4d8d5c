"""Approvals as forms: questions with choices, elicitations, plans, and plain tool calls. Pure.

`form_of` reads an approval. `Dialog` asks a person line by line and returns the params of `approval/respond`. `answer_of`
makes these params of answers that are known at once. Every text of the CLI is escaped here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from clisup.cli.views.events import WIDTH, Event, question_lines, tool_words, visible
from clisup.cli.views.fields import (
    DENY,
    NUMBERS,
    PREVIEW_LINES,
    SKIPPED,
    FieldQuestion,
    FormError,
    barred,
    field_questions,
)
from clisup.client.raw import JsonObject
from clisup.errors import ClisupError
from clisup.policy.approval_options import ApprovalOption, needs_choice, options_of

__all__ = ["CHOICES", "PLAN_CHOICES", "Choice", "Dialog", "Form", "FormError", "FormQuestion", "answer_of", "approval_words",
           "form_of", "with_whole_input"]  # fmt: skip

CHOICES = "  allow it? [y]es, [n]o, [a]lways, [d]eny with a message: "
CONFIRM_CHOICES = "  accept it? [y]es, [n]o: "
PLAN_CHOICES = "  approve the plan? [y]es, [n]o: keep planning, [d]: keep planning, with a message: "
MESSAGE = "  message to the model: "
NO_PLAN = "(the CLI sent no plan: see its last message)"
KEEP_PLANNING = "The user has not approved the plan. Keep planning."
PLAN_LINES = 400
URL_CHARS = 2000
MOST_QUESTIONS = 20
MOST_CHOICES = 50
"""Limits of a form. An approval over them is shown as a plain tool call."""

_QUESTION_TOOLS = ("AskUserQuestion", "request_user_input", "ask_user_question")
_ELICITATION = "elicitation"
_PLAN_TOOLS = ("ExitPlanMode", "exit_plan_mode")
_YES: JsonObject = {"decision": "allow"}
_TOOL_ANSWERS: dict[str, JsonObject | None] = {
    "y": _YES, "yes": _YES, "n": {"decision": "deny"}, "no": {"decision": "deny"},
    "a": {**_YES, "remember": True}, "always": {**_YES, "remember": True}, "d": None, "deny": None,
}  # fmt: skip
_PLAN_ANSWERS: dict[str, JsonObject | None] = {
    "y": _YES, "yes": _YES, "n": {"decision": "deny", "message": KEEP_PLANNING},
    "no": {"decision": "deny", "message": KEEP_PLANNING}, "d": None, "deny": None,
}  # fmt: skip
_CONFIRM_ANSWERS: dict[str, JsonObject | None] = {
    "y": _YES, "yes": _YES, "n": {"decision": "deny"}, "no": {"decision": "deny"}, DENY: {"decision": "deny"},
}  # fmt: skip
_CHOICES = {
    "tool": (CHOICES, _TOOL_ANSWERS), "plan": (PLAN_CHOICES, _PLAN_ANSWERS), "confirm": (CONFIRM_CHOICES, _CONFIRM_ANSWERS),
}  # fmt: skip
"""Prompt and answers of each kind of form without questions."""


class Choice(NamedTuple):
    """Choice of a question, as the CLI offers it."""

    label: str
    description: str = ""
    preview: str = ""


class FormQuestion(NamedTuple):
    """Question of the CLI. `several`: more than one choice may be taken. Without `choices`, the answer is free text."""

    text: str
    header: str = ""
    kind: Literal["choice", "text", "number"] = "choice"
    choices: tuple[Choice, ...] = ()
    several: bool = False
    note: str = ""
    least: float | None = None
    most: float | None = None
    unit: str = ""
    secret: bool = False
    closed: bool = False
    """The choices are the only answers."""

    def lines(self) -> list[str]:
        """Return the question and its numbered choices for a terminal."""
        lines = barred(self.text, PREVIEW_LINES)
        lines += [f"    {visible(self.note)[:WIDTH]}"] if self.note else []
        for number, choice in enumerate(self.choices, 1):
            about = f" - {visible(choice.description)[:WIDTH]}" if choice.description else ""
            lines.append(f"  {number}) {visible(choice.label)[:WIDTH]}{about}")
            lines += [f"   {line}" for line in barred(choice.preview, PREVIEW_LINES)] if choice.preview else []
        return lines

    @property
    def prompt(self) -> str:
        """Return the words before the typed answer."""
        count = len(self.choices)
        if count:
            which = f"1-{count}, or several as 1,2" if self.several else f"1-{count}"
            words = "" if self.closed else ", or your own words"
            return f"  answer ({which}{words}; {DENY} refuses): "
        return f"  answer ({self._range()}{DENY} refuses): "

    def read(self, typed: str) -> str:
        """Return the answer for the CLI. Raises `FormError`.

        Numbers name choices, and so do their labels. Other text is the answer itself; `=` before the text says so for numbers.
        """
        text = typed.strip()
        if text.startswith("=") and text[1:].strip() and not self.closed:
            return text[1:].strip()
        if not text:
            raise FormError("type an answer" + (f", or {DENY}" if self.choices else ""))
        if self.kind == "number":
            return self._number(text)
        if not self.choices:
            return text
        if NUMBERS.fullmatch(text):
            return self._chosen([int(part) for part in re.split(r"[\s,]+", text)])
        same = [choice.label for choice in self.choices if choice.label.casefold() == text.casefold()]
        if self.closed and not same:
            raise FormError(f"choose one of the answers: type 1 to {len(self.choices)}")
        return self._joined(same[:1]) if same else text

    def _chosen(self, numbers: list[int]) -> str:
        count = len(self.choices)
        for number in numbers:
            if not 1 <= number <= count:
                raise FormError(f"there is no choice {number}: type 1 to {count}, or ={number} to answer {number}")
        numbers = list(dict.fromkeys(numbers))
        if len(numbers) > 1 and not self.several:
            raise FormError("only one choice can be taken: type one number")
        return self._joined([self.choices[number - 1].label for number in numbers])

    def _joined(self, labels: list[str]) -> str:
        """Return the labels as claude reads them: several are joined by commas, quoted where a label has one."""
        if not self.several:
            return labels[0]
        return ", ".join(
            json.dumps(label, ensure_ascii=False) if ", " in label or '"' in label else label for label in labels
        )

    def _number(self, text: str) -> str:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        within = (self.least is None or value >= self.least) and (self.most is None or value <= self.most)
        if not math.isfinite(value) or not within:
            raise FormError(f"type a number {self._range()}".rstrip("; "))
        return text

    def _range(self) -> str:
        unit = f" {visible(self.unit)[:20]}" if self.unit else ""
        if self.kind != "number" or self.least is None or self.most is None:
            return ""
        return f"from {self.least:g} to {self.most:g}{unit}; "


class Form(NamedTuple):
    """Approval as a person answers it. An elicitation has `asker`, and asks for the `questions` or for a yes or no (`confirm`).

    With `options`, the one question is which of the agent's answers to give.
    """

    kind: Literal["tool", "questions", "plan", "confirm"]
    approval: Event
    questions: tuple[FormQuestion | FieldQuestion, ...] = ()
    plan: str = ""
    asker: str = ""
    options: tuple[ApprovalOption, ...] = ()

    def head(self, number: int = 0) -> list[str]:
        """Return the lines before the prompt: of the question `number`, of the plan, or of the tool call."""
        if self.kind == "tool":
            return question_lines(self.approval)
        if self.kind == "plan":
            return ["plan:", *barred(self.plan, PLAN_LINES)]
        above = self._elicitation_lines() if self.asker and number == 0 else []
        above = question_lines(self.approval) if self.options else above
        if self.kind == "confirm":
            return above
        question, count = self.questions[number], len(self.questions)
        place = f" {number + 1} of {count}" if count > 1 else ""
        header = f" ({visible(question.header)[:60]})" if question.header else ""
        return [*above, f"question{place}{header}:", *question.lines()]

    def _elicitation_lines(self) -> list[str]:
        given = self.approval["input"]
        lines = [f"{visible(self.asker)[:60]} asks:", *barred(given["message"], PREVIEW_LINES)]
        if given["mode"] != "url":
            return lines
        return [*lines, "  and wants you to open this URL:", f"  | {visible(given['url'])[:URL_CHARS]}"]


def form_of(approval: Event) -> Form:
    """Return the form of an approval. An input of an unknown shape gives the form of a plain tool call."""
    name, given = approval.get("tool_name"), approval.get("input") or {}
    if name in _QUESTION_TOOLS and (questions := _questions(given.get("questions"))):
        return Form("questions", approval, questions=questions)
    if name in _PLAN_TOOLS and not approval.get("blob"):
        return Form("plan", approval, plan=_text(given, "plan").strip() or NO_PLAN)
    if (name == _ELICITATION or str(name).endswith(f"__{_ELICITATION}")) and _is_elicitation(given):
        fields = () if given["mode"] == "url" else field_questions(given.get("requested_schema"))
        asker = _text(given, "server") or _text(approval, "backend") or "the CLI"
        return Form("questions" if fields else "confirm", approval, fields, asker=asker)
    if needs_choice(options := options_of(approval.get("suggestions") or ())):
        return Form("questions", approval, (_which(options),), options=options)
    return Form("tool", approval)


def _which(options: Sequence[ApprovalOption]) -> FormQuestion:
    """Return the question which of the agent's answers to give."""
    return FormQuestion("Which answer?", choices=tuple(Choice(option.label) for option in options), closed=True)


def with_whole_input(approval: Event, fetch: Callable[[str], bytes]) -> Event:
    """Return the approval with its whole input. `fetch` reads a blob; if the blob is gone, the approval stays as it is."""
    if not approval.get("blob"):
        return approval
    try:
        whole = json.loads(fetch(approval["blob"]))
    except (ClisupError, ValueError, RecursionError):
        return approval
    return {**approval, "input": whole, "blob": None} if isinstance(whole, dict) else approval


def answer_of(form: Form, typed: Sequence[str]) -> JsonObject:
    """Return the params of `approval/respond` for one typed answer of each question. Raises `FormError`."""
    if form.kind != "questions":
        answer = _CHOICES[form.kind][1].get(typed[0].strip().lower()) if len(typed) == 1 else None
        if answer is None:
            raise FormError("answer yes or no")
        return dict(answer)
    if len(typed) != len(form.questions):
        raise FormError(f"give {len(form.questions)} answers, one for each question: {len(typed)} came")
    read = {question.text: question.read(text) for question, text in zip(form.questions, typed, strict=True)}
    if form.options:
        option = next(option for option in form.options if option.label == read[form.questions[0].text])
        return {"decision": option.decision, "option": option.id}
    if not form.asker:
        return {**_YES, "updated_input": {**form.approval["input"], "answers": read}}
    is_whole = isinstance(form.questions[0], FieldQuestion) and form.questions[0].is_whole
    content = read["content"] if is_whole else {name: value for name, value in read.items() if value is not SKIPPED}
    return {**_YES, "updated_input": {"content": content}}


def approval_words(approval: Event) -> str:
    """Return an approval in a few words: the first question, the plan's first line, or the tool call."""
    form = form_of(approval)
    if form.asker:
        return f"{form.asker} asks: {form.approval['input']['message']}"
    if form.kind == "questions" and not form.options:
        more = f" (and {len(form.questions) - 1} more)" if len(form.questions) > 1 else ""
        return f"question: {form.questions[0].text}{more}"
    if form.kind == "plan":
        return f"plan: {form.plan.splitlines()[0].lstrip('# ')}"
    return tool_words({**approval, "name": approval["tool_name"]})


class Dialog:
    """Dialog with a person over one approval. Show `lines`, then `prompt`; give each typed line to `take`.

    `take` returns the params of `approval/respond`, without the ids, as soon as they are complete.
    """

    def __init__(self, form: Form) -> None:
        self.form = form
        self.lines = form.head()
        self.prompt = _first_prompt(form)
        self._typed: list[str] = []
        self._step = self._on_question if form.kind == "questions" else self._on_choice

    @property
    def secret(self) -> bool:
        """Tell whether the typed answer must not be shown."""
        is_asking = self.form.kind == "questions" and len(self._typed) < len(self.form.questions)
        return is_asking and self.form.questions[len(self._typed)].secret

    def take(self, line: str) -> JsonObject | None:
        """Handle a typed line. Then `lines` are the lines to be shown next, with `prompt` below them."""
        self.lines = []
        return self._step(line)

    def _on_choice(self, line: str) -> JsonObject | None:
        answers = _CHOICES[self.form.kind][1]
        word = line.strip().lower()
        if word not in answers:
            return None  # the prompt stays
        if (answer := answers[word]) is not None:
            return dict(answer)
        self.prompt, self._step = MESSAGE, self._on_message
        return None

    def _on_message(self, line: str) -> JsonObject | None:
        return {"decision": "deny", "message": line.strip() or (KEEP_PLANNING if self.form.kind == "plan" else "")}

    def _on_question(self, line: str) -> JsonObject | None:
        word, _, rest = line.strip().partition(" ")
        if word == DENY:
            return {"decision": "deny"} | ({"message": rest.strip()} if rest.strip() else {})
        question = self.form.questions[len(self._typed)]
        try:
            question.read(line)
        except FormError as error:
            self.lines = [f"  {error}"]
            return None
        self._typed.append(line)
        if len(self._typed) == len(self.form.questions):
            return answer_of(self.form, self._typed)
        self.lines = self.form.head(len(self._typed))
        self.prompt = self.form.questions[len(self._typed)].prompt
        return None


def _first_prompt(form: Form) -> str:
    if form.kind == "questions":
        return form.questions[0].prompt
    return _CHOICES[form.kind][0]


def _is_elicitation(given: JsonObject) -> bool:
    is_url = given.get("mode") == "url" and isinstance(given.get("url"), str)
    return isinstance(given.get("message"), str) and (is_url or given.get("mode") == "form")


def _questions(given: Any) -> tuple[FormQuestion, ...]:
    """Return the questions of an input, or none if one of them cannot be shown or answered."""
    if not isinstance(given, list) or not 0 < len(given) <= MOST_QUESTIONS:
        return ()
    read = [_question(item) for item in given]
    whole = tuple(question for question in read if question is not None)
    texts = {question.text for question in whole}
    return whole if len(texts) == len(given) else ()


def _question(item: Any) -> FormQuestion | None:
    if not isinstance(item, dict) or not isinstance(item.get("question"), str):
        return None
    options = item.get("options") or []
    if not isinstance(options, list) or len(options) > MOST_CHOICES:
        return None
    choices = tuple(Choice(_text(o, "label"), _text(o, "description"), _text(o, "preview")) for o in options)
    if not all(choice.label for choice in choices):
        return None
    kind = item.get("kind")
    return FormQuestion(
        item["question"], _text(item, "header"), kind if kind in ("text", "number") and not choices else "choice",
        choices, item.get("multiSelect") is True, _text(item, "description"), _figure(item, "min"), _figure(item, "max"),
        _text(item, "unit"), item.get("isSecret") is True,
    )  # fmt: skip


def _text(item: Any, name: str) -> str:
    value = item.get(name) if isinstance(item, dict) else None
    return value if isinstance(value, str) else ""


def _figure(item: dict[str, Any], name: str) -> float | None:
    value = item.get(name)
    return float(value) if isinstance(value, int | float) and abs(value) < 1e15 else None
