"""Markdown of an answer on a terminal: cut into blocks, drawn whole, and nothing lost."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clisup.cli.views.diffs import DIFF_LINES, diff_lines
from clisup.cli.views.markdown import LONGEST_BLOCK, AnswerText, MarkdownBlocks, markdown_text


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)


def bare(text: str) -> str:
    return re.sub(r"\033\[[0-9;]*m", "", markdown_text(text, Tty()))


def blocks(text: str, size: int = 7) -> list[str]:
    cutter = MarkdownBlocks()
    found = [block for at in range(0, len(text), size) for block in cutter.feed(text[at : at + size])]
    return found + cutter.finish()


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_block_ends_at_an_empty_line_outside_of_code(size: int) -> None:
    text = "One\ntwo.\n\n```py\na\n\nb\n```\n\n1. x\n\n   y\n\n2. z\n\n    code\n"
    assert [block.strip("\n") for block in blocks(text, size)] == [
        "One\ntwo.", "```py\na\n\nb\n```", "1. x\n\n   y", "2. z\n\n    code",
    ]  # fmt: skip


@given(st.text(alphabet="ab `~\n\t-", max_size=80), st.integers(1, 9))
def test_blocks_together_are_the_text(text: str, size: int) -> None:
    cut = MarkdownBlocks()
    found = "".join(block for at in range(0, len(text), size) for block in cut.feed(text[at : at + size]))
    found += "".join(cut.finish())
    assert re.sub(r"\s", "", found) == re.sub(r"\s", "", text)


def test_a_block_without_an_end_is_drawn_in_parts() -> None:
    assert sum(map(len, blocks("x" * (3 * LONGEST_BLOCK), 10_000))) == 3 * LONGEST_BLOCK


def test_a_pipe_and_a_dumb_terminal_get_the_text_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = AnswerText(io.StringIO())
    assert (pipe.feed("# He"), pipe.feed("ad\x1b[2J"), pipe.finish()) == ("# He", "ad\x1b[2J", "")
    monkeypatch.setenv("TERM", "dumb")
    dumb = AnswerText(Tty())
    assert (dumb.feed("# He"), dumb.feed("ad\x1b[2J"), dumb.finish()) == ("# He", "ad\N{REPLACEMENT CHARACTER}[2J", "")
    assert dumb.withdraw() and not dumb.in_blocks


def test_what_is_withdrawn_was_shown_only_if_a_block_of_it_was_drawn() -> None:
    text = AnswerText(Tty())
    assert text.feed("One.") == "" and not text.withdraw()
    assert text.feed("One.\n\nTwo").startswith("One.") and text.withdraw()
    assert text.finish() == ""


def test_markup_is_drawn_with_one_accent_colour() -> None:
    drawn = markdown_text("# Head\n\n`code` **bold**\n- item\n", Tty())
    assert "\033[1mHead\033[0m" in drawn and "\033[36mcode\033[0m" in drawn and "\033[1mbold\033[0m" in drawn
    assert set(re.findall(r"\033\[([0-9;]*)m", drawn)) <= {"", "0", "1", "2", "4", "36"}


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\033" not in markdown_text("# Head\n`code` **bold**\n", Tty())


def test_html_line_ends_and_long_lines_of_code_are_kept() -> None:
    code = "    return " + "x" * 120
    drawn = bare(f"Vec<u8> and <div>\nnext line\n\n```\n{code}\n```\n")
    assert "Vec<u8> and <div>\nnext line\n" in drawn
    assert code + "\n" in drawn


def test_a_link_shows_its_address_and_nothing_drives_the_terminal() -> None:
    drawn = markdown_text("[here](http://x.y/z) \x1b]8;;http://evil\x07\x1b[2J", Tty())
    assert "http://x.y/z" in drawn
    assert "\x1b]" not in drawn and "\x1b[2J" not in drawn and "\x07" not in drawn


@pytest.mark.parametrize("width", ["60", "80", "100", "200"])
def test_text_is_wrapped_at_the_width_of_the_terminal(monkeypatch: pytest.MonkeyPatch, width: str) -> None:
    monkeypatch.setenv("COLUMNS", width)
    lines = bare("some words " * 60).splitlines()
    assert max(map(len, lines)) <= int(width) and len(lines) > 1


def test_an_edit_is_a_diff() -> None:
    edit = {"name": "Edit", "input": {"file_path": "a.py", "old_string": "a\nb\nc\n", "new_string": "a\nB\nc\n"}}
    assert diff_lines(edit) == ["  a", "- b", "+ B", "  c"]
    assert diff_lines({"name": "Write", "input": {"content": "x\ny"}}) == ["+ x", "+ y"]
    patch = {"name": "apply_patch", "input": {"changes": [{"path": "a", "kind": "update", "diff": "@@\n-x\n+y"}]}}
    assert diff_lines(patch) == ["a", "@@", "-x", "+y"]
    assert diff_lines({"name": "Bash", "input": {"command": "ls"}}) == []


@pytest.mark.parametrize(
    "given", [None, {"edits": 3, "changes": "x"}, {"edits": [1, {"old_string": 1, "new_string": "x"}]}, {"content": 1}]
)
def test_an_input_of_another_shape_is_no_diff(given: object) -> None:
    assert diff_lines({"name": "Write", "input": given}) == []


def test_a_long_diff_is_cut_and_says_so() -> None:
    lines = diff_lines({"name": "Write", "input": {"content": "x\n" * 100}})
    assert len(lines) == DIFF_LINES + 1 and lines[-1] == "[60 more lines]"
