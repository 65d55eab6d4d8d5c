"""The place of a follower: what it asks for when it comes back, and what it has been given."""

from __future__ import annotations

from typing import Any

import pytest

from clisup.client.reconnect import ALL, FollowCursor

A, B = "a", "b"


def event(session_id: str, seq: int) -> dict[str, Any]:
    return {"session_id": session_id, "seq": seq, "type": "notice"}


def test_before_the_first_answer_it_asks_for_what_it_was_told() -> None:
    assert FollowCursor(A, None).params() == {"session_id": A}
    assert FollowCursor(A, 0).params() == {"session_id": A, "after_seq": 0}
    assert FollowCursor(ALL, {A: 3}).params() == {"session_id": ALL, "after_seq": {A: 3}}


@pytest.mark.parametrize(("wanted", "answer", "again"), [
    (A, {"next_seq": 8, "first_seq": 1, "after_seq": 7}, 7), (ALL, {"cursors": {A: 7, B: 0}}, {A: 7, B: 0}), (ALL, {"cursors": {}}, {}),
])  # fmt: skip
def test_from_now_on_is_where_the_daemon_says_that_it_begins(wanted: str, answer: dict[str, Any], again: Any) -> None:
    cursor = FollowCursor(wanted, None)
    cursor.opened(answer)
    assert cursor.params() == {"session_id": wanted, "after_seq": again}


def test_each_seq_of_each_session_is_new_once() -> None:
    cursor = FollowCursor(ALL, 0)
    cursor.opened({"cursors": {A: 0}})
    sent = [event(A, 1), event(B, 1), event(A, 2), event(A, 1), event(B, 1), event(B, 2)]
    assert [cursor.advance(each) for each in sent] == [True, True, True, False, False, True]
    assert cursor.value == {A: 2, B: 2}


def test_a_durable_cursor_that_lies_behind_does_not_move_it_back() -> None:
    cursor = FollowCursor(A, 0)
    cursor.opened({"after_seq": 5})
    assert [cursor.advance(event(A, seq)) for seq in (5, 6, 7)] == [False, True, True]
    cursor.opened({"after_seq": 5})
    assert [cursor.advance(event(A, seq)) for seq in (6, 7, 8)] == [False, False, True]


def test_a_durable_cursor_before_the_wanted_beginning_is_where_it_begins() -> None:
    cursor = FollowCursor(A, 100)
    cursor.opened({"after_seq": 50})
    assert cursor.advance(event(A, 51))


def test_a_gap_moves_it_to_its_end() -> None:
    cursor = FollowCursor(ALL, 0)
    cursor.opened({"cursors": {A: 0}})
    assert cursor.advance({"session_id": A, "type": "gap", "from_seq": 1, "to_seq": 9, "reason": "retention"})
    assert [cursor.advance(event(A, seq)) for seq in (9, 10)] == [False, True]


def test_what_is_looked_at_is_not_what_is_kept() -> None:
    cursor = FollowCursor(ALL, 0)
    cursor.opened({"cursors": {A: 0}})
    seen = cursor.value
    assert isinstance(seen, dict)
    seen[A] = 99
    assert cursor.value == {A: 0}
