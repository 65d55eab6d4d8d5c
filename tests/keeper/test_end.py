"""The end of a run: exit codes are exact, ladders are climbed, and nothing of the tree is left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from keeper_probe import KeeperProbe, alive, changed_keeper, eventually

PYTHON = ["/usr/bin/env", "python3", "-I", "-S", "-c"]
STUBBORN = "trap '' TERM INT; echo up; while :; do sleep 0.05; done"


@pytest.mark.fault(6)
@pytest.mark.fault(5)
@pytest.mark.parametrize(
    ("command", "code", "number"),
    [("exit 0", 0, None), ("exit 255", 255, None), ("exit 137", 137, None), ("kill -9 $$", None, 9),
     ("kill -USR1 $$", None, 10)],
)  # fmt: skip
def test_exit_codes_and_signals_are_told_apart(keep, command, code, number):
    probe = keep(command)
    record = probe.exit()
    assert (record["exit_code"], record["signal"], record["reason"]) == (code, number, "exit")
    assert json.loads((probe.dir / "start.json").read_text())["stage"] == "main_exited"
    assert probe.process.returncode == 0
    assert not (probe.dir / "ctl.sock").exists()


def test_the_daemon_is_told_at_once_and_then_with_the_whole_record(keep):
    probe = keep("read line; exit 3", stdin_eof=False)
    probe.start()
    probe.send(op="stdin", id=1, data="go\n")
    assert probe.receive("main_exited")["exit_code"] == 3
    pushed = probe.receive("exited")["exit"]
    assert pushed == probe.exit()
    assert pushed["max_rss_kb"] > 0


@pytest.mark.fault(11)
def test_a_cli_that_ignores_int_and_term_is_killed_on_its_deadline(keep):
    probe = keep(STUBBORN)
    probe.start()
    probe.said(b"up\n")
    probe.send(op="end", ladder=[["INT", 0.1], ["TERM", 0.1]], reason="watchdog:model")
    record = probe.exit()
    assert ([name for name, _ in record["ladder"]], record["signal"]) == (["INT", "TERM", "KILL"], 9)
    assert record["reason"] == "watchdog:model"


def test_a_cli_that_obeys_int_exits_with_its_own_code(keep):
    probe = keep("trap 'exit 5' INT; echo up; while :; do sleep 0.05; done")
    probe.start()
    probe.said(b"up\n")
    probe.send(op="end", ladder=[["INT", 20], ["TERM", 20]])
    record = probe.exit()
    assert (record["exit_code"], [name for name, _ in record["ladder"]]) == (5, ["INT"])
    assert record["reason"] == "client"


@pytest.mark.fault(12)
def test_a_stopped_cli_is_killed_all_the_same(keep):
    probe = keep("kill -STOP $$")
    pid = probe.start()["pid"]
    eventually(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    probe.send(op="end", ladder=[["TERM", 0.1]])
    assert probe.exit()["signal"] == 9


def test_a_second_end_goes_on_to_the_next_step_and_never_starts_again(keep):
    probe = keep(STUBBORN)
    probe.start()
    probe.said(b"up\n")
    for _ in range(3):
        probe.send(op="end", ladder=[["INT", 1000], ["TERM", 1000]], reason="operator")
    record = probe.exit()
    assert ([name for name, _ in record["ladder"]], record["signal"]) == (["INT", "TERM", "KILL"], 9)


def test_a_second_end_without_a_ladder_kills_at_once(keep):
    probe = keep(STUBBORN)
    probe.start()
    probe.said(b"up\n")
    probe.send(op="end", ladder=[["INT", 1000], ["TERM", 1000]], reason="client")
    probe.send(op="end", ladder=[], reason="client")
    record = probe.exit()
    assert ([name for name, _ in record["ladder"]], record["signal"]) == (["INT", "KILL"], 9)


def test_a_ladder_is_climbed_to_its_end_without_the_daemon(keep):
    probe = keep(STUBBORN)
    probe.start()
    probe.said(b"up\n")
    probe.send(op="end", ladder=[["INT", 0.2], ["TERM", 0.2]])
    probe.sock.close()
    assert probe.exit()["signal"] == 9


@pytest.mark.fault(16)
def test_the_wall_limit_ends_the_run_without_a_daemon(keep):
    record = keep(["/bin/sleep", "60"], wall_s=0.2).exit()
    assert (record["reason"], record["signal"]) == ("watchdog:turn", 15)


def test_the_lease_ends_the_run_once_the_daemon_is_gone(keep):
    probe = keep(["/bin/sleep", "60"], lease_s=0.3)
    probe.start()
    probe.sock.close()
    assert probe.exit()["reason"] == "lease"


def test_a_keeper_whose_run_directory_was_removed_ends_its_run_once_the_daemon_is_gone(keep):
    probe = keep(["/bin/sleep", "60"], lease_s=3600)
    pid = probe.start()["pid"]
    shutil.rmtree(probe.dir)
    assert alive(pid)
    probe.sock.close()
    eventually(lambda: not alive(pid), "the end of the CLI")


def test_the_wall_limit_counts_from_when_the_daemon_has_gone(keep):
    probe = keep(["/bin/sleep", "60"], wall_s=0.3)
    probe.start()
    probe.sock.close()
    assert probe.exit()["reason"] == "watchdog:turn"


@pytest.mark.parametrize("limit", ["lease_s", "wall_s"])
def test_a_limit_for_a_run_alone_does_not_run_while_a_daemon_is_connected(keep, limit):
    probe = keep("read line; exit 6", **{limit: 0.6}, stdin_eof=False)
    probe.start()
    waiter = keep(["/bin/sleep", "60"], wall_s=0.9)  # a clock that is surely longer than the limit
    waiter.exit()
    probe.send(op="stdin", id=1, data="go\n")
    assert probe.exit()["exit_code"] == 6


@pytest.mark.fault(21)
def test_a_keeper_that_was_stopped_reads_what_came_before_it_acts_on_the_clock(keep):
    probe = keep(["/bin/sleep", "60"], wall_s=3600)
    probe.start()
    probe.process.send_signal(signal.SIGSTOP)
    probe.send(op="end", ladder=[["TERM", 20]], reason="operator")
    probe.process.send_signal(signal.SIGCONT)
    record = probe.exit()
    assert (record["reason"], record["signal"]) == ("operator", 15)


def test_sigterm_to_the_keeper_ends_the_run_and_hangup_does_not(keep):
    probe = keep(["/bin/sleep", "60"])
    probe.start()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        probe.process.send_signal(number)
    record = probe.exit()
    assert (record["reason"], record["signal"], probe.process.returncode) == ("operator", 15, 0)


@pytest.mark.fault(9)
def test_an_orphan_that_holds_stdout_does_not_hold_the_end(keep):
    probe = keep("sleep 600 & exit 3")
    record = probe.exit()
    assert (record["exit_code"], [found["comm"] for found in record["survivors"]]) == (3, ["sleep"])
    assert not alive(record["survivors"][0]["pid"])


ORPHANS = {
    "setsid": "setsid sleep 600 & sleep 0.1",
    "nohup": "nohup sleep 600 >/dev/null 2>&1 &",
    "double fork": "(setsid sh -c 'sleep 600 & sleep 601 & wait' &) ; sleep 0.1",
    "cleared environment": "env -i /bin/sleep 600 & sleep 0.1",
    "stopped": "sleep 600 & sleep 0.05; kill -STOP $!",
    "ignores TERM": "(trap '' TERM HUP INT; sleep 600; sleep 601) &",
    "no pipes": "setsid sleep 600 </dev/null >/dev/null 2>&1 & sleep 0.1",
    "many": "for n in $(seq 30); do sleep 600 & done",
}


@pytest.mark.fault(10)
@pytest.mark.parametrize("kind", ORPHANS)
def test_every_kind_of_orphan_is_killed_and_named(keep, kind):
    probe = keep(ORPHANS[kind] + "\nexit 0")
    record = probe.exit()
    assert record["survivors"]
    assert not [found for found in record["survivors"] if alive(found["pid"])]
    assert record["left"] == []
    assert marked(probe) == []


def marked(probe) -> list[int]:
    """Pids that carry this run's marker in their environment."""
    needle = f"CLISUP_SESSION={probe.spec['marker']['CLISUP_SESSION']}\0".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if needle in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


REFORKING = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    end = time.monotonic() + 30
    while time.monotonic() < end:
        time.sleep(0.001)
        if os.fork():
            os._exit(0)
        os.setsid()
        os.write(2, b'%d\\n' % os.getpid())
time.sleep(0.2)
"""


@pytest.mark.fault(10)
def test_an_orphan_that_forks_away_with_a_new_pid_and_session_is_caught(keep):
    probe = keep([*PYTHON, REFORKING])
    record = probe.exit()
    assert record["left"] == []
    assert not alive(int(probe.err().split()[-1]))


@pytest.mark.fault(10)
def test_a_kill_takes_the_whole_tree(keep):
    probe = keep("setsid sleep 600 & (trap '' TERM; sleep 600; sleep 600) & echo up; wait")
    probe.start()
    probe.said(b"up\n")
    probe.send(op="survivors")
    pids = [found["pid"] for found in probe.receive("survivors")["survivors"]]
    probe.send(op="end", ladder=[])
    record = probe.exit()
    assert (record["signal"], record["ladder"][0][0]) == (9, "KILL")
    assert pids
    assert not [pid for pid in pids if alive(pid)]


@pytest.mark.fault(19)
def test_adopted_orphans_are_reaped_while_the_cli_runs(keep):
    probe = keep("for n in $(seq 20); do (/bin/true &); done; echo up; read line", stdin_eof=False)
    probe.start()
    probe.said(b"up\n")
    task = Path(f"/proc/{probe.process.pid}/task/{probe.process.pid}/children")
    eventually(lambda: len(task.read_text().split()) == 1, "the reaping")


@pytest.mark.fault(20)
def test_grace_lets_background_work_finish(keep):
    probe = keep("(sleep 0.3; echo late) & exit 0", orphans="grace", orphan_grace_s=600)
    record = probe.exit()
    assert (probe.out(), record["survivors"], record["exit_code"]) == (b"late\n", [], 0)


@pytest.mark.fault(20)
def test_grace_that_has_passed_kills(keep):
    record = keep("sleep 600 & exit 0", orphans="grace", orphan_grace_s=0.1).exit()
    assert [found["comm"] for found in record["survivors"]] == ["sleep"]


@pytest.mark.fault(20)
def test_the_daemon_may_shorten_the_grace_after_the_exit(keep):
    probe = keep("sleep 600 & read line; exit 0", orphans="grace", orphan_grace_s=600, stdin_eof=False)
    probe.start()
    probe.send(op="stdin", id=1, data="go\n")
    probe.receive("main_exited")
    start = json.loads((probe.dir / "start.json").read_text())
    assert (start["stage"], start["exit_code"]) == ("main_exited", 0)
    probe.send(op="orphans", grace_s=0)
    assert [found["comm"] for found in probe.exit()["survivors"]] == ["sleep"]


@pytest.mark.fault(20)
def test_keep_leaves_them_and_lists_them(keep):
    record = keep("exec sleep 7 & exit 0", orphans="keep").exit()
    [kept] = record["kept"]
    assert record["survivors"] == []
    assert alive(kept["pid"])
    os.kill(kept["pid"], signal.SIGKILL)


@pytest.fixture
def cgroup():
    roots = [
        root for root in map(Path, ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")) if (root / "cgroup.procs").exists()
    ]
    try:
        path = roots[0] / f"clisup-keeper-test-{time.monotonic_ns()}"
        path.mkdir()
    except (IndexError, OSError):
        pytest.skip("no cgroup v2 to write to")
    yield path
    eventually(lambda: b"populated 0" in (path / "cgroup.events").read_bytes())
    path.rmdir()


@pytest.fixture(params=["born", "moved"])
def way(request, monkeypatch, tmp_path):
    """How a CLI comes into its cgroup. On a kernel that does not know clone3 it goes there by itself."""
    if request.param == "moved":
        file = changed_keeper(tmp_path / "old_kernel", "system.py", "SYS_CLONE3 = 435", "SYS_CLONE3 = 9999")
        monkeypatch.setattr(KeeperProbe, "file", file)


@pytest.mark.fault(10)
@pytest.mark.usefixtures("way")
def test_with_a_cgroup_the_tree_is_in_it_and_dies_with_it(keep, cgroup):
    probe = keep("setsid sleep 600 & echo up; wait", cgroup=str(cgroup))
    pid = probe.start()["pid"]
    probe.said(b"up\n")
    members = (cgroup / "cgroup.procs").read_text().split()
    assert str(pid) in members
    assert str(probe.process.pid) not in members
    probe.send(op="end", ladder=[])
    assert probe.exit()["signal"] == 9
    assert (cgroup / "cgroup.procs").read_text() == ""


def test_a_cgroup_that_is_not_there_is_a_failed_spawn(keep, tmp_path):
    answer = keep("exit 0", cgroup=str(tmp_path / "gone")).ready()
    assert (answer["kind"], answer["stage"]) == ("spawn_failed", "cgroup")
