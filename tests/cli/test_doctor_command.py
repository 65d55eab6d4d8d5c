"""`clisup doctor`: by the daemon or without one, for people and for programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_daemon import FakeDaemon

from clisup.ops.doctor import MACHINE_CHECKS

Run = Callable[..., Any]
FINDINGS = [
    {"check": "kernel", "status": "ok", "detail": "6.1", "fix": "", "backend": None},
    {"check": "cgroup", "status": "warn", "detail": "none", "fix": "delegate one", "backend": None},
    {"check": "executable", "status": "fail", "detail": "absent \x1b[31m", "fix": "install it", "backend": "claude"},
]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, socket_path: Path) -> Path:
    """Nothing of the tester's own is looked at."""
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLISUP_STATE_DIR", str(tmp_path / "state"))
    return tmp_path


def configure(home: Path, text: str) -> str:
    path = home / "c.toml"
    path.write_text(text)
    return str(path)


def test_the_daemon_is_asked_and_its_findings_are_shown_by_group_with_what_to_do(
    clisup: Run, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    daemon.handlers["backend/check"] = lambda peer, params: FINDINGS
    ran = clisup("doctor", "claude")
    assert ran.code == 1
    assert daemon.calls("backend/check") == [{"name": "claude", "cwd": os.getcwd()}]
    lines = ran.out.splitlines()
    assert lines[0] == "Machine" and lines[1] == "  ok    kernel      6.1"
    assert [line.strip() for line in lines if "->" in line] == ["-> delegate one", "-> install it"]
    assert "claude" in lines and lines[-1] == "1 fail, 1 warn"
    assert "\x1b" not in ran.out


def test_programs_get_the_findings_as_they_are_and_warnings_are_no_failure(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.handlers["backend/check"] = lambda peer, params: FINDINGS[:2]
    ran = clisup("doctor", "--json", "--cwd", "/tmp")
    assert (ran.code, json.loads(ran.out)) == (0, FINDINGS[:2])
    assert daemon.calls("backend/check") == [{"cwd": "/tmp"}]
    daemon.handlers["backend/check"] = lambda peer, params: FINDINGS[:1]
    assert clisup("doctor").out.endswith("\nno problems\n")


def test_without_a_daemon_the_command_looks_itself_and_says_so(clisup: Run, home: Path) -> None:
    ran = clisup("doctor", "demo", "--json", "--cwd", str(home))
    found = json.loads(ran.out)
    assert [one["check"] for one in found if one["backend"] is None] == [n for n, _ in MACHINE_CHECKS if n != "notify"]
    by_name = {one["check"]: one for one in found}
    assert by_name["daemon"]["status"] == "warn" and by_name["daemon"]["fix"] == "start it: clisup start"
    assert by_name["version"]["detail"].startswith("1.0.0")
    assert by_name["configuration"]["detail"].endswith("all defaults")
    assert not (home / "state").exists()


def test_a_daemon_that_hangs_and_one_that_left_its_socket_are_told_apart(
    clisup: Run, home: Path, socket_path: Path
) -> None:
    socket_path.touch()
    found = {one["check"]: one for one in json.loads(clisup("doctor", "demo", "--json").out)}
    assert found["daemon"]["status"] == "warn" and "the socket is left from a dead daemon" in found["daemon"]["detail"]
    (home / "state").mkdir(mode=0o700)
    held = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
    argv = [sys.executable, "-c", held, str(home / "state" / "daemon.lock")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline()
        found = {one["check"]: one for one in json.loads(clisup("doctor", "demo", "--json").out)}
    assert (
        found["daemon"]["status"] == "fail" and f"process {holder.pid} holds {home}/state" in found["daemon"]["detail"]
    )


def test_a_configuration_that_cannot_be_used_is_a_finding(clisup: Run, home: Path) -> None:
    for text in ("[daemon]\nsocet = 'x'\n", "[backends.demo]\npass_env = ['LD_PRELOAD']\n"):
        ran = clisup("doctor", "--json", "--config", configure(home, text))
        (problem,) = [one for one in json.loads(ran.out) if one["check"] == "configuration"]
        assert (ran.code, problem["status"]) == (1, "fail") and problem["fix"]
    assert clisup("doctor", "--config", f"{home}/absent.toml").code == 1


def test_a_backend_that_nobody_configured_is_an_error(clisup: Run, home: Path) -> None:
    ran = clisup("doctor", "nope")
    assert ran.code == 69 and "configured are: anthropic-api, claude, " in ran.err


# -- drift of names ---------------------------------------------------------------------------------------------------


def cli(home: Path, version: str, code: str) -> str:
    """A script that stands in for claude, with an npm package's sources beside it; the configuration that names it."""
    (home / "package.json").write_text("{}")
    (home / "bundle.js").write_text(code)
    script = home / "claude"
    script.write_text(f"#!/bin/sh\necho '{version} (Claude Code)'\n")
    script.chmod(0o755)
    return configure(home, f"[backends.claude]\ncommand = ['{script}']\n")


def test_names_that_no_list_knows_are_listed_and_new_ones_are_flagged(clisup: Run, home: Path) -> None:
    config = cli(home, "2.1.329", "process.env.ANTHROPIC_API_KEY;process.env.STRANGE_MODE;process.env.ODD_API_KEY")
    first = clisup("doctor", "--drift", "claude", "--config", config)
    assert first.code == 0, first.err
    assert "3 names, 2 of them unknown to the lists" in first.out and "this is the first check" in first.out
    assert (
        "named like a credential or an address: 1\n  ODD_API_KEY" in first.out
        and "others: 1\n  STRANGE_MODE" in first.out
    )
    assert "reading" in first.err and "claude 2.1.329" in first.out

    config = cli(home, "2.1.400", "process.env.STRANGE_MODE;process.env.NOVEL_TOKEN;process.env.CLAUDE_NOVEL")
    for _ in range(2):
        found = json.loads(clisup("doctor", "--drift", "claude", "--config", config, "--json").out)
        assert (found["new"], found["unknown"]) == (["NOVEL_TOKEN"], ["NOVEL_TOKEN", "STRANGE_MODE"])
        assert found["since"]["version"] == "2.1.329"
        assert found["counts"] == {"found": 3, "unknown": 2, "new": 1}
        assert found["read"] == {"files": 2, "bytes": sum(os.path.getsize(home / name) for name in ("claude", "bundle.js")),
                                 "complete": True}  # fmt: skip
    shown = clisup("doctor", "--drift", "claude", "--config", config).out
    assert "new since 2.1.329, checked " in shown and "): 1" not in shown


def test_a_check_that_was_done_silences_the_warning_of_the_lists(clisup: Run, home: Path) -> None:
    config = cli(home, "2.2.0", "process.env.STRANGE_MODE")

    def word() -> str:
        found = json.loads(clisup("doctor", "claude", "--json", "--config", config).out)
        return str(next(one["status"] for one in found if one["check"] == "scrub lists"))

    assert word() == "warn"
    clisup("doctor", "--drift", "claude", "--config", config)
    assert word() == "ok"


def test_a_version_out_of_range_is_when_one_wants_to_look(clisup: Run, home: Path) -> None:
    config = cli(home, "9.0.0", "process.env.STRANGE_MODE")
    assert json.loads(clisup("doctor", "--drift", "claude", "--json", "--config", config).out)["version"] == "9.0.0"


def test_a_state_directory_that_refuses_costs_only_the_memory(clisup: Run, home: Path) -> None:
    (home / "state").write_text("a file")
    ran = clisup("doctor", "--drift", "demo")
    assert ran.code == 0 and "DEMO_CLI_HOME" in ran.out
    assert "cannot save this check for the next one" in ran.err


def test_what_cannot_be_looked_at_is_an_error(clisup: Run, home: Path) -> None:
    config = configure(home, "[backends.claude]\ncommand = ['/nowhere/claude']\n")
    assert clisup("doctor", "--drift", "claude", "--config", config).code == 69
    assert clisup("doctor", "claude", "--drift", "claude").code == 2


def test_where_the_working_directory_is_gone_the_rest_is_looked_at(
    clisup: Run, daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.handlers["backend/check"] = lambda peer, params: FINDINGS[:2]
    leave(tmp_path, monkeypatch)
    ran = clisup("doctor", "--json")
    assert (ran.code, json.loads(ran.out)) == (0, FINDINGS[:2])
    assert ran.err == "clisup: cannot tell the working directory, because it is gone; the other checks run without it\n"
    assert daemon.calls("backend/check") == [{}]
    assert clisup("doctor", "-C", "below").code == 2


def test_what_needs_the_working_directory_says_that_it_is_gone(
    clisup: Run, daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(tmp_path, monkeypatch)
    words = "clisup: cannot tell the working directory, because it is gone\n  hint: cd elsewhere, or "
    assert clisup("run", "-b", "demo", "hi") == (2, "", f"{words}-C DIRECTORY\n")
    assert clisup("debug", "bundle") == (2, "", f"{words}-o with a whole path\n")
    clisup("run", "-b", "demo", "-C", "/tmp", "hi")
    assert [params["cwd"] for params in daemon.calls("session/new")] == ["/tmp"]


def leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be in a directory that is no more."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
