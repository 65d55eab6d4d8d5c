"""sessions, interrupt, close, env, backends, stop and serve."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from fake_daemon import SESSION, FakeDaemon, Peer
from test_status import CLAUDE, DEMO

from clisup.cli.commands import daemon as daemon_commands
from clisup.cli.options import MAX_COUNT, MAX_SECONDS, MAX_USD
from clisup.cli.views.terminal import clip, cost, count, duration, plain, size, table, tokens
from clisup.daemon import start
from clisup.errors import UsageError
from clisup.model.sessions.budget import Budget

Run = Callable[..., Any]


def test_sessions_are_listed_over_all_pages(clisup: Run, daemon: FakeDaemon) -> None:
    other = SESSION.replace("3f2a0000", "77770000")

    def pages(peer: Peer, params: dict[str, Any]) -> Any:
        if "cursor" in params:
            return {"sessions": [daemon.summary(session_id=other)], "next_cursor": None}
        return {"sessions": [daemon.summary()], "next_cursor": SESSION}

    daemon.handlers["session/list"] = pages
    rows = clisup("sessions").out.splitlines()
    assert rows[0].split()[:3] == ["SESSION", "STATUS", "SINCE"]
    assert [row.split()[0] for row in rows[1:]] == ["3f2a0000", "77770000"]
    assert [json.loads(line)["session_id"] for line in clisup("sessions", "--json").out.splitlines()] == [
        SESSION,
        other,
    ]


def test_sessions_of_one_state_are_asked_for(clisup: Run, daemon: FakeDaemon) -> None:
    clisup("sessions", "--state", "failed")
    assert daemon.calls("session/list")[0]["state"] == "failed"


def test_sessions_with_labels_are_asked_for(clisup: Run, daemon: FakeDaemon) -> None:
    clisup("sessions", "--label", "a=b=c", "--label", "d=")
    assert daemon.calls("session/list")[0]["labels"] == {"a": "b=c", "d": ""}
    assert "not of the form K=V" in clisup("sessions", "--label", "a").err


def test_no_sessions_are_said_so(clisup: Run, daemon: FakeDaemon) -> None:
    assert clisup("sessions", "--state", "closed").out == "No sessions.\n"
    daemon.handlers["session/list"] = lambda peer, params: {"sessions": []}
    assert clisup("sessions").out == "No open sessions (clisup sessions --all lists closed ones).\n"


def numbered(daemon: FakeDaemon, number: int, **fields: Any) -> dict[str, Any]:
    rest = {"state": "idle", "phase": None, "turn_id": None, "queue": [], "last_event": None, "next_timer": None}
    opened = f"2026-01-{number:02d}T00:00:00Z"
    return daemon.summary(
        session_id=f"{number:08d}-0000-4000-8000-000000000000", created_at=opened, **{**rest, **fields}
    )


def test_all_sessions_are_the_open_and_the_closed_ones_newest_first(clisup: Run, daemon: FakeDaemon) -> None:
    rows = {None: [numbered(daemon, 3), numbered(daemon, 1)], "closed": [numbered(daemon, 2, state="closed")]}
    daemon.handlers["session/list"] = lambda peer, params: {"sessions": rows[params.get("state")]}
    lines = clisup("sessions", "--all").out.splitlines()[1:]
    assert [line.split()[:2] for line in lines] == [["00000003", "idle"], ["00000002", "closed"], ["00000001", "idle"]]
    assert clisup("sessions", "--all", "--state", "idle").code == 2


@pytest.mark.parametrize("columns", [60, 80, 100, 200])
def test_a_list_of_sessions_fits_the_terminal_with_the_title_last(
    clisup: Run, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    last = {"turn_id": "t1", "outcome": "failed", "error_kind": "authentication", "ended_at": "2026-01-01T00:00:00Z"}
    rows = [numbered(daemon, n, last_turn=last, title="Rewrite the parser " * 4, branch="main") for n in (2, 1)]
    daemon.handlers["session/list"] = lambda peer, params: {"sessions": rows}
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    head, *lines = clisup("sessions").out.splitlines()
    assert max(map(len, [head, *lines])) <= columns
    assert head.split()[:3] == ["SESSION", "STATUS", "SINCE"] and head.split()[-1] == "TITLE"
    assert all("failed: authentication  " in line and "Rewrite the" in line for line in lines[:2])
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "xterm")
    assert "\033[31mfailed: authentication" in clisup("sessions").out


def test_chosen_columns_of_sessions_are_those_of_status(clisup: Run, daemon: FakeDaemon) -> None:
    assert clisup("sessions", "-o", "id,state").out == f"ID{'':36}STATE\n{SESSION}  running\n"
    assert clisup("sessions", "-o", "nope").code == clisup("sessions", "-o", "id", "--json").code == 2


@pytest.mark.parametrize(
    ("args", "sent"),
    [(("3f2a",), {"mode": "graceful"}), (("--kill", "3f2a", "t7"), {"mode": "kill", "turn_id": "t7"})],
)
def test_interrupt_waits_for_the_end_and_says_it(
    clisup: Run, daemon: FakeDaemon, args: tuple[str, ...], sent: dict[str, str]
) -> None:
    daemon.handlers["session/interrupt"] = lambda peer, params: {"turn_id": "t7", "outcome": "timed_out"}
    assert clisup("interrupt", *args).out == "turn t7: timed out\n"
    assert daemon.calls("session/interrupt") == [{"session_id": SESSION, **sent}]


def test_close_says_what_it_closed(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.handlers["session/close"] = lambda peer, params: {"ok": True}
    assert clisup("close", "3f2a", SESSION).out == f"session {SESSION}: closed\n"
    assert daemon.calls("session/close") == [{"session_id": SESSION}]


def closable(daemon: FakeDaemon, *rows: dict[str, Any], refused: str = "") -> None:
    def close(peer: Peer, params: dict[str, Any]) -> Any:
        if params["session_id"] == refused:
            raise UsageError("cannot close it, because the disk is full", kind="storage_failed")
        return {"ok": True}

    daemon.handlers |= {
        "session/list": lambda peer, params: {"sessions": [] if params.get("state") else list(rows)},
        "session/get": lambda peer, params: next(row for row in rows if row["session_id"] == params["session_id"]),
        "session/close": close,
    }


def test_close_goes_on_after_one_that_fails_and_ends_with_its_exit_code(clisup: Run, daemon: FakeDaemon) -> None:
    rows = [numbered(daemon, n) for n in (1, 2, 3)]
    closable(daemon, *rows, refused=rows[1]["session_id"])
    ran = clisup("close", "00000001", "dead", "00000002", "00000003")
    assert ran.code == 4
    assert ran.out == "".join(f"session {rows[n]['session_id']}: closed\n" for n in (0, 2))
    assert "no session matches 'dead'" in ran.err and "the disk is full" in ran.err


class Typed(io.StringIO):
    """What a person types on a terminal."""

    def isatty(self) -> bool:
        return True


def test_close_all_asks_on_a_terminal_and_needs_yes_elsewhere(clisup: Run, daemon: FakeDaemon) -> None:
    rows = [numbered(daemon, 1), numbered(daemon, 2, turn_id="t1", state="running")]
    closable(daemon, *rows)
    ran = clisup("close", "--all")
    assert (ran.code, daemon.calls("session/close")) == (2, []) and "hint: give --yes" in ran.err
    for typed, closed in (("n\n", 0), ("y\n", 2)):
        ran = clisup("close", "--all", stdin=Typed(typed))
        assert ran.code == 0 and "Close 2 sessions (1 of them at work)?" in ran.err + ran.out
        assert len(daemon.calls("session/close")) == closed
    assert clisup("close", "--all", "--yes").code == 0
    assert len(daemon.calls("session/close")) == 4


def test_close_idle_closes_what_rests_for_so_long_and_nothing_that_works(clisup: Run, daemon: FakeDaemon) -> None:
    long_ago, day = {"outcome": "completed", "error_kind": None, "ended_at": "2026-01-01T00:00:00Z"}, 86_400.0
    rows = [
        numbered(daemon, 1, last_turn=long_ago, age_s=900 * day), numbered(daemon, 2, last_turn=None, age_s=3 * day),
        numbered(daemon, 3, last_turn=None, age_s=day), numbered(daemon, 4, turn_id="t1", age_s=9 * day, idle_s=8 * day),
        numbered(daemon, 5, approvals=1, age_s=9 * day), numbered(daemon, 6, queue=[{}], age_s=9 * day),
    ]  # fmt: skip
    closable(daemon, *rows)
    assert clisup("close", "--idle", "2d").code == 0
    assert [int(call["session_id"][:8]) for call in daemon.calls("session/close")] == [1, 2]
    assert clisup("close", "--idle", "9000d").out == "No open session is idle for so long.\n"
    assert "is no age" in clisup("close", "--idle", "long").err


def test_a_session_that_has_begun_a_turn_meanwhile_is_not_closed_as_idle(clisup: Run, daemon: FakeDaemon) -> None:
    row = numbered(daemon, 1, last_turn=None, age_s=900_000.0)
    closable(daemon, row)
    daemon.handlers["session/get"] = lambda peer, params: row | {"turn_id": "t2"}
    ran = clisup("close", "--idle", "2d")
    assert (ran.code, daemon.calls("session/close")) == (0, [])


@pytest.mark.parametrize("args", [(), ("--all", "3f2a"), ("--all", "--idle", "2d"), ("--idle", "2d", "3f2a")])
def test_close_takes_sessions_or_one_of_all_and_idle(clisup: Run, daemon: FakeDaemon, args: tuple[str, ...]) -> None:
    ran = clisup("close", *args)
    assert (ran.code, daemon.requests) == (2, [])


def test_a_title_is_set_and_an_empty_one_is_not(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.handlers["session/set_title"] = lambda peer, params: {"title": params["title"]}
    assert clisup("set", "3f2a", "--title", "Rewrite the parser").out == "title: Rewrite the parser\n"
    assert daemon.calls("session/set_title") == [{"session_id": SESSION, "title": "Rewrite the parser"}]
    ran = clisup("set", "3f2a", "--title", " ")
    assert ran.code == 2 and "cannot set an empty title" in ran.err


@pytest.mark.parametrize(
    ("args", "sent"), [((), {}), (("--at-turn", "t2"), {"at_turn": "t2"}), (("--at-turn", "2"), {"at_turn": "t2"})]
)
def test_fork_prints_the_new_sessions_id_and_nothing_else(
    clisup: Run, daemon: FakeDaemon, args: tuple[str, ...], sent: dict[str, str]
) -> None:
    new = SESSION.replace("3f2a0000", "77770000")
    daemon.handlers["session/fork"] = lambda peer, params: {"session_id": new, "native_session_id": new}
    assert clisup("fork", "3f2a", *args).out == f"{new}\n"
    assert daemon.calls("session/fork") == [{"session_id": SESSION, **sent}]


def test_a_turn_that_is_none_is_not_asked_for(clisup: Run, daemon: FakeDaemon) -> None:
    assert clisup("fork", "3f2a", "--at-turn", "last").code == 2
    assert daemon.calls("session/fork") == []


def test_delete_looks_all_sessions_up_before_it_deletes_one(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.handlers["session/delete"] = lambda peer, params: {"ok": True}
    assert clisup("delete", "3f2a", "dead").code == 4
    assert daemon.calls("session/delete") == []
    assert clisup("delete", "3f2a", SESSION).out == f"session {SESSION}: deleted\n"
    assert daemon.calls("session/delete") == [{"session_id": SESSION}]


def test_an_open_session_is_not_deleted(clisup: Run, daemon: FakeDaemon) -> None:
    def open_(peer: Peer, params: dict[str, Any]) -> Any:
        raise UsageError("cannot delete it, because it is open", kind="session_busy", hint="close it first")

    daemon.handlers["session/delete"] = open_
    assert clisup("delete", "3f2a")[:2] == (75, "")


def test_all_closed_sessions_are_deleted_and_no_other(clisup: Run, daemon: FakeDaemon) -> None:
    other = SESSION.replace("3f2a0000", "77770000")
    closed = [SESSION, other]

    def listed(peer: Peer, params: dict[str, Any]) -> Any:
        assert params["state"] == "closed"
        return {"sessions": [daemon.summary(session_id=session) for session in closed], "next_cursor": None}

    def delete(peer: Peer, params: dict[str, Any]) -> Any:
        if params["session_id"] == other:
            raise UsageError("cannot find it", kind="session_not_found")  # retention was faster
        return {"ok": True}

    daemon.handlers |= {"session/list": listed, "session/delete": delete}
    assert clisup("delete", "--all-closed").out == "1 closed sessions deleted\n"
    closed.clear()
    assert clisup("delete", "--all-closed").out == "No closed sessions.\n"


@pytest.mark.parametrize("args", [(), ("--all-closed", "3f2a")])
def test_delete_takes_sessions_or_all_closed_ones(clisup: Run, daemon: FakeDaemon, args: tuple[str, ...]) -> None:
    ran = clisup("delete", *args)
    assert (ran.code, daemon.requests) == (2, [])
    assert "hint: see clisup delete --help" in ran.err


def test_env_shows_names_and_rules(clisup: Run, daemon: FakeDaemon) -> None:
    report = {
        "kept": [{"name": "PATH", "rule": "common.allow: PATH"}],
        "dropped": [{"name": "AWS_SECRET_ACCESS_KEY", "rule": "common.scrub: AWS_*"}],
        "set": [],
        "lists": [{"list": "claude.allow", "source": "claude 2.1.329", "date": "2026-11-20"}],
    }
    daemon.handlers["backend/env"] = lambda peer, params: report
    out = clisup("env", "demo").out
    assert "Kept from the daemon's environment: 1" in out
    assert "AWS_SECRET_ACCESS_KEY  common.scrub: AWS_*" in out
    assert "claude.allow  claude 2.1.329  2026-11-20" in out
    assert json.loads(clisup("env", "demo", "--json").out) == report
    assert daemon.calls("backend/env")[0] == {"name": "demo"}


def test_backends_say_why_one_cannot_be_used(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.handlers["backend/list"] = lambda peer, params: [CLAUDE, DEMO]
    out = clisup("backends").out
    assert "no (>=2.1)" in out
    assert [line for line in out.splitlines() if "cannot find claude" in line] == [out.splitlines()[-1]]
    assert max(map(len, out.splitlines()[:-2])) <= 80  # the reasons are below the table, not in it
    assert json.loads(clisup("backends", "--json").out) == [CLAUDE, DEMO]


@pytest.mark.parametrize("mode", ["drain", "detach", "kill"])
def test_stop_waits_until_the_daemon_is_gone(
    clisup: Run, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    def goes(seconds: float) -> None:
        monkeypatch.undo()
        daemon.stop()

    monkeypatch.setattr(daemon_commands.time, "sleep", goes)
    daemon.handlers["daemon/shutdown"] = lambda peer, params: {"ok": True}
    daemon.handlers["daemon/status"] = lambda peer, params: {"daemon": {"running": 0}}
    monkeypatch.setenv("CLISUP_SOCKET", daemon.path)
    ran = clisup("stop", "--mode", mode)
    assert (ran.code, ran.out) == (0, "stopped\n")
    assert "pid 123" in ran.err
    assert daemon.calls("daemon/shutdown") == [{"mode": mode}]


def test_a_stop_says_how_many_turns_still_run_whenever_that_changes(
    clisup: Run, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [3, 3, 1, 0]

    def status(peer: Peer, params: dict[str, Any]) -> Any:
        return {"daemon": {"running": left.pop(0)}}

    monkeypatch.setattr(daemon_commands, "_nobody_listens", lambda path: not left)
    monkeypatch.setattr(daemon_commands, "COUNT_EVERY_S", 0)
    daemon.handlers["daemon/shutdown"] = lambda peer, params: {"ok": True}
    daemon.handlers["daemon/status"] = status
    ran = clisup("stop", "--json")
    assert ran.err.splitlines() == [
        "stopping the daemon (pid 123); 3 turns run: they may end first, and clisup stop --mode kill ends them now",
        "1 turn runs still",
        "no turn runs any more",
    ]
    told = json.loads(ran.out)
    assert (told["pid"], told["mode"], told["running"]) == (123, "drain", 3) and told["seconds"] >= 0


def test_stop_does_not_wait_for_ever(clisup: Run, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_commands, "STOP_TIMEOUT_S", 0.05)
    daemon.handlers["daemon/shutdown"] = lambda peer, params: {"ok": True}
    ran = clisup("stop")
    assert ran.code == 75
    assert "clisup stop --mode kill" in ran.err


def test_serve_hands_its_flags_to_the_daemon(clisup: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr(start, "serve", lambda flags: given.append(tuple(flags)) or 0)
    assert clisup("serve", "--config", "c", "--socket", "s", "--state-dir", "d", "--log-format", "json").code == 0
    assert clisup("serve").code == 0
    assert clisup("serve", "--check").code == 0
    assert given == [
        ("c", "s", "d", "json", False, None),
        (None, None, None, "auto", False, None),
        (None, None, None, "auto", True, None),
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.04, "0.0 s"),
        (8.24, "8.2 s"),
        (59, "59 s"),
        (60, "1 min"),
        (3725, "1 h 2 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations_are_for_people(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_numbers_are_for_people() -> None:
    assert [size(n) for n in (None, 0, 1023, 1536, 5 * 1024**3, 3 * 1024**4)] == [
        "-", "0 B", "1023 B", "1.5 KiB", "5.0 GiB", "3.0 TiB",
    ]  # fmt: skip
    assert [count(n) for n in (None, 999, 1000, 999_949, 999_950)] == ["-", "999", "1.0k", "999.9k", "1.0M"]
    assert (cost(None), cost(0.01)) == ("-", "$0.0100")
    assert (tokens(None), tokens({"output_tokens": None}), tokens({"output_tokens": 0})) == ("-", "-", "0")


def test_control_characters_have_no_effect_but_lines_and_tabs_stay() -> None:
    assert plain("a\tb\nc\033\x9b\r\x7f") == "a\tb\nc" + "\N{REPLACEMENT CHARACTER}" * 4
    assert clip("a\n  b\tc") == "a b c"


def test_a_table_aligns_its_columns_and_leaves_no_spaces_behind() -> None:
    assert table(["A", "LONG"], [["xxx", ""], ["", "y"]]) == "A    LONG\nxxx  -\n-    y"


def test_steer_prints_the_turn_that_the_prompt_was_said_to(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.handlers["session/prompt"] = lambda peer, params: {"turn_id": "t4", "seq": 9, "delivery": "steered"}
    assert clisup("steer", "3f2a", "Leave the tests alone.") == (0, "t4\n", "")
    sent = {"session_id": SESSION, "prompt": "Leave the tests alone.", "when_busy": "steer"}
    assert daemon.calls("session/prompt") == [sent]


@pytest.mark.parametrize(
    ("events", "turn"),
    [
        ([("turn_completed", "t4", {"prompt_ids": ["x", "p"]})], "t4"),
        ([("turn_completed", "t4", {"prompt_ids": ["x"]}), ("turn_started", "t5", {"prompt_ids": ["p"]})], "t5"),
        ([("turn_completed", "t4", {}), ("turn_started", "t5", {})], "t4"),
        ([("turn_completed", "t4", {"prompt_ids": ["x"]}), ("prompt_accepted", "t6", {"prompt_id": "p"})], "t6"),
    ],
)
def test_steer_prints_the_turn_that_took_the_prompt(
    clisup: Run, daemon: FakeDaemon, events: list[Any], turn: str
) -> None:
    def prompt(peer: Peer, params: dict[str, Any]) -> Any:
        seq = daemon.last_seq(SESSION)
        for type_, turn_id, fields in events:
            daemon.emit(type_, turn_id, outcome="completed", delivery="queued", run=1, **fields)
        return {"turn_id": "t4", "seq": seq, "delivery": "steered", "prompt_id": "p"}

    daemon.handlers["session/prompt"] = prompt
    ran = clisup("steer", "3f2a", "Leave the tests alone.")
    assert (ran.code, ran.out) == (0, f"{turn}\n")
    assert ran.err == "sent into turn t4; waiting until the CLI takes it\n"
    assert clisup("steer", "--no-wait", "3f2a", "Hello.") == (0, "t4\n", "")


def test_steer_fails_where_the_cli_drops_the_prompt(clisup: Run, daemon: FakeDaemon) -> None:
    def prompt(peer: Peer, params: dict[str, Any]) -> Any:
        daemon.emit("notice", code="steer_dropped", message="prompt p was not taken: it was interrupted")
        return {"turn_id": "t4", "seq": 0, "delivery": "steered", "prompt_id": "p"}

    daemon.handlers["session/prompt"] = prompt
    ran = clisup("steer", "3f2a", "Hello.")
    assert (ran.code, ran.out) == (1, "") and "the CLI did not take the prompt" in ran.err


def test_steer_says_where_nothing_ran(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.handlers["session/prompt"] = lambda peer, params: {"turn_id": "t4", "seq": 9, "delivery": "delivered"}
    assert clisup("steer", "3f2a", "Hello.").err == "no turn was running: the prompt has a turn of its own\n"


def test_set_says_from_when_on_each_setting_holds(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.handlers["session/set_model"] = lambda peer, params: {"applied": "now", "value": "opus"}
    daemon.handlers["session/set_permission_mode"] = lambda peer, params: {"applied": "next_turn", "value": "plan"}
    ran = clisup("set", "3f2a", "--model", "opus", "--permission-mode", "plan")
    assert ran.out == "permission mode plan: from the next turn on\nmodel opus: from now on\n"
    assert daemon.calls("session/set_model") == [{"session_id": SESSION, "model": "opus"}]
    assert clisup("set", "3f2a").code == 2


def test_set_changes_the_limits_that_are_named_and_keeps_the_others(clisup: Run, daemon: FakeDaemon) -> None:
    used = {"usd": 0.25, "tokens": 1200, "turns": 3, "wall_s": 12.5, "unpriced": 0}
    before = {"limit": {"usd": 1.0, "tokens": 1000}, "used": used, "exhausted": "tokens"}
    daemon.handlers["session/get"] = lambda peer, params: daemon.summary(budget=before)
    daemon.handlers["session/set_budget"] = lambda peer, params: {
        "budget": {"limit": params["budget"], "used": used, "exhausted": None} if params["budget"] else None
    }
    assert clisup("set", "3f2a", "--budget-tokens", "5000").out == "budget: 0.25 of 1 USD, 1200 of 5000 tokens\n"
    assert clisup("set", "3f2a", "--no-budget").out == "budget: none\n"
    sent = [call["budget"] for call in daemon.calls("session/set_budget")]
    assert sent == [{"usd": 1.0, "tokens": 5000}, {}]
    assert clisup("set", "3f2a", "--no-budget", "--budget-usd", "1").code == 2


@pytest.mark.parametrize(
    "wrong",
    [
        ("--budget-turns", "0"),
        ("--budget-tokens", "-1"),
        ("--budget-usd", "nan"),
        ("--budget-usd", "1e400"),
        ("--budget-wall-s", "inf"),
        ("--permission-mode", ""),
        ("--model", "\udcff"),
    ],
)
def test_set_changes_nothing_where_one_of_its_options_is_wrong(
    clisup: Run, daemon: FakeDaemon, wrong: tuple[str, str]
) -> None:
    ran = clisup("set", "3f2a", "--model", "x", "--permission-mode", "plan", "--budget-usd", "1", *wrong)
    assert (ran.code, daemon.requests) == (2, [])
    assert "see docs/reference/protocol.md" not in ran.err


def test_run_refuses_a_budget_that_is_no_number_by_the_options_name(clisup: Run, daemon: FakeDaemon) -> None:
    ran = clisup("run", "-b", "demo", "--budget-usd", "nan", "hi")
    assert (ran.code, daemon.requests) == (2, [])
    assert "invalid value for '--budget-usd': nan is no limit" in ran.err


def test_the_bounds_of_a_budgets_options_are_the_daemons() -> None:
    for name, most in (("usd", MAX_USD), ("tokens", MAX_COUNT), ("turns", MAX_COUNT), ("wall_s", MAX_SECONDS)):
        Budget(**{name: most})
        with pytest.raises(ValueError, match="less than or equal"):
            Budget(**{name: most * 2})


@pytest.mark.parametrize("args", [("steer", "3f2a", "\udcff"), ("approvals", "deny", "1:0", "--message", "\udcff")])
def test_words_for_the_model_are_utf_8(clisup: Run, daemon: FakeDaemon, args: tuple[str, ...]) -> None:
    ran = clisup(*args)
    assert (ran.code, daemon.requests) == (2, [])
    assert "because it is not UTF-8\n  hint: convert it first" in ran.err


def test_context_shows_what_fills_it(clisup: Run, daemon: FakeDaemon) -> None:
    usage = {"total_tokens": 47531, "max_tokens": 1000000, "percentage": 5, "model": "m",
             "categories": [{"name": "System prompt", "tokens": 43210, "kind": "used"}]}  # fmt: skip
    daemon.handlers["session/context_usage"] = lambda peer, params: usage
    assert clisup("context", "3f2a").out == "47,531 of 1,000,000 tokens (5 %)\n      43,210  System prompt\n"
    daemon.handlers["session/compact"] = lambda peer, params: {"turn_id": "t2", "outcome": "failed", "text": ""}
    assert clisup("context", "3f2a", "--compact") == (1, "turn t2: failed\n", "")
    assert daemon.calls("session/compact") == [{"session_id": SESSION, "wait": True}]
