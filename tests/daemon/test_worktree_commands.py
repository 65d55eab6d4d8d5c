"""`clisup run --worktree`, `diff`, `land` and `discard` against a real daemon and real repositories."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import environment, run
from harness import Harness
from pty_terminal import Terminal
from test_worktrees import Project, git, opened, project, tree_of

__all__ = ["project"]

WRITE = '@run Write {"file_path": "made.txt", "content": "made\\n"}'


def in_project(daemon: Harness, project: Project, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "clisup", *args], capture_output=True, text=True, check=False,
                          env=environment(daemon), timeout=60, stdin=subprocess.DEVNULL, cwd=project.path)  # fmt: skip


def test_a_run_in_a_worktree_is_compared_landed_and_closed(daemon: Harness, project: Project) -> None:
    (project.path / "draft").write_text("mine")
    ran = in_project(daemon, project, "run", "-b", "demo", "--permission-mode", "acceptEdits", "--worktree-name", "fix",
                     WRITE)  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "branch clisup/fix" in ran.stderr
    assert f"uncommitted changes stay in {project.path}" in ran.stderr
    row = next(row for row in daemon.call("session/list")["sessions"] if row["cwd"].startswith(str(project.path)))
    id_, tree = row["session_id"], Path(row["cwd"])
    assert (tree / "made.txt").read_text() == "made\n"
    shown = run(daemon, "diff", id_[:8])
    assert (shown.returncode, shown.stdout) == (0, "")
    assert "untracked: made.txt" in shown.stderr
    assert "0 commits not landed on main, 1 uncommitted file" in shown.stderr
    stat = run(daemon, "diff", id_, "--stat")
    assert [line.split() for line in stat.stdout.splitlines()] == [
        ["ADDED", "DELETED", "FILE"], ["untracked", "-", "made.txt"]
    ]  # fmt: skip
    refused = run(daemon, "land", id_)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "--commit MESSAGE" in refused.stderr
    landed = run(daemon, "land", id_, "--commit", "Make it")
    assert (landed.returncode, landed.stderr) == (0, "")
    assert "main: 1 commit landed" in landed.stdout
    assert (project.path / "made.txt").read_text() == "made\n"
    closed = run(daemon, "close", id_)
    assert (closed.returncode, closed.stderr) == (0, "")
    assert not tree.exists()


def test_the_patch_in_a_pipe_can_be_applied_as_it_is(daemon: Harness, project: Project, tmp_path: Path) -> None:
    session = opened(daemon, project)
    project.commit("src/a.txt", "one\n\ttwo \x1b[31m\n", "Change a", tree_of(session))
    patch = run(daemon, "diff", session.id).stdout
    (tmp_path / "patch").write_text(patch)
    git(project.path, "apply", str(tmp_path / "patch"))
    assert (project.path / "src/a.txt").read_text() == "one\n\ttwo \x1b[31m\n"


def test_a_terminal_gets_colours_and_nothing_that_commands_it(daemon: Harness, project: Project) -> None:
    session = opened(daemon, project)
    project.commit("src/a.txt", "two \x1b]0;title\x07\n", "Change a", tree_of(session))
    terminal = Terminal(daemon, "diff", session.id)
    try:
        terminal.until("1 commit not landed")
        assert terminal.exit_code() == 0
        assert "\x1b[32m+two \ufffd]0;title\ufffd\x1b[0m" in terminal.text
    finally:
        terminal.close()


def test_a_close_says_why_the_worktree_stays(daemon: Harness, project: Project) -> None:
    session = opened(daemon, project)
    (tree_of(session) / "new.txt").write_text("new\n")
    closed = run(daemon, "close", session.id)
    assert closed.stdout == f"session {session.id}: closed\n"
    assert f"1 uncommitted file (clisup diff, land or discard {session.id[:8]})" in closed.stderr
    listed = run(daemon, "sessions", "--state", "closed")
    assert f"worktree {tree_of(session)} stays: 1 uncommitted file" in listed.stderr
    cleaned = run(daemon, "gc", "--dry-run")
    assert f"worktree {tree_of(session)} stays: 1 uncommitted file" in cleaned.stderr


def test_a_discard_asks_on_a_terminal_and_names_the_commit(daemon: Harness, project: Project) -> None:
    session = opened(daemon, project)
    tree = tree_of(session)
    (tree / "new.txt").write_text("new\n")
    unasked = run(daemon, "discard", session.id)
    assert (unasked.returncode, unasked.stdout) == (2, "")
    assert "give --yes" in unasked.stderr
    for answer, code in (("n", 130), ("y", 0)):
        assert tree.exists()
        terminal = Terminal(daemon, "discard", session.id[:8], size=(200, 24))
        try:
            terminal.until("remove this work? [y/N]")
            assert "untracked: new.txt" in terminal.text
            terminal.type(f"{answer}\n")
            if answer == "y":
                terminal.until("bring the work back: git branch")
            assert terminal.exit_code() == code
        finally:
            terminal.close()
    assert not tree.exists()


def test_programs_read_json(daemon: Harness, project: Project) -> None:
    session = opened(daemon, project)

    def answer(*args: str) -> Any:
        return json.loads(run(daemon, *args, "--json").stdout)

    assert answer("diff", session.id)["target"] == "main"
    assert answer("land", session.id)["commits"] == 0
    assert answer("discard", session.id, "--yes")["branch"] == f"clisup/{session.id[:8]}"


@pytest.mark.parametrize("size", [60, 80, 100, 200])
def test_the_list_of_files_fits_a_terminal(daemon: Harness, project: Project, size: int) -> None:
    session = opened(daemon, project)
    project.commit(f"src/{'long' * 30}.txt", "text\n", "Add", tree_of(session))
    terminal = Terminal(daemon, "diff", session.id, "--stat", size=(size, 24))
    try:
        terminal.until("not landed")
        assert terminal.exit_code() == 0
        table = terminal.text.partition("clisup/")[0]
        lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in table.splitlines()]
        assert all(len(line) <= size for line in lines)
        assert "long" * 30 + ".txt" in "".join(line.rpartition("  ")[2] for line in lines)
    finally:
        terminal.close()
