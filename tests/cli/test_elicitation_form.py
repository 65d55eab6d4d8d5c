"""An elicitation as a form: one question for each field, what a person may type, and the content that the CLI gets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clisup.cli.views.form import CONFIRM_CHOICES, Dialog, FormError, answer_of, approval_words, form_of

COLOUR = {"type": "string", "title": "Colour", "enum": ["r", "b"], "enumNames": ["Red", "Blue"]}
COATS = {"type": "integer", "minimum": 1, "maximum": 3, "default": 2}
GLOSS = {"type": "boolean", "description": "Shiny or not."}
SIDES = {"type": "array", "minItems": 1, "items": {"type": "string", "enum": ["front", "back", "top"]}}
NOTE = {"type": "string", "maxLength": 20}
PRICE = {"type": "number", "minimum": 0}


def asked(*required: str, name: str = "mcp__good__elicitation", **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    given = {"message": "How?", "mode": "form", "server": "good", "requested_schema": schema}
    return {"approval_id": "1:0", "tool_name": name, "input": given}


def url(**more: Any) -> dict[str, Any]:
    given = {"message": "Log in.", "mode": "url", "server": "good", "url": "https://h/login", **more}
    return {"approval_id": "1:0", "tool_name": "mcp__good__elicitation", "input": given}


def content(approval: dict[str, Any], *typed: str) -> Any:
    answer = answer_of(form_of(approval), typed)
    assert answer["decision"] == "allow" and list(answer["updated_input"]) == ["content"]
    return answer["updated_input"]["content"]


def refusal(field: dict[str, Any], typed: str, *required: str) -> str:
    with pytest.raises(FormError) as refused:
        content(asked(*required, f=field), typed)
    return str(refused.value)


def test_a_form_asks_one_question_for_each_field_below_the_message() -> None:
    form = form_of(asked("colour", "gloss", colour=COLOUR, gloss=GLOSS))
    assert form.head() == [
        "good asks:", "  | How?", "question 1 of 2 (colour):", "  | Colour", "  1) Red", "  2) Blue",
    ]  # fmt: skip
    assert form.head(1) == ["question 2 of 2 (gloss):", "  | gloss", "    Shiny or not."]
    assert [question.prompt for question in form.questions] == [
        "  answer (1-2; /deny refuses): ",
        "  answer (yes or no; /deny refuses): ",
    ]


@pytest.mark.parametrize(
    ("field", "prompt"),
    [
        (COATS, "  answer (a whole number, 1 to 3; an empty line takes the default, 2; /deny refuses): "),
        (SIDES, "  answer (1-3, or several as 1,2; an empty line skips it; /deny refuses): "),
        (NOTE, "  answer (a text of at most 20 characters; an empty line skips it; /deny refuses): "),
        ({"type": "array", "items": {"enum": ["a"]}}, "  answer (1-1, or several as 1,2, or none; an empty line skips it; /deny"),
        ({"type": "integer", "default": "x"}, "  answer (a whole number; an empty line skips it; /deny refuses): "),
    ],
)  # fmt: skip
def test_a_prompt_says_what_may_be_typed(field: dict[str, Any], prompt: str) -> None:
    assert form_of(asked(f=field)).questions[0].prompt.startswith(prompt)


@pytest.mark.parametrize(
    ("field", "typed", "value"),
    [
        (COLOUR, "2", "b"), (COLOUR, "red", "r"), (COLOUR, "B", "b"), (COLOUR, "=r", "r"),
        (COATS, " 3 ", 3), (COATS, "", 2),
        (PRICE, "2", 2), (PRICE, "2.5", 2.5),
        (GLOSS, "y", True), (GLOSS, "No", False), (GLOSS, "true", True),
        (SIDES, "1,3", ["front", "top"]), (SIDES, "2 2", ["back"]), (SIDES, "top, Front", ["top", "front"]),
        (SIDES, "=back", ["back"]), ({**SIDES, "minItems": 0}, "none", []),
        (NOTE, "two words", "two words"), (NOTE, "=/deny", "/deny"), (NOTE, "==", "="), (NOTE, "=", "="),
        ({**GLOSS, "default": False}, "", False),
    ],
)  # fmt: skip
def test_a_typed_line_becomes_the_value_of_its_field(field: dict[str, Any], typed: str, value: Any) -> None:
    got = content(asked("f", f=field), typed)["f"]
    assert got == value and type(got) is type(value)


def test_an_empty_line_skips_an_optional_field_without_a_default() -> None:
    assert content(asked("gloss", gloss=GLOSS, note=NOTE, coats=COATS), "yes", "", "") == {"gloss": True, "coats": 2}
    assert refusal(NOTE, "", "f") == "type an answer, or /deny"


@pytest.mark.parametrize(
    ("field", "typed", "words"),
    [
        (COLOUR, "3", "there is no choice 3: type 1 to 2"),
        (COLOUR, "0", "there is no choice 0"),
        (COLOUR, "1,2", "only one choice can be taken"),
        (COLOUR, "green", "type 1-2"),
        (COATS, "4", "type a whole number, 1 to 3"),
        (COATS, "many", "type a whole number"),
        (COATS, "1.5", "type a whole number"),
        (PRICE, "nan", "type a number"),
        (PRICE, "inf", "type a number"),
        (PRICE, "9" * 5000, "type a number"),
        (GLOSS, "maybe", "type yes or no"),
        (SIDES, "front, left", "type 1-3, or several as 1,2"),
        (SIDES, "none", "type 1-3"),
        (NOTE, "x" * 21, "type a text of at most 20 characters"),
        ({"type": "string", "format": "email"}, "me", "type an email address"),
    ],
)
def test_a_line_that_does_not_fit_is_refused_with_what_to_type(field: dict[str, Any], typed: str, words: str) -> None:
    assert refusal(field, typed).startswith(words)


def test_a_dialog_asks_again_and_ends_with_the_content() -> None:
    talk = Dialog(form_of(asked("colour", "gloss", colour=COLOUR, gloss=GLOSS)))
    assert talk.take("9\n") is None and talk.lines == ["  there is no choice 9: type 1 to 2"]
    assert talk.take("1\n") is None and talk.lines[0] == "question 2 of 2 (gloss):"
    assert talk.take("y\n") == {"decision": "allow", "updated_input": {"content": {"colour": "r", "gloss": True}}}


def test_deny_in_place_of_an_answer_declines() -> None:
    assert Dialog(form_of(asked(colour=COLOUR))).take("/deny") == {"decision": "deny"}
    assert Dialog(form_of(url())).take("/deny") == {"decision": "deny"}


def test_a_url_is_shown_and_accepted_or_declined() -> None:
    talk = Dialog(form_of(url()))
    assert talk.lines == ["good asks:", "  | Log in.", "  and wants you to open this URL:", "  | https://h/login"]
    assert talk.prompt == CONFIRM_CHOICES
    assert talk.take("d") is None
    assert talk.take("y") == {"decision": "allow"}
    assert answer_of(form_of(url()), ["no"]) == {"decision": "deny"}


def test_a_form_without_fields_is_accepted_or_declined() -> None:
    form = form_of(asked())
    assert (form.kind, form.head()) == ("confirm", ["good asks:", "  | How?"])
    assert answer_of(form, ["yes"]) == {"decision": "allow"}


def test_a_schema_of_an_unknown_form_is_answered_with_a_json_object() -> None:
    approval = asked(f={"type": "object"})
    assert content(approval, '{"f": {"a": 1}}') == {"f": {"a": 1}}
    for wrong in ("", "[]", "x", "[" * 100_000):
        with pytest.raises(FormError, match="type a JSON object"):
            content(approval, wrong)


def test_the_agent_itself_asks_by_the_name_of_its_backend() -> None:
    approval = asked(name="elicitation", colour=COLOUR)
    del approval["input"]["server"]
    assert form_of({**approval, "backend": "gemini"}).head()[0] == "gemini asks:"
    assert form_of(approval).head()[0] == "the CLI asks:"


def test_an_elicitation_in_a_few_words_names_who_asks() -> None:
    assert approval_words(asked(colour=COLOUR)) == "good asks: How?"
    assert approval_words(url()) == "good asks: Log in."


@pytest.mark.parametrize(
    "given", [{}, {"message": 1, "mode": "form"}, {"message": "m", "mode": "url"}, {"message": "m"}]
)
def test_an_input_of_another_shape_is_shown_as_a_tool_call(given: dict[str, Any]) -> None:
    form = form_of({"approval_id": "1:0", "tool_name": "mcp__good__elicitation", "input": given})
    assert form.kind == "tool"


def test_a_secret_is_marked_and_its_default_is_not_shown() -> None:
    talk = Dialog(form_of(asked("a", a=NOTE, b={"type": "string", "format": "password", "default": "hunter2"})))
    assert not talk.secret
    assert talk.take("x") is None
    assert talk.secret and "hunter2" not in talk.prompt
    assert talk.take("") == {"decision": "allow", "updated_input": {"content": {"a": "x", "b": "hunter2"}}}
    assert not talk.secret


def test_a_question_of_codex_is_asked_as_one_of_claude_and_may_be_secret() -> None:
    options = [{"label": "A", "description": "a"}, {"label": "B", "description": "b"}]
    questions = [
        {"id": "q1", "header": "Pick", "question": "Which?", "isOther": True, "isSecret": False, "options": options},
        {"id": "q2", "header": "Key", "question": "The key?", "isOther": False, "isSecret": True, "options": None},
    ]
    form = form_of({"approval_id": "1:0", "tool_name": "request_user_input", "input": {"questions": questions}})
    assert [question.secret for question in form.questions] == [False, True]
    assert answer_of(form, ["2", "k"])["updated_input"]["answers"] == {"Which?": "B", "The key?": "k"}


_TEXTS = st.text(max_size=8)


@given(_TEXTS, _TEXTS, _TEXTS, st.lists(_TEXTS, min_size=1, max_size=4, unique=True), st.text(max_size=12))
def test_no_text_of_a_server_reaches_the_terminal_unescaped(
    message: str, title: str, about: str, values: list[str], typed: str
) -> None:
    field = {"type": "string", "title": title + "\x1b[2J", "description": about, "enum": values}
    approval = asked(f=field)
    approval["input"] |= {"message": message + "\x1b]0;x", "server": "s\x07"}
    form = form_of(json.loads(json.dumps(approval)))
    shown = [*form.head(), *(question.prompt for question in form.questions)]
    assert all(line.isprintable() for line in shown)
    try:
        answer_of(form, [typed])
    except FormError as error:
        assert str(error)
