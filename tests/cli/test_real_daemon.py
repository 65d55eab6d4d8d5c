"""The commands against the real daemon, with the demo backend: processes, sockets and signals as in earnest."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
from harness import zygote
from zygote import Forked

import clisup
from clisup.client.aio import open_client
from clisup.client.sync import Client
from clisup.errors import ClisupError
from tests.fakecli import COMMAND

BOUND_S = 60.0
Done = subprocess.CompletedProcess[str]


def until(condition: Callable[[], Any]) -> Any:
    """Poll for a condition, under a generous bound."""
    end = time.monotonic() + BOUND_S
    while time.monotonic() < end:
        if found := condition():
            return found
        threading.Event().wait(0.02)
    raise AssertionError("it did not come true in time")


class Service:
    """A daemon of the test's own, and commands that speak to it."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.socket = str(scratch / "d.sock")
        self.env = {
            "PATH": os.environ["PATH"], "HOME": str(scratch), "PYTHONPATH": str(Path(clisup.__file__).parents[1]),
            "CLISUP_SOCKET": self.socket, "CLISUP_STATE_DIR": str(scratch / "state"), "LC_ALL": "C.UTF-8",
        }  # fmt: skip
        config = scratch / ".config" / "clisup" / "config.toml"
        config.parent.mkdir(parents=True)
        config.write_text(f"[backends.demo]\ncommand = {json.dumps(COMMAND)}\n")
        self._begun: list[subprocess.Popen[str]] = []
        self.process = self.start()

    def start(self) -> Forked:
        process = self.process = zygote().fork(["serve"], self.env, self.scratch / "daemon.log")
        until(lambda: self._answers(process))
        return process

    def _answers(self, process: Forked) -> bool:
        assert process.poll() is None, (self.scratch / "daemon.log").read_text()
        try:
            Client.connect(self.socket).close()
        except ClisupError:
            return False
        return True

    def kill(self) -> None:
        """As a crash: no clean-up at all."""
        self.process.kill()
        self.process.wait(BOUND_S)

    def stop(self) -> None:
        """Leave nothing behind, whatever the test did."""
        for process in self._begun:
            process.kill()
            process.communicate(timeout=BOUND_S)
        if self.process.poll() is None and self.run("stop", "--mode", "kill").returncode != 0:
            self.process.kill()
        self.process.wait(BOUND_S)

    def _argv(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "clisup", *args]

    def run(self, *args: str, stdin: str = "") -> Done:
        return subprocess.run(self._argv(*args), input=stdin, capture_output=True, text=True, env=self.env,
                              timeout=BOUND_S, check=False)  # fmt: skip

    def begin(self, *args: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(self._argv(*args), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=self.env)  # fmt: skip
        self._begun.append(process)
        return process

    def running(self) -> str | None:
        """The id of a session whose turn runs."""
        with Client.connect(self.socket) as client:
            found = client.call("session/list", state="running")["sessions"]
        return found[0]["session_id"] if found else None


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path)
    yield service
    service.stop()


def test_a_prompt_its_answer_and_what_the_commands_then_show(service: Service) -> None:
    ran = service.run("run", "-b", "demo", "--label", "ticket=4711", "hello")
    assert (ran.returncode, ran.stdout) == (0, "You said: hello\n"), ran.stderr
    session = json.loads(service.run("sessions", "--json").stdout)["session_id"]
    assert f"--session {session}" in ran.stderr
    assert service.run("run", "--session", session[:8], "again").stdout == "You said: again\n"

    page = service.run("status").stdout
    assert page.startswith(f"● clisup {clisup.__version__} — ready (pid {service.process.pid}, ")
    assert "2 completed, 0 failed" in page
    status = json.loads(service.run("status", "--json").stdout)
    assert (status["schema_version"], status["sessions"][0]["session_id"]) == (1, session)
    assert "Labels: ticket=4711" in service.run("status", session[:4]).stdout

    lines = service.run("logs", "--json", session[:8]).stdout.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert '"type":"assistant"' in service.run("logs", "--raw", session).stdout.replace(" ", "")
    assert "turn_completed" in service.run("logs", "--no-deltas", session).stdout

    assert service.run("close", session[:8]).stdout == f"session {session}: closed\n"
    assert service.run("run", "--session", session, "late").returncode == 2
    assert service.run("sessions").stdout.startswith("No open sessions")
    assert "turn_completed" in service.run("logs", session[:8]).stdout


def test_backends_and_env_are_shown(service: Service) -> None:
    assert "demo" in service.run("backends").stdout
    report = json.loads(service.run("env", "demo", "--json").stdout)
    assert "PATH" in [item["name"] for item in report["kept"]]
    assert "Dropped" in service.run("env", "demo").stdout
    assert service.run("env", "nope").returncode == 69
    assert service.run("run", "-b", "nope", "hi").returncode == 69


def test_a_large_answer_arrives_whole(service: Service) -> None:
    assert len(service.run("run", "-b", "demo", "@huge 3000000").stdout) == 3_000_001


def test_text_that_was_taken_back_is_not_in_a_pipe(service: Service) -> None:
    assert service.run("run", "-b", "demo", "@cut").stdout == "This text stays.\n"


def test_a_denied_tool_is_exit_77(service: Service) -> None:
    ran = service.run("run", "-b", "demo", '@denied Write {"file_path": "/nonexistent/x"}\nThen text.')
    assert (ran.returncode, ran.stdout) == (77, "Then text.\n")
    assert "the CLI was denied: Write" in ran.stderr


@pytest.mark.parametrize(("script", "said"), [("@error overloaded", "overloaded"), ("@crash", "crashed")])
def test_a_failed_turn_is_exit_1_and_says_why(service: Service, script: str, said: str) -> None:
    ran = service.run("run", "-b", "demo", script)
    assert ran.returncode == 1
    assert f"because the turn failed: {said}: " in ran.stderr


def test_a_cli_without_a_login_is_exit_69_and_an_error_on_stderr(service: Service) -> None:
    ran = service.run("run", "-b", "demo", "@error login")
    assert (ran.returncode, ran.stdout) == (69, "")
    assert "because the turn failed: authentication: Not logged in" in ran.stderr
    session = json.loads(service.run("sessions", "--json").stdout)["session_id"]
    assert service.run("wait", session).returncode == 69


def test_ctrl_c_interrupts_a_turn_that_says_nothing(service: Service) -> None:
    process = service.begin("run", "-b", "demo", "Some text.\n@stall")
    until(service.running)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=BOUND_S)
    assert process.returncode == 130, err
    assert "interrupting the turn" in err


def test_interrupt_and_kill_end_a_turn_from_beside(service: Service) -> None:
    for flags in ([], ["--kill"]):
        process = service.begin("run", "-b", "demo", "@ignore-int\n@stall" if flags else "@stall")
        session = until(service.running)
        assert service.run("interrupt", *flags, session[:8]).stdout == "turn t1: interrupted\n"
        process.communicate(timeout=BOUND_S)
        assert process.returncode == 130
    assert service.run("interrupt", session).returncode == 2


def test_a_crash_of_the_daemon_in_the_middle_loses_and_repeats_nothing(service: Service, tmp_path: Path) -> None:
    script = f"@stream 20 14 0.01\n@wait-file {tmp_path}/go\n@stream 20 14 0.01"
    run = service.begin("run", "-b", "demo", "--json", script)
    text = service.begin("run", "-b", "demo", script)
    until(service.running)
    service.kill()
    service.start()
    (tmp_path / "go").touch()
    out, err = run.communicate(timeout=BOUND_S)
    assert run.returncode == 0, err
    assert "[connected again]" in err
    seqs = [json.loads(line)["seq"] for line in out.splitlines()]
    assert seqs == list(range(1, len(seqs) + 1))
    out, err = text.communicate(timeout=BOUND_S)
    assert (text.returncode, out.count("chunk 0000")) == (0, 40), err


async def test_the_trio_client_follows_across_a_crash(service: Service) -> None:
    with trio.fail_after(BOUND_S):
        async with open_client(service.socket) as client:
            opened = await client.call("session/new", backend="demo", cwd="/")
            done = await client.call("session/prompt", session_id=opened["session_id"], prompt="one", wait=True)
            assert done["text"] == "You said: one"
            events = client.subscribe(opened["session_id"], 0)
            seqs = [(await anext(events))["seq"] for _ in range(3)]
            await trio.to_thread.run_sync(service.kill)
            await trio.to_thread.run_sync(service.start)
            async for event in events:
                seqs.append(event["seq"])
                if event["type"] == "turn_completed":
                    break
    assert seqs == list(range(1, len(seqs) + 1))


def test_stop_ends_the_daemon_and_status_then_says_so(service: Service) -> None:
    assert service.run("stop").stdout == "stopped\n"
    assert service.process.wait(BOUND_S) == 0, (service.scratch / "daemon.log").read_text()
    assert service.run("status").returncode == 3


def test_detach_leaves_the_turn_to_the_next_daemon(service: Service, tmp_path: Path) -> None:
    run = service.begin("run", "-b", "demo", f"@wait-file {tmp_path}/go\nAfter the change.")
    until(service.running)
    assert service.run("stop", "--mode", "detach").returncode == 0
    service.process.wait(BOUND_S)
    service.start()
    (tmp_path / "go").touch()
    out, err = run.communicate(timeout=BOUND_S)
    assert (run.returncode, out) == (0, "After the change.\n"), err


def test_a_restart_in_place_is_no_end_for_a_turn_nor_for_who_follows_it(service: Service, tmp_path: Path) -> None:
    """Each chunk is printed once, by `run` and by `logs --all -f`; a second follower of the same name goes on behind it."""
    follower = service.begin("logs", "--all", "-f", "--name", "audit", "--json")
    script = f"@stream 20 14 0.01\n@wait-file {tmp_path}/go\n@stream 20 14 0.01"
    run = service.begin("run", "-b", "demo", script)
    session = until(service.running)
    until(lambda: '"chunk 000019' in service.run("logs", "--json", session).stdout)
    pid = service.process.pid
    restarted = service.run("daemon", "restart")
    assert (restarted.returncode, restarted.stdout) == (0, f"restarted: clisup {clisup.__version__}, pid {pid}\n")
    assert "1 running turn goes on" in restarted.stderr
    (tmp_path / "go").touch()
    out, err = run.communicate(timeout=BOUND_S)
    assert (run.returncode, out.count("chunk 0000")) == (0, 40), err
    assert "[connected again]" in err

    assert follower.stdout is not None
    printed = [json.loads(follower.stdout.readline())]
    while printed[-1]["type"] != "turn_completed":
        printed.append(json.loads(follower.stdout.readline()))
    stored = [json.loads(line) for line in service.run("logs", "--json", session).stdout.splitlines()]
    assert printed == stored
    with Client.connect(service.socket) as client:
        until(lambda: _acknowledged(client, session) == stored[-1]["seq"])
    follower.send_signal(signal.SIGINT)
    follower.communicate(timeout=BOUND_S)
    assert follower.returncode == 130

    assert service.run("run", "--session", session, "again").stdout == "You said: again\n"
    second = service.begin("logs", "--all", "-f", "--name", "audit", "--json")
    assert second.stdout is not None
    assert json.loads(second.stdout.readline())["seq"] == stored[-1]["seq"] + 1


def _acknowledged(client: Client, session: str) -> int:
    """Where the durable place stands: to go on to 0 moves nothing."""
    return int(client.call("session/ack", name="audit", session_id=session, seq=0)["seq"])


def test_closed_sessions_are_deleted_and_gone(service: Service) -> None:
    service.run("run", "-b", "demo", "one")
    session = json.loads(service.run("sessions", "--json").stdout)["session_id"]
    assert service.run("delete", session[:8]).returncode == 75
    service.run("close", session)
    assert service.run("delete", session[:8]).stdout == f"session {session}: deleted\n"
    assert service.run("logs", session[:8]).returncode == 4
    assert service.run("delete", "--all-closed").stdout == "No closed sessions.\n"
