"""Tables: plain and stable in a pipe; on a terminal nothing in a cell is markup, and every width shows all of it."""

from __future__ import annotations

import sys

import pytest

from clisup.cli.views.terminal import print_table

HEAD = ["NAME", "WHAT"]
ROWS = [["one", "[red]not red[/red] :smile: \033[2J"], ["two", "a\nb\tc " + "long " * 30], ["", "-"]]


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")


def test_a_pipe_gets_one_line_a_row_without_colours(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(HEAD, ROWS, ["red", "", ""])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["NAME  WHAT", "one   [red]not red[/red] :smile: \N{REPLACEMENT CHARACTER}[2J"]
    assert lines[2].startswith("two   a b c long") and lines[3] == "-     -"


def test_a_table_without_a_head_keeps_empty_cells(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(None, [["  ok", "x"], ["", "y"]])
    assert capsys.readouterr().out == "  ok  x\n      y\n"


@pytest.mark.parametrize("columns", [200, 60, 30, 20])
def test_a_terminal_of_any_width_shows_every_cell_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    on_a_terminal(monkeypatch, columns)
    monkeypatch.setenv("NO_COLOR", "1")
    print_table(HEAD, ROWS)
    out = capsys.readouterr().out
    assert all(len(line) <= columns for line in out.splitlines())
    assert "[red]notred[/red]:smile:\N{REPLACEMENT CHARACTER}[2J" in "".join(out.split())
    assert out.count("long") == 30


def test_a_row_has_its_style_and_the_head_is_bold(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_terminal(monkeypatch, 80)
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_table(HEAD, [["one", "fine"], ["two", "failed"]], ["", "red"])
    head, fine, failed = capsys.readouterr().out.splitlines()
    assert "\033[1m" in head and "\033" not in fine and "\033[31m" in failed
