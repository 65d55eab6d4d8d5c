"""Boxes for real: three daemons, `clisup socket --stdio` on the far side, and an ssh that is a shell with another home.

A real sshd is tried where one is installed (`CLISUP_SSHD` names another), as in tests/docs/test_remote.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
from harness import Harness, until
from serving import serve

import clisup
from clisup.cli.top.app import Top
from clisup.client.aio import open_client
from clisup.client.sync import Client

__all__ = ["serve"]

SSHD = os.environ.get("CLISUP_SSHD") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
PROGRAMS = str(Path(clisup.__file__).parents[1])
Done = subprocess.CompletedProcess[str]


class Fleet:
    """A home with two boxes, `one` and `two`, and no daemon of its own. `ssh` runs its command in the home of the host."""

    def __init__(self, directory: Path, boxes: dict[str, Harness]) -> None:
        self.boxes, self.bin, self.pids = boxes, directory / "bin", directory / "pids"
        self.bin.mkdir()
        self.pids.touch()
        self._program("clisup", f'exec {sys.executable} -m clisup "$@"')
        cases = "\n".join(f"{name}) set -- {self._far(box)};;" for name, box in boxes.items())
        self._program(
            "ssh",
            f"echo $$ >> {self.pids}\nfor word; do host=$command; command=$word; done\n"
            f"case $host in\n{cases}\nhangs) read -r line; echo $$ >> {self.pids}.hang; exec sleep 600;;\n"
            '*) echo "ssh: Could not resolve hostname $host" >&2; exit 255;;\nesac\n'
            'exec env -i "$@" sh -c "exec $command"',
        )
        self.env = {
            "PATH": f"{self.bin}:{os.environ['PATH']}", "HOME": str(directory), "PYTHONPATH": PROGRAMS, "LC_ALL": "C.UTF-8",
            "XDG_RUNTIME_DIR": str(directory),
        }  # fmt: skip
        for name in boxes:
            assert self.clisup("fleet", "add", name, f"ssh://{name}").returncode == 0

    def _far(self, box: Harness) -> str:
        env = {
            "HOME": box.env["HOME"],
            "CLISUP_SOCKET": box.socket,
            "PATH": f"{self.bin}:{os.defpath}",
            "PYTHONPATH": PROGRAMS,
        }
        return " ".join(f"{name}={value}" for name, value in env.items())

    def _program(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def clisup(self, *args: str, **env: str) -> Done:
        argv = [sys.executable, "-m", "clisup", *args]
        return subprocess.run(argv, env=self.env | env, capture_output=True, text=True, timeout=120, check=False)

    def begin(self, *args: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "clisup", *args]
        return subprocess.Popen(argv, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def ssh(self) -> list[int]:
        """Every ssh that was started."""
        return [int(pid) for pid in self.pids.read_text().split()]

    def kill_ssh(self) -> None:
        """Kill all that runs of ssh: the network is gone."""
        for pid in self.ssh():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


@pytest.fixture
def fleet(serve: Callable[..., Harness], tmp_path: Path) -> Fleet:
    return Fleet(tmp_path, {"one": serve(), "two": serve()})


@pytest.fixture
def here(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """The same, with clients in this process."""
    for name in ("PATH", "HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, fleet.env[name])
    for name in ("CLISUP_SOCKET", "CLISUP_ON", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return fleet


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def sessions_of(box: Harness) -> list[dict[str, Any]]:
    return list(box.call("session/list")["sessions"])


def test_a_turn_runs_on_the_box_that_is_named_and_no_daemon_starts_here(fleet: Fleet, tmp_path: Path) -> None:
    ran = fleet.clisup("run", "--on", "one", "-b", "demo", "-C", "/tmp", "Hello.")
    assert (ran.returncode, ran.stdout) == (0, "You said: Hello.\n"), ran.stderr
    (session,) = sessions_of(fleet.boxes["one"])
    assert f"clisup run --session one/{session['session_id']}" in ran.stderr
    again = fleet.clisup("run", "--session", f"one/{session['session_id'][:8]}", "Again.", "--json")
    assert again.returncode == 0
    (accepted, _) = [
        e for e in map(json.loads, again.stdout.splitlines()) if e["type"] in ("prompt_accepted", "turn_completed")
    ]
    assert (accepted["actor"]["uid"], accepted["actor"]["client"]) == (os.getuid(), "clisup-run")
    assert sessions_of(fleet.boxes["two"]) == []
    assert not (tmp_path / ".local").exists() and not (tmp_path / "clisup").exists()


def test_every_box_is_in_every_view(fleet: Fleet) -> None:
    for name in ("one", "two"):
        fleet.boxes[name].new(title=f"work on {name}").ask("hello")
    fleet.clisup("fleet", "add", "gone", "ssh://gone")
    for command in ("status", "sessions"):
        ran = fleet.clisup(command, "--fleet")
        assert "work on one" in ran.stdout and "work on two" in ran.stdout
        assert ran.stderr.startswith("gone: ssh says: ssh: Could not resolve hostname gone")
        assert ran.returncode == 0
    lines = fleet.clisup("logs", "--fleet").stdout.splitlines()
    for name in ("one", "two"):
        (session,) = sessions_of(fleet.boxes[name])
        prefix = f"{name}/{session['session_id'][:8]}  "
        assert len([line for line in lines if line.startswith(prefix)]) == session["next_seq"] - 1
    assert fleet.clisup("logs", "--fleet", "-n", "2").stdout.splitlines() == lines[-2:]
    tested = json.loads(fleet.clisup("fleet", "test", "--json").stdout)
    assert [box.get("version", box.get("error", {}).get("kind")) for box in tested] == [
        clisup.__version__,
        clisup.__version__,
        "box_away",
    ]


def test_a_box_without_a_daemon_says_so_and_none_is_started_there(fleet: Fleet) -> None:
    fleet.boxes["one"].stop()
    ran = fleet.clisup("run", "--on", "one", "-b", "demo", "-C", "/tmp", "hello")
    assert (ran.returncode, ran.stdout) == (3, "")
    assert f"cannot reach the daemon at {fleet.boxes['one'].socket}" in ran.stderr
    fleet.boxes["one"].start()


def test_all_boxes_are_followed_and_a_lost_connection_repeats_and_loses_nothing(fleet: Fleet) -> None:
    boxes = fleet.boxes
    sessions = {name: box.new() for name, box in boxes.items()}
    follow = fleet.begin("logs", "--fleet", "-f", "--json", "--no-deltas")
    assert follow.stdout is not None
    seen: list[dict[str, Any]] = []

    def read_until_turns(count: int) -> None:
        while sum(e["type"] == "turn_completed" for e in seen) < count:
            seen.append(json.loads(follow.stdout.readline()))  # type: ignore[union-attr]

    for session in sessions.values():
        session.ask("first")
    read_until_turns(2)
    fleet.kill_ssh()
    for session in sessions.values():
        session.ask("second")
    read_until_turns(4)
    follow.send_signal(signal.SIGINT)
    _, said = follow.communicate(timeout=60)
    assert follow.returncode == 130
    assert "[one: connection lost; trying again]" in said
    for name, session in sessions.items():
        stored = [e["seq"] for e in session.events() if e["type"] != "content_delta"]
        assert [e["seq"] for e in seen if e["box"] == name][: len(stored)] == stored


def test_an_interrupt_from_the_keyboard_reaches_the_turn_on_the_box(fleet: Fleet) -> None:
    run = fleet.begin("run", "--on", "one", "-b", "demo", "-C", "/tmp", "@stall")
    until(lambda: any(s.get("turn_id") for s in sessions_of(fleet.boxes["one"])), "no turn runs")
    assert run.stderr is not None
    assert run.stderr.readline().startswith("session ")  # from here on the command handles the signal
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=90)
    assert run.returncode == 130
    (session,) = sessions_of(fleet.boxes["one"])
    assert session["last_turn"]["outcome"] == "interrupted"


def test_the_clients_of_python_take_a_box_as_a_path(here: Fleet) -> None:
    with Client.connect("box:one") as client, client.open("demo", "/tmp") as session:
        assert session.prompt("hello").text == "You said: hello"

    async def main() -> None:
        async with open_client("box:two") as client, client.session("demo", "/tmp") as session:
            assert (await session.prompt("hello")).text == "You said: hello"

    trio.run(main)


def test_a_trio_client_whose_box_is_away_hears_why(here: Fleet) -> None:
    here.clisup("fleet", "add", "gone", "ssh://gone")

    async def main() -> str:
        try:
            async with open_client("box:gone"):
                return ""
        except Exception as error:
            return f"{getattr(error, 'kind', '')}: {error}"

    assert trio.run(main).startswith("box_away: cannot reach box gone, because ssh says: ssh: Could not resolve")


ASKS = '@ask Bash {"command":"git push origin main"}'


def screen(app: Any) -> str:
    return "\n".join("".join(part.text for part in strip) for strip in app.screen._compositor.render_strips())


def test_one_view_shows_all_boxes_and_answers_on_the_box_that_asks(here: Fleet) -> None:
    here.clisup("fleet", "add", "gone", "ssh://gone")
    one, two = here.boxes["one"], here.boxes["two"]
    stalled = one.new(title="stalled work")
    turn = stalled.prompt("@stall")
    asking = two.new(mode="live", permission_mode="default", title="asking work")
    asked = asking.prompt(f"{ASKS}\nAfter it.")

    async def look() -> None:
        top = Top("", boxes=["here", "one", "two", "gone"])
        async with top.run_test(size=(120, 35)) as pilot:

            async def see(*texts: str) -> None:
                for text in texts:
                    end = time.monotonic() + 60
                    while text not in screen(top):
                        assert time.monotonic() < end, f"no {text!r} in {screen(top)}"
                        await pilot.pause(0.05)

            await see(
                "BOX", "2 of 3 boxes answer", "gone  ssh says: ssh: Could not resolve", "stalled work", "asking work"
            )
            await see(f"two/{asking.id[:8]} wants you", "git push origin main")
            assert "here" not in screen(top)
            await pilot.pause(1)
            await pilot.press("a")
            await pilot.pause(0.1)
            await see("completed")
            top.rows.selected = f"one/{stalled.id}"
            await pilot.press("f")
            await see(f"one/{stalled.id[:8]} demo", "turn_started")
            await pilot.press("i")
            await see(f"End {turn} of one/{stalled.id[:8]}")
            await pilot.press("y")
            await see("turn_completed")

    asyncio.run(look())
    assert asking.end_of(asked)["outcome"] == "completed"
    assert stalled.end_of(turn)["outcome"] == "interrupted"


def test_no_ssh_is_left_behind(here: Fleet) -> None:
    for _ in range(3):
        with Client.connect("box:one") as client:
            client.call("ping")
    until(lambda: not any(map(runs, here.ssh())), "an ssh is left")


def test_ctrl_c_ends_an_ssh_that_hangs(fleet: Fleet) -> None:
    fleet.clisup("fleet", "add", "stuck", "ssh://hangs")
    status = fleet.begin("status", "--on", "stuck")
    asked = Path(f"{fleet.pids}.hang")
    pid = int(until(lambda: asked.exists() and asked.read_text(), "ssh gets no request"))
    status.send_signal(signal.SIGINT)
    status.communicate(timeout=60)
    assert status.returncode == 130
    assert not runs(pid)


def test_a_batch_runs_on_a_box(fleet: Fleet, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("one\ntwo\n")
    assert (
        "cannot tell the directory on box two"
        in fleet.clisup("batch", str(prompts), "-b", "demo", "--on", "two").stderr
    )
    ran = fleet.clisup("batch", str(prompts), "-b", "demo", "--on", "two", "-C", "/tmp", "--json")
    texts = sorted(json.loads(line)["text"] for line in ran.stdout.splitlines())
    assert texts == ["You said: one", "You said: two"]


def test_the_daemon_of_a_box_is_restarted_and_stopped_over_the_connection(fleet: Fleet) -> None:
    before = fleet.boxes["one"].identity()["instance_id"]
    ran = fleet.clisup("daemon", "restart", "--on", "one", "--json")
    assert (ran.returncode, json.loads(ran.stdout)["instance_id"] != before) == (0, True), ran.stderr
    ran = fleet.clisup("stop", "--on", "one")
    assert (ran.returncode, ran.stdout) == (0, "stopped\n"), ran.stderr
    until(lambda: fleet.boxes["one"].process.poll() is not None, "it runs on")  # type: ignore[union-attr]
    fleet.boxes["one"].start()


@pytest.mark.skipif(SSHD is None or os.getuid() != 0, reason="needs an sshd that can be started as root")
def test_a_box_is_reached_through_a_real_sshd(fleet: Fleet, tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    (tmp_path / "authorized").write_text((tmp_path / "key.pub").read_text())
    config = tmp_path / "sshd_config"
    config.write_text(
        f"HostKey {key}\nAuthorizedKeysFile {tmp_path}/authorized\nStrictModes no\nUsePAM no\nPidFile none\n"
        "AuthenticationMethods publickey\nPermitRootLogin yes\nAllowStreamLocalForwarding no\nAllowTcpForwarding no\n"
    )
    config.chmod(0o600)
    Path("/run/sshd").mkdir(exist_ok=True)
    real = shutil.which("ssh", path=os.defpath)
    known = "-F none -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    proxy = f"ProxyCommand={SSHD} -i -f {config} 2>>{tmp_path}/log"
    fleet._program("ssh", f'exec {real} {known} -i {key} -o "{proxy}" "$@"')
    fleet._program("far", f'exec env PYTHONPATH={PROGRAMS} {sys.executable} -m clisup "$@"')
    box = fleet.boxes["one"]
    added = fleet.clisup("fleet", "add", "real", f"ssh://root@loopback{box.socket}", "--clisup", f"{fleet.bin}/far")
    assert added.returncode == 0, added.stderr
    ran = fleet.clisup("run", "--on", "real", "-b", "demo", "-C", "/tmp", "Hello.")
    assert (ran.returncode, ran.stdout) == (0, "You said: Hello.\n"), ran.stderr + (tmp_path / "log").read_text()
    fleet._program("far", "exec no-such-clisup")
    ran = fleet.clisup("status", "--on", "real")
    assert (ran.returncode, "clisup is not on the PATH" in ran.stderr) == (3, True), ran.stderr
