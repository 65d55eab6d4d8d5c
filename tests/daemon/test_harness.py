"""The harness itself: a forked daemon is what a cold one is, it dies with its test, and nothing it leaves goes unseen."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from harness import Harness, until, zygote
from zygote import Zygote

SECRET = "canary-forked-4711"
HOLDS_A_LOCK = """
import fcntl, sys, time
lock = open(sys.argv[1], "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
time.sleep(600)
"""
LIKE = ("Umask", "Uid", "Gid", "SigBlk", "SigIgn", "SigCgt", "CapEff", "NoNewPrivs", "Seccomp")


def face(daemon: Harness) -> dict[str, Any]:
    """What /proc shows of a daemon, without what differs from one to the next."""
    proc = Path(f"/proc/{daemon.pid}")
    status = dict(line.split(":\t", 1) for line in (proc / "status").read_text().splitlines())
    links = [os.readlink(path) for path in (proc / "fd").iterdir()]
    return {
        **{name: status[name] for name in LIKE},
        "limits": (proc / "limits").read_text(),
        "cwd": os.readlink(proc / "cwd"),
        "session": os.getsid(daemon.pid) == os.getpgid(daemon.pid) == daemon.pid,
        "files": sorted(link.replace(str(daemon.root), "ROOT").partition(":[")[0] for link in links),
        "stdio": [os.readlink(proc / "fd" / str(number)).replace(str(daemon.root), "ROOT") for number in range(3)],
        "cgroup": (proc / "cgroup").read_text(),
        "hidden": os.stat(proc / "environ").st_uid == 0,
    }


def test_a_forked_daemon_looks_like_one_that_was_executed(serve: Callable[..., Harness]) -> None:
    forked, cold = (serve(cold=cold, env={"GITHUB_TOKEN": SECRET}) for cold in (False, True))
    until(lambda: face(forked) == face(cold), lambda: f"\n{face(forked)}\n{face(cold)}", 10)  # connections come and go
    for daemon in (forked, cold):
        assert SECRET.encode() not in Path(f"/proc/{daemon.pid}/environ").read_bytes()
    dropped = [daemon.call("backend/env", name="demo") for daemon in (forked, cold)]
    assert str(dropped[0]).replace(str(forked.root), "") == str(dropped[1]).replace(str(cold.root), "")
    assert "GITHUB_TOKEN" in str(dropped[0])
    cmdlines = [Path(f"/proc/{daemon.pid}/cmdline").read_bytes() for daemon in (forked, cold)]
    assert [b"zygote.py" in words for words in cmdlines] == [True, False]  # two ways were compared


def test_a_forked_daemon_restarts_in_place_by_execution(serve: Callable[..., Harness]) -> None:
    daemon = serve(env={"PASSED": "passed-on-4711"}, demo={"pass_env": ["PASSED"]})
    before = daemon.identity()
    daemon.call("daemon/restart")
    daemon.await_successor(before["instance_id"])
    assert daemon.identity()["pid"] == before["pid"]
    assert b"clisup" in Path(f"/proc/{daemon.pid}/cmdline").read_bytes().split(b"\0")
    assert daemon.new().ask("@env PASSED")["text"].endswith("PASSED: present")


def test_ends_are_told_as_popen_tells_them(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    assert daemon.process is not None and daemon.process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        daemon.process.wait(0.01)
    daemon.kill()
    assert daemon.process.poll() == daemon.process.wait() == -signal.SIGKILL
    daemon.process.kill()  # no error, and no signal to another's pid
    assert not Path(f"/proc/{daemon.pid}").exists(), "it is reaped"
    daemon.start()
    assert daemon.stop() == 0
    daemon.config.write_text("not toml")
    assert daemon.launch().wait(30) == 78
    assert "Traceback" not in daemon.log.read_text()


def test_a_fault_in_a_forked_daemon_is_seen(serve: Callable[..., Harness]) -> None:
    daemon = serve(start=False)
    process = zygote().fork(daemon.arguments(), daemon.env, daemon.log, before=["tests.daemon.no_such_module:nothing"])
    assert process.wait(30) == 1
    assert "Traceback" in daemon.faults()
    daemon.faults_expected = True


def test_a_daemon_that_answers_nobody_is_killed_at_the_end_of_its_test(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = Harness()
    daemon.start()
    pid = daemon.pid
    monkeypatch.setattr(daemon, "_shut_down", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        daemon.close()
    assert not Path(f"/proc/{pid}").exists() and not daemon.root.exists()


@pytest.mark.parametrize("trace", ["marker", "keeper"])
def test_what_is_left_behind_fails_the_test_and_is_ended(trace: str) -> None:
    daemon = Harness()
    daemon.start()
    session = daemon.new()
    session.ask("hello")
    daemon.settle_s = 0.2
    env = {"CLISUP_SESSION": session.id} if trace == "marker" else {}
    words = (
        [sys.executable, "-c", HOLDS_A_LOCK, str(daemon.state / f"sessions/{session.id}/runs/1/keeper.lock")]
        if trace == "keeper"
        else ["sleep", "600"]
    )
    stray = subprocess.Popen(words, env={"PATH": os.environ["PATH"], **env}, start_new_session=True)
    until(lambda: stray.pid in daemon.leftovers())  # the keeper of the turn may still be ending
    with pytest.raises(AssertionError, match="left behind"):
        daemon.close()
    assert stray.wait(30) == -signal.SIGKILL


def test_a_fault_in_the_log_fails_the_test() -> None:
    daemon = Harness()
    daemon.start()
    with daemon.log.open("a") as log:
        log.write('{"event": "a fault inside the daemon", "exception": "Traceback (most recent call last)"}\n')
    with pytest.raises(AssertionError, match="inside the daemon"):
        daemon.close()


ABANDONED = """
import os, sys, time
sys.path.insert(0, {here!r})
from harness import Harness
daemon = Harness()
daemon.start()
from harness import zygote
print(daemon.root, daemon.pid, zygote().pid, flush=True)
time.sleep(600)
"""


def test_daemons_end_with_the_tests_that_had_them_forked() -> None:
    """As when a run of the tests is killed: nobody closes anything."""
    here = str(Path(__file__).parent)
    tests = subprocess.Popen([sys.executable, "-c", ABANDONED.format(here=here)], stdout=subprocess.PIPE)
    assert tests.stdout is not None
    with tests.stdout:
        root, *pids = tests.stdout.readline().decode().split()
    watched = [os.pidfd_open(int(pid)) for pid in pids]
    tests.kill()
    tests.wait()
    for fd in watched:
        assert select.select([fd], [], [], 40)[0], "it outlives those who asked for it"
        os.close(fd)
    subprocess.run(["rm", "-r", root], check=True)


def links_of(pid: int) -> list[str]:
    """Return what the descriptors of a process are, without those that it closes meanwhile."""
    found = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(os.readlink(path))
    return found


def test_a_zygote_forks_side_by_side_and_no_descriptor_is_shared(serve: Callable[..., Harness]) -> None:
    daemons = [serve(start=False) for _ in range(3)]
    for daemon in daemons:
        daemon.process = daemon.launch()
    for daemon in daemons:
        until(daemon._serves)
    daemons[1].kill()
    assert [daemon.process.poll() for daemon in daemons if daemon.process] == [None, -signal.SIGKILL, None]
    daemons[1].start()
    roots = [str(daemon.root) for daemon in daemons]
    for daemon in daemons:
        links = " ".join(links_of(daemon.pid))
        assert [root in links for root in roots] == [root == str(daemon.root) for root in roots]


def test_a_zygote_runs_nothing_of_its_own() -> None:
    made = Zygote()
    try:
        daemon = Harness()
        assert made.fork(["version"], daemon.env, daemon.log).wait(30) == 0
        status = Path(f"/proc/{made.pid}/status").read_text()
        assert "Threads:\t1\n" in status
        daemon.close()
    finally:
        made.close()
