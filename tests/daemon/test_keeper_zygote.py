"""Where a daemon's keepers come from: a zygote that comes with it, leaves with it, and may be killed at any moment."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Harness, children_of, until


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def zygote_of(daemon: Harness, *, but: int | None = None) -> int:
    """The one that is up, as the daemon's log says; another one than `but`."""

    def up() -> int | None:
        lines = [json.loads(line) for line in daemon.log.read_text().splitlines() if "keeper zygote started" in line]
        pid = daemon.keeper_zygote()
        return pid if pid != but and pid in [line["pid"] for line in lines] else None

    return int(until(up, "no zygote is up"))


def logged(daemon: Harness, event: str) -> list[dict[str, object]]:
    lines = (json.loads(line) for line in daemon.log.read_text().splitlines() if event in line)
    return [line for line in lines if line["event"] == event]


@pytest.fixture
def talkative(serve: Callable[..., Harness]) -> Harness:
    return serve(daemon={"log_level": "debug"})


def test_a_keeper_is_forked_and_is_no_child_of_the_daemon(talkative: Harness, tmp_path: Path) -> None:
    zygote = zygote_of(talkative)
    sessions = [talkative.new() for _ in range(2)]
    for session in sessions:
        session.prompt(f"@wait-file {tmp_path}/go\nbye")
    keepers = [session.keeper() for session in sessions]
    assert {parent(pid) for pid in keepers} == {zygote} and len(set(keepers)) == 2
    for pid in (zygote, *keepers):
        assert Path(f"/proc/{pid}/environ").read_bytes() == b"" and os.getsid(pid) == pid
    (tmp_path / "go").touch()
    assert [session.end_of("t1")["outcome"] for session in sessions] == ["completed"] * 2
    until(lambda: not children_of(zygote))
    assert not logged(talkative, "keeper not forked")


def test_turns_start_once_each_while_zygotes_are_killed(talkative: Harness, tmp_path: Path) -> None:
    zygote_of(talkative)
    stop, killed = threading.Event(), set[int]()

    def kill_on_sight() -> None:
        while not stop.is_set():
            if (pid := talkative.keeper_zygote()) is not None:
                try:
                    os.kill(pid, signal.SIGKILL)
                    killed.add(pid)
                except ProcessLookupError:
                    pass
            stop.wait(0.002)

    sessions = [talkative.new() for _ in range(12)]
    killer = threading.Thread(target=kill_on_sight)
    for n, session in enumerate(sessions):
        if n == 4:  # some are asked of one that lives, some of one that dies, and some of none
            killer.start()
        session.prompt(f"@bash echo ran >> {tmp_path}/{n}\nanswer {n}")
    ends = [session.end_of("t1") for session in sessions]
    stop.set()
    killer.join()
    assert killed
    assert [(end["outcome"], end["text"]) for end in ends] == [("completed", f"answer {n}") for n in range(12)]
    assert [(tmp_path / str(n)).read_text() for n in range(12)] == ["ran\n"] * 12
    for session in sessions:
        assert [session.types().count(name) for name in ("turn_started", "process_started", "process_exited")] == [
            1
        ] * 3
    assert logged(talkative, "keeper zygote lost")


def test_a_lost_zygote_is_followed_by_another_and_its_keepers_go_on(talkative: Harness, tmp_path: Path) -> None:
    first = zygote_of(talkative)
    session = talkative.new()
    session.prompt(f"@wait-file {tmp_path}/go\nbye")
    assert parent(session.keeper()) == first
    os.kill(first, signal.SIGKILL)
    second = zygote_of(talkative, but=first)
    other = talkative.new()
    other.prompt(f"@wait-file {tmp_path}/go\nbye")
    assert parent(other.keeper()) == second
    (tmp_path / "go").touch()
    assert [each.end_of("t1")["outcome"] for each in (session, other)] == ["completed"] * 2
    assert len(logged(talkative, "keeper zygote lost")) == 1


def test_a_zygote_that_hangs_holds_no_turn_up_for_ever(talkative: Harness) -> None:
    stopped = zygote_of(talkative)
    os.kill(stopped, signal.SIGSTOP)
    session = talkative.new()
    assert session.ask("answer")["outcome"] == "completed"
    assert gone(stopped) and len(logged(talkative, "keeper zygote lost")) == 1
    assert session.types().count("process_started") == 1


@pytest.mark.parametrize("way", ["killed", "stopped", "detached"])
def test_a_zygote_goes_with_its_daemon_and_the_keepers_stay(talkative: Harness, tmp_path: Path, way: str) -> None:
    zygote = zygote_of(talkative)
    session = talkative.new()
    session.prompt(f"@wait-file {tmp_path}/go\nbye")
    keeper = session.keeper()
    if way == "killed":
        talkative.kill()
    elif way == "stopped":
        talkative.call("daemon/shutdown", mode="kill")
        talkative._hang_up()
        assert talkative.process is not None and talkative.process.wait(30) == 0
    else:
        talkative.call("daemon/shutdown", mode="detach")
        talkative._hang_up()
        assert talkative.process is not None and talkative.process.wait(30) == 0
    until(lambda: gone(zygote), "the zygote is still there", 5)
    assert gone(keeper) == (way == "stopped")
    if way != "stopped":
        talkative.start()
        (tmp_path / "go").touch()
        assert session.end_of("t1")["outcome"] == "completed"


def test_a_restart_in_place_brings_a_zygote_of_its_own(talkative: Harness, tmp_path: Path) -> None:
    first = zygote_of(talkative)
    session = talkative.new()
    session.prompt(f"@wait-file {tmp_path}/go\nbye")
    keeper, before = session.keeper(), talkative.identity()["instance_id"]
    talkative.call("daemon/restart")
    talkative.await_successor(before)
    second = zygote_of(talkative, but=first)
    assert gone(first) and not gone(keeper)
    assert set(children_of(talkative.pid)) == {second, keeper}  # an orphan by now
    (tmp_path / "go").touch()
    assert session.end_of("t1")["outcome"] == "completed"
    assert session.ask("next")["outcome"] == "completed"
    assert not logged(talkative, "keeper zygote lost")
