"""The standard streams of a command that is a process of its own: slow, full, left and closed ones."""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fake_daemon import SESSION, FakeDaemon
from test_status import STATUS

import clisup

BOUND_S = 60.0
ME = f"{shlex.quote(sys.executable)} -m clisup"
LONG = "".join(f"line {n:07d}\n" for n in range(40_000))


@pytest.fixture
def answering(daemon: FakeDaemon) -> FakeDaemon:
    """Its answer does not fit into a pipe by far."""

    def answer() -> None:
        daemon.emit("turn_started", run=1, prompt_preview="x")
        daemon.emit("message", message_id="m1", blocks=[{"kind": "text", "text": LONG}])
        daemon.emit("turn_completed", outcome="completed", text=LONG)

    def prompt(peer: object, params: object) -> dict[str, object]:
        threading.Thread(target=answer).start()  # the follower reads once the prompt is answered
        return {"turn_id": "t1", "seq": 1, "delivery": "delivered"}

    daemon.handlers["session/prompt"] = prompt
    return daemon


def env_of(daemon: FakeDaemon, **more: str) -> dict[str, str]:
    here = str(Path(clisup.__file__).parents[1])
    return {"PATH": os.environ["PATH"], "PYTHONPATH": here, "HOME": "/nonexistent", "CLISUP_SOCKET": daemon.path,
            "CLISUP_STATE_DIR": f"{daemon.path}.state", "LC_ALL": "C.UTF-8", **more}  # fmt: skip


def shell(line: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, env=env, timeout=BOUND_S)


@contextmanager
def running(env: dict[str, str], stdout: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "clisup", "run", "-b", "demo", "hi"]
    with subprocess.Popen(command, env=env, stdout=stdout, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def until_full(pipe: int) -> None:
    """Till nothing more goes into it."""
    end = time.monotonic() + BOUND_S
    while struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0] < fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ):
        assert time.monotonic() < end, "nobody fills it"
        time.sleep(0.01)


UNBUFFERED = pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])


@UNBUFFERED
def test_a_pipe_that_takes_nothing_for_a_while_gets_the_whole_answer(answering: FakeDaemon, unbuffered: str) -> None:
    """Non-blocking, as another process that has the same pipe may have made it."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETFL, fcntl.fcntl(writing, fcntl.F_GETFL) | os.O_NONBLOCK)
    with running(env_of(answering, PYTHONUNBUFFERED=unbuffered), writing) as process, open(reading, "rb") as pipe:
        os.close(writing)
        first = pipe.read(1)
        assert first + pipe.read() == LONG.encode()
        assert process.wait(BOUND_S) == 0


@UNBUFFERED
def test_a_command_that_was_stopped_in_the_middle_of_its_answer_gives_the_rest(
    answering: FakeDaemon, unbuffered: str
) -> None:
    reading, writing = os.pipe()
    with running(env_of(answering, PYTHONUNBUFFERED=unbuffered), writing) as process, open(reading, "rb") as pipe:
        os.close(writing)
        first = b""
        for _ in range(3):  # a write that a signal interrupts is a short one
            until_full(reading)
            first += os.read(reading, 8192)
            until_full(reading)
            os.kill(process.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            os.kill(process.pid, signal.SIGCONT)
            os.waitid(os.P_PID, process.pid, os.WCONTINUED | os.WNOWAIT)
        assert first + pipe.read() == LONG.encode()
        assert process.wait(BOUND_S) == 0


@UNBUFFERED
@pytest.mark.parametrize("command", ["run -b demo hi", "version", "--help", "status -q"])
def test_a_stdout_that_cannot_be_written_has_a_word_and_an_exit_code_of_its_own(
    answering: FakeDaemon, command: str, unbuffered: str
) -> None:
    answering.handlers["daemon/status"] = lambda peer, params: STATUS
    done = shell(f"{ME} {command} > /dev/full", env_of(answering, PYTHONUNBUFFERED=unbuffered))
    assert done.returncode == 74
    assert done.stderr.splitlines()[-1] == "clisup: cannot write to stdout, because No space left on device"
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


def test_a_stderr_that_cannot_be_written_is_passed_over(answering: FakeDaemon) -> None:
    done = shell(f"{ME} run -b demo hi 2> /dev/full", env_of(answering))
    assert (done.returncode, done.stdout) == (0, LONG)


@pytest.mark.parametrize("command", ["logs --json 3f2a", "logs 3f2a", "run -b demo hi"])
def test_a_reader_that_leaves_early_is_told_by_141_as_a_shell_tells_it(answering: FakeDaemon, command: str) -> None:
    for n in range(3000):
        answering.emit("notice", code=str(n), message="x" * 100)
    done = shell(f"{ME} {command} | head -1; exit ${{PIPESTATUS[0]}}", env_of(answering))
    assert done.returncode == 141
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


@pytest.mark.parametrize("closed", ["2>&-", ">&-", "<&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_as_dev_null(answering: FakeDaemon, closed: str) -> None:
    done = shell(f"{ME} run -b demo hi {closed}", env_of(answering))
    assert done.returncode == 0
    assert done.stdout == ("" if ">&-" in closed.replace("2>&-", "") else LONG)
    assert (f"session {SESSION}" in done.stderr) is ("2>&-" not in closed)


def test_what_is_opened_later_is_not_taken_for_a_closed_stream(answering: FakeDaemon) -> None:
    code = "import os; from clisup.cli.main import open_closed; open_closed(); print(os.open('/dev/zero', os.O_RDONLY) > 2)"
    done = shell(f"{shlex.quote(sys.executable)} -c {shlex.quote(code)} <&- 2>&-", env_of(answering))
    assert (done.returncode, done.stdout) == (0, "True\n")


def test_without_stdin_there_is_no_prompt(answering: FakeDaemon) -> None:
    done = shell(f"{ME} run -b demo <&-", env_of(answering))
    assert done.returncode == 2
    assert "stdin was empty" in done.stderr
