"""The line that is typed while other text comes."""

from __future__ import annotations

import pytest

from clisup.cli.views.prompt_line import LINE_LIMIT, KeyPress, PromptLine


def typed(*pieces: bytes) -> tuple[list[KeyPress], str]:
    line = PromptLine()
    return [key for piece in pieces for key in line.feed(piece)], line.text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"abc\x7f", "ab"), (b"abc def\x17", "abc "), (b"abc def  \x17", "abc "), (b"abc\x15x", "x"), (b"\x7f\x7fa", "a"),
        (b"a\033[Db\033[1;5Cc\033OPd", "abcd"), ("déjà\x7f".encode(), "déj"), (b"a\x00\x01b", "ab"), (b"a\tb", "a\tb"),
    ],
)  # fmt: skip
def test_keys_edit_the_line(data: bytes, text: str) -> None:
    assert typed(data) == ([], text)


def test_enter_gives_lines_and_what_follows_stays() -> None:
    assert typed(b"one\ntwo\rthr") == ([KeyPress("line", "one"), KeyPress("line", "two")], "thr")


def test_ctrl_d_leaves_only_an_empty_line_and_ctrl_c_is_told() -> None:
    assert typed(b"a\x04") == ([], "a")
    assert typed(b"\x04") == ([KeyPress("leave")], "")
    assert typed(b"a\x03") == ([KeyPress("interrupt")], "a")


def test_bytes_of_one_key_may_come_in_pieces() -> None:
    assert typed(b"\xc3", b"\xa9\x1b", b"[", b"A", b"x") == ([], "éx")
    assert typed(b"\033[200", b"~a\nb\033[20", b"1~", b"\n") == ([KeyPress("line", "a\nb")], "")


def test_up_brings_the_last_line_back() -> None:
    assert typed(b"again\n\033[A!") == ([KeyPress("line", "again")], "again!")


def test_an_escape_that_leads_nowhere_does_not_hold_the_rest_for_ever() -> None:
    assert typed(b"\033[" + b"1" * 40)[1] != ""


def test_the_line_is_bounded() -> None:
    assert len(typed(b"x" * (LINE_LIMIT + 10))[1]) == LINE_LIMIT


def test_a_row_shows_the_end_of_a_long_line_and_no_control_character() -> None:
    line = PromptLine()
    line.feed(b"0123456789")
    assert line.row("> ", 20) == "> 0123456789"
    assert line.row("> ", 10) == "> …456789"
    line.feed("\x15日本語日本語".encode())
    assert line.row("> ", 10) == "> …日本語"
    line.feed(b"\x15\033[200~a\nb\033[201~")
    assert line.row("> ", 20) == "> a⏎b"
