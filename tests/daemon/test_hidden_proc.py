"""A daemon on a hardened machine: /proc is mounted with hidepid= (proc(5)) and shows neither the daemon, nor keepers, nor init.

The daemons here run as root without capabilities, which sees of /proc what a plain user would.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import Harness, children_of, until
from session_probe import SessionProbe

pytestmark = [
    pytest.mark.cold,
    pytest.mark.skipif(
        os.geteuid() != 0 or not shutil.which("unshare"), reason="only root can mount a /proc of its own"
    ),
]
ENTER = """
mount -t proc -o hidepid={level},gid=65533 proc /proc &&
{more}
exec setpriv --bounding-set=-all --inh-caps=-all -- "$@"
"""
NO_CGROUPS = "mount -t tmpfs tmpfs /sys/fs/cgroup &&"
KNOCK = """
import ctypes, socket
{first}
s = socket.socket(socket.AF_UNIX)
s.settimeout(20)
s.connect({socket!r})
try:
    s.sendall(b'{{"id":1,"method":"session/list"}}\\n')
except BrokenPipeError:
    pass
print(s.recv(65536).decode())
"""
UNDUMPABLE = "ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)"


class Hidden(Harness):
    """One whose daemon sees such a /proc."""

    level, more = 2, ""

    def argv(self) -> list[str]:
        enter = ENTER.format(level=self.level, more=self.more)
        return ["unshare", "--mount", "sh", "-c", enter, "sh", *super().argv()]


@pytest.fixture
def hidden() -> Iterator[Callable[..., Harness]]:
    """Start such daemons; prove at the end that each left nothing behind."""
    started: list[Harness] = []

    def start(level: int, more: str = "", **tables: object) -> Harness:
        daemon = Hidden(cold=True, **tables)
        daemon.level, daemon.more = level, more
        started.append(daemon)
        daemon.start()
        return daemon

    yield start
    for daemon in started:
        daemon.close()


@pytest.mark.fault(42)
@pytest.mark.parametrize("level", [1, 2, 4])
def test_a_client_is_served_while_a_turn_runs_and_a_tool_is_not(
    hidden: Callable[..., Harness], tmp_path: Path, level: int
) -> None:
    daemon = hidden(level)
    session = daemon.new()
    for first in ("", UNDUMPABLE):
        script = tmp_path / "knock.py"
        script.write_text(KNOCK.format(first=first, socket=daemon.socket))
        go = tmp_path / f"go{len(first)}"
        turn = session.prompt(f"@bash until [ -e {go} ]; do sleep 0.01; done; {sys.executable} {script} 2>&1")
        session.await_event("tool_use", turn_id=turn)
        with daemon.wire() as another:
            assert another.call("daemon/status")["daemon"]["running"] == 1
        go.touch()
        assert session.end_of(turn)["outcome"] == "completed"
        assert "permission_denied" in session.events("tool_result", turn_id=turn)[0]["content"]


def test_doctor_says_that_processes_are_hidden(hidden: Callable[..., Harness]) -> None:
    findings = {each["check"]: each for each in hidden(2).call("backend/check", name="demo")}
    assert findings["processes"]["status"] == "warn" and "gid=" in findings["processes"]["fix"]


@pytest.mark.parametrize("level", [1, 2])
def test_a_live_turn_is_interrupted_by_the_daemon_after_the_one_that_was_killed(
    hidden: Callable[..., Harness], level: int
) -> None:
    daemon = hidden(level, demo={"mode": "live"})
    session = daemon.new()
    turn = session.prompt("partial\n@stall")
    session.await_event("content_delta", text="partial")
    daemon.restart()
    assert session.call("interrupt") == {"turn_id": turn, "outcome": "interrupted"}
    assert session.ask("@text on")["text"] == "on"
    assert len(session.events("process_started")) == 1


def test_a_tool_that_proc_hides_ends_with_its_turn_where_there_is_no_cgroup(
    hidden: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = hidden(2, NO_CGROUPS)
    session = daemon.new()
    script = tmp_path / "hide.py"
    script.write_text(
        f"import ctypes, os, time\n{UNDUMPABLE}\nos.setsid()\n"
        f"open({str(tmp_path / 'new')!r}, 'w').write(str(os.getpid()))\n"
        f"os.rename({str(tmp_path / 'new')!r}, {str(tmp_path / 'pid')!r})\ntime.sleep(600)\n"
    )
    turn = session.prompt(f"@bash env -i {sys.executable} -I -S {script}")
    until((tmp_path / "pid").exists)
    pid = int((tmp_path / "pid").read_text())
    session.call("interrupt", mode="kill")
    assert session.end_of(turn)["outcome"] == "interrupted"
    until(lambda: not Path(f"/proc/{pid}").exists())
    (exited,) = session.events("process_exited")
    assert pid in [each["pid"] for each in exited["survivors"]]


@pytest.mark.fault(15)
def test_a_silent_tool_that_works_is_seen_to_work(hidden: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = hidden(2, timeouts={"tool_idle": 1.5})
    session = daemon.new()
    turn = session.prompt(f"@bash until [ -e {tmp_path}/go ]; do :; done; echo worked")
    credited = session.await_event("watchdog", action="credited")
    (tmp_path / "go").touch()
    assert credited["evidence"]["grew"] and credited["evidence"]["processes"] >= 2
    assert session.end_of(turn)["outcome"] == "completed"


def started_without_the_zygote(daemon: Harness, prompt: str) -> tuple[SessionProbe, str]:
    """A turn whose keeper the daemon has started itself: it had no zygote in that moment."""
    for _ in range(20):
        os.kill(until(daemon.keeper_zygote), signal.SIGKILL)
        session = daemon.new()
        turn = session.prompt(prompt)
        if until(lambda session=session: session.get()["keeper_pid"]) in children_of(daemon.pid):
            return session, turn
        session.call("interrupt", mode="kill")
    raise AssertionError("there was always a zygote")


def test_keepers_of_the_daemon_before_a_restart_in_place_leave_no_zombie(
    hidden: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = hidden(2)
    session, turn = started_without_the_zygote(daemon, f"@wait-file {tmp_path}/go\nbye")
    before = daemon.identity()["instance_id"]
    daemon.call("daemon/restart")
    daemon.await_successor(before)
    (tmp_path / "go").touch()
    assert session.end_of(turn)["outcome"] == "completed"
    until(lambda: set(children_of(daemon.pid)) <= {daemon.keeper_zygote()})


@pytest.mark.fault(42)
@pytest.mark.parametrize("restarted", [False, True])
def test_a_tool_that_lowers_the_daemons_limit_is_refused_all_the_same(
    hidden: Callable[..., Harness], tmp_path: Path, restarted: bool
) -> None:
    daemon = hidden(2)
    session = daemon.new()
    # Below a parent that is hidden, too, nothing but the limit tells what it is.
    script = tmp_path / "knock.py"
    script.write_text(
        f"import ctypes, os, resource, time\nresource.prlimit({daemon.pid}, resource.RLIMIT_RTTIME, (1, 1))\n"
        f"{UNDUMPABLE}\nif pid := os.fork():\n    os._exit(os.waitpid(pid, 0)[1])\n"
        f"while not os.path.exists({str(tmp_path / 'go')!r}):\n    time.sleep(0.01)\n"
        + KNOCK.format(first="", socket=daemon.socket)
    )
    turn = session.prompt(f"@bash {sys.executable} -I {script} 2>&1")
    until(lambda: resource.prlimit(daemon.pid, resource.RLIMIT_RTTIME) == (1, 1))
    if restarted:
        before = daemon.identity()["instance_id"]
        daemon.call("daemon/restart")
        daemon.await_successor(before)
    (tmp_path / "go").touch()
    session.end_of(turn)
    assert "permission_denied" in session.events("tool_result")[0]["content"]
