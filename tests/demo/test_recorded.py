"""The player of recordings, as a process: it says what was said, when it was said, and only after it was told as much."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.demo.conftest import COMMAND, PATIENCE_S, Demo

Start = Callable[..., "subprocess.Popen[bytes]"]
OLD, NEW = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """`start(data, flags..., key=value of the meta file...)`."""
    started: list[subprocess.Popen[bytes]] = []

    def make(data: bytes, *args: str, **meta: Any) -> subprocess.Popen[bytes]:
        (tmp_path / "r.jsonl").write_bytes(data)
        (tmp_path / "r.meta.json").write_text(json.dumps(meta))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen([*COMMAND, "--play", str(tmp_path / "r.jsonl"), *args], **pipes))  # type: ignore[call-overload]
        return started[-1]

    yield make
    for process in started:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes, int]:
    out, err = process.communicate(timeout=PATIENCE_S)
    return out, err, process.returncode


@pytest.mark.parametrize("data", [b"", b"\n", b'{"a":1}\n{"b":2}\n', b"\xff\xfe\0 no line", b"x" * 300_000])
def test_every_byte_is_said_and_the_end_is_the_recorded_one(start: Start, data: bytes) -> None:
    assert ended(start(data, exit_code=3, stderr="oh no\n")) == (data, b"oh no\n", 3)


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGSEGV"])
def test_a_recorded_signal_ends_it(start: Start, name: str) -> None:
    assert ended(start(b"x\n", signal=name, exit_code=None)) == (b"x\n", b"", -signal.Signals[name])


def waits(process: subprocess.Popen[bytes]) -> bool:
    """Do both of its threads sleep, the one that reads and the one that speaks, with nothing said?"""

    def asleep() -> bool:
        states = [
            path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{process.pid}/task").glob("*/stat")
        ]
        return states == ["S", "S"]

    assert process.stdout is not None
    return Demo.eventually(asleep) and not select.select([process.stdout], [], [], 0)[0]


def test_it_says_no_line_before_it_was_told_as_many_as_the_cli_was(start: Start) -> None:
    process = start(b"one\ntwo\nbye\n", said=[[0, 1], [4, 3], [12, None]])
    assert process.stdin is not None and process.stdout is not None
    assert waits(process)
    process.stdin.write(b"first\n")
    process.stdin.flush()
    assert os.read(process.stdout.fileno(), 100) == b"one\n"
    process.stdin.write(b"second\nthird, ")
    process.stdin.flush()
    assert waits(process)
    process.stdin.write(b"whole\n")
    process.stdin.flush()
    assert os.read(process.stdout.fileno(), 100) == b"two\nbye\n"
    assert waits(process)
    process.stdin.close()
    assert process.wait(PATIENCE_S) == 0
    process.stdin = None


def test_a_stdin_that_ends_early_holds_nothing_up(start: Start) -> None:
    assert ended(start(b"one\n", said=[[0, 5], [4, 9]]))[0] == b"one\n"


@pytest.mark.parametrize("speed", [("0",), ("1000000",)])
def test_speed_shortens_the_pauses(start: Start, speed: tuple[str, ...]) -> None:
    """An hour between two lines, and two until the exit: the test would not end without it."""
    process = start(b"one\ntwo\n", *speed, timing=[[4, 1.0], [8, 3600.0]], duration_s=7200)
    assert ended(process) == (b"one\ntwo\n", b"", 0)


def test_it_keeps_silent_where_the_cli_did_and_leaves_when_it_is_told_to(start: Start) -> None:
    process = start(b"one\ntwo\n", timing=[[4, 0.0], [8, 3600.0]])
    assert process.stdout is not None
    assert process.stdout.readline() == b"one\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == -signal.SIGINT


@pytest.mark.parametrize("flags", [("--session-id", NEW), (f"--resume={NEW}",), ("-p", f"--session-id={NEW}")])
@pytest.mark.parametrize("meta", [{"launch": {"native_session_id": OLD}}, {"argv": ["cli", f"--session-id={OLD}"]}])
def test_the_session_is_the_one_that_was_asked_for(start: Start, flags: tuple[str, ...], meta: dict[str, Any]) -> None:
    line = b'{"session_id":"%s"}\n'
    assert ended(start(line % OLD.encode(), *flags, **meta))[0] == line % NEW.encode()


@pytest.mark.parametrize(
    ("kind", "said"),
    [("claude", "7.1 (Claude Code)"), ("codex", "codex-cli 7.1"), ("demo", "7.1 (clisup demo)"), ("x", "7.1")],
)
def test_it_tells_the_version_as_its_cli_does(start: Start, kind: str, said: str) -> None:
    assert ended(start(b"x\n", "0", "--version", kind=kind, cli_version="7.1"))[0].decode() == f"{said}\n"


@pytest.mark.parametrize(
    "meta", [b"", b"[]", b"nonsense", b'{"timing": [1]}', b'{"signal": "SIGNONE"}', b'{"launch": 1}', b"[" * 99_999]
)
def test_what_is_no_recording_is_refused_in_words(tmp_path: Path, meta: bytes) -> None:
    (tmp_path / "r.jsonl").write_bytes(b"x\n")
    (tmp_path / "r.meta.json").write_bytes(meta)
    done = subprocess.run([*COMMAND, "--play", str(tmp_path / "r.jsonl")], capture_output=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"its meta file is wrong" in done.stderr


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    done = subprocess.run([*COMMAND, "--play", f"{tmp_path}/r.jsonl"], capture_output=True, timeout=PATIENCE_S)
    assert (done.returncode, b"r.jsonl cannot be read: No such file" in done.stderr) == (1, True)
    done = subprocess.run([*COMMAND, "--play"], capture_output=True, timeout=PATIENCE_S)
    assert (done.returncode, b"needs the name" in done.stderr) == (1, True)
