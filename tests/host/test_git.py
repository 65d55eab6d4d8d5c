"""git as a child process: scrubbed, bounded in time and output, and never left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clisup.errors import WorldError
from clisup.host.git import Git, GitOutput, GitPlace, git_environment

NOWHERE = GitPlace("/nonexistent", "/nonexistent")


def fake(folder: Path, script: str) -> Git:
    """A git that is this shell script."""
    folder.mkdir(exist_ok=True)
    (folder / "git").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "git").chmod(0o755)
    return Git({"PATH": f"{folder}:{os.environ['PATH']}"}, str(folder.parent / "state"))


def test_no_variable_of_the_daemon_but_few_reaches_git() -> None:
    inherited = {
        "PATH": "/bin",
        "HOME": "/h",
        "GIT_DIR": "/x",
        "GIT_SSH_COMMAND": "x",
        "ANTHROPIC_API_KEY": "k",
        "LD_PRELOAD": "x",
    }
    found = git_environment(inherited)
    assert {name for name in found if name in inherited} == {"PATH", "HOME"}
    assert (found["GIT_TERMINAL_PROMPT"], found["GIT_OPTIONAL_LOCKS"]) == ("0", "0")


async def test_output_and_errors_are_kept_apart(tmp_path: Path) -> None:
    done = await fake(tmp_path / "bin", 'echo out; echo "warning: careful" >&2; echo "fatal: no way" >&2; exit 3').run(
        NOWHERE, "x"
    )
    assert (done.code, done.out, done.ok, done.reason) == (3, "out\n", False, "no way")


async def test_output_beyond_its_limit_is_cut_and_the_child_ended(tmp_path: Path) -> None:
    done = await fake(tmp_path / "bin", "exec yes").run(NOWHERE, "x", limit_bytes=1000)
    assert (done.ok, done.cut, len(done.out)) == (True, True, 1000)


async def test_output_within_its_limit_is_whole(tmp_path: Path) -> None:
    done = await fake(tmp_path / "bin", "printf abc").run(NOWHERE, "x", limit_bytes=4)
    assert (done.out, done.cut) == ("abc", False)


async def test_a_git_that_does_not_end_is_ended(tmp_path: Path) -> None:
    with pytest.raises(WorldError, match=r"did not end within 0\.2 s") as late:
        await fake(tmp_path / "bin", "exec sleep 600").run(NOWHERE, "x", limit_s=0.2)
    assert (late.value.kind, late.value.data["reason"]) == ("git_failed", "git_failed")


async def test_a_git_that_is_killed_is_no_result(tmp_path: Path) -> None:
    with pytest.raises(WorldError, match="killed by signal 9"):
        await fake(tmp_path / "bin", "kill -9 $$").run(NOWHERE, "x")


async def test_without_git_the_error_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(WorldError, match=f"git not found on the daemon's PATH .{tmp_path}") as none:
        await Git({"PATH": str(tmp_path)}, str(tmp_path / "state")).run(NOWHERE, "status")
    assert none.value.data["reason"] == "no_git"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("", "git ended with status 1"),
        ("one\ntwo\n", "two"),
        ("hint: a\nerror: b\nfatal: c\n", "b"),
        ("fatal: " + "x" * 1000, "x" * 300),
    ],
)
def test_the_reason_is_gits_own(said: str, reason: str) -> None:
    assert GitOutput(1, b"", said, False).reason == reason
