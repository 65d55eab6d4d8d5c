"""`clisup status --why SESSION`: why a turn is still alive, and what happens next."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from fake_daemon import SESSION, FakeDaemon

from clisup.cli.status.command import span

Run = Callable[..., Any]

WATCH: dict[str, Any] = {
    "phase": "tool",
    "timers": [
        {"phase": "tool", "limit_s": 1800.0, "fires_in_s": 80.4, "warns_in_s": None},
        {"phase": "turn", "limit_s": 7200.0, "fires_in_s": 5460.0, "warns_in_s": 4020.0},
    ],
    "idle_s": 1719.6,
    "evidence": {"processes": 4, "cpu_s": 12.34, "io_bytes": 1_572_864, "grew": True, "age_s": 20.0},
    "probed": True,
    "windows_left": 3,
    "ladder": [["INT", 3.0], ["TERM", 5.0], ["KILL", 0]],
    "next": "the tool timer ends the run, unless the CLI gives a sign of life before or its processes are at work",
}  # fmt: skip


def answer(daemon: FakeDaemon, watch: dict[str, Any] | None, **changed: Any) -> None:
    daemon.handlers["session/get"] = lambda peer, params: daemon.summary(**changed) | {"watch": watch}


@pytest.fixture
def noon(monkeypatch: pytest.MonkeyPatch) -> float:
    """2026-01-02 12:00:00, local time, whatever the zone is."""
    at = time.mktime((2026, 1, 2, 12, 0, 0, 0, 0, -1))
    monkeypatch.setattr(time, "time", lambda: at)
    return at


def rows(out: str) -> dict[str, str]:
    """The page's rows by name; a row without a name of its own belongs to the one above it."""
    found: dict[str, str] = {}
    name = ""
    for line in out.splitlines()[1:]:
        if match := re.fullmatch(r" *([A-Z][a-z ]*): (.*)", line):
            name = match[1]
            found[name] = match[2]
        else:
            found[name] += "\n" + line.strip()
    return found


def test_the_page_says_everything_that_decides(clisup: Run, daemon: FakeDaemon, noon: float) -> None:
    answer(daemon, WATCH)
    ran = clisup("status", "--why", "3f2a")
    assert ran.code == 0
    assert ran.out.splitlines()[0] == f"{SESSION} — running, turn t3 (pid 4242)"
    assert rows(ran.out) == {
        "Phase": "tool: a tool runs",
        "Last life": "28 min 40 s ago, at 11:31:20",
        "Timers": (
            "tool, limit 30 min: fires at 12:01:20, in 1 min 20 s\n"
            "turn, limit 2 h: fires at 13:31:00, in 1 h 31 min, warns in 1 h 7 min"
        ),
        "Evidence": (
            "4 processes, 12 s of CPU, 1.5 MiB read and written: work since the check before (20 s ago)"
            "; if it works, it gets 3 more windows"
        ),
        "Ladder": "SIGINT to the CLI, 3 s later SIGTERM to the whole tree, 5 s later SIGKILL for the rest",
        "Next": WATCH["next"],
    }


def test_a_deadline_of_another_day_has_its_date(clisup: Run, daemon: FakeDaemon, noon: float) -> None:
    timer = {"phase": "turn", "limit_s": 90_000.0, "fires_in_s": 86_400.0, "warns_in_s": None}
    answer(daemon, WATCH | {"timers": [timer]})
    assert rows(clisup("status", "--why", "3f2a").out)["Timers"] == (
        "turn, limit 1 d 1 h: fires at 2026-01-03 12:00:00, in 1 d"
    )


def test_a_deadline_that_is_reached_is_now(clisup: Run, daemon: FakeDaemon) -> None:
    timer = {"phase": "model", "limit_s": 180.0, "fires_in_s": -0.01, "warns_in_s": -36.0}
    answer(daemon, WATCH | {"timers": [timer]})
    assert rows(clisup("status", "--why", "3f2a").out)["Timers"] == "model, limit 3 min: fires now"


def test_without_a_timer_or_a_look_the_page_says_so(clisup: Run, daemon: FakeDaemon) -> None:
    answer(daemon, WATCH | {"phase": "blocked", "timers": [], "evidence": None, "windows_left": 1, "probed": False})
    page = rows(clisup("status", "--why", "3f2a").out)
    assert page["Phase"] == "blocked: the disk accepts no writes, so the timers are frozen"
    assert page["Timers"] == "none is armed"
    assert page["Evidence"] == "the process tree has not been checked"


def test_a_tool_that_was_not_looked_at_yet_is_told_its_windows(clisup: Run, daemon: FakeDaemon) -> None:
    answer(daemon, WATCH | {"evidence": None, "windows_left": 1})
    assert rows(clisup("status", "--why", "3f2a").out)["Evidence"] == (
        "the process tree has not been checked; if it works, it gets 1 more window"
    )


def test_a_tree_that_did_nothing_is_said_so(clisup: Run, daemon: FakeDaemon) -> None:
    answer(daemon, WATCH | {"evidence": WATCH["evidence"] | {"grew": False}, "windows_left": 0})
    assert rows(clisup("status", "--why", "3f2a").out)["Evidence"].endswith(
        ": no work seen (20 s ago); if it works, it gets 0 more windows"
    )


def test_a_phase_of_a_later_daemon_is_shown_as_it_is(clisup: Run, daemon: FakeDaemon) -> None:
    answer(daemon, WATCH | {"phase": "dreaming"})
    assert rows(clisup("status", "--why", "3f2a").out)["Phase"] == "dreaming"


@pytest.mark.parametrize(
    ("queue", "said"),
    [
        ([], "nothing, because no turn runs"),
        ([{}], "no turn runs; 1 queued prompt starts as soon as a slot is free"),
        ([{}, {}], "no turn runs; 2 queued prompts start as soon as a slot is free"),
    ],
)
def test_where_nothing_runs_nothing_is_watched(clisup: Run, daemon: FakeDaemon, queue: list[Any], said: str) -> None:
    answer(daemon, None, state="idle", turn_id=None, pid=None, queue=queue)
    ran = clisup("status", "3f2a", "--why")
    assert (ran.code, ran.out) == (0, f"{SESSION} — idle\n      Next: {said}\n")


BUDGET: dict[str, Any] = {
    "limit": {"usd": 2.0, "turns": 5},
    "used": {"usd": None, "tokens": 12, "turns": 5, "wall_s": 1.0, "unpriced": 1},
    "exhausted": "turns",
}


def test_a_budget_that_is_used_up_is_why_nothing_begins(clisup: Run, daemon: FakeDaemon) -> None:
    answer(daemon, None, state="idle", turn_id=None, budget=BUDGET)
    found = rows(clisup("status", "3f2a", "--why").out)
    assert found["Budget"] == "? of 2 USD, 5 of 5 turns (and 1 turn of unknown cost); used up"
    assert found["Next"] == "no turn may start: the budget of 5 turns is used up (5); clisup set raises it"


def test_what_is_left_of_a_budget_stands_beside_the_timers(clisup: Run, daemon: FakeDaemon, noon: float) -> None:
    used = BUDGET["used"] | {"usd": 0.123456, "turns": 1, "unpriced": 0}
    answer(daemon, WATCH, budget=BUDGET | {"used": used, "exhausted": None})
    found = rows(clisup("status", "3f2a", "--why").out)
    assert found["Budget"] == "0.1235 of 2 USD, 1 of 5 turns"
    assert found["Next"] == WATCH["next"]


@pytest.mark.parametrize("watch", [WATCH, None])
def test_json_is_the_watch_verbatim(clisup: Run, daemon: FakeDaemon, watch: dict[str, Any] | None) -> None:
    answer(daemon, watch)
    assert json.loads(clisup("status", "--why", "--json", "3f2a").out) == watch


def test_what_the_daemon_says_cannot_drive_the_terminal(clisup: Run, daemon: FakeDaemon) -> None:
    answer(daemon, WATCH | {"next": "\033[2Jgone"})
    assert "\033" not in clisup("status", "--why", "3f2a").out


def test_without_a_session_the_command_line_is_wrong(clisup: Run) -> None:
    ran = clisup("status", "--why")
    assert (ran.code, ran.out) == (2, "")
    assert "hint: give the beginning of its id: clisup status --why 3f2a" in ran.err


def test_an_unknown_session_is_exit_4(clisup: Run, daemon: FakeDaemon) -> None:
    assert clisup("status", "--why", "dead").code == 4


def test_without_why_a_session_is_shown_as_ever(clisup: Run, daemon: FakeDaemon) -> None:
    assert "Labels: ticket=4711" in clisup("status", "3f2a").out


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 s"), (0.04, "0 s"), (8.24, "8.2 s"), (9.97, "10 s"), (59.4, "59 s"), (59.6, "1 min"), (80, "1 min 20 s"),
        (3600, "1 h"), (3605, "1 h"), (7500, "2 h 5 min"), (90_061, "1 d 1 h"),
    ],
)  # fmt: skip
def test_a_span_is_exact_enough_to_wait_for(seconds: float, text: str) -> None:
    assert span(seconds) == text
