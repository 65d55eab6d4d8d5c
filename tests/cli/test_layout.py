"""Layout of lists: what gives way in a narrow terminal, and that no cell runs into the next one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clisup.cli.status.columns import DEFAULT, GO_FIRST, directory, sessions_laid_out, status_of
from clisup.cli.top.texts import LEAVE, SHOWN
from clisup.cli.views.layout import Column, cells_of, fitted, lay_out

WIDTHS = [60, 80, 100, 200]
COLUMNS = [
    Column("ID"),
    Column("NOTE"),
    Column("COST", right=True),
    Column("PLACE", 6, 20, keep_end=True),
    Column("TITLE", 10, 30),
]
ROWS = [
    ["3f2a", "-", "$0.5", "/srv/builds/application", "Rewrite the parser of the old format, please"],
    ["77b0", "-", "$12.0", "/srv", "Two"],
]
ORDER = ("COST", "NOTE", "PLACE", "TITLE")


def names(width: int) -> list[str]:
    return lay_out(COLUMNS, ROWS, width, ORDER).names


def test_empty_columns_go_first_then_cells_shrink_then_whole_columns_go() -> None:
    assert names(200) == ["ID", "NOTE", "COST", "PLACE", "TITLE"]
    assert names(66) == ["ID", "COST", "PLACE", "TITLE"], "NOTE is empty"
    layout = lay_out(COLUMNS, ROWS, 31, ORDER)
    assert (layout.names, layout.gone) == (["ID", "COST", "PLACE", "TITLE"], [])
    assert layout.lines() == [
        "ID     COST  PLACE   TITLE",
        "3f2a   $0.5  …ation  Rewrite t…",
        "77b0  $12.0  /srv    Two",
    ]
    assert lay_out(COLUMNS, ROWS, 30, ORDER).gone == ["COST"]
    assert names(16) == ["ID", "TITLE"]


def test_a_column_with_the_same_text_in_every_row_makes_room_for_cells_that_would_be_cut() -> None:
    columns = [Column("ID"), Column("BACKEND", common=True), Column("TITLE", 10, 30)]
    rows = [["3f2a", "claude", "Write tests for the lexer"], ["77b0", "claude", "Write tests for the parser"]]
    assert lay_out(columns, rows, 41, ("BACKEND",)).names == ["ID", "BACKEND", "TITLE"]
    narrow = lay_out(columns, rows, 35, ("BACKEND",))
    assert (narrow.names, narrow.gone) == (["ID", "TITLE"], ["BACKEND"])
    assert narrow.lines()[2] == "77b0  Write tests for the parser"
    rows[0][1] = "codex"
    assert lay_out(columns, rows, 35, ("BACKEND",)).names == ["ID", "BACKEND", "TITLE"]
    assert lay_out(columns, rows[:1], 35, ("BACKEND",)).names == ["ID", "BACKEND", "TITLE"]


def test_the_last_column_that_can_be_cut_is_cut_before_it_goes() -> None:
    assert lay_out(COLUMNS, ROWS, 14, ORDER).lines()[1] == "3f2a  Rewrite…"
    assert names(13) == ["ID"]


def test_a_pipe_gets_every_column_and_every_cell_whole() -> None:
    layout = lay_out(COLUMNS, ROWS, None, ORDER)
    assert layout.names == ["ID", "NOTE", "COST", "PLACE", "TITLE"]
    assert layout.lines()[1].endswith(ROWS[0][-1])
    assert layout.lines()[2].startswith("77b0  -     $12.0  /srv")


def test_wide_characters_take_two_columns_and_no_line_is_longer_than_the_terminal() -> None:
    rows = [["3f2a", "-", "$0.5", "/srv", "構文解析器を書き直してください、お願いします"], ROWS[1]]
    for width in range(16, 90):
        assert max(map(cells_of, lay_out(COLUMNS, rows, width, ORDER).lines())) <= width
    assert cells_of("日本 e\u0301") == 6
    assert fitted("日本語", 5) == "日本…" and fitted("日本語", 4) == "日…"
    assert fitted("日本語", 5, keep_end=True) == "…本語"
    assert (
        fitted("/srv/builds/app", 9, keep_end=True) == "…/app"
        and fitted("/srv/application", 6, keep_end=True) == "…ation"
    )


@given(st.text(), st.integers(0, 30), st.booleans())
def test_a_fitted_text_is_never_wider_than_asked(text: str, width: int, keep_end: bool) -> None:
    assert cells_of(fitted(text, width, keep_end=keep_end)) <= width


# -- lists of sessions


def row(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "session_id": f"{number:08x}-0000-4000-8000-000000000000", "backend": "claude", "model": "claude-opus-4-1-20250805",
        "state": "idle", "turn_id": None, "phase": None, "approvals": 0, "queue": [], "pid": 123456, "rss_bytes": 210 << 20,
        "age_s": 400_000.0, "idle_s": None, "tokens": {"input_tokens": 12_000_000}, "cost_usd": 123.4567, "turns": 12,
        "cwd": "/home/alice/work/some-very-long-directory-name/of-an-application", "branch": "feature/rewrite-the-parser",
        "title": "Rewrite the parser of the old format and delete what nobody needs", "labels": {"ticket": "4711"},
        "last_event": {"seq": 1, "type": "turn_completed", "age_s": 7000.0}, "next_timer": None,
        "last_turn": {"outcome": "failed", "error_kind": "context_overflow", "ended_at": "2026-01-01T00:00:00Z"}, **fields,
    }  # fmt: skip


MANY = [
    row(1),
    row(2, turn_id="t1", state="running", phase="background", idle_s=3.0),
    row(3, approvals=2, turn_id="t2"),
]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("columns", "order"), [(DEFAULT, GO_FIRST), (SHOWN, LEAVE)], ids=["status", "top"])
def test_no_list_of_sessions_is_wider_than_the_terminal_and_the_outcome_and_the_title_stay(
    width: int, columns: tuple[str, ...], order: tuple[str, ...]
) -> None:
    layout = sessions_laid_out(MANY, columns, width, order)
    head, *lines = layout.lines()
    assert max(map(cells_of, layout.lines())) <= width
    assert head.split() == layout.names, "no head is cut, and none runs into the next one"
    assert {"SESSION", "STATUS", "SINCE", "TITLE"} <= set(layout.names)
    starts = [head.index(name) for name in ("SESSION", "STATUS", "TITLE")]
    assert [line[starts[1] :].startswith(status_of(s)[0]) for s, line in zip(MANY, lines, strict=True)] == [True] * 3
    assert all(line[starts[2] - 2 : starts[2]] == "  " and line[starts[2] :].startswith("Rewrite") for line in lines)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"approvals": 1, "turn_id": "t1", "state": "running"}, ("wants you", "asking")),
        ({"approvals": 3, "turn_id": "t1", "state": "running"}, ("wants you (3)", "asking")),
        ({"turn_id": "t1", "state": "running", "phase": "tool"}, ("running: tool", "running")),
        ({"turn_id": "t1", "state": "starting", "phase": "startup"}, ("starting", "running")),
        ({"turn_id": "t1", "state": "unfinished"}, ("unfinished", "resting")),
        ({"queue": [{}], "state": "waiting"}, ("queued", "waiting")),
        ({"queue": [{}], "state": "waiting", "held": {"for": "limit"}}, ("held: rate limit", "waiting")),
        ({}, ("failed: context overflow", "failed")),
        ({"state": "failed"}, ("failed: context overflow", "failed")),
        ({"state": "failed", "last_turn": None}, ("failed", "failed")),
        ({"last_turn": {"outcome": "timed_out", "error_kind": "idle_timeout"}}, ("timed out", "failed")),
        ({"last_turn": {"outcome": "interrupted", "error_kind": "cancelled"}}, ("interrupted", "resting")),
        ({"last_turn": None}, ("idle", "resting")),
        ({"state": "closed"}, ("closed: failed", "resting")),
        ({"state": "closed", "last_turn": None}, ("closed", "resting")),
    ],
)
def test_a_wish_for_a_person_comes_before_the_turn_and_the_turn_before_the_last_outcome(
    fields: dict[str, Any], said: tuple[str, str]
) -> None:
    assert status_of(row(1, **fields)) == said


def test_a_directory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/alice")
    found = [
        directory(path)
        for path in ("/home/alice", "/home/alice/work/app", "/home/alice/a/b/c", "/srv/app", "/x/y/z", None)
    ]
    assert found == ["~", "~/work/app", "…/b/c", "/srv/app", "…/y/z", "-"]
