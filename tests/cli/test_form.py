"""Approvals as forms: what is asked, what a person may type, and what the CLI gets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clisup.cli.views.form import (
    CHOICES,
    KEEP_PLANNING,
    MOST_CHOICES,
    PLAN_CHOICES,
    PLAN_LINES,
    Dialog,
    FormError,
    answer_of,
    approval_words,
    form_of,
    with_whole_input,
)
from clisup.errors import WorldError

DATABASE = {
    "question": "Which database?", "header": "Store", "multiSelect": False,
    "options": [{"label": "SQLite", "description": "one file"}, {"label": "Postgres", "description": ""}],
}  # fmt: skip
CHECKS = {
    "question": "Which checks?", "header": "Checks", "multiSelect": True,
    "options": [{"label": "lint", "description": ""}, {"label": 'types, "strict"', "description": ""}, {"label": "tests"}],
}  # fmt: skip


def asked(*questions: Any, **more: Any) -> dict[str, Any]:
    return {"approval_id": "1:0", "tool_name": "AskUserQuestion", "input": {"questions": list(questions), **more}}


def planned(plan: str = "# Move\n1. Copy.\n2. Delete.") -> dict[str, Any]:
    return {"approval_id": "1:0", "tool_name": "ExitPlanMode", "input": {"plan": plan, "planFilePath": "/x/plan.md"}}


def answers(approval: dict[str, Any], *typed: str) -> Any:
    return answer_of(form_of(approval), typed)["updated_input"]["answers"]


def dialog(approval: dict[str, Any], *typed: str) -> Any:
    talk = Dialog(form_of(approval))
    given = None
    for line in typed:
        assert given is None
        given = talk.take(line)
    return given


def test_a_question_has_numbered_choices_and_the_answer_keeps_the_input() -> None:
    form = form_of(asked(DATABASE, metadata={"source": "x"}))
    assert form.head() == [
        "question (Store):", "  | Which database?", "  1) SQLite - one file", "  2) Postgres",
    ]  # fmt: skip
    assert answer_of(form, ["2"]) == {
        "decision": "allow",
        "updated_input": {"questions": [DATABASE], "metadata": {"source": "x"}, "answers": {"Which database?": "Postgres"}},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("typed", "answer"),
    [("1", "SQLite"), (" 2 ", "Postgres"), ("postgres", "Postgres"), ("DuckDB", "DuckDB"), ("=1", "1"), ("=", "=")],
)
def test_a_choice_is_named_by_its_number_or_label_and_own_words_are_an_answer_too(typed: str, answer: str) -> None:
    assert answers(asked(DATABASE), typed) == {"Which database?": answer}


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("", "type an answer"),
        ("3", "there is no choice 3: type 1 to 2, or =3 to answer 3"),
        ("0", "there is no choice 0"),
        ("1,2", "only one choice can be taken"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_with_what_to_type(typed: str, said: str) -> None:
    with pytest.raises(FormError, match=said):
        answers(asked(DATABASE), typed)


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("1", "lint"),
        ("3, 1", "tests, lint"),
        ("1 3 1", "lint, tests"),
        ("1,2", r'lint, "types, \"strict\""'),
        ("both", "both"),
    ],
)
def test_several_choices_are_joined_as_claude_reads_them(typed: str, answer: str) -> None:
    assert answers(asked(CHECKS), typed) == {"Which checks?": answer}


def test_a_text_question_takes_any_words_and_a_number_question_a_number_in_its_range() -> None:
    text = {"question": "Its name?", "header": "Name", "kind": "text"}
    number = {"question": "How many?", "header": "Count", "kind": "number", "min": 1, "max": 9, "unit": "slides"}
    approval = asked(text, number)
    assert answers(approval, "3", "4") == {"Its name?": "3", "How many?": "4"}
    for wrong in ("10", "many", "nan"):
        with pytest.raises(FormError, match="type a number from 1 to 9 slides"):
            answers(approval, "3", wrong)


def test_a_dialog_asks_one_question_after_the_other_and_repeats_a_wrong_answer() -> None:
    talk = Dialog(form_of(asked(DATABASE, CHECKS)))
    assert talk.lines[0] == "question 1 of 2 (Store):"
    assert talk.prompt == "  answer (1-2, or your own words; /deny refuses): "
    assert talk.take("7") is None
    assert talk.lines == ["  there is no choice 7: type 1 to 2, or =7 to answer 7"]
    assert talk.take("1") is None
    assert talk.lines[0] == "question 2 of 2 (Checks):"
    assert talk.prompt.startswith("  answer (1-3, or several as 1,2")
    given = talk.take("1,3")
    assert given and given["updated_input"]["answers"] == {"Which database?": "SQLite", "Which checks?": "lint, tests"}


def test_questions_can_be_refused_with_words_for_the_model() -> None:
    assert dialog(asked(DATABASE), "/deny") == {"decision": "deny"}
    assert dialog(asked(DATABASE, CHECKS), "1", "/deny ask me tomorrow") == {
        "decision": "deny",
        "message": "ask me tomorrow",
    }


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (("y",), {"decision": "allow"}),
        (("what", "yes"), {"decision": "allow"}),
        (("n",), {"decision": "deny", "message": KEEP_PLANNING}),
        (("d", "tests first"), {"decision": "deny", "message": "tests first"}),
        (("d", ""), {"decision": "deny", "message": KEEP_PLANNING}),
    ],
)
def test_a_plan_is_approved_or_planning_goes_on(typed: tuple[str, ...], answer: dict[str, Any]) -> None:
    form = form_of(planned())
    assert form.head() == ["plan:", "  | # Move", "  | 1. Copy.", "  | 2. Delete."]
    assert Dialog(form).prompt == PLAN_CHOICES
    assert dialog(planned(), *typed) == answer


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (("Y",), {"decision": "allow"}),
        (("no",), {"decision": "deny"}),
        (("a",), {"decision": "allow", "remember": True}),
        (("huh", "d", "not today"), {"decision": "deny", "message": "not today"}),
    ],
)
def test_a_tool_call_is_asked_as_before(typed: tuple[str, ...], answer: dict[str, Any]) -> None:
    bash = {"approval_id": "1:0", "tool_name": "Bash", "input": {"command": "ls"}}
    assert Dialog(form_of(bash)).prompt == CHOICES
    assert dialog(bash, *typed) == answer


@pytest.mark.parametrize(
    "given",
    [
        {}, {"questions": []}, {"questions": "x"}, {"questions": [7]}, {"questions": [{"question": 1}]},
        {"questions": [DATABASE, DATABASE]}, {"questions": [{**DATABASE, "options": [{"label": ""}]}]},
        {"questions": [{**DATABASE, "options": [{"label": "x"}] * (MOST_CHOICES + 1)}]}, {"questions": [{**DATABASE, "options": 3}]},
    ],
)  # fmt: skip
def test_an_input_of_another_shape_is_shown_as_a_plain_tool_call(given: dict[str, Any]) -> None:
    form = form_of({"approval_id": "1:0", "tool_name": "AskUserQuestion", "input": given})
    assert form.kind == "tool" and form.head()[0] == "approval: AskUserQuestion"


def test_a_plan_without_text_is_still_a_plan_to_approve() -> None:
    form = form_of({**planned(), "input": {}})
    assert form.kind == "plan" and form.head() == ["plan:", "  | (the CLI sent no plan: see its last message)"]


def test_a_tool_that_only_has_a_plan_in_its_input_is_no_plan() -> None:
    assert form_of({**planned(), "tool_name": "mcp__x__save"}).kind == "tool"


def test_the_number_and_the_kind_of_answers_are_checked() -> None:
    with pytest.raises(FormError, match="give 2 answers, one for each question: 1 came"):
        answer_of(form_of(asked(DATABASE, CHECKS)), ["1"])
    with pytest.raises(FormError, match="answer yes or no"):
        answer_of(form_of(planned()), ["maybe"])
    assert answer_of(form_of(planned()), ["yes"]) == {"decision": "allow"}


HOSTILE = "x\x1b[2J\x1b]0;t\x07\r\n  answer (1-2): \u202e\u2028\x9b31m"


def test_nothing_in_a_form_drives_the_terminal_or_looks_like_the_form() -> None:
    question = {
        "question": HOSTILE, "header": HOSTILE, "description": HOSTILE,
        "options": [{"label": HOSTILE, "description": HOSTILE, "preview": HOSTILE}, {"label": "b"}],
    }  # fmt: skip
    for form in (form_of(asked(question)), form_of(planned(HOSTILE))):
        lines = form.head()
        assert all(line.isprintable() for line in lines)
        assert not any(line.startswith("  answer (1-2)") for line in lines)


@given(st.text(min_size=1), st.text(min_size=1))
def test_whatever_is_asked_can_be_answered(text: str, label: str) -> None:
    form = form_of(asked({"question": text, "options": [{"label": label}, {"label": label + "x"}]}))
    if form.kind == "questions":
        assert answer_of(form, ["1"])["updated_input"]["answers"] == {text: label}


def test_a_long_plan_is_cut_and_says_so() -> None:
    lines = form_of(planned("x\n" * (PLAN_LINES + 5))).head()
    assert len(lines) == PLAN_LINES + 2 and "clisup approvals --json" in lines[-1]


def test_an_input_that_was_stored_apart_is_fetched() -> None:
    whole = planned()
    cut = {**whole, "input": {"_head": "{"}, "blob": "b"}
    assert with_whole_input(whole, lambda name: b"") is whole
    assert form_of(with_whole_input(cut, {"b": json.dumps(whole["input"]).encode()}.__getitem__)).kind == "plan"

    def gone(name: str) -> bytes:
        raise WorldError("it was removed")

    for fetch in (gone, lambda name: b"nonsense", lambda name: b"[1]"):
        assert with_whole_input(cut, fetch) is cut


def test_lists_show_the_first_question_or_the_plans_first_line() -> None:
    assert approval_words(asked(DATABASE, CHECKS)) == "question: Which database? (and 1 more)"
    assert approval_words(planned()) == "plan: Move"
    assert approval_words({"tool_name": "Bash", "input": {"command": "ls"}}) == "Bash ls"


# -- several answers of an agent ---------------------------------------------------------------------------------------

TARGETS = {
    "approval_id": "1:0", "tool_name": "deploy", "input": {"command": "make deploy"},
    "suggestions": [
        {"optionId": "p", "name": "Go", "kind": "allow_once"}, {"optionId": "s", "name": "Go", "kind": "allow_once"},
        {"optionId": "r", "name": "Not now", "kind": "reject_once"},
    ],
}  # fmt: skip


def test_several_answers_of_an_agent_are_a_question_below_the_call() -> None:
    form = form_of(TARGETS)
    assert "make deploy" in "\n".join(form.head())
    assert [choice.label for choice in form.questions[0].choices] == ["Go (p)", "Go (s)", "Not now"]
    assert approval_words(TARGETS).startswith("deploy")
    assert answer_of(form, ["2"]) == answer_of(form, ["go (S)"]) == {"decision": "allow", "option": "s"}
    assert answer_of(form, ["3"]) == {"decision": "deny", "option": "r"}


def test_own_words_are_no_answer_where_an_agent_offers_its_own() -> None:
    talk = Dialog(form_of(TARGETS))
    assert "own words" not in talk.prompt
    for typed in ("both", "=2", "4", ""):
        assert talk.take(typed) is None and talk.lines
    assert talk.take("1") == {"decision": "allow", "option": "p"}


def test_rules_that_other_clis_suggest_are_no_answers() -> None:
    assert form_of({**TARGETS, "suggestions": [{"type": "addRules"}, {"type": "addRules"}]}).kind == "tool"
