"""`clisup start`, the start on demand of `clisup run`, `clisup socket`, and the log of a daemon that is gone."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clisup.host.log_file import LogFile
from tests.fakecli import COMMAND

BOUND_S = 60.0
CONFIG = f"[backends.demo]\ncommand = {json.dumps(COMMAND)}\n"
Done = subprocess.CompletedProcess[str]


def until(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + BOUND_S
    while time.monotonic() < end:
        if found := condition():
            return found
        threading.Event().wait(0.02)
    raise AssertionError("it did not come true in time")


class Home:
    """A home without a daemon. No variable names its socket, as for an ordinary user."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runtime = path / "run"
        self.runtime.mkdir(mode=0o700)
        self.config = path / ".config" / "clisup" / "config.toml"
        self.config.parent.mkdir(parents=True)
        self.config.write_text(CONFIG)
        self.socket = self.runtime / "clisup" / "clisup.sock"
        self.state_dir = path / ".local" / "state" / "clisup"
        self.log = self.state_dir / "daemon.log"
        self.env = {
            "PATH": os.environ["PATH"], "HOME": str(path), "XDG_RUNTIME_DIR": str(self.runtime), "LC_ALL": "C.UTF-8",
        }  # fmt: skip

    def begin(self, *words: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "clisup", *words], env={**self.env, **env}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, *words: str, code: int = 0, **env: str) -> Done:
        process = self.begin(*words, **env)
        out, err = process.communicate(timeout=BOUND_S)
        assert process.returncode == code, (words, out, err)
        return subprocess.CompletedProcess(words, code, out, err)

    def events(self) -> list[str]:
        """The events of the log file."""
        return [json.loads(line)["event"] for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def pid(self) -> int:
        return int(json.loads(self.run("start", "--json").stdout)["pid"])


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    yield home
    if home.socket.exists():
        process = home.begin("stop", "--mode", "kill")
        process.communicate(timeout=BOUND_S)


# -- clisup start


def test_start_returns_once_the_daemon_is_ready_and_says_where_it_is(home: Home) -> None:
    done = home.run("start")
    assert "started the daemon: pid " in done.stdout
    assert f"socket  {home.socket}\n" in done.stdout and f"log     {home.log}\n" in done.stdout
    assert home.run("run", "--no-start", "-b", "demo", "hello").stdout == "You said: hello\n"
    assert "ready" in home.events()


def test_a_daemon_that_runs_is_success(home: Home) -> None:
    first = json.loads(home.run("start", "--json").stdout)
    again = json.loads(home.run("start", "--json").stdout)
    assert (first["started"], again["started"]) == (True, False)
    assert again == {**first, "started": False}
    assert first["log_file"] == str(home.log) and first["unit"] is None
    assert "the daemon runs already" in home.run("start").stdout


def test_the_daemon_has_a_session_of_its_own_and_keeps_no_directory_busy(home: Home) -> None:
    pid = home.pid()
    assert os.getsid(pid) == pid
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert os.readlink(f"/proc/{pid}/fd/2") == str(home.log)


def test_a_daemon_that_ends_at_its_start_gives_its_reason_and_its_exit_code(home: Home) -> None:
    home.socket.parent.mkdir(mode=0o700)
    home.socket.write_text("a file of somebody")
    done = home.run("start", code=78)
    assert "cannot start the daemon, which ended with exit code 78" in done.stderr
    assert "something that is no socket is there" in done.stderr
    home.socket.unlink()
    assert "something that is no socket is there" in home.run("daemon", "log", code=3).stdout


def test_a_wrong_configuration_is_told_before_anything_starts(home: Home) -> None:
    home.config.write_text("[daemon]\ndrain_x = 3\n")
    assert "drain_s" in home.run("start", code=78).stderr
    assert not home.state_dir.exists()


def test_a_state_directory_that_cannot_be_made_is_a_clear_error(home: Home) -> None:
    (home.path / "file").write_text("")
    done = home.run("start", code=69, CLISUP_STATE_DIR=str(home.path / "file" / "state"))
    assert f"cannot make the directory {home.path}/file/state" in done.stderr


def test_start_and_restart_keep_the_log_file(home: Home) -> None:
    home.run("start")
    home.run("daemon", "restart")
    assert home.events().count("ready") == 2


def test_a_unit_that_is_installed_is_started_by_systemd(home: Home) -> None:
    units = home.path / ".config" / "systemd" / "user"
    units.mkdir(parents=True)
    (units / "clisup.service").write_text("[Service]\n")
    asked = home.path / "asked"
    fake = home.path / "bin" / "systemctl"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\necho "$*" >> {asked}\n[ "$2" != start ] || exec {sys.executable} -m clisup serve --socket '
                    f"{home.socket} --state-dir {home.state_dir} --log-file {home.path}/unit.log >/dev/null 2>&1 &\n")  # fmt: skip
    fake.chmod(0o755)
    path = f"{fake.parent}:{os.environ['PATH']}"
    found = json.loads(home.run("start", "--json", PATH=path).stdout)
    assert (found["started"], found["unit"]) == (True, "clisup.service")
    assert asked.read_text().splitlines()[-1] == "--user start clisup.service"
    assert not home.log.exists()


def test_a_unit_whose_manager_does_not_answer_does_not_prevent_a_start(home: Home) -> None:
    units = home.path / ".config" / "systemd" / "user"
    units.mkdir(parents=True)
    (units / "clisup.service").write_text("[Service]\n")
    done = home.run("start")
    assert "clisup.service is installed, but this start goes without it" in done.stderr
    assert "started the daemon" in done.stdout


# -- start on demand


def test_run_starts_the_daemon_and_says_so_in_one_line(home: Home) -> None:
    done = home.run("run", "-b", "demo", "hello")
    assert done.stdout == "You said: hello\n"
    assert f"clisup: no daemon runs, so this command starts it; its log: {home.log}\n" in done.stderr
    again = home.run("run", "-b", "demo", "hello")
    assert "starts it" not in again.stderr


def test_two_runs_at_once_start_one_daemon(home: Home) -> None:
    begun = [home.begin("run", "-b", "demo", f"hello {number}") for number in range(3)]
    for number, process in enumerate(begun):
        out, err = process.communicate(timeout=BOUND_S)
        assert (process.returncode, out) == (0, f"You said: hello {number}\n"), err
    assert home.events().count("ready") == 1


@pytest.mark.parametrize(
    ("words", "env", "config"),
    [
        (["--no-start"], {}, ""),
        ([], {}, "[daemon]\nautostart = false\n"),
        ([], {"CLISUP_SOCKET": "/nonexistent/forwarded.sock"}, ""),
        ([], {"CLISUP_SESSION": "0190f0c0-0000-7000-8000-000000000000"}, ""),
    ],
    ids=["--no-start", "daemon.autostart", "CLISUP_SOCKET", "in a session"],
)
def test_run_starts_nothing(home: Home, words: list[str], env: dict[str, str], config: str) -> None:
    home.config.write_text(config + CONFIG)
    done = home.run("run", *words, "-b", "demo", "hello", code=3, **env)
    assert "cannot reach the daemon" in done.stderr and "clisup start" in done.stderr
    assert not home.state_dir.exists()


def test_a_run_whose_daemon_cannot_start_ends_with_the_reason(home: Home) -> None:
    home.socket.parent.mkdir(mode=0o700)
    home.socket.write_text("a file of somebody")
    assert "something that is no socket is there" in home.run("run", "-b", "demo", "hello", code=78).stderr
    home.socket.unlink()


# -- clisup daemon log


def test_the_log_of_a_killed_daemon_is_read_from_its_file(home: Home) -> None:
    pid = home.pid()
    session = "11111111-2222-4333-8444-555555555555"
    home.run("run", "-b", "demo", "--session", session, "hello")
    os.kill(pid, signal.SIGKILL)
    until(lambda: not os.path.exists(f"/proc/{pid}") or "Z" in Path(f"/proc/{pid}/stat").read_text().split(")")[1][:3])
    with home.log.open("a") as log:
        log.write("Traceback \033[31m of Python\n")
    done = home.run("daemon", "log", code=3)
    assert f"the daemon is not running; its last lines, from {home.log}" in done.stderr
    assert "  ready  " in done.stdout and "\033" not in done.stdout
    assert done.stdout.splitlines()[-1].startswith("Traceback ")
    lines = [json.loads(line) for line in home.run("daemon", "log", "--json", "-n", "2", code=3).stdout.splitlines()]
    assert len(lines) == 2 and lines[-1] == {"event": "Traceback \033[31m of Python"}
    about = home.run("daemon", "log", "--session", "1111", "--json", code=3).stdout.splitlines()
    assert about and all(json.loads(line)["session"] == session for line in about)


def test_without_a_daemon_and_a_log_file_the_error_names_both(home: Home) -> None:
    done = home.run("daemon", "log", code=3)
    assert "cannot reach the daemon" in done.stderr and f"there is no log at {home.log}" in done.stderr


# -- the log file


def test_a_log_file_is_bounded_by_rotation(tmp_path: Path) -> None:
    file = LogFile(str(tmp_path / "log"), limit=1000)
    for number in range(100):
        assert file.send(b"%d " % number + b"x" * 96)
    sizes = sorted(path.stat().st_size for path in tmp_path.iterdir())
    assert len(sizes) == 2 and sizes[-1] <= 1000
    assert (tmp_path / "log").read_text().splitlines()[-1].startswith("99 ")
    assert (tmp_path / "log").stat().st_mode & 0o077 == 0


def test_the_limit_of_the_log_file_is_a_key_that_a_reload_changes(home: Home) -> None:
    home.state_dir.mkdir(parents=True, mode=0o700)
    home.log.write_bytes(b"x" * 70_000 + b"\n")
    home.log.chmod(0o600)
    home.run("start")
    full = home.log.with_name("daemon.log.1")
    assert not full.exists(), "the default limit is larger"
    home.config.write_text(f"[daemon]\nmax_log_bytes = 65536\n{CONFIG}")
    assert "daemon.max_log_bytes" in home.run("daemon", "reload").stdout
    home.run("stop")
    assert full.read_bytes().startswith(b"xxx") and home.log.stat().st_size < 65_536


def test_a_log_file_that_was_removed_is_made_again(tmp_path: Path) -> None:
    file = LogFile(str(tmp_path / "log"), limit=1000)
    file.send(b"one")
    (tmp_path / "log").unlink()
    assert file.send(b"two")
    assert (tmp_path / "log").read_text() == "two\n"


@pytest.mark.fault(89)
@pytest.mark.parametrize("there", [False, True])
def test_a_log_file_that_was_renamed_is_made_again_and_none_is_lost(tmp_path: Path, there: bool) -> None:
    path, old = tmp_path / "log", tmp_path / "log.old"
    file = LogFile(str(path), limit=1000)
    file.send(b"one")
    path.rename(old)
    if there:
        path.write_text("of logrotate\n")
    for number in range(30):
        assert file.send(b"%d " % number + b"x" * 60)
    assert old.read_text() == "one\n"
    lines = [line for name in ("log.1", "log") for line in (tmp_path / name).read_text().splitlines()]
    assert lines[-1].startswith("29 ") and len(lines) > 13


def test_a_log_file_goes_on_as_it_was_while_something_else_has_its_place(tmp_path: Path) -> None:
    path, old = tmp_path / "log", tmp_path / "log.old"
    file = LogFile(str(path), limit=1000)
    path.rename(old)
    path.mkdir()
    sent = [file.send(b"x" * 99) for _ in range(12)]
    assert sent == [True] * 10 + [False] * 2 and path.is_dir()
    path.rmdir()
    assert file.send(b"y") and path.read_text() == "y\n"


@pytest.mark.fault(89)
def test_a_daemon_logs_at_its_path_after_a_rename_and_a_hangup(home: Home) -> None:
    home.run("start")
    old = home.log.with_name("daemon.log.old")
    home.log.rename(old)
    os.kill(json.loads(home.run("status", "--json").stdout)["daemon"]["pid"], signal.SIGHUP)
    until(lambda: home.log.exists() and "reload" in home.log.read_text())
    home.run("stop")


def test_a_log_file_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to(tmp_path / "other")
    with pytest.raises(Exception, match="cannot open the log"):
        LogFile(str(tmp_path / "log"), limit=1000)


def test_a_format_other_than_json_cannot_go_to_a_file(home: Home) -> None:
    assert "JSON" in home.run("serve", "--log-format", "console", "--log-file", "x", code=2).stderr


def test_a_background_job_of_a_terminal_logs_to_the_file(home: Home) -> None:
    child, terminal = pty.fork()
    if child == 0:
        script = f"{sys.executable} -m clisup serve & wait"
        os.execvpe("bash", ["bash", "--norc", "-m", "-c", script], home.env)
    try:
        until(lambda: "ready" in home.events())
        said = os.read(terminal, 4096).decode()
        assert f"the daemon runs in the background, and logs to {home.log}" in said
        assert "ready" not in said
    finally:
        home.run("stop", "--mode", "kill")
        os.waitpid(child, 0)
        os.close(terminal)


# -- clisup socket


def test_socket_prints_the_path_with_and_without_a_daemon(home: Home) -> None:
    assert home.run("socket").stdout == f"{home.socket}\n"
    home.run("start")
    found = json.loads(home.run("socket", "--json").stdout)
    assert found == {"socket": str(home.socket), "state_dir": str(home.state_dir), "answers": True}


def test_socket_falls_back_to_the_state_directory(home: Home) -> None:
    assert home.run("socket", XDG_RUNTIME_DIR="/nonexistent").stdout == f"{home.state_dir}/clisup.sock\n"
    assert home.run("socket", CLISUP_SOCKET="/elsewhere/s").stdout == "/elsewhere/s\n"


# -- a CLI that the shell finds and the daemon does not


def hidden_cli(home: Home) -> str:
    """Start the daemon, then put a `codex` on the PATH that it does not have. Return the PATH of the shell."""
    home.run("start")
    program = home.path / "mine" / "codex"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return f"{program.parent}:{os.environ['PATH']}"


def test_backends_prints_the_daemons_path_and_what_only_the_shell_finds(home: Home) -> None:
    path = hidden_cli(home)
    out = home.run("backends", PATH=path).stdout
    assert f"your shell finds codex at {home.path}/mine/codex, the daemon does not" in out
    assert out.splitlines()[-1] == f"PATH of the daemon: {os.environ['PATH']}"
    assert "your shell" not in home.run("backends").stdout


def test_doctor_says_what_only_the_shell_finds(home: Home) -> None:
    path = hidden_cli(home)
    found = json.loads(home.run("doctor", "codex", "--json", code=1, PATH=path).stdout)
    by_name = {finding["check"]: finding for finding in found}
    assert by_name["PATH"]["detail"] == os.environ["PATH"]
    assert by_name["executable"]["fix"].startswith(
        f"your shell finds codex at {home.path}/mine/codex, the daemon does not"
    )
    assert by_name["log"]["detail"] == f"as json to {home.log}: clisup daemon log"
