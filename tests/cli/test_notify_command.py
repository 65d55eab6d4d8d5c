"""`clisup notify`: the receivers in a table, and what came back of a test message."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fake_daemon import FakeDaemon

Run = Callable[..., Any]
ROW = {
    "name": "hook", "on": ["turn_failed"], "kind": "url", "target": "hooks.example", "format": "json", "signed": True, "labels": {},
    "backends": [], "state": "ok", "failing_since": None, "error": None, "delivered": 3, "failed": 0, "given_up": 0,
}  # fmt: skip
BAD = ROW | {
    "name": "bad",
    "state": "failing",
    "failing_since": "2026-11-24T12:00:00Z",
    "error": "HTTP 503\033[2J",
    "given_up": 2,
}
SENT = {
    "name": "hook",
    "target": "hooks.example",
    "ok": True,
    "detail": "HTTP 200",
    "output": "ok\033[2J\n",
    "duration_s": 0.1,
}


def test_receivers_are_listed_with_what_is_wrong(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.handlers["notify/list"] = lambda peer, params: {"targets": [ROW, BAD]}
    lines = clisup("notify", "list").out.splitlines()
    assert lines[0].split() == ["NAME", "TARGET", "ON", "STATE", "DELIVERED", "GIVEN", "UP"]
    assert lines[1].split() == ["hook", "hooks.example", "turn_failed", "ok", "3", "0"]
    assert lines[3].startswith("bad fails since 2026-11-24T12:00:00Z: HTTP 503") and "\033" not in lines[3]
    assert [json.loads(line) for line in clisup("notify", "list", "--json").out.splitlines()] == [ROW, BAD]


def test_no_receiver_is_said_so(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.handlers["notify/list"] = lambda peer, params: {"targets": []}
    daemon.handlers["notify/test"] = lambda peer, params: {"results": []}
    assert "No [[notify]] table" in clisup("notify", "list").out
    ran = clisup("notify", "test")
    assert ran.code == 2 and "add a table" in ran.err


def test_a_test_message_shows_what_came_back(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.handlers["notify/test"] = lambda peer, params: {"results": [SENT]}
    ran = clisup("notify", "test", "hook")
    assert (
        ran.code == 0
        and ran.out.startswith("ok  hook (hooks.example): HTTP 200, 0.1 s\n    ok")
        and "\033" not in ran.out
    )
    assert daemon.calls("notify/test") == [{"name": "hook"}]
    assert json.loads(clisup("notify", "test", "--json").out) == SENT


def test_a_receiver_that_does_not_take_it_is_exit_code_1(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.handlers["notify/test"] = lambda peer, params: {
        "results": [SENT, SENT | {"ok": False, "detail": "HTTP 503"}]
    }
    ran = clisup("notify", "test")
    assert ran.code == 1 and "failed  hook (hooks.example): HTTP 503" in ran.out
