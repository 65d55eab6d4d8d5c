"""What reaches stdout: text as it comes on a terminal, confirmed text in a pipe, and the right text in both."""

from __future__ import annotations

from typing import Any

import pytest

from clisup.cli.views.answer import UNFINISHED, WITHDRAWN, TurnView

Event = dict[str, Any]


def delta(text: str, id_: str = "m1", **more: Any) -> Event:
    return {"type": "content_delta", "kind": "text", "text": text, "message_id": id_, **more}


def message(*texts: str, id_: str = "m1", **more: Any) -> Event:
    return {"type": "message", "message_id": id_, "blocks": [{"kind": "text", "text": text} for text in texts], **more}


def completed(text: str = "", **more: Any) -> Event:
    return {"type": "turn_completed", "outcome": "completed", "text": text, **more}


RETRACTED = {"type": "retracted", "message_id": "m1", "from_index": 0, "reason": "cut"}


class Pages:
    """Output that keeps what it gets."""

    def __init__(self, tty: bool) -> None:
        self.tty = tty
        self.pieces: list[str] = []
        self.notes: list[str] = []

    def write(self, text: str) -> None:
        self.pieces.append(text)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def diff(self, lines: list[str]) -> None:
        self.notes += lines

    def end_message(self) -> None:
        pass

    def withdraw(self) -> bool:
        return True


def show(*events: Event, stream: bool, blobs: dict[str, bytes] | None = None) -> tuple[list[str], list[str]]:
    output = Pages(stream)
    view = TurnView(output, (blobs or {}).__getitem__)
    for event in events:
        view.take(event)
    return output.pieces, output.notes


def test_a_terminal_gets_each_delta_when_it_comes() -> None:
    assert show(delta("Hel"), delta("lo."), message("Hello."), completed("Hello."), stream=True) == (
        ["Hel", "lo.", "\n"],
        [],
    )


def test_a_pipe_gets_a_message_when_it_is_whole() -> None:
    assert show(delta("Hel"), delta("lo."), message("Hello."), completed("Hello."), stream=False) == (
        ["Hello.", "\n"],
        [],
    )


def test_a_pipe_never_holds_text_that_was_taken_back() -> None:
    pieces, notes = show(
        delta("wrong"), RETRACTED, delta("right", "m2"), message("right", id_="m2"), completed(), stream=False
    )
    assert ("".join(pieces), notes) == ("right\n", [])


def test_a_terminal_is_told_what_does_not_count() -> None:
    events = (delta("wrong"), RETRACTED, delta("right", "m2"), message("right", id_="m2"), completed())
    assert show(*events, stream=True) == (["wrong", "\n", "right", "\n"], [WITHDRAWN])


def test_deltas_that_no_message_confirms_do_not_count() -> None:
    pieces, notes = show(delta("lost"), completed("the whole answer"), stream=True)
    assert notes == [WITHDRAWN]
    assert "".join(pieces) == "lost\n"


def test_text_of_a_cli_that_was_killed_is_unfinished_and_not_withdrawn() -> None:
    for outcome in ("failed", "interrupted", "timed_out"):
        notes = show(delta("half"), completed() | {"outcome": outcome}, stream=True)[1]
        assert notes == [UNFINISHED]


def test_a_message_that_goes_on_where_the_deltas_ended_is_completed() -> None:
    assert "".join(show(delta("Hel"), message("Hello."), completed(), stream=True)[0]) == "Hello.\n"


def test_a_message_that_contradicts_its_deltas_wins() -> None:
    pieces, notes = show(delta("Hullo"), message("Hello."), completed(), stream=True)
    assert ("".join(pieces), notes) == ("Hullo\nHello.\n", [WITHDRAWN])


def test_one_message_in_several_events_is_shown_once() -> None:
    events = (delta("one "), message("one "), delta("two"), message("two"), completed("one two"))
    assert "".join(show(*events, stream=True)[0]) == "one two\n"
    assert "".join(show(*events, stream=False)[0]) == "one two\n"


def test_messages_begin_on_lines_of_their_own() -> None:
    events = (message("Let me look."), message("Found it.\n", id_="m2"), message("Done.", id_="m3"), completed())
    assert "".join(show(*events, stream=False)[0]) == "Let me look.\nFound it.\nDone.\n"


def test_an_answer_that_no_message_brought_is_in_the_turns_end() -> None:
    assert "".join(show(completed("local output"), stream=False)[0]) == "local output\n"


@pytest.mark.parametrize("stream", [True, False])
def test_the_text_of_a_subagent_is_not_the_answer(stream: bool) -> None:
    events = (
        delta("sub", parent_tool_use_id="x"),
        message("sub", parent_tool_use_id="x"),
        message("main"),
        completed(),
    )
    assert "".join(show(*events, stream=stream)[0]) == "main\n"


def test_thinking_is_not_the_answer() -> None:
    thought = {"type": "message", "message_id": "m1", "blocks": [{"kind": "thinking", "text": "hm"}]}
    assert (
        "".join(show({**delta("hm"), "kind": "thinking"}, thought, message("yes"), completed(), stream=True)[0])
        == "yes\n"
    )


def test_words_of_the_cli_itself_go_beside_the_answer() -> None:
    failed = completed("API Error") | {"outcome": "failed"}
    assert show(message("API Error", synthetic=True), failed, stream=False) == ([], ["API Error"])
    both = [message("one", synthetic=True), message("two", synthetic=True), completed()]
    assert show(*both, stream=False)[1] == ["one", "two"]
    failed["error"] = {"kind": "server", "message": "API Error"}
    assert show(message("API Error", synthetic=True), failed, stream=False) == ([], []), "the end says it"


def test_a_failure_that_comes_as_a_message_is_no_answer_in_a_pipe() -> None:
    failed = completed() | {"outcome": "failed", "error": {"kind": "server", "message": "[API Error: busy]"}}
    used = {"type": "usage", "usage": {}}
    assert show(message("[API Error: busy]"), used, failed, stream=False) == ([], [])
    shown, _ = show(message("The answer."), message("[API Error: busy]", id_="m2"), used, failed, stream=False)
    assert "".join(shown) == "The answer.\n"
    assert "".join(show(message("Half an answer."), failed, stream=False)[0]) == "Half an answer.\n"


def test_a_message_reaches_a_pipe_before_the_tool_that_follows() -> None:
    output = Pages(tty=False)
    view = TurnView(output, {}.__getitem__)
    view.take(message("I look."))
    view.take({"type": "tool_use", "tool_use_id": "u", "name": "Bash", "input": {}})
    assert output.pieces == ["I look.", "\n"]


@pytest.mark.parametrize("stream", [True, False])
def test_a_large_text_is_fetched_whole(stream: bool) -> None:
    whole = "x" * 3_000_000
    cut = {"type": "message", "message_id": "m1", "blocks": [{"kind": "text", "text": whole[:4096], "blob": "b"}]}
    pieces, notes = show(
        delta(whole[:9]), cut, completed(whole[:4096], blob="b"), stream=stream, blobs={"b": whole.encode()}
    )
    assert "".join(pieces) == whole + "\n"
    assert notes == []


def test_a_large_delta_is_fetched_whole_too() -> None:
    events = (delta("he", blob="b"), delta("!"), message("hello!"), completed())
    assert "".join(show(*events, stream=True, blobs={"b": b"hello"})[0]) == "hello!\n"
