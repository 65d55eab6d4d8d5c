"""Whole agents as processes, beside real daemons, on a real node: commands of one box reach the other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
from zygote import Zygote

from clisup.client.raw import RawClient
from tests.fakecli import COMMAND
from tests.fleet.setup.test_rights_real import free_port

PATIENCE_S = 90.0
SERVER = Path(sys.executable).with_name("nats-server")


last_run: subprocess.CompletedProcess[str] | None = None  # what a wait in vain shows


class Box:
    """A home with a configuration, a daemon and an agent."""

    def __init__(self, root: Path, name: str, zygote: Zygote) -> None:
        self.name, self.root, self._zygote = name, root / name, zygote
        config = self.root / ".config" / "clisup"
        config.mkdir(parents=True, mode=0o700)
        (self.root / "run").mkdir(mode=0o700)
        (config / "config.toml").write_text(
            f'[fleet]\naccept = ["*"]\n[backends.demo]\ncommand = {json.dumps(list(COMMAND))}\n'
        )
        self.env = {
            "HOME": str(self.root),
            "XDG_RUNTIME_DIR": str(self.root / "run"),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
        }
        self.daemon: Any = None
        self.agent: Any = None

    def start(self) -> None:
        if self.daemon is None:
            self.daemon = self._zygote.fork(["serve", "--log-format", "json"], self.env, self.root / "daemon.log")
        self.agent = self._zygote.fork(["fleet", "agent"], self.env, self.root / "agent.log")

    def kill_agent(self) -> None:
        self.agent.kill()
        self.agent.wait(PATIENCE_S)

    def close(self) -> None:
        for process in (self.agent, self.daemon):
            if process is not None:
                process.kill()
                process.wait(PATIENCE_S)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        global last_run
        last_run = subprocess.run(
            [sys.executable, "-m", "clisup", *words],
            env=self.env, cwd=self.root, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        return last_run

    def good(self, *words: str) -> str:
        ran = self.run(*words)
        assert ran.returncode == 0, (words, ran.stdout, ran.stderr)
        return ran.stdout


def until(what: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < end, last_run
        time.sleep(0.1)
    return found


@pytest.fixture(scope="module")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Box, Box]]:
    root = tmp_path_factory.mktemp("boxes")
    zygote = Zygote()
    a, b = Box(root, "boxa", zygote), Box(root, "boxb", zygote)
    folder = str(root / "team")
    a.good("fleet", "init", "--name", "team", "--nodes", "127.0.0.1", "--port", str(free_port()), "--dir", folder)
    for box, roles in ((a, ("worker", "operator")), (b, ("worker",))):
        a.good("fleet", "member", "add", box.name, *(w for role in roles for w in ("--role", role)), "--dir", folder)
    with (root / "node.log").open("wb") as log:
        node = subprocess.Popen([SERVER, "-c", "nats.conf"], cwd=f"{folder}/127.0.0.1", stdout=log, stderr=log)
    try:
        until(lambda: a.run("fleet", "prepare", f"{folder}/admin.member", "--gib", "1").returncode == 0)
        for box in (a, b):
            box.good("fleet", "join", f"{folder}/{box.name}.member")
            box.start()
        until(lambda: len(json.loads(a.good("status", "--fleet", "--json"))["boxes"]) == 2)
        until(lambda: "error" not in json.loads(a.good("status", "--fleet", "--json"))["boxes"][1])
        yield a, b
    finally:
        a.close()
        b.close()
        node.kill()
        node.wait()
        zygote.close()


def sessions(box: Box) -> list[dict[str, Any]]:
    """Sessions of the other box."""
    return [json.loads(line) for line in box.good("sessions", "--on", "boxb", "--json", "--all").splitlines()]


def test_commands_reach_the_other_box(boxes: tuple[Box, Box]) -> None:
    a, _ = boxes
    assert a.good("run", "--on", "boxb", "-b", "demo", "-C", "/", "hello") == "You said: hello\n"
    [id_] = [row["session_id"] for row in sessions(a)]
    assert "You said: hello" in a.good("logs", f"boxb/{id_[:8]}")
    assert "hello" in a.good("export", f"boxb/{id_}")
    table = a.good("status", "--fleet").splitlines()
    assert table[0].split() == ["BOX", "STATE", "BEAT", "VERSION", "RUNNING", "FREE", "LAG", "SESSIONS"]
    assert table[2].split()[:2] == ["boxb", "ready"]
    assert "boxb" in a.good("fleet", "list")
    assert "boxb" in a.good("fleet", "test")


def test_a_worker_drives_no_other_box(boxes: tuple[Box, Box]) -> None:
    _, b = boxes
    ran = b.run("run", "--on", "boxa", "-b", "demo", "-C", "/", "no")
    assert (ran.returncode, "may not look at boxa" in ran.stderr) == (77, True), ran.stderr


def test_jobs_run_on_the_boxes(boxes: tuple[Box, Box]) -> None:
    a, b = boxes
    ran = a.run("job", "submit", "-b", "demo", "-C", "/", "--box", "boxb", "--wait", "a job")
    assert (ran.returncode, ran.stdout) == (0, "You said: a job\n"), ran.stderr
    [row] = json.loads(a.good("job", "list", "--json"))
    assert (row["status"], row["outcome"], row["box"], row["submitter"]) == ("done", "completed", "boxb", "boxa")
    assert a.good("job", "get", row["job"][:6]).startswith(f"job:       {row['job']}")
    assert a.good("job", "wait", row["job"]) == "You said: a job\n"
    refused = a.run("job", "cancel", row["job"])
    assert (refused.returncode, "because it is done" in refused.stderr) == (2, True)
    assert b.run("job", "submit", "-b", "demo", "-C", "/", "no").returncode == 77
    waiting = a.run("job", "submit", "-b", "demo", "-C", "/", "--needs", "gpu", "wait")
    assert "boxb has no label gpu" in waiting.stderr
    a.good("job", "cancel", waiting.stdout.strip())


def test_a_batch_goes_to_the_boxes_and_goes_on(boxes: tuple[Box, Box]) -> None:
    a, _ = boxes
    (a.root / "prompts.txt").write_text("one\ntwo\nthree\n")
    words = ("batch", "prompts.txt", "--fleet", "-b", "demo", "-C", "/", "--json")
    rows = [json.loads(line) for line in a.good(*words).splitlines()]
    assert sorted(row["text"] for row in rows) == ["You said: one", "You said: three", "You said: two"]
    assert {row["ended_before"] for row in rows} == {False}
    again = [json.loads(line) for line in a.good(*words).splitlines()]
    assert {row["ended_before"] for row in again} == {True}


def test_the_doctor_finds_both_boxes(boxes: tuple[Box, Box]) -> None:
    a, _ = boxes
    found = {row["check"]: row["status"] for row in json.loads(a.good("fleet", "doctor", "--json"))}
    assert found == {"engine": "ok", "streams": "ok", "rights": "warn", "boxa": "ok", "boxb": "ok"}


def test_a_second_agent_of_a_box_is_refused(boxes: tuple[Box, Box]) -> None:
    a, _ = boxes
    ran = a.run("fleet", "agent", "--log-format", "json")
    assert (ran.returncode, "runs already" in ran.stderr) == (75, True), ran.stderr


def test_a_box_that_is_away_is_read_from_the_copy(boxes: tuple[Box, Box]) -> None:
    a, b = boxes
    text = a.good("run", "--on", "boxb", "-b", "demo", "-C", "/", "before it goes")
    id_ = next(row["session_id"] for row in sessions(a) if row["title"] == "before it goes")

    def copied() -> bool:
        with RawClient.connect(str(a.root / "run" / "clisup" / "fleet.sock")) as client:
            [row] = [row for row in client.call("fleet/boxes")["boxes"] if row["box"] == "boxb"]
        return bool(row["copied"] == len(sessions(a)) and row["lag"] == 0)

    until(copied)
    b.kill_agent()
    until(lambda: a.run("run", "--on", "boxb", "-b", "demo", "-C", "/", "no").returncode == 3)
    assert text.strip() in until(lambda: (ran := a.run("logs", f"boxb/{id_}")).returncode == 0 and ran.stdout)
    assert "boxb (away)" in a.good("sessions", "--fleet", "--all")
    ran = a.run("approvals", "--fleet")
    assert "boxb: its last beat was" in ran.stderr
    b.start()
    until(lambda: a.run("run", "--on", "boxb", "-b", "demo", "-C", "/", "again").returncode == 0)


def test_sighup_reads_the_table_again(boxes: tuple[Box, Box]) -> None:
    a, b = boxes
    config = b.root / ".config" / "clisup" / "config.toml"
    before = config.read_text()
    config.write_text(before.replace('accept = ["*"]', "accept = []"))
    try:
        b.agent.send_signal(signal.SIGHUP)
        until(lambda: a.run("run", "--on", "boxb", "-b", "demo", "-C", "/", "no").returncode == 77)
    finally:
        config.write_text(before)
        b.agent.send_signal(signal.SIGHUP)
    until(lambda: a.run("run", "--on", "boxb", "-b", "demo", "-C", "/", "yes").returncode == 0)


def test_without_a_fleet_nothing_of_it_is_loaded() -> None:
    code = (
        "import sys, clisup.daemon.app, clisup.daemon.clients.handlers, clisup.daemon.start, clisup.cli.status.command\n"
        "print([name for name in sys.modules if name.startswith(('clisup.fleet', 'nats', 'nkeys'))])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert ran.stdout == "[]\n"
