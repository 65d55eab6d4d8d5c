"""What a killed keeper leaves behind is found though it hides: it left its cgroup, cleared its environment, lost its parents."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from harness import Harness, until
from session_probe import SessionProbe

HIDING = """
import os, sys, time
pid_file, *rest = sys.argv[1:]
if rest != ["hidden"]:
    for line in open("/proc/self/cgroup"):
        try:  # out of the run's cgroup, where that may be written
            open(f"/sys/fs/cgroup{os.path.dirname(line.strip().split(':')[2])}/cgroup.procs", "w").write("0")
        except OSError:
            pass
    for _ in range(2):
        if os.fork():
            os._exit(0)
        os.setsid()
    os.execve(sys.executable, [sys.executable, "-I", "-S", __file__, pid_file, "hidden"], {})
if os.fork() == 0:
    with open(pid_file + ".child.tmp", "w") as file:
        file.write(str(os.getpid()))
    os.rename(pid_file + ".child.tmp", pid_file + ".child")
    while True:
        time.sleep(60)
with open(pid_file + ".tmp", "w") as file:
    file.write(str(os.getpid()))
os.rename(pid_file + ".tmp", pid_file)
while True:
    time.sleep(60)
"""


def hide(session: SessionProbe, tmp_path: Path, name: str, then: str = "@stall") -> list[int]:
    """Have a tool of the session leave two processes that hide, and give their pids."""
    script = tmp_path / "hiding.py"
    script.write_text(HIDING)
    session.prompt(f"@bash {sys.executable} -I -S {script} {tmp_path / name} </dev/null >/dev/null 2>&1 &\n{then}")
    files = [tmp_path / name, tmp_path / f"{name}.child"]
    until(lambda: all(path.exists() for path in files))
    return [int(path.read_text()) for path in files]


def lives(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


@pytest.mark.fault(42)
def test_a_process_that_hid_and_killed_its_keeper_is_ended_and_named(daemon: Harness, tmp_path: Path) -> None:
    session = daemon.new()
    hidden = hide(session, tmp_path, "hidden")
    os.kill(session.get()["keeper_pid"], signal.SIGKILL)
    session.end_of("t1")
    (exited,) = session.events("process_exited")
    assert {process["pid"] for process in exited["survivors"]} >= set(hidden)
    assert not any(map(lives, hidden))


def test_what_a_backend_keeps_is_left_alone_when_another_keeper_is_killed(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = serve(demo={"orphans": "keep"})
    first, second = daemon.new(), daemon.new()
    kept = hide(first, tmp_path, "kept", then="Bye.")
    first.end_of("t1")
    hidden = hide(second, tmp_path, "hidden")
    os.kill(second.get()["keeper_pid"], signal.SIGKILL)
    second.end_of("t1")
    try:
        assert all(map(lives, kept)), "they were kept on purpose"
    finally:
        for pid in {*kept, *hidden}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    until(lambda: not any(map(lives, {*kept, *hidden})))  # the daemon reaps what it has adopted


def test_a_keeper_that_lost_its_zygote_leaves_no_zombie(daemon: Harness) -> None:
    session = daemon.new()
    session.prompt("a word\n@stall")
    session.await_event("content_delta")
    keeper = session.get()["keeper_pid"]
    with open(f"/proc/{keeper}/stat", encoding="utf-8") as file:
        os.kill(int(file.read().rpartition(")")[2].split()[1]), signal.SIGKILL)
    session.call("interrupt")
    session.end_of("t1")
    until(lambda: not lives(keeper))
