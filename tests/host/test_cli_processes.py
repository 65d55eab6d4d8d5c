"""Who has a CLI's session open: what is believed, and what a file that somebody has put there cannot do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from clisup.backends.claude.transcript import ClaudePresence
from clisup.backends.codex.native_sessions import CodexPresence
from clisup.host.process.cli_processes import FILE_BYTES, OwnProcesses, Question, find_writers, remove_stale_locks
from clisup.policy.cli_files import StaleLock

NATIVE, OTHER = str(uuid.uuid4()), str(uuid.uuid4())  # command lines are seen by tests that run beside this one
OWN = OwnProcesses(str(uuid.uuid4()), "1f.2a")
RULES = ClaudePresence()
Start = Callable[..., int]


@pytest.fixture
def start() -> Iterator[Start]:
    """A real process that waits for its end; gives its pid."""
    made: list[subprocess.Popen[bytes]] = []

    def begin(*words: str, name: str = "sleep", **env: str) -> int:
        code = "import sys; print(flush=True); sys.stdin.read()"
        argv = [name, "-I", "-S", "-c", code, *words]
        made.append(
            subprocess.Popen(argv, executable=sys.executable, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        )
        stdout = made[-1].stdout
        assert stdout is not None and stdout.readline()  # exec is over: its command line is its own
        return made[-1].pid

    yield begin
    for process in made:
        process.kill()
        process.communicate()


def started(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def say(directory: Path, pid: int, /, **changes: Any) -> Path:
    """The file as claude 2.1.329 writes it."""
    namespace = os.readlink("/proc/self/ns/pid")
    said = {
        "pid": pid,
        "sessionId": NATIVE,
        "cwd": "/work",
        "procStart": str(started(pid)) if os.path.exists(f"/proc/{pid}") else "1",
        "version": "2.1.329",
        "kind": "interactive",
        "pidDomain": f"linux:3d1219c7c4c5404aaa1f6d2a48adfda4:{namespace}",
        **changes,
    }
    path = directory / f"{pid}.json"
    path.write_text(json.dumps(said))
    return path


def writer(directory: Path, own: OwnProcesses = OWN, launched: frozenset[int] = frozenset()) -> int | None:
    return find_writers([Question(RULES, str(directory), NATIVE, own)], launched)[0]


_LOCKS = "import fcntl, sys, time\nfile = open(sys.argv[1], 'a')\nfcntl.flock(file, fcntl.LOCK_EX)\nprint(flush=True)\ntime.sleep(600)"


def test_the_holder_of_a_lock_has_the_session_open_until_its_end(tmp_path: Path) -> None:
    lock = tmp_path / f"{NATIVE}.lock"
    with open(lock, "a"), subprocess.Popen([sys.executable, "-c", _LOCKS, lock], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline()
        others = [Question(CodexPresence(), str(tmp_path), name, OWN) for name in (NATIVE, NATIVE[::-1], "../x")]
        assert find_writers(others) == [holder.pid, None, None]
        ours = OWN._replace(keeper_pid=os.getpid())
        assert find_writers([Question(CodexPresence(), str(tmp_path), NATIVE, ours)]) == [None]
        holder.kill()
    assert find_writers(others) == [None] * 3 and lock.exists()


def _named(words: list[str]) -> list[str]:
    return [word.replace("NATIVE", NATIVE).replace("OTHER", OTHER) for word in words]


def test_a_living_process_that_says_so_has_the_session_open(tmp_path: Path, start: Start) -> None:
    pid = start()
    assert writer(tmp_path) is None
    say(tmp_path, pid)
    assert writer(tmp_path) == pid


@pytest.mark.parametrize(
    "changes",
    [{"sessionId": "OTHER"}, {"procStart": "1"}, {"pidDomain": "linux:3d12:pid:[1]"}, {"pid": 1}, {"sessionId": 7}],
)
def test_another_session_process_or_namespace_is_none_of_it(tmp_path: Path, start: Start, changes: Any) -> None:
    say(tmp_path, start(), **changes)
    assert writer(tmp_path) is None


def test_a_file_that_sigkill_left_behind_is_none(tmp_path: Path, start: Start) -> None:
    pid = start()
    say(tmp_path, pid)
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # a zombie, as long as nobody asks for it
    assert writer(tmp_path) is None


def test_a_process_of_the_session_itself_is_no_stranger(tmp_path: Path, start: Start) -> None:
    say(tmp_path, start(CLISUP_SESSION=OWN.session_id))
    assert writer(tmp_path) is None
    pid = start()
    say(tmp_path, pid)
    assert writer(tmp_path, OWN._replace(keeper_pid=os.getpid())) is None
    assert writer(tmp_path, OWN._replace(keeper_pid=2**22)) == pid


@pytest.mark.fault(86)
def test_a_process_of_a_copy_of_the_session_is_a_stranger(tmp_path: Path, start: Start) -> None:
    pid = start(CLISUP_SESSION=OWN.session_id, CLISUP_STATE_ID="1f.2b")
    say(tmp_path, pid)
    assert writer(tmp_path) == pid


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start what looks like a set-uid program of another user")
@pytest.mark.parametrize("uids", [(65534, 0, 0), (0, 0, 65534), (65534, 0, 65534)])
def test_a_set_uid_program_of_another_user_is_no_writer_whatever_its_command_line(
    tmp_path: Path, uids: tuple[int, int, int]
) -> None:
    code = f"import os, sys; os.setresuid{uids}; print(flush=True); sys.stdin.read()"
    argv = ["claude", "-I", "-S", "-c", code, "--resume", NATIVE]
    with subprocess.Popen(argv, executable=sys.executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        assert writer(tmp_path) is None
        say(tmp_path, process.pid)
        assert writer(tmp_path) is None
        process.kill()


def test_the_command_line_of_what_the_daemon_has_launched_itself_is_not_read_but_its_file_is(
    tmp_path: Path, start: Start
) -> None:
    pid = start("--resume", NATIVE, name="claude")
    assert writer(tmp_path) == pid
    assert writer(tmp_path, launched=frozenset({pid})) is None
    say(tmp_path, pid)
    assert writer(tmp_path, launched=frozenset({pid})) == pid


def test_each_of_many_that_ask_together_gets_its_own_answer(tmp_path: Path, start: Start) -> None:
    (tmp_path / "other").mkdir()
    pid, named = start(), start("--resume", OTHER, name="claude")
    say(tmp_path, pid)
    mine = [Question(RULES, str(tmp_path), native, OWN) for native in (NATIVE, OTHER, str(uuid.uuid4()))]
    elsewhere = Question(RULES, str(tmp_path / "other"), NATIVE, OWN)
    assert find_writers([*mine, elsewhere]) == [pid, named, None, None]


@pytest.mark.parametrize(
    "words",
    [
        ["--resume", "NATIVE"],
        ["--resume=NATIVE"],
        ["-p", "-r", "NATIVE"],
        ["--session-id", "NATIVE"],
        ["--resume", "/a/NATIVE.jsonl"],
    ],
)
def test_a_command_line_tells_where_there_is_no_file(tmp_path: Path, start: Start, words: list[str]) -> None:
    pid = start(*_named(words), name="/opt/bin/claude")
    assert writer(tmp_path / "none") == pid


def test_a_file_is_believed_before_the_command_line(tmp_path: Path, start: Start) -> None:
    say(tmp_path, start("--resume", NATIVE, name="claude"), sessionId=OTHER)  # it has gone on to another session
    assert writer(tmp_path) is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("grep", ["--resume", "NATIVE"]),
        ("claude", ["--resume", "OTHER"]),
        ("claude", ["--resume", "NATIVE", "--fork-session"]),
    ],
)
def test_other_command_lines_tell_nothing(tmp_path: Path, start: Start, name: str, words: list[str]) -> None:
    start(*_named(words), name=name)
    assert writer(tmp_path) is None


@pytest.mark.parametrize(
    "data", [b"", b"\x00\xff", b"[" * 60_000, b"{}", b"[]", b"7", b'{"pid":1e999}', b"x" * (FILE_BYTES + 1)]
)
def test_a_file_of_garbage_changes_nothing(tmp_path: Path, start: Start, data: bytes) -> None:
    pid = start()
    (tmp_path / f"{pid}.json").write_bytes(data)
    (tmp_path / "1.json").write_bytes(data)
    assert writer(tmp_path) is None
    other = start()
    say(tmp_path, other)
    assert writer(tmp_path) == other


def test_a_pipe_a_link_and_a_directory_hold_nobody_up(tmp_path: Path, start: Start) -> None:
    pid = start()
    os.mkfifo(tmp_path / "1.json")
    (tmp_path / "2.json").symlink_to("/dev/zero")
    (tmp_path / "3.json").mkdir()
    (tmp_path / f"{pid}.json").symlink_to(say(tmp_path / "3.json", pid))
    assert writer(tmp_path) is None


def test_a_directory_that_is_none_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert writer(tmp_path / "file") is None
    assert find_writers([Question(RULES, None, NATIVE, OWN)]) == [None]


LOCK = StaleLock("gemini", ("GEMINI_CLI_HOME", "HOME"), ".gemini/projects.json.lock")


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / ".gemini" / "projects.json.lock"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Starts a process that looks like a CLI of this name, and waits until it runs."""
    with ExitStack() as stack:

        def start(name: str, **env: str) -> None:
            script = tmp_path / name
            script.write_text("import sys; print(flush=True); sys.stdin.read()\n")
            process = subprocess.Popen(
                [sys.executable, str(script)], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdout is not None and process.stdout.readline()

        yield start


def test_a_lock_that_nobody_can_hold_is_removed(lock: Path, tmp_path: Path) -> None:
    assert remove_stale_locks((LOCK,), {"HOME": str(tmp_path)}) == [str(lock)]
    assert not lock.exists()


@pytest.mark.parametrize("name", ["gemini", "gemini.js"])
def test_a_living_cli_of_the_same_home_keeps_its_lock(
    lock: Path, tmp_path: Path, run: Callable[..., None], name: str
) -> None:
    run(name, HOME=str(tmp_path))
    assert remove_stale_locks((LOCK,), {"HOME": str(tmp_path)}) == []
    assert lock.exists()


def test_a_home_is_the_same_by_whichever_way_it_is_named(lock: Path, tmp_path: Path, run: Callable[..., None]) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    run("gemini", HOME="/nonexistent", GEMINI_CLI_HOME=str(tmp_path / "link"))
    assert remove_stale_locks((LOCK,), {"HOME": str(tmp_path)}) == []


def test_a_cli_that_tells_no_home_may_have_this_one(lock: Path, tmp_path: Path, run: Callable[..., None]) -> None:
    run("gemini")
    assert remove_stale_locks((LOCK,), {"HOME": str(tmp_path)}) == []


def test_a_cli_of_another_home_and_another_program_do_not_count(
    lock: Path, tmp_path: Path, run: Callable[..., None]
) -> None:
    run("gemini", HOME="/nonexistent")
    run("gemini-like", HOME=str(tmp_path))
    assert remove_stale_locks((LOCK,), {"HOME": str(tmp_path)}) == [str(lock)]


def test_the_first_variable_that_has_a_value_names_the_home(lock: Path, tmp_path: Path) -> None:
    env = {"GEMINI_CLI_HOME": str(tmp_path), "HOME": "/nonexistent"}
    assert remove_stale_locks((LOCK,), env) == [str(lock)]


def test_what_is_not_an_empty_directory_of_ours_stays(tmp_path: Path) -> None:
    path = tmp_path / ".gemini" / "projects.json.lock"
    path.parent.mkdir()
    env = {"HOME": str(tmp_path)}
    assert remove_stale_locks((LOCK,), env) == []  # nothing there at all
    path.write_text("")
    assert remove_stale_locks((LOCK,), env) == []
    path.unlink()
    (tmp_path / "elsewhere").mkdir()
    path.symlink_to(tmp_path / "elsewhere")
    assert remove_stale_locks((LOCK,), env) == []
    path.unlink()
    path.mkdir()
    (path / "file").touch()
    assert remove_stale_locks((LOCK,), env) == []
    assert remove_stale_locks((LOCK,), {}) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
def test_a_lock_of_another_user_stays(lock: Path, tmp_path: Path) -> None:
    os.chown(lock, 65534, 65534)
    assert remove_stale_locks((LOCK,), {"HOME": str(tmp_path)}) == []
