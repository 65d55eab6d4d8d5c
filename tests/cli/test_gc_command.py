"""`clisup gc`: what it asks the daemon for, and what it prints."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from fake_daemon import FakeDaemon

Run = Callable[..., Any]
ITEM = {"kind": "trash", "path": "/x/\033[2J", "session_id": None, "bytes": 2048, "reason": "deleted"}
DONE = {"dry_run": False, "items": [ITEM], "bytes": 2048, "failed": [], "more": 0}


@pytest.mark.parametrize(
    ("age", "seconds"),
    [("0", 0.0), ("90s", 90.0), ("5m", 300.0), ("1.5h", 5400.0), ("7d", 604_800.0), ("2w", 1_209_600.0)],
)
def test_an_age_is_a_number_and_a_unit(clisup: Run, daemon: FakeDaemon, age: str, seconds: float) -> None:
    daemon.handlers["daemon/gc"] = lambda peer, params: DONE
    assert clisup("gc", "--older-than", age, "-n").code == 0
    assert daemon.calls("daemon/gc") == [{"dry_run": True, "older_than_s": seconds}]


@pytest.mark.parametrize("age", ["7", "x", "d", "-1d", "1e3d", "", "99999999d", "1.2.3d"])
def test_an_age_that_is_none_is_explained(clisup: Run, daemon: FakeDaemon, age: str) -> None:
    ran = clisup("gc", "--older-than", age)
    assert (ran.code, ran.out) == (2, "") and "is no age: give a number and one of s, m, h, d, w" in ran.err
    assert daemon.calls("daemon/gc") == []


def test_it_prints_what_went_and_how_much_in_all(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.handlers["daemon/gc"] = lambda peer, params: DONE
    out = clisup("gc").out
    assert out.splitlines()[0].split() == ["KIND", "SIZE", "WHY", "PATH"]
    assert out.endswith("\n\nremoved 1 item, 2.0 KiB\n") and "\033" not in out
    assert json.loads(clisup("gc", "--json").out) == DONE


def test_nothing_to_remove_is_said_so(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.handlers["daemon/gc"] = lambda peer, params: DONE | {"items": []}
    assert clisup("gc").out == "Nothing to remove.\n"


def test_what_could_not_be_removed_is_an_error_of_its_own(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.handlers["daemon/gc"] = lambda peer, params: (
        DONE | {"failed": [{"path": "/y", "error": "no rights"}], "more": 2}
    )
    ran = clisup("gc")
    assert ran.code == 1 and ran.err == "clisup: cannot remove /y: no rights\n"
    assert "2 more were found: repeat the command" in ran.out


FOREIGN = [ITEM | {"kind": "socket", "path": f"/tmp/cc-socks/{pid}.sock", "bytes": 0} for pid in range(100, 112)]


def test_dead_sockets_of_other_programs_are_listed_and_said_to_stay(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.handlers["daemon/gc"] = lambda peer, params: DONE | {"items": [], "foreign": FOREIGN}
    out = clisup("gc").out
    assert out.startswith(
        "Nothing to remove.\n\n12 dead sockets of other programs stay (clisup gc --foreign removes them):\n"
    )
    assert out.count("/tmp/cc-socks/") == 10 and out.endswith("and 2 more (--json lists all)\n")
    daemon.handlers["daemon/gc"] = lambda peer, params: DONE | {"foreign": FOREIGN[:1]}
    assert "1 dead socket of another program stays" in clisup("gc").out


def test_dead_sockets_of_other_programs_are_removed_on_request(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.handlers["daemon/gc"] = lambda peer, params: DONE
    assert clisup("gc", "--foreign").code == 0
    assert daemon.calls("daemon/gc") == [{"dry_run": False, "older_than_s": 604_800.0, "foreign": True}]
