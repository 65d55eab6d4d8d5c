"""Finding and ending what is left of a run, by its marker: real processes that hid themselves as well as they can."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from clisup.host.process import tree
from clisup.host.process.markers import RunMarker
from clisup.host.process.tree import marked_runs, run_of, sweep

HIDING = {
    "plain": "pass",
    "its own session": "os.setsid()",
    "double fork": "os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0)",
    "ignoring signals": "[signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]",
    "stopped": "say(); os.kill(os.getpid(), signal.SIGSTOP)",
    "another directory and no descriptors": "say(); os.chdir('/'); os.closerange(0, 100)",
}
SCRIPT = """
import os, signal, sys, time
def say():
    with open(sys.argv[1] + ".part", "w") as file:
        file.write(str(os.getpid()))
    os.rename(sys.argv[1] + ".part", sys.argv[1])
{hide}
os.path.exists(sys.argv[1]) or say()
time.sleep(1000)
"""
Start = Callable[..., int]
STATE = "1f.2a"


def marked_pids(session: str, run: int) -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and run_of(int(name), STATE) == (session, run)]


@pytest.fixture
def session() -> str:
    return str(uuid.uuid4())


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a process with an environment; gives the pid of what it became. All of them are ended afterwards."""
    children: list[subprocess.Popen[bytes]] = []
    pids: list[int] = []

    def start_one(env: dict[str, str], hide: str = "pass", name: str = "cli.py") -> int:
        said, script = tmp_path / f"pid{len(pids)}", tmp_path / name
        script.write_text(SCRIPT.format(hide=hide))
        argv = [sys.executable, "-I", "-S", str(script), str(said)]
        children.append(subprocess.Popen(argv, env={"PATH": "/bin", **env}))
        until(said.exists)
        pids.append(int(said.read_text()))
        return pids[-1]

    yield start_one
    for pid in pids:
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            pass
    for child in children:
        child.wait()


def until(condition: Callable[[], object]) -> None:
    """Poll in a child's stead: bounded by the number of tries, each of which gives the machine away."""
    for _ in range(30_000):
        if condition():
            return
        subprocess.run(["/bin/true"], check=True)
    raise AssertionError("the condition never came true")


def living(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def dead_pid() -> int:
    with subprocess.Popen(["/bin/true"]) as process:
        process.wait()
    return process.pid


def mark(session: str, run: int = 3, state: str = STATE) -> RunMarker:
    return RunMarker(session, run, state)


def markers(session: str, run: int = 3, state: str = STATE) -> dict[str, str]:
    return mark(session, run, state).variables()


@pytest.mark.fault(4)
@pytest.mark.parametrize("how", HIDING)
async def test_a_marked_process_is_found_and_killed_however_it_hides(start: Start, session: str, how: str) -> None:
    pid = start(markers(session), HIDING[how])
    until(lambda: marked_pids(session, 3) == [pid])  # its parents are on their way out
    killed = await sweep(mark(session))
    assert [process["pid"] for process in killed] == [pid]
    assert killed[0]["comm"].startswith("python")
    assert not living(pid)
    assert marked_pids(session, 3) == []


async def test_a_process_that_its_parent_reaps_at_once_is_named(
    start: Start, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = start(markers(session))
    kill = tree._kill

    def kill_and_reap(pid: int, mark: RunMarker | None) -> bool:
        done = kill(pid, mark)
        os.waitpid(pid, 0)
        return done

    monkeypatch.setattr(tree, "_kill", kill_and_reap)
    (killed,) = await sweep(mark(session))
    assert killed["pid"] == pid and killed["comm"].startswith("python")


async def test_every_process_of_a_run_is_killed_and_named(start: Start, session: str) -> None:
    pids = {start(markers(session)) for _ in range(4)}
    assert {process["pid"] for process in await sweep(mark(session))} == pids
    assert not any(living(pid) for pid in pids)


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"CLISUP_RUN": "3"},
        {"CLISUP_SESSION": "{session}"},
        {"CLISUP_SESSION": "{session}", "CLISUP_RUN": "4"},
        {"CLISUP_SESSION": "{session}", "CLISUP_RUN": "33"},
        {"CLISUP_SESSION": "{session}x", "CLISUP_RUN": "3"},
        {"NOTE": "CLISUP_SESSION={session}", "CLISUP_RUN": "3"},
        {"XCLISUP_SESSION": "{session}", "CLISUP_RUN": "3"},
    ],
)
async def test_a_process_without_the_whole_marker_is_left_alone(
    start: Start, session: str, other: dict[str, str]
) -> None:
    pid = start({name: value.format(session=session) for name, value in other.items()})
    assert await sweep(mark(session)) == []
    assert living(pid)


@pytest.mark.fault(86)
async def test_a_process_of_the_same_run_of_another_state_directory_is_left_alone(start: Start, session: str) -> None:
    pid = start(markers(session, state="1f.2b"))
    assert (session, 3) not in marked_runs(STATE)
    assert await sweep(mark(session)) == []
    assert living(pid)


async def test_a_process_that_clisup_0_1_0_started_is_found_without_the_id_of_a_state_directory(
    start: Start, session: str
) -> None:
    pid = start({"CLISUP_SESSION": session, "CLISUP_RUN": "3", "CLISUP_STATE_DIR": "/somewhere"})
    assert (session, 3) in marked_runs(STATE)
    assert [process["pid"] for process in await sweep(mark(session))] == [pid]


async def test_a_process_that_cleared_its_environment_is_not_found(start: Start, session: str) -> None:
    pid = start(markers(session), "say(); os.execve('/bin/sleep', ['sleep', '1000'], {})")
    until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n")
    assert marked_pids(session, 3) == []
    assert living(pid)


async def test_a_keeper_that_hangs_goes_first(start: Start, session: str) -> None:
    keeper = start({}, name="keeper.py")
    cli = start(markers(session))
    killed = await sweep(mark(session), keeper=keeper)
    assert [process["pid"] for process in killed] == [cli]
    until(lambda: not living(keeper))


async def test_another_program_that_holds_the_lock_of_a_keeper_is_not_killed(start: Start, session: str) -> None:
    other = start({}, name="editor.py")
    assert await sweep(mark(session), keeper=other) == []
    assert living(other)


@pytest.mark.fault(7)
async def test_a_pid_that_is_nobodys_is_no_trouble(session: str) -> None:
    assert await sweep(mark(session), keeper=dead_pid()) == []


async def test_a_sweep_that_finds_nothing_is_over_at_once(session: str) -> None:
    with trio.fail_after(30):
        assert await sweep(mark(session, 1)) == []


@pytest.mark.parametrize(
    ("session", "run"),
    [
        ("{session}", "\u00b2"),
        ("{session}", "9" * 5000),
        ("{session}", "-3"),
        ("{session}", ""),
        ("/etc/x/../{session}", "3"),
    ],
)
def test_a_process_that_carries_nonsense_is_of_no_run(start: Start, session: str, run: str) -> None:
    """Any user's process can carry any words, and a daemon of root reads them all at its start."""
    odd, good = str(uuid.uuid4()), str(uuid.uuid4())
    start({"CLISUP_SESSION": session.format(session=odd), "CLISUP_RUN": run})
    start({"CLISUP_SESSION": good, "CLISUP_RUN": "3"})
    found = marked_runs(STATE)
    assert (good, 3) in found
    assert not [one for one, _ in found if odd in one]
