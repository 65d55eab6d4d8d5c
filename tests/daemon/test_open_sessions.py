"""Which session writes a native one: as it is now, and only while it is open."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from clisup.daemon.sessions.open_sessions import OpenSessions


def session(name: str, native: str) -> Any:
    return SimpleNamespace(id=name, native_id=native)


def test_an_open_session_is_the_writer_of_its_native_one_until_it_is_closed() -> None:
    opened, mine = OpenSessions(), session("a", "n1")
    assert opened.writer_of("n1") is None
    opened.settle(mine)
    opened.settle(mine)
    assert opened.writer_of("n1") is mine and len(opened) == 1
    opened.leave(mine)
    opened.leave(mine)
    assert opened.writer_of("n1") is None and len(opened) == 0


def test_a_session_whose_cli_has_told_another_id_writes_that_one() -> None:
    opened, mine = OpenSessions(), session("a", "n1")
    opened.settle(mine)
    mine.native_id = "n2"
    opened.settle(mine)
    assert opened.writer_of("n1") is None and opened.writer_of("n2") is mine and len(opened) == 1


def test_of_two_writers_one_is_left_when_the_other_is_closed() -> None:
    opened, one, two = OpenSessions(), session("a", "n"), session("b", "n")
    opened.settle(one)
    opened.settle(two)
    opened.leave(one)
    assert opened.writer_of("n") is two
