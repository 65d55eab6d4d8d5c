"""View models of `clisup web`: cards, conversations and approvals, as pure functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clisup.cli.top.model import Board
from clisup.cli.views.form import FormError
from clisup.web.access.tokens import WebToken
from clisup.web.link import actor_name
from clisup.web.stream import LiveMessage
from clisup.web.views.asking import answer_to, ask_of
from clisup.web.views.conversation import MOST_PIECES, PieceReader, last_pieces
from clisup.web.views.now import MOST_DONE, groups_of

SCRIPT = "<script>alert(1)</script>"
QUESTIONS = {"questions": [
    {"question": "Which?", "options": [{"label": "red"}, {"label": "blue"}]},
    {"question": "Why?", "options": [{"label": "a, b"}, {"label": "c"}], "multiSelect": True},
]}  # fmt: skip


def row(number: int = 1, **values: Any) -> dict[str, Any]:
    base: dict[str, Any] = {"session_id": f"{number:08d}-x", "title": None, "backend": "demo", "model": None, "state": "idle",
            "phase": None, "turn_id": None, "cwd": "/srv/app", "approvals": 0, "queue": [], "held": None, "idle_s": None, "age_s": 5.0,
            "last_turn": None, "next_timer": None, "next_seq": 2, "last_event": None, "cost_usd": None}  # fmt: skip
    return {**base, **values}


def board(*rows: dict[str, Any]) -> Board:
    made = Board()
    made.take_status({"daemon": {"instance_id": "i"}, "sessions": list(rows)}, 10.0)
    return made


def approval(tool: str, given_: dict[str, Any]) -> dict[str, Any]:
    return {"session_id": "s", "approval_id": "1:a", "tool_name": tool, "input": given_, "title": "T", "backend": "demo",
            "cwd": "/srv", "requested_at": ""}  # fmt: skip


def sent(**fields: str | list[str]) -> tuple[Callable[[str], str], Callable[[str], list[str]]]:
    lists = {name: value if isinstance(value, list) else [value] for name, value in fields.items()}
    return (lambda name: (lists.get(name) or [""])[-1]), (lambda name: lists.get(name) or [])


def event(kind: str, seq: int, /, **values: Any) -> dict[str, Any]:
    return {"type": kind, "seq": seq, "session_id": "s", "turn_id": "t1", "ts": "2026-01-01T00:00:00Z", **values}


# -- now


def test_cards_stand_under_what_they_want_of_a_person() -> None:
    rows = [
        row(1, turn_id="t1", state="running", approvals=1),
        row(2, turn_id="t1", state="running", idle_s=30.0, next_timer={"phase": "model", "limit_s": 60.0, "fires_in_s": 30.0}),
        row(3, queue=[{"turn_id": "t2"}]),
        row(4, last_turn={"outcome": "failed", "error_kind": "server", "ended_at": None}),
        row(5),
    ]  # fmt: skip
    groups = groups_of(board(*rows), {"00000002-x": "I build."}, 10.0)
    assert [(group.tone, [card.session_id[:8].lstrip("0") for card in group.cards]) for group in groups] == [
        ("asking", ["1"]), ("running", ["2"]), ("waiting", ["3"]), ("failed", ["4"]), ("resting", ["5"])]  # fmt: skip
    card = groups[1].cards[0]
    assert (card.silence, card.silence_words, card.title) == (50, "silent for 30s of 60s", "I build.")


def test_a_thousand_finished_sessions_make_a_short_page() -> None:
    (group,) = groups_of(board(*(row(number) for number in range(1000))), {}, 10.0)
    assert (len(group.cards), group.more) == (MOST_DONE, 1000 - MOST_DONE)


# -- the conversation


def talk(text: str) -> list[dict[str, Any]]:
    return [
        event("prompt_accepted", 1, delivery="delivered", text=text),
        event("turn_started", 2, run=1),
        event(
            "tool_use", 3, tool_use_id="u", name=text, input={"file_path": text, "old_string": text, "new_string": "x"}
        ),
        event("tool_result", 4, tool_use_id="u", content=text, blob="b1"),
        event(
            "message", 5, message_id="m", blocks=[{"kind": "text", "text": text}, {"kind": "thinking", "text": text}]
        ),
        event("notice", 6, code="x", message=text),
        event("turn_completed", 7, outcome="failed", text=text, error={"kind": "server", "message": text}, usage={}),
    ]


@given(st.text(max_size=200))
def test_no_text_of_others_brings_markup(text: str) -> None:
    pieces, _ = last_pieces(talk(f"{SCRIPT}<img src=x onerror=alert(1)>\" ' {text}"))
    html = "".join(piece.html for piece in pieces)
    assert "<script" not in html and "<img" not in html and "alert(1)" in html


def test_pieces_have_the_seq_of_their_event_and_a_key_each() -> None:
    pieces, cut = last_pieces(talk("hello"))
    assert [piece.seq for piece in pieces] == [2, 3, 4, 5, 5, 6, 7]
    assert len({piece.key for piece in pieces}) == len(pieces) and not cut
    assert [piece.blobs for piece in pieces if piece.seq == 4] == [("b1",)]


@given(st.integers(0, 7))
def test_a_stream_that_begins_anywhere_goes_on_where_the_page_ends(at: int) -> None:
    events = talk("hello")
    page, _ = last_pieces(events[:at])
    stream = PieceReader()
    for one in events[:at]:
        stream.take(one)
    rest = [piece for one in events[at:] for piece in stream.take(one)]
    assert [*page, *rest] == last_pieces(events)[0]


def test_a_long_conversation_makes_a_bounded_page() -> None:
    events = [event("notice", seq, code="x", message="m") for seq in range(1, 2 * MOST_PIECES)]
    pieces, cut = last_pieces(events)
    assert len(pieces) == MOST_PIECES and cut and pieces[-1].seq == 2 * MOST_PIECES - 1


def test_the_unfinished_text_grows_and_goes_with_its_message() -> None:
    reader = PieceReader()
    for seq, text in enumerate("abc", 1):
        reader.take(event("content_delta", seq, kind="text", text=text, message_id="m"))
    assert reader.writing == "abc"
    reader.take(event("message", 4, message_id="m", blocks=[{"kind": "text", "text": "abc"}]))
    assert reader.writing == ""


@given(st.text())
def test_a_message_of_the_stream_is_one_message_whatever_its_text(text: str) -> None:
    lines = LiveMessage(text, "7").encode().decode().split("\n")
    assert lines[0] == "id: 7" and lines[-2:] == ["", ""]
    assert all(line.startswith("data: ") for line in lines[1:-2])


# -- approvals


def test_a_command_is_shown_whole_and_escaped() -> None:
    ask = ask_of(approval("Bash", {"command": f"echo {SCRIPT} " + "x" * 5000, "description": "d"}))
    assert "x" * 5000 in ask.body and "<script" not in ask.body and ask.title == "Use Bash?"
    assert ask.can_remember


def test_an_edit_is_shown_as_a_diff() -> None:
    ask = ask_of(approval("Edit", {"file_path": "a.py", "old_string": "one", "new_string": "two"}))
    assert "<del>-one</del>" in ask.body and "<ins>+two</ins>" in ask.body


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        ({"decision": "allow"}, {"decision": "allow"}),
        ({"decision": "always"}, {"decision": "allow", "remember": True}),
        ({"decision": "deny"}, {"decision": "deny"}),
        ({"decision": "deny", "message": " no "}, {"decision": "deny", "message": "no"}),
    ],
)
def test_a_tool_is_allowed_or_denied(fields: dict[str, str], answer: dict[str, Any]) -> None:
    assert answer_to(approval("Bash", {"command": "ls"}), *sent(**fields)) == answer


@pytest.mark.parametrize("decision", ["", "yes", "drop"])
def test_no_other_word_is_a_decision(decision: str) -> None:
    with pytest.raises(FormError):
        answer_to(approval("Bash", {}), *sent(decision=decision))


def test_questions_are_answered_by_choices_or_own_words() -> None:
    asked = approval("AskUserQuestion", QUESTIONS)
    assert [len(question.choices) for question in ask_of(asked).questions] == [2, 2]
    chosen = answer_to(asked, *sent(decision="allow", c0="2", c1=["1", "2"]))
    assert chosen["updated_input"]["answers"] == {"Which?": "blue", "Why?": '"a, b", c'}
    own = answer_to(asked, *sent(decision="allow", c0="1", w0="12", c1="2"))
    assert own["updated_input"]["answers"] == {"Which?": "12", "Why?": "c"}
    with pytest.raises(FormError):
        answer_to(asked, *sent(decision="allow", c0="1"))


def test_several_answers_of_an_agent_are_choices_below_the_call() -> None:
    options = [{"optionId": name, "name": f"To {name} {SCRIPT}", "kind": "allow_once"} for name in ("a", "b")]
    asked = {**approval("deploy", {"command": "make deploy"}), "suggestions": options}
    ask = ask_of(asked)
    assert "make deploy" in ask.body and not ask.can_remember and not ask.questions[0].own_words
    assert answer_to(asked, *sent(decision="allow", c0="2")) == {"decision": "allow", "option": "b"}
    with pytest.raises(FormError):
        answer_to(asked, *sent(decision="allow", w0="all of them"))


def test_the_fields_of_a_form_are_answered_in_their_types() -> None:
    schema = {"type": "object", "required": ["size"], "properties": {
        "size": {"type": "integer"}, "sure": {"type": "boolean"}, "name": {"type": "string"},
        "colour": {"type": "string", "enum": ["red", "blue"]},
    }}  # fmt: skip
    asked = approval("elicitation", {"mode": "form", "message": "Fill in", "requested_schema": schema, "server": "srv"})
    answer = answer_to(asked, *sent(decision="allow", w0="3", c1="no", w2="=x", c3="2"))
    assert answer["updated_input"]["content"] == {"size": 3, "sure": False, "name": "=x", "colour": "blue"}


def test_a_plan_is_approved_or_planned_further() -> None:
    asked = approval("ExitPlanMode", {"plan": f"# Plan\n{SCRIPT}"})
    assert "<script" not in ask_of(asked).body
    assert answer_to(asked, *sent(decision="always")) == {"decision": "allow"}
    assert "Keep planning" in answer_to(asked, *sent(decision="deny"))["message"]


@given(st.text(max_size=80))
def test_every_name_of_a_token_is_a_name_for_the_journal(name: str) -> None:
    import re

    actor = actor_name(WebToken("1", name, "drive", 0, 0))
    assert len(actor) <= 64 and re.fullmatch(r"^[\w .:/@+-]*$", actor)
