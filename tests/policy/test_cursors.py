"""Where a subscription begins, and the file of a durable cursor."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clisup.store.cursor_store import begin_after, encode_head, encode_move, read_cursors

A, B, C = (f"0d9c1c1e-0000-4000-8000-00000000000{n}" for n in "abc")
ENDS = {A: 10, B: 20}


def test_nothing_asked_is_from_now_on() -> None:
    assert begin_after(ENDS, asked=None) == {A: 10, B: 20}


def test_zero_is_everything() -> None:
    assert begin_after(ENDS, asked=0) == {A: 0, B: 0}


def test_a_session_that_a_map_leaves_out_was_never_seen_and_one_that_is_gone_is_left_out() -> None:
    assert begin_after(ENDS, asked={A: 7, C: 3}) == {A: 7, B: 0}


@pytest.mark.parametrize("asked", [None, 0, {A: 1, B: 1}])
def test_a_stored_cursor_comes_before_what_is_asked(asked: int | dict[str, int] | None) -> None:
    assert begin_after(ENDS, asked=asked, stored={A: 5})[A] == 5


def test_a_stored_cursor_beyond_the_end_is_the_end() -> None:
    """A power loss may take the end of a journal and leave the cursor."""
    assert begin_after(ENDS, asked=0, stored={A: 99}) == {A: 10, B: 0}


def test_under_a_name_for_all_sessions_a_new_one_begins_at_its_first_event() -> None:
    assert begin_after(ENDS, asked=None, stored={A: 5}, all_known=True) == {A: 5, B: 0}
    assert begin_after(ENDS, asked=None, stored={A: 5}, all_known=False) == {A: 5, B: 20}


ids = st.sampled_from([A, B, C])
maps = st.dictionaries(ids, st.integers(0, 2**53))


@given(maps, st.booleans(), st.lists(st.tuples(ids, st.integers(0, 2**53))), st.binary(max_size=20))
def test_a_file_gives_what_was_written_also_with_a_torn_end(
    head: dict[str, int], all_known: bool, moves: list[tuple[str, int]], torn: bytes
) -> None:
    data = encode_head(head, all_known=all_known) + b"".join(encode_move(*move) for move in moves)
    tail = torn.replace(b"\n", b" ")
    assert read_cursors(data + tail) == (head | dict(moves), all_known, len(data))


@pytest.mark.parametrize("data", [b"", b"\n", b"[]\n", b'{"v":2,"all":false,"cursors":{}}\n', b"\xff\xfe\n"])
def test_a_file_that_is_none_of_ours_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        read_cursors(data)
