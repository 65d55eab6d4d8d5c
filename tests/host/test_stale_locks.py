"""A lock that a CLI has left behind goes; one that somebody may hold stays."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from clisup.host.process.cli_processes import remove_stale_locks
from clisup.policy.cli_files import StaleLock

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
