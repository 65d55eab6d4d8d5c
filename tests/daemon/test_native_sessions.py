"""Which session writes a native one: as it is now, and only while it is open."""

from __future__ import annotations

from clisup.daemon.services import NativeSessions


def test_an_open_session_is_the_writer_of_its_native_one_until_it_is_closed() -> None:
    opened = NativeSessions()
    assert opened.writer_of("n1") is None
    opened.add("a", "n1")
    opened.add("a", "n1")
    assert opened.writer_of("n1") == "a" and len(opened) == 1
    opened.remove("a")
    opened.remove("a")
    assert opened.writer_of("n1") is None and len(opened) == 0


def test_a_session_whose_cli_has_told_another_id_writes_that_one() -> None:
    opened = NativeSessions()
    opened.add("a", "n1")
    opened.add("a", "n2")
    assert opened.writer_of("n1") is None and opened.writer_of("n2") == "a" and len(opened) == 1


def test_of_two_writers_one_is_left_when_the_other_is_closed() -> None:
    opened = NativeSessions()
    opened.add("a", "n")
    opened.add("b", "n")
    opened.remove("a")
    assert opened.writer_of("n") == "b"
