"""`clisup status`: the page for people, and the JSON for programs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
from fake_daemon import SESSION, FakeDaemon

from clisup.cli.status.columns import COLUMNS, DEFAULT, GO_FIRST, short_ids
from clisup.cli.views.terminal import cut
from clisup.errors import UsageError

Run = Callable[..., Any]

DAEMON = {
    "version": "0.1.0", "pid": 123, "instance_id": "i", "started_at": "2026-01-01T00:00:00Z", "uptime_s": 190.0,
    "socket": "/run/clisup.sock", "state_dir": "/var/lib/clisup", "state": "ready", "rss_bytes": 54_600_000, "open_fds": 31,
    "running": 1, "max_running": 8, "waiting": 0, "adopted_turns": 0,
    "storage": {"path": "/var/lib/clisup", "free_bytes": 13_200_000_000, "writable": True},
}  # fmt: skip
CLAUDE = {
    "name": "claude", "kind": "claude", "command": ["claude"], "path": None, "version": None, "supported": False,
    "supported_versions": ">=2.1", "capabilities": {}, "unavailable_reason": "cannot find claude", "sessions": 0,
}  # fmt: skip
DEMO = CLAUDE | {
    "name": "demo",
    "path": "/usr/bin/demo",
    "version": "1.0.0",
    "supported": True,
    "unavailable_reason": None,
}
SUMMARY = {
    "session_id": SESSION, "backend": "demo", "model": None, "state": "running", "phase": "tool", "turn_id": "t3",
    "native_session_id": None, "cwd": "/srv", "labels": {}, "created_at": "", "pid": 4242, "idle_s": 8.2, "age_s": 3725.0,
    "keeper_pid": 4241, "rss_bytes": 220_200_960,
    "title": "Rewrite the parser", "branch": "main",
    "turns": 3, "queue": [{}, {}], "tokens": {"input_tokens": 12_000, "output_tokens": 345, "source": "reported"},
    "cost_usd": 0.0123, "subscribers": 0, "first_seq": 1, "next_seq": 9,
    "last_event": {"seq": 8, "type": "tool_use", "ts": "2026-01-01T00:00:00.000000Z", "age_s": 190.0},
    "next_timer": {"phase": "tool", "limit_s": 1800.0, "fires_in_s": 1791.0},
}  # fmt: skip
IDLE = SUMMARY | {
    "session_id": SESSION[:8] + "-1111-4000-8000-000000000002", "state": "idle", "phase": None, "turn_id": None, "pid": None,
    "idle_s": None, "queue": [], "tokens": {}, "cost_usd": None, "next_timer": None, "rss_bytes": None, "last_event": None,
    "last_turn": {"turn_id": "t2", "outcome": "failed", "error_kind": "rate_limit", "ended_at": "2026-01-01T00:00:00Z"},
    "title": None, "branch": None,
}  # fmt: skip
STATUS: dict[str, Any] = {
    "schema_version": 1, "daemon": DAEMON, "backends": [CLAUDE, DEMO], "sessions": [SUMMARY, IDLE],
    "totals": {
        "turns": {"completed": 5, "failed": 1, "interrupted": 0, "timed_out": 2}, "watchdog_fired": 2,
        "tokens": {"input_tokens": 2_000_000, "output_tokens": 4500}, "cost_usd": 1.5,
    },
    "clients": [{"uid": 0, "pid": 1, "name": "x", "role": "admin", "subscriptions": 0}],
}  # fmt: skip


@pytest.fixture(autouse=True)
def answered(daemon: FakeDaemon) -> FakeDaemon:
    daemon.handlers["daemon/status"] = lambda peer, params: STATUS
    return daemon


def test_backends_that_nobody_configured_or_installed_take_one_line(clisup: Run, daemon: FakeDaemon) -> None:
    absent = [CLAUDE | {"name": name, "default": True} for name in ("codex", "gemini")]
    wanted = CLAUDE | {"name": "claude", "default": False}
    daemon.handlers["daemon/status"] = lambda peer, params: STATUS | {"backends": [wanted, *absent]}
    page = clisup("status").out
    assert "Not installed: codex, gemini" in page
    assert "claude" in page and "cannot find claude" in page


def test_accounts_are_shown_where_a_limit_is_near_or_holds_somebody(clisup: Run, daemon: FakeDaemon) -> None:
    limited = {
        "account": "claude", "kind": "claude", "state": "limited", "until": "2100-01-01T00:00:00Z", "limit_type": "five_hour",
        "utilization": 0.93, "message": None, "said_at": None, "waiting": [SESSION], "probe": None,
    }  # fmt: skip
    fine = limited | {"account": "claude#aa", "state": "ok", "waiting": []}
    daemon.handlers["daemon/status"] = lambda peer, params: STATUS | {"accounts": [limited, fine]}
    page = clisup("status").out
    assert "2100-01-01T00:00:00Z" in page and "five_hour" in page and "93%" in page
    assert "claude#aa" not in page


def test_the_head_says_who_runs_where_and_how_much(clisup: Run) -> None:
    head = clisup("status").out.split("\n\n")[0].splitlines()
    assert head[0] == "● clisup 0.1.0 — ready (pid 123, up 3 min)"
    assert [line.strip() for line in head[1:]] == [
        "Socket: /run/clisup.sock",
        "State: /var/lib/clisup (12.3 GiB free)",
        "Running: 1 of 8 turns, 0 waiting, 0 adopted",
        "Memory: 52.1 MiB, 31 files open, 1 client",
        "Turns: 5 completed, 1 failed, 0 interrupted, 2 timed out; watchdog fired 2 times",
        "Tokens: 2.0M (4.5k of output), cost $1.5000",
    ]


def test_a_backend_is_shown_with_its_version_or_why_it_has_none(clisup: Run) -> None:
    rows = clisup("status").out.split("\n\n")[1].splitlines()
    assert rows[1].split() == ["claude", "-", "-", "0", "not", "available:", "cannot", "find", "claude"]
    assert rows[2].split() == ["demo", "1.0.0", "/usr/bin/demo", "0", "supported"]


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in row.split("  ") if cell.strip()] for row in text.splitlines()]


def test_every_cell_of_a_session_has_a_value(clisup: Run) -> None:
    rows = cells(clisup("status").out.split("\n\n")[2])
    assert rows[0] == list(DEFAULT)
    assert rows[1] == [
        SESSION[:12], "running: tool", "8s", "demo", "-", "t3 +2", "4242", "210.0 MiB", "12.3k", "$0.0123", "1h02m",
        "tool_use, 3 min ago", "main", "/srv", "Rewrite the parser",
    ]  # fmt: skip
    assert rows[2][:2] == [IDLE["session_id"][:12], "failed: rate limit"]
    assert rows[2][3:] == ["demo", "-", "-", "-", "-", "-", "-", "1h02m", "-", "-", "/srv", "-"]


@pytest.mark.parametrize("args", [("-o", "session,next-timer,QUEUE,id"), ("-osession,next_timer,queue,id",),
                                  ("--output=session, next-timer,queue,ID",)])  # fmt: skip
def test_chosen_columns_are_all_that_is_shown(clisup: Run, args: tuple[str, ...]) -> None:
    rows = cells(clisup("status", *args).out)
    assert rows[0] == ["SESSION", "NEXT-TIMER", "QUEUE", "ID"]
    assert rows[1] == [SESSION[:12], "tool in 29 min", "2", SESSION]
    assert rows[2][1:3] == ["-", "0"]


@pytest.mark.parametrize("name", COLUMNS)
def test_every_column_can_be_shown_and_no_cell_is_empty(clisup: Run, name: str) -> None:
    rows = clisup("status", "-o", f"{name.lower()},id").out.splitlines()
    assert len(rows) == 3
    assert all(len(row.split("  ")) >= 2 and not row.startswith(" ") for row in rows)


def test_a_column_that_is_none_names_the_nearest_and_the_list(clisup: Run, daemon: FakeDaemon) -> None:
    ran = clisup("status", "-o", "session,staet")
    assert (ran.code, ran.out) == (2, "")
    assert "there is no column 'STAET'" in ran.err
    assert "did you mean STATE? columns are: SESSION, STATUS, " in ran.err
    assert daemon.calls("daemon/status") == []


@pytest.mark.parametrize("fields", ["", ",", " "])
def test_no_columns_at_all_are_refused(clisup: Run, fields: str) -> None:
    assert clisup("status", "-o", fields).code == 2


def test_quiet_gives_whole_ids_and_nothing_else(clisup: Run, daemon: FakeDaemon) -> None:
    assert clisup("status", "-q").out == f"{SESSION}\n{IDLE['session_id']}\n"
    daemon.handlers["daemon/status"] = lambda peer, params: STATUS | {"sessions": []}
    assert clisup("status", "--quiet").out == ""


@pytest.mark.parametrize("args", [("-q", "--json"), ("-q", "-o", "state"), ("--json", "-o", "state")])
def test_two_forms_at_once_are_refused(clisup: Run, args: tuple[str, ...]) -> None:
    ran = clisup("status", *args)
    assert (ran.code, ran.out) == (2, "")
    assert "cannot give two forms at once" in ran.err


@pytest.mark.parametrize("args", [("-o",), ("--watch=x",), ("--nope",), ("-x",), ("--watch", "-1")])
def test_a_wrong_option_is_explained(clisup: Run, args: tuple[str, ...]) -> None:
    ran = clisup("status", *args)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("clisup: cannot read the command line, because ")
    assert "--help" in ran.err


def test_a_failure_is_red_a_wish_is_yellow_and_no_cell_can_make_a_row(
    clisup: Run, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    labelled = SUMMARY | {"labels": {"job": "one\ntwo\tthree"}}
    asking = SUMMARY | {"session_id": SESSION[:8] + "-2222-4000-8000-000000000003", "approvals": 2}
    daemon.handlers["daemon/status"] = lambda peer, params: STATUS | {"sessions": [labelled, IDLE, asking]}
    on_a_terminal(monkeypatch, 200)
    monkeypatch.delenv("NO_COLOR")
    rows = clisup("status", "-o", "session,labels,status,outcome").out.splitlines()
    assert len(rows) == 4
    assert rows[1].startswith("3f2a0000-000  job=one two three  \033[32mrunning: tool")
    assert "\033[31mfailed: rate_limit" in rows[2] and "\033[31mfailed: rate limit" in rows[2]
    assert "\033[33mwants you (2)" in rows[3] and "\033[31m" not in rows[3]


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))


@pytest.mark.parametrize(("columns", "gone"), [
    (200, []), (120, ["PID", "MEM", "AGE", "LAST"]), (100, ["PID", "MEM", "AGE", "LAST", "COST", "BACKEND"]),
    (80, ["PID", "MEM", "AGE", "LAST", "COST", "TOKENS", "TURN", "BRANCH"]),
    (60, [name for name in GO_FIRST[:14] if name in DEFAULT and name != "MODEL"]),
])  # fmt: skip
def test_a_narrow_terminal_loses_the_least_important_columns_and_is_told(
    clisup: Run, monkeypatch: pytest.MonkeyPatch, columns: int, gone: list[str]
) -> None:
    on_a_terminal(monkeypatch, columns)
    page = clisup("status").out
    head = page.split("\n\n")[2].splitlines()[0].split()
    if gone:
        assert "MODEL" not in head, "an empty column goes first"
    assert {"SESSION", "STATUS", "SINCE", "TITLE"} <= set(head)
    assert [name for name in DEFAULT if name not in head and name != "MODEL"] == [n for n in DEFAULT if n in gone]
    assert (f"({len(gone)} columns do not fit: choose with -o)" in page) == bool(gone)


@pytest.mark.parametrize("columns", [200, 100, 80, 60, 40, 20, 3])
def test_no_line_is_ever_wider_than_the_terminal(clisup: Run, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    on_a_terminal(monkeypatch, columns)
    for args in ((), ("-o", "id,directory,labels"), ("3f2a",)):
        lines = clisup("status", *args).out.splitlines()
        assert lines and all(len(line) <= columns for line in lines)


def test_the_page_shows_what_works_and_the_newest_and_says_how_many_more(clisup: Run, daemon: FakeDaemon) -> None:
    def at(number: int, **fields: Any) -> dict[str, Any]:
        opened = f"2026-01-{number:02d}T00:00:00Z"
        return IDLE | {"session_id": f"{number:08d}-1111", "created_at": opened, "last_turn": None, **fields}

    old = [at(1, turn_id="t1"), at(2, approvals=1, turn_id="t1"), at(3, last_turn=IDLE["last_turn"])]
    daemon.handlers["daemon/status"] = lambda peer, params: STATUS | {"sessions": [*old, *map(at, range(4, 25))]}
    _, *rows, more = clisup("status").out.split("\n\n")[2].splitlines()
    assert [int(row[:8]) for row in rows] == [*range(24, 6, -1), 2, 1], "newest first, and none that works is left out"
    assert more == "4 older sessions at rest are not shown, 1 of them failed: clisup sessions lists them all"
    assert len(clisup("status", "-q").out.splitlines()) == 24
    assert len(clisup("status", "-o", "id").out.splitlines()) == 25


def test_a_pipe_has_no_width(clisup: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    assert "tool_use, 3 min ago" in clisup("status").out


def test_a_line_that_is_cut_loses_its_colours_whole() -> None:
    assert cut("\033[32mgreen\033[0m and more\nshort", 8) == "green a…\nshort"
    assert cut("\033[32mgreen\033[0m", 5) == "\033[32mgreen\033[0m"


def test_ids_are_cut_where_they_still_differ() -> None:
    assert short_ids(["aaaaaaaa-1", "aaaaaaaa-2", "b" * 36]) == {
        "aaaaaaaa-1": "aaaaaaaa-1", "aaaaaaaa-2": "aaaaaaaa-2", "b" * 36: "b" * 12,
    }  # fmt: skip


def test_a_pipe_gets_no_colours_and_a_terminal_does(clisup: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\033" not in clisup("status").out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert "\033[32mready" in clisup("status").out


def test_no_color_is_heeded_on_a_terminal(clisup: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\033" not in clisup("status").out


def test_a_name_cannot_drive_the_terminal(clisup: Run, daemon: FakeDaemon) -> None:
    evil = STATUS | {"sessions": [SUMMARY | {"backend": "de\033[2Jmo"}]}
    daemon.handlers["daemon/status"] = lambda peer, params: evil
    assert "de\N{REPLACEMENT CHARACTER}[2Jmo" in clisup("status").out


def test_without_sessions_the_page_says_so(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.handlers["daemon/status"] = lambda peer, params: STATUS | {"sessions": []}
    assert clisup("status").out.endswith("\n\nNo sessions.\n")


def test_a_full_disk_is_loud(clisup: Run, daemon: FakeDaemon) -> None:
    storage = {"path": "/x", "free_bytes": 0, "writable": False}
    daemon.handlers["daemon/status"] = lambda peer, params: STATUS | {"daemon": DAEMON | {"storage": storage}}
    assert "(0 B free, NOT WRITABLE)" in clisup("status").out
    storage |= {"state": "read_only", "since": "2026-01-02T03:04:05Z", "error": "cannot write /x/y: \033[2J"}
    out = clisup("status").out
    assert "(0 B free, READ ONLY since 2026-01-02T03:04:05Z: cannot write /x/y: \N{REPLACEMENT CHARACTER}[2J)" in out


def test_damaged_sessions_are_named_with_the_way_out(clisup: Run, daemon: FakeDaemon) -> None:
    damaged = {SESSION: "cannot read the journal /x, because it is damaged at byte 7; stop the daemon and \033[2J"}
    daemon.handlers["daemon/status"] = lambda peer, params: STATUS | {"damaged_sessions": damaged}
    out = clisup("status").out
    assert f"\n\ndamaged {SESSION}: cannot read the journal /x, because it is damaged at byte 7; stop" in out
    assert "\033" not in out


def test_json_is_what_the_daemon_said(clisup: Run) -> None:
    assert json.loads(clisup("status", "--json").out) == STATUS


def test_one_session_is_shown_from_near(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.emit("notice", code="adopted", message="carried on")
    out = clisup("status", "3f2a").out
    assert out.startswith(f"{SESSION} — running (tool)\n")
    assert "Labels: ticket=4711" in out
    assert "notice" in out.splitlines()[-1]


def test_one_session_says_its_title_branch_and_the_age_of_its_outcome(clisup: Run, daemon: FakeDaemon) -> None:
    last = {"turn_id": "t1", "outcome": "failed", "error_kind": "network", "ended_at": "2026-01-01T00:00:00Z"}
    row = daemon.summary(
        title="Rewrite the parser", branch="main", state="closed", phase=None, turn_id=None, last_turn=last
    )
    daemon.handlers["session/get"] = lambda peer, params: row | {"timers": [], "closed_by": "idle"}
    out = clisup("status", "3f2a").out
    assert "closed by the daemon, after a long time without a prompt\n" in out
    assert "     Title: Rewrite the parser\n" in out and "/srv/app (branch main)\n" in out
    assert re.search(r"Outcome: failed: network, \d+ d \d+ h ago\n", out)
    daemon.handlers["session/get"] = lambda peer, params: daemon.summary(approvals=1) | {"timers": []}
    assert clisup("status", "3f2a").out.splitlines()[0].endswith("running (tool); wants you")


def test_one_session_shows_the_estimated_cost_of_its_running_turn(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.handlers["session/get"] = lambda peer, params: daemon.summary(turn_cost_usd=0.5) | {"timers": []}
    assert ", the running turn ~$0.5000\n" in clisup("status", "3f2a").out


def test_one_session_as_json_is_session_get(clisup: Run, daemon: FakeDaemon) -> None:
    detail = json.loads(clisup("status", SESSION, "--json").out)
    assert (detail["schema_version"], detail["session_id"]) == (1, SESSION)


def test_an_unknown_session_is_exit_4(clisup: Run) -> None:
    ran = clisup("status", "dead")
    assert ran.code == 4
    assert ran.err == ("clisup: no session matches 'dead'\n  hint: list the sessions: clisup sessions\n")


@pytest.mark.parametrize(
    ("wanted", "named"),
    [("3f2b", True), ("3f2aeeeeeeee", True), ("parser", True), ("Rewrite the parsre", True), ("zzzz", False)],
)
def test_an_unknown_session_gets_the_nearest_ones_by_id_or_title(
    clisup: Run, daemon: FakeDaemon, wanted: str, named: bool
) -> None:
    rows = [SUMMARY | {"title": "Rewrite the\x1b[2J parser"}, IDLE | {"title": None}]
    daemon.handlers["session/list"] = lambda peer, params: {"sessions": rows if "state" not in params else []}
    ran = clisup("status", wanted)
    assert ran.code == 4
    assert ("did you mean 3f2a" in ran.err) == named and "\x1b" not in ran.err
    assert ("Rewrite the" in ran.err.partition("hint")[2]) == named


def test_at_most_three_sessions_are_named(clisup: Run, daemon: FakeDaemon) -> None:
    rows = [SUMMARY | {"session_id": f"3f2a9c1{n:x}" + SESSION[8:], "title": "Same title"} for n in range(9)]
    daemon.handlers["session/list"] = lambda peer, params: {"sessions": rows if "state" not in params else []}
    assert clisup("status", "title").err.count("Same title") == 3


def test_an_ambiguous_beginning_is_exit_4_and_names_them(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.handlers["session/list"] = lambda peer, params: {
        "sessions": [SUMMARY, IDLE] if "state" not in params else []
    }
    ran = clisup("status", "3f2a")
    assert ran.code == 4
    assert SESSION in ran.err
    assert IDLE["session_id"] in ran.err


def test_three_characters_are_too_few(clisup: Run) -> None:
    assert clisup("status", "3f2").code == 2


def test_a_closed_session_is_found_by_its_beginning(clisup: Run, daemon: FakeDaemon) -> None:
    closed = daemon.summary(state="closed")
    daemon.handlers["session/list"] = lambda peer, params: {
        "sessions": [closed] if params.get("state") == "closed" else []
    }
    assert clisup("status", "3f2a").code == 0


def test_the_daemon_has_the_last_word_on_a_whole_id(clisup: Run, daemon: FakeDaemon) -> None:
    def gone(peer: Any, params: dict[str, Any]) -> Any:
        raise UsageError("cannot find session", kind="session_not_found")

    daemon.handlers["session/get"] = gone
    assert clisup("status", SESSION).code == 4


def test_drift_is_a_line_where_there_is_any(clisup: Run, daemon: FakeDaemon) -> None:
    assert "Drift" not in clisup("status").out
    entry = {"kind": "claude", "frames": {"a": 1, "b": 7}, "fields": {"c: d": 1}, "more": 0}
    entries = [entry | {"version": f"2.{n}"} for n in range(5)]
    daemon.handlers["daemon/status"] = lambda peer, params: STATUS | {"drift": entries[:1]}
    assert "    Drift: unknown of claude 2.0: 2 frames, 1 fields (clisup doctor)\n" in clisup("status").out
    daemon.handlers["daemon/status"] = lambda peer, params: STATUS | {"drift": entries}
    assert "claude 2.4: 2 frames, 1 fields; and 2 more versions" in clisup("status").out
