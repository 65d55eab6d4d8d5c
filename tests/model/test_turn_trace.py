"""What a journal says of its turns, for a comparison with the CLI's transcript."""

from __future__ import annotations

from typing import Any

from clisup.model.sessions.turn_trace import RunMark, TurnTrace, TurnTraces


def traces(*events: dict[str, Any], marks: tuple[RunMark, ...] = ()) -> list[TurnTrace]:
    folded = TurnTraces()
    for event in events:
        folded.apply(event)
    return folded.located(marks)


def started(turn: str, run: int, **more: Any) -> dict[str, Any]:
    return {"type": "turn_started", "turn_id": turn, "run": run, **more}


def message(turn: str | None, id_: str | None, **more: Any) -> dict[str, Any]:
    return {"type": "message", "turn_id": turn, "message_id": id_, **more}


def ended(turn: str) -> dict[str, Any]:
    return {"type": "turn_completed", "turn_id": turn}


def test_a_turn_has_the_messages_of_the_main_conversation() -> None:
    (turn,) = traces(
        started("t1", 1, prompt_bytes=5, prompt_preview="Hello"),
        message("t1", "m1"),
        message("t1", "m2", parent_tool_use_id="toolu_1"),
        message("t1", None),
        message("t1", "m3"),
        ended("t1"),
    )
    assert turn == TurnTrace("t1", 1, 5, "Hello", ["m1", "m3"], done=True)


def test_turns_come_in_the_order_of_their_starts_and_one_that_never_started_is_none() -> None:
    found = traces(started("t2", 1), ended("t2"), started("t1", 2), ended("t3"), message("t9", "m"))
    assert [(turn.turn_id, turn.done) for turn in found] == [("t2", True), ("t1", False)]


def test_a_turn_lies_between_the_sizes_before_its_run_and_before_the_next() -> None:
    marks = (RunMark(1, "t1", 0), RunMark(2, "t2", 900), RunMark(3, "t2", 950), RunMark(4, "t3", 1000))
    found = traces(started("t1", 1), started("t2", 2), started("t3", 4), started("t4", 4), marks=marks)
    assert [(turn.at, turn.until) for turn in found] == [(0, 900), (900, 1000), (1000, None), (1000, None)]


def test_where_no_run_is_known_no_place_is() -> None:
    (turn,) = traces(started("t1", 3), marks=(RunMark(5, "t2", 70),))
    assert (turn.at, turn.until) == (None, 70)
