"""`clisup fleet`, `--on`, `BOX/SESSION` and `--fleet`, over fake daemons and a fake ssh: no network, and no ssh."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_daemon import OTHER, SESSION, SILENCE, FakeDaemon
from test_status import STATUS

from clisup.cli.fleet import asking
from clisup.cli.on import LOCAL, REFUSED
from clisup.cli.root import GROUPS
from clisup.client import raw
from clisup.errors import KINDS, UsageError
from clisup.fleet.book import MAX_BOXES
from clisup.fleet.boxes import Address, check_name, parse_address, said, ssh_words

Run = Callable[..., Any]

SSH = """#!/bin/sh
for word; do host=$command; command=$word; done
case $host in
  refuses) printf 'first \\033[31mline\\nsecond\\n\\nthird\\nfourth\\n' >&2; exit 255;;
  hangs) exec sleep 600;;
  old) echo 'clisup: cannot read the command line, because no such option: --stdio' >&2; exit 2;;
  bare) echo 'sh: clisup: not found' >&2; exit 127;;
  silent) exit 1;;
esac
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, daemon: FakeDaemon) -> Path:
    """A home of the test's own, whose ssh is fake."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.delenv("CLISUP_ON", raising=False)
    monkeypatch.setattr(raw, "BOX_ANSWER_S", 1.0)
    daemon.handlers["daemon/status"] = lambda peer, params: STATUS
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    return tmp_path


@pytest.fixture
def far(tmp_path: Path, clisup: Run) -> Iterator[FakeDaemon]:
    """The daemon of the box `far`, which is on this machine."""
    fake = FakeDaemon(tmp_path / "far.sock")
    fake.handlers["daemon/status"] = lambda peer, params: STATUS
    assert clisup("fleet", "add", "far", f"unix://{fake.path}").code == 0
    yield fake
    fake.close()


# -- the list -----------------------------------------------------------------------------------------------------------


def test_boxes_are_added_listed_and_removed(clisup: Run, home: Path) -> None:
    assert clisup("fleet", "list").out.startswith("No boxes in ")
    assert clisup("fleet", "add", "build", "ssh://anna@build:2222/run/clisup.sock").code == 0
    assert clisup("fleet", "add", "gpu", "ssh://gpu", "--clisup", ".venv/bin/clisup").code == 0
    assert clisup("fleet", "list").out.splitlines() == [
        "BOX    URL                                    CLISUP",
        "build  ssh://anna@build:2222/run/clisup.sock  clisup",
        "gpu    ssh://gpu                              .venv/bin/clisup",
    ]
    assert [box["name"] for box in json.loads(clisup("fleet", "list", "--json").out)] == ["build", "gpu"]
    assert clisup("fleet", "remove", "build").out == "removed build\n"
    assert [box["name"] for box in json.loads(clisup("fleet", "list", "--json").out)] == ["gpu"]
    ran = clisup("fleet", "remove", "build")
    assert ran.code == 2 and "no box is called 'build': known are here, gpu" in ran.err


def test_the_list_is_readable_by_its_owner_alone(clisup: Run, home: Path) -> None:
    clisup("fleet", "add", "build", "ssh://build")
    assert (home / "config" / "clisup" / "fleet.json").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in (home / "config" / "clisup").iterdir()) == ["fleet.json"]


def test_a_taken_name_and_too_many_boxes_are_refused(clisup: Run, home: Path) -> None:
    clisup("fleet", "add", "build", "ssh://build")
    assert "there is one of this name: ssh://build" in clisup("fleet", "add", "build", "ssh://other").err
    rows = [{"name": f"box-{number}", "url": "ssh://h"} for number in range(MAX_BOXES)]
    (home / "config" / "clisup" / "fleet.json").write_text(json.dumps({"boxes": rows}))
    ran = clisup("fleet", "add", "more", "ssh://more")
    assert (ran.code, f"{MAX_BOXES} are the most" in ran.err) == (2, True)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"boxes": [{"name": 1}]}', '{"boxes": [{"name": "x", "url": "ssh://-oProxyCommand=x"}]}', "\0", "[" * 99999]
)  # fmt: skip
def test_a_damaged_list_is_named_and_nothing_is_asked(clisup: Run, home: Path, daemon: FakeDaemon, text: str) -> None:
    path = home / "config" / "clisup" / "fleet.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    ran = clisup("status", "--on", "build")
    assert (ran.code, ran.out) == (78, "")
    assert f"cannot use the list of boxes {path}" in ran.err
    assert daemon.requests == []


@pytest.mark.parametrize("name", ["", "Build", "a b", "-x", "x" * 33, "here", "cafe", "3f2a", "ä", "a/b"])
def test_a_name_that_is_no_box_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot use the name"):
        check_name(name)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("ssh://build", Address("build", "", None, "")),
        ("ssh://anna@build.example.org:2222", Address("build.example.org", "anna", 2222, "")),
        ("ssh://build/run/user/1000/clisup.sock", Address("build", "", None, "/run/user/1000/clisup.sock")),
        ("ssh://anna@[fe80::1]:22/s%20s", Address("fe80::1", "anna", 22, "/s s")),
        ("unix:///run/clisup.sock", Address("", "", None, "/run/clisup.sock")),
    ],
)
def test_an_address_is_taken_apart(url: str, address: Address) -> None:
    assert parse_address(url) == address


@pytest.mark.parametrize(
    "url",
    [
        "build", "ssh://", "ssh:///path", "http://build", "tcp://build:1", "ssh://-oProxyCommand=x", "ssh://-l@build", "ssh://a:b@build",
        "ssh://build:0", "ssh://build:70000", "ssh://build:x", "ssh://build:", "ssh://bu ild", "ssh://build\n", "ssh://$(x)",
        "ssh://build;x", "unix://", "unix://host/path", "unix:///" + "x" * 200, "ssh://build/" + "x" * 200, "x" * 600, "ssh://[::1",
        "unix:///a%00b", "ssh://build/%0a",
    ],
)  # fmt: skip
def test_an_address_that_ssh_must_not_get_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        parse_address(url)


def test_ssh_gets_no_option_from_an_address_and_asks_nothing() -> None:
    words = ssh_words(parse_address("ssh://anna@build:2222/run/a b.sock"), "my clisup")
    assert words[-3:] == ["--", "build", "env 'CLISUP_SOCKET=/run/a b.sock' 'my clisup' socket --stdio"]
    assert {"BatchMode=yes", "ConnectTimeout=10", "2222", "anna"} <= set(words)
    assert ssh_words(parse_address("ssh://build"), "clisup")[-1] == "clisup socket --stdio"


def test_the_words_of_ssh_are_three_short_lines_without_control_characters() -> None:
    assert said(b"a\x1b[31m\r\nb\n\nc\nd\n") == "a?[31m; b; c"
    assert len(said(b"x" * 10_000)) == 200
    assert said("\u202eleft \u00e9".encode() + b"\xff") == "?left \u00e9\ufffd"


# -- one box ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("status", "--json", "--on", "far"), ("--on", "far", "status", "--json")])
def test_a_box_is_named_before_or_after_the_command(
    clisup: Run, daemon: FakeDaemon, far: FakeDaemon, words: tuple[str, ...]
) -> None:
    assert json.loads(clisup(*words).out) == STATUS
    assert [method for method, _ in far.requests] == ["initialize", "daemon/status"]
    assert daemon.requests == []
    assert "CLISUP_ON" not in os.environ


def test_the_variable_names_a_box_for_all_commands_and_here_overrides_it(
    clisup: Run, daemon: FakeDaemon, far: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLISUP_ON", "far")
    assert clisup("status").code == clisup("sessions").code == 0
    assert (len(far.requests), daemon.requests) == (4, [])
    assert clisup("status", "--on", "here").code == 0
    assert (len(far.requests), len(daemon.requests)) == (4, 2)


@pytest.mark.parametrize("words", [("--on", "nix", "status"), ("close", "nix/3f2a")])
def test_an_unknown_box_is_a_usage_error_that_lists_the_known_ones(
    clisup: Run, daemon: FakeDaemon, far: FakeDaemon, words: tuple[str, ...]
) -> None:
    ran = clisup(*words)
    assert (ran.code, ran.out) == (2, "")
    assert "no box is called 'nix': known are here, far" in ran.err
    assert daemon.requests == far.requests == []
    assert KINDS["box_unknown"].exit_code == 2


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("refuses", "because ssh says: first ?[31mline; second; third\n"),
        ("hangs", "because no answer came within 1 s\n"),
        ("old", "hint: the clisup of box is too old for this: upgrade it there"),
        ("bare", "hint: clisup is not on the PATH of ssh there"),
        ("silent", "because ssh ended with exit code 1 and no message"),
    ],
)
@pytest.mark.parametrize("command", ["status", "sessions", "logs --all", "run -C /tmp hi", "export 3f2a", "gc", "stop"])
def test_a_box_that_does_not_answer_is_an_error_and_never_this_machine(
    clisup: Run, daemon: FakeDaemon, host: str, words: str, command: str
) -> None:
    clisup("fleet", "add", "box", f"ssh://{host}")
    ran = clisup(*command.split(), "--on", "box")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.startswith("clisup: cannot reach box box, ") and words in ran.err
    assert daemon.requests == []


def test_a_box_that_says_that_it_is_not_there_does_not_open_the_files_of_this_machine(
    clisup: Run, far: FakeDaemon
) -> None:
    def answer(peer: Any, params: Any) -> None:
        error = {"code": -32603, "message": "gone \x1b[2J", "data": {"kind": "daemon_not_running"}}
        peer.send({"jsonrpc": "2.0", "id": peer.asked, "error": error})
        return SILENCE  # type: ignore[return-value]

    far.handlers["session/list"] = answer
    ran = clisup("sessions", "--on", "far")
    assert (ran.code, ran.out) == (1, "")
    assert "from disk" not in ran.err and "\x1b" not in ran.err


def test_no_ssh_on_the_path_is_said(clisup: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clisup("fleet", "add", "box", "ssh://build")
    monkeypatch.setenv("PATH", "/nowhere")
    ran = clisup("status", "--on", "box")
    assert (ran.code, "ssh is not on the PATH" in ran.err) == (3, True)


def test_a_session_may_be_named_with_its_box(clisup: Run, daemon: FakeDaemon, far: FakeDaemon) -> None:
    far.handlers["session/close"] = lambda peer, params: {}
    assert clisup("close", f"far/{SESSION}", f"far/{SESSION}").code == 0
    assert ("session/close", {"session_id": SESSION}) in far.requests
    assert daemon.requests == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("close", "far/3f2a", "3f2b"), "cannot tell on which box '3f2b' is"),
        (("close", "far/3f2a", "here/3f2b"), "cannot reach two boxes at once: far and here"),
        (("--on", "here", "close", "far/3f2a"), "cannot reach two boxes at once: here and far"),
        (("--on", "here", "close", "--on", "far", "3f2a"), "cannot reach two boxes at once: here and far"),
        (("--on", "far", "status", "--fleet"), "cannot ask one box and all boxes"),
    ],
)
def test_one_command_asks_one_box(
    clisup: Run, daemon: FakeDaemon, far: FakeDaemon, words: tuple[str, ...], reason: str
) -> None:
    ran = clisup(*words)
    assert (ran.code, reason in ran.err) == (2, True), ran.err
    assert daemon.requests == far.requests == []


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_command_of_this_machine_refuses_a_box(
    clisup: Run, far: FakeDaemon, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {"config": ["check"], "debug": ["bundle"], "record": ["3f2a", "x"], "replay": ["x"]}.get(name, [])
    for ran in (clisup("--on", "far", name, *words), clisup(name, *words, "--on", "far")):
        assert (ran.code, REFUSED[name] in ran.err) == (2, True), ran.err
    monkeypatch.setenv("CLISUP_ON", "far")
    assert REFUSED[name] in clisup(name, *words).err
    assert far.requests == []


def test_a_command_that_asks_no_daemon_ignores_the_variable_and_refuses_the_option(
    clisup: Run, far: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert clisup("version", "--on", "far").code == 2
    monkeypatch.setenv("CLISUP_ON", "far")
    assert clisup("version").code == clisup("fleet", "list").code == 0


def test_every_command_is_thought_through() -> None:
    names = {name for group in GROUPS.values() for name in group}
    assert set(REFUSED) | set(LOCAL) <= names
    assert not set(REFUSED) & set(LOCAL)


def test_a_new_session_on_a_box_needs_a_directory_of_the_box(clisup: Run, far: FakeDaemon) -> None:
    for words in ((), ("-C", "src")):
        ran = clisup("run", "--on", "far", *words, "hello")
        assert (ran.code, "cannot tell the directory on box far" in ran.err) == (2, True)
    assert "session/new" not in [method for method, _ in far.requests]


@pytest.mark.parametrize("command", ["status", "status --json", "sessions", "logs --all", "approvals"])
def test_without_a_box_nothing_of_the_fleet_is_loaded(daemon: FakeDaemon, far: FakeDaemon, command: str) -> None:
    daemon.handlers["approval/list"] = lambda peer, params: {"approvals": []}
    code = (
        "import sys\nfrom clisup.cli.main import main\n"
        f"assert main({command.split()!r}) == 0\n"
        "print([m for m in sys.modules if 'fleet' in m or m == 'subprocess' and 'logs' not in sys.argv])"
    )
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert [name for name in json.loads(done.stdout.splitlines()[-1].replace("'", '"')) if "fleet" in name] == []
    assert far.requests == []


# -- all boxes ----------------------------------------------------------------------------------------------------------


def use_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")


def test_all_boxes_are_one_table_and_each_failure_is_one_line(clisup: Run, daemon: FakeDaemon, far: FakeDaemon) -> None:
    for host in ("refuses", "hangs", "old"):
        clisup("fleet", "add", f"x-{host}", f"ssh://{host}")
    ran = clisup("sessions", "--fleet")
    head, *rows = ran.out.splitlines()
    assert head.startswith("BOX   SESSION   STATUS")
    assert sorted(row.split()[0] for row in rows) == ["far", "here"]
    assert [line.partition(":")[0] for line in ran.err.splitlines()] == ["x-refuses", "x-hangs", "x-old"]
    assert "\x1b" not in ran.err
    assert ran.code == 0


def test_json_has_the_sessions_or_the_error_of_each_box(clisup: Run, daemon: FakeDaemon, far: FakeDaemon) -> None:
    clisup("fleet", "add", "gone", "ssh://refuses")
    for command in ("sessions", "status"):
        here, there, gone = json.loads(clisup(command, "--fleet", "--json").out)["boxes"]
        assert (here["box"], there["box"], gone["box"]) == ("here", "far", "gone")
        assert here["sessions"][0]["session_id"] == there["sessions"][0]["session_id"]
        assert (gone["error"]["kind"], "sessions" in gone) == ("box_away", False)


def test_this_machine_has_no_row_without_a_daemon_and_if_no_box_answers_the_command_fails(
    clisup: Run, daemon: FakeDaemon
) -> None:
    clisup("fleet", "add", "gone", "ssh://refuses")
    daemon.close()
    ran = clisup("status", "--fleet", "--json")
    assert [box["box"] for box in json.loads(ran.out)["boxes"]] == ["gone"]
    assert ran.code == 3


def test_without_a_box_fleet_says_how_to_add_one(clisup: Run, daemon: FakeDaemon) -> None:
    ran = clisup("status", "--fleet")
    assert (ran.code, "clisup fleet add NAME ssh://HOST" in ran.err) == (2, True)


def test_a_box_that_stops_answering_does_not_hold_the_others_up(
    clisup: Run, daemon: FakeDaemon, far: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "PATIENCE_S", 1.0)
    far.handlers["daemon/status"] = lambda peer, params: SILENCE
    ran = clisup("status", "--fleet")
    assert ran.code == 0
    assert "far: no answer came within 1 s" in ran.err


def test_at_most_sixteen_boxes_are_asked_at_once() -> None:
    running, most = [], []

    def ask(path: str) -> str:
        running.append(path)
        most.append(len(running))
        time.sleep(0.02)
        running.remove(path)
        return path

    names = [f"x{number}" for number in range(60)]
    answers = asking.ask_all(names, ask)
    assert [answer.value for answer in answers] == [f"box:{name}" for name in names]
    assert max(most) <= asking.AT_ONCE


HOSTILE: list[Any] = [
    None, [], {"sessions": None}, {"sessions": [None]}, {"sessions": [{"session_id": 7}]}, {"sessions": [{}]},
    {"sessions": [{"session_id": SESSION, "state": "idle"}]}, {"sessions": {"a": 1}},
]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "answer"),
    [*((command, answer) for command in ("status", "sessions", "approvals") for answer in HOSTILE),
     *(("logs", answer) for answer in HOSTILE[:4])],
)  # fmt: skip
def test_a_malformed_answer_is_the_error_of_its_box(
    clisup: Run, daemon: FakeDaemon, far: FakeDaemon, command: str, answer: Any
) -> None:
    daemon.handlers["approval/list"] = lambda peer, params: {"approvals": []}
    for method in ("daemon/status", "session/list", "approval/list"):
        far.handlers[method] = lambda peer, params: answer
    ran = clisup(command, "--fleet")
    assert ran.code == 0, ran.err
    assert "far: cannot use the answer of box far, because it has another form" in ran.err


def test_what_a_hostile_box_says_reaches_no_terminal_unescaped(
    clisup: Run, daemon: FakeDaemon, far: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_a_terminal(monkeypatch)
    evil = "\x1b[2J\u202e\nevil"
    row = daemon.summary() | {
        "title": evil,
        "cwd": evil,
        "backend": evil,
        "model": evil,
        "state": evil,
        "labels": {evil: evil},
    }
    far.handlers["session/list"] = lambda peer, params: {"sessions": [row], "next_cursor": None}
    far.handlers["daemon/status"] = lambda peer, params: (
        STATUS | {"sessions": [row], "daemon": STATUS["daemon"] | {"state": evil, "version": evil}}
    )
    daemon.events = [{"session_id": SESSION, "seq": 1, "ts": "2026-01-01T00:00:00Z", "type": "message", "text": "hi"}]
    for words in (("status",), ("sessions",), ("sessions", "-o", "title,labels,backend"), ("status", "-q")):
        ran = clisup(*words, "--fleet")
        assert ran.code == 0
        assert "\x1b" not in ran.out + ran.err and "\u202e" not in ran.out + ran.err
        assert "\nevil" not in ran.out


def test_tables_of_boxes_fit_into_80_columns(
    clisup: Run, daemon: FakeDaemon, far: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_a_terminal(monkeypatch)
    far.handlers["session/list"] = lambda peer, params: {
        "sessions": [daemon.summary() | {"session_id": OTHER, "title": "word " * 40, "cwd": "/srv/" + "x" * 90}]
    }
    for command in ("sessions", "status"):
        lines = clisup(command, "--fleet").out.splitlines()
        assert any(line.startswith("BOX") for line in lines)
        assert [line for line in lines if len(line) > 80] == []


def test_an_approval_of_a_box_has_its_number_there(clisup: Run, daemon: FakeDaemon, far: FakeDaemon) -> None:
    asked = {
        "session_id": SESSION, "seq": 5, "approval_id": "1:0", "tool_name": "Bash", "input": {"command": "make"},
        "requested_at": "2026-01-01T00:00:00Z", "type": "approval_requested",
    }  # fmt: skip
    daemon.handlers["approval/list"] = lambda peer, params: {"approvals": []}
    far.handlers["approval/list"] = lambda peer, params: {"approvals": [asked]}
    far.handlers["approval/respond"] = lambda peer, params: {}
    head, row = clisup("approvals", "--fleet").out.splitlines()
    assert (head.split()[:3], row.split()[:3]) == (["BOX", "#", "ID"], ["far", "1", "3f2a0000/1:0"])
    assert clisup("approvals", "--fleet", "allow", "1").code == 2
    assert clisup("approvals", "allow", "far/1").code == 0
    assert clisup("approvals", "deny", "far/3f2a0000/1:0").code == 0
    given = [params for method, params in far.requests if method == "approval/respond"]
    assert [(g["session_id"], g["approval_id"], g["decision"]) for g in given] == [
        (SESSION, "1:0", "allow"),
        (SESSION, "1:0", "deny"),
    ]
    assert "approval/respond" not in [method for method, _ in daemon.requests]
    (_, box) = json.loads(clisup("approvals", "--fleet", "--json").out)["boxes"]
    assert box == {"box": "far", "approvals": [asked]}


def test_a_test_of_the_fleet_shows_versions_and_fails_with_the_first_box_that_is_away(
    clisup: Run, far: FakeDaemon
) -> None:
    ran = clisup("fleet", "test")
    assert (ran.code, ran.out.splitlines()[1].split()[:2]) == (0, ["far", "0.1.0"])
    clisup("fleet", "add", "gone", "ssh://refuses")
    ran = clisup("fleet", "test")
    assert (ran.code, ran.err.startswith("gone: ssh says: first")) == (3, True)
    (seen,) = json.loads(clisup("fleet", "test", "far", "--json").out)
    assert (seen["box"], seen["version"]) == ("far", "0.1.0")
