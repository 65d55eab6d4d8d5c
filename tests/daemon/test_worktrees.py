"""Git worktrees of sessions, on real repositories: made, compared, landed, removed, and never with work in them."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import run
from harness import Harness, until
from session_probe import SessionProbe

from clisup.errors import ClisupError

HOME = {
    "PATH": os.environ.get("PATH", os.defpath),
    "LC_ALL": "C.UTF-8",
    "GIT_CONFIG_NOSYSTEM": "1",
    "HOME": "/nonexistent",
}


def git(place: Path | str, *arguments: str, fails: bool = False) -> str:
    done = subprocess.run(
        ["git", "-C", str(place), *arguments], env=HOME, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode != 0) == fails, done.stderr
    return done.stdout.rstrip("\n")


class Project:
    """A repository with one commit on `main`."""

    def __init__(self, root: Path) -> None:
        self.path = root / "project"
        self.path.mkdir()
        git(self.path, "init", "-q", "-b", "main")
        git(self.path, "config", "user.name", "Ann")
        git(self.path, "config", "user.email", "ann@example.org")
        (self.path / "src").mkdir()
        self.commit("src/a.txt", "one\n", "Begin")

    def commit(self, name: str, text: str, message: str, place: Path | None = None) -> str:
        place = place or self.path
        (place / name).write_text(text)
        git(place, "add", "-A")
        git(place, "commit", "-q", "-m", message)
        return git(place, "rev-parse", "HEAD")

    @property
    def main(self) -> str:
        return git(self.path, "rev-parse", "main")

    def branches(self) -> list[str]:
        return git(self.path, "for-each-ref", "--format=%(refname:short)", "refs/heads").split("\n")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def opened(daemon: Harness, project: Project, worktree: Any = True, **params: Any) -> SessionProbe:
    return daemon.new(**{"cwd": str(project.path), "worktree": worktree, **params})


def tree_of(session: SessionProbe) -> Path:
    return Path(session.get()["worktree"]["path"])


def refusal(call: Callable[[], Any], reason: str, kind: str = "worktree_refused") -> ClisupError:
    with pytest.raises(ClisupError) as caught:
        call()
    error = caught.value
    assert (error.kind, error.data.get("reason")) == (kind, reason), error
    assert error.hint
    return error


# -- making ------------------------------------------------------------------------------------------------------------


def test_a_session_gets_a_branch_and_a_worktree_beside_the_repository(daemon: Harness, project: Project) -> None:
    answer = daemon.call("session/new", backend="demo", cwd=str(project.path), worktree={"name": "fix"})
    tree = project.path.parent / "project.worktrees" / "fix"
    assert answer["cwd"] == answer["worktree"]["path"] == str(tree)
    assert (tree / "src/a.txt").read_text() == "one\n"
    assert git(tree, "symbolic-ref", "--short", "HEAD") == "clisup/fix"
    assert git(tree, "status", "--porcelain") == ""
    row = SessionProbe(daemon, answer["session_id"]).get()
    assert row["cwd"] == str(tree)
    assert row["worktree"] == {
        "path": str(tree), "branch": "clisup/fix", "base": project.main, "target": "main",
        "repository": str(project.path), "state": "open", "kept": None,
    }  # fmt: skip


def test_the_cli_runs_in_the_worktree(daemon: Harness, project: Project) -> None:
    session = opened(daemon, project)
    session.ask("hello")
    assert session.events("session_init")[0]["cwd"] == str(tree_of(session))


def test_the_name_is_the_beginning_of_the_sessions_id_unless_one_is_given(daemon: Harness, project: Project) -> None:
    session = opened(daemon, project)
    assert tree_of(session).name == session.id[:8]
    assert f"clisup/{session.id[:8]}" in project.branches()


def test_a_directory_below_the_top_stays_the_sessions_directory(daemon: Harness, project: Project) -> None:
    session = opened(daemon, project, {"name": "below"}, cwd=str(project.path / "src"))
    assert session.get()["cwd"] == str(project.path.parent / "project.worktrees" / "below" / "src")


def test_a_session_in_a_worktree_gets_its_own_beside_the_first_repository(daemon: Harness, project: Project) -> None:
    first = tree_of(opened(daemon, project, {"name": "first"}))
    second = opened(daemon, project, {"name": "second"}, cwd=str(first))
    assert tree_of(second) == first.with_name("second")
    assert second.get()["worktree"]["target"] == "clisup/first"


def test_a_worktree_may_begin_at_another_commit(daemon: Harness, project: Project) -> None:
    before = project.main
    project.commit("src/a.txt", "two\n", "Go on")
    session = opened(daemon, project, {"base": "HEAD~1"})
    assert git(tree_of(session), "rev-parse", "HEAD") == before
    assert (tree_of(session) / "src/a.txt").read_text() == "one\n"


def test_uncommitted_changes_stay_in_the_repository_and_the_answer_says_so(daemon: Harness, project: Project) -> None:
    (project.path / "src/a.txt").write_text("unfinished\n")
    answer = daemon.call("session/new", backend="demo", cwd=str(project.path), worktree=True)
    assert answer["worktree"]["left_changes"]
    assert (Path(answer["cwd"]) / "src/a.txt").read_text() == "one\n"
    assert (project.path / "src/a.txt").read_text() == "unfinished\n"


def test_no_hook_of_the_repository_runs(daemon: Harness, project: Project, tmp_path: Path) -> None:
    for name in ("post-checkout", "pre-commit", "post-merge", "commit-msg"):
        hook = project.path / ".git/hooks" / name
        hook.write_text(f"#!/bin/sh\necho {name} >> {tmp_path}/ran\nexit 1\n")
        hook.chmod(0o755)
    session = opened(daemon, project)
    (tree_of(session) / "new.txt").write_text("new\n")
    session.call("land", commit="Add")
    assert not (tmp_path / "ran").exists()


def test_variables_of_the_daemon_do_not_lead_git_astray(serve: Any, project: Project, tmp_path: Path) -> None:
    daemon = serve(env={"GIT_DIR": str(tmp_path / "elsewhere"), "GIT_WORK_TREE": "/", "GIT_INDEX_FILE": "/dev/null"})
    session = opened(daemon, project)
    assert (tree_of(session) / "src/a.txt").exists()
    assert session.call("diff")["uncommitted"] == 0


def test_the_same_request_gives_the_same_session_and_worktree(daemon: Harness, project: Project) -> None:
    id_ = str(uuid.uuid4())
    first = daemon.call("session/new", backend="demo", cwd=str(project.path), worktree=True, session_id=id_)
    project.commit("src/a.txt", "moved\n", "Go on")
    again = daemon.call("session/new", backend="demo", cwd=str(project.path), worktree=True, session_id=id_)
    assert first == again
    with pytest.raises(ClisupError) as other:
        daemon.call("session/new", backend="demo", cwd=str(project.path), worktree={"name": "b"}, session_id=id_)
    assert other.value.kind == "session_exists"


def test_false_is_no_worktree(daemon: Harness, project: Project) -> None:
    session = opened(daemon, project, worktree=False)
    assert session.get()["worktree"] is None
    refusal(lambda: session.call("diff"), "no_worktree")
    refusal(lambda: session.call("land"), "no_worktree")
    refusal(lambda: session.call("discard"), "no_worktree")


# -- a repository that gives no worktree -------------------------------------------------------------------------------


def no_session(daemon: Harness, cwd: Path, reason: str, worktree: Any = True, kind: str = "worktree_refused") -> None:
    before = len(daemon.call("session/list", limit=1000)["sessions"])
    records = sorted((daemon.state / "worktrees").glob("*")) if (daemon.state / "worktrees").exists() else []
    refusal(lambda: daemon.new(cwd=str(cwd), worktree=worktree), reason, kind)
    assert len(daemon.call("session/list", limit=1000)["sessions"]) == before
    after = sorted((daemon.state / "worktrees").glob("*")) if (daemon.state / "worktrees").exists() else []
    assert records == after


def test_a_directory_without_a_repository_is_refused(daemon: Harness, tmp_path: Path) -> None:
    no_session(daemon, tmp_path, "not_a_repository")


def test_a_bare_repository_is_refused_and_so_is_the_inside_of_dot_git(
    daemon: Harness, project: Project, tmp_path: Path
) -> None:
    git(tmp_path, "init", "-q", "--bare", "bare.git")
    no_session(daemon, tmp_path / "bare.git", "bare")
    no_session(daemon, project.path / ".git", "bare")


def test_a_repository_without_a_commit_is_refused(daemon: Harness, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "empty")
    no_session(daemon, tmp_path / "empty", "no_commit")


def test_a_base_that_names_no_commit_is_refused(daemon: Harness, project: Project) -> None:
    no_session(daemon, project.path, "base_not_found", {"base": "nowhere"})


def test_a_directory_that_the_base_does_not_have_is_refused(daemon: Harness, project: Project) -> None:
    (project.path / "new").mkdir()
    no_session(daemon, project.path / "new", "directory_not_in_base")


def test_a_repository_with_submodules_and_a_submodule_are_refused(
    daemon: Harness, project: Project, tmp_path: Path
) -> None:
    git(tmp_path, "clone", "-q", str(project.path), "outer")
    outer = tmp_path / "outer"
    allow = ("-c", "protocol.file.allow=always", "-c", "user.name=A", "-c", "user.email=a@example.org")
    git(outer, *allow, "submodule", "--quiet", "add", str(project.path), "inner")
    git(outer, *allow, "commit", "-q", "-m", "Add a submodule")
    no_session(daemon, outer, "submodules")
    no_session(daemon, outer / "inner", "submodules")


def test_a_branch_that_exists_is_refused_and_stays_as_it_is(daemon: Harness, project: Project) -> None:
    git(project.path, "branch", "clisup/mine")
    no_session(daemon, project.path, "branch_taken", {"name": "mine"})
    assert "clisup/mine" in project.branches()


def test_a_branch_named_like_the_folder_of_the_branches_is_named_in_the_refusal(
    daemon: Harness, project: Project
) -> None:
    git(project.path, "branch", "clisup")
    no_session(daemon, project.path, "branch_taken")


def test_a_directory_that_exists_is_refused_and_stays_as_it_is(daemon: Harness, project: Project) -> None:
    taken = project.path.parent / "project.worktrees" / "mine"
    taken.mkdir(parents=True)
    (taken / "notes").write_text("mine")
    no_session(daemon, project.path, "directory_taken", {"name": "mine"})
    assert (taken / "notes").read_text() == "mine"
    assert project.branches() == ["main"]


@pytest.mark.parametrize("name", ["", "-x", "a/b", "..", "a b", "x" * 65])
def test_a_name_that_is_no_name_is_refused(daemon: Harness, project: Project, name: str) -> None:
    with pytest.raises(ClisupError) as refused:
        opened(daemon, project, {"name": name})
    assert refused.value.kind == "invalid_params"


@pytest.mark.parametrize("name", ["a..b", "a.lock", "a."])
def test_a_name_that_git_takes_for_no_branch_is_refused(daemon: Harness, project: Project, name: str) -> None:
    with pytest.raises(ClisupError) as refused:
        opened(daemon, project, {"name": name})
    assert refused.value.kind == "invalid_params"
    assert project.branches() == ["main"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_place_that_cannot_be_written_leaves_nothing_behind(daemon: Harness, project: Project) -> None:
    project.path.parent.chmod(0o555)
    try:
        no_session(daemon, project.path, "git_failed", kind="git_failed")
    finally:
        project.path.parent.chmod(0o755)
    assert project.branches() == ["main"]


def test_a_place_in_which_a_file_stands_leaves_nothing_behind(daemon: Harness, project: Project) -> None:
    (project.path.parent / "project.worktrees").write_text("a file, not a directory")
    no_session(daemon, project.path, "git_failed", kind="git_failed")
    assert project.branches() == ["main"]


def test_a_checkout_that_fails_is_undone(daemon: Harness, project: Project) -> None:
    """As on a full disk: branch and worktree are there, and the files cannot be written."""
    project.commit(".gitattributes", "*.txt filter=broken\n", "Filter")
    own = daemon.root / "home" / ".gitconfig"
    own.write_text('[filter "broken"]\n smudge = false\n required = true\n')
    no_session(daemon, project.path, "git_failed", kind="git_failed")
    assert project.branches() == ["main"]
    assert not (project.path.parent / "project.worktrees").exists() or not os.listdir(
        project.path.parent / "project.worktrees"
    )


def test_without_git_the_error_names_the_path_of_the_daemon(serve: Any, project: Project, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    daemon = serve(env={"PATH": str(folder)})
    error = refusal(lambda: opened(daemon, project), "no_git", "git_failed")
    assert str(folder) in str(error)


def test_a_state_directory_that_cannot_be_written_makes_no_worktree(serve: Any, project: Project) -> None:
    daemon = serve()
    (daemon.state / "worktrees").write_text("a file, not a directory")
    params = {"session_id": str(uuid.uuid4()), "worktree": {"name": "x"}, "cwd": str(project.path)}
    with pytest.raises(ClisupError) as failed:
        daemon.new(**params)
    assert failed.value.kind == "storage_failed"
    assert project.branches() == ["main"]
    (daemon.state / "worktrees").unlink()
    assert tree_of(daemon.new(**params)).is_dir()


def test_without_git_a_close_keeps_the_worktree_and_says_why(serve: Any, project: Project, tmp_path: Path) -> None:
    daemon = serve()
    session = opened(daemon, project)
    daemon.kill()
    (tmp_path / "bin").mkdir()
    daemon.env["PATH"] = str(tmp_path / "bin")
    daemon.start()
    assert "git not found" in session.call("close")["worktree_kept"]
    assert "git not found" in session.get()["worktree"]["kept"]


# -- diff --------------------------------------------------------------------------------------------------------------


def test_the_diff_has_what_is_committed_and_what_is_not_and_names_untracked_files(
    daemon: Harness, project: Project
) -> None:
    session = opened(daemon, project)
    tree = tree_of(session)
    head = project.commit("src/b.txt", "b\n", "Add b", tree)
    (tree / "src/a.txt").write_text("one\ntwo\n")
    (tree / "loose é.txt").write_text("loose\n")
    diff = session.call("diff")
    assert (diff["base"], diff["head"], diff["target"]) == (project.main, head, "main")
    assert diff["commits"] == [{"id": head, "subject": "Add b"}]
    assert diff["files"] == [
        {"path": "src/a.txt", "added": 1, "deleted": 0}, {"path": "src/b.txt", "added": 1, "deleted": 0},
    ]  # fmt: skip
    assert (diff["untracked"], diff["uncommitted"], diff["not_landed"]) == (["loose é.txt"], 2, 1)
    assert "+two" in diff["diff"]
    assert "+b" in diff["diff"]
    assert not diff["truncated"]


def test_a_diff_without_its_text_and_one_that_is_too_long(daemon: Harness, project: Project) -> None:
    session = opened(daemon, project)
    (tree_of(session) / "src/a.txt").write_text("word\n" * 100_000)
    assert session.call("diff", patch=False)["diff"] is None
    cut = session.call("diff", max_bytes=1000)
    assert cut["truncated"]
    assert len(cut["diff"].encode()) <= 1000


def test_after_a_rebase_the_diff_has_the_sessions_own_changes_alone(daemon: Harness, project: Project) -> None:
    session = opened(daemon, project)
    project.commit("src/b.txt", "b\n", "Add b", tree_of(session))
    project.commit("src/other.txt", "other\n", "Meanwhile")
    git(tree_of(session), "rebase", "-q", "main")
    diff = session.call("diff")
    assert [file["path"] for file in diff["files"]] == ["src/b.txt"]


def test_after_a_landing_the_diff_still_shows_what_the_session_did(daemon: Harness, project: Project) -> None:
    session = opened(daemon, project)
    project.commit("src/b.txt", "b\n", "Add b", tree_of(session))
    session.call("land")
    diff = session.call("diff")
    assert ([file["path"] for file in diff["files"]], diff["not_landed"]) == (["src/b.txt"], 0)


# -- land --------------------------------------------------------------------------------------------------------------


def test_landing_moves_the_branch_and_the_files_of_the_repository(daemon: Harness, project: Project) -> None:
    session = opened(daemon, project)
    before, head = project.main, project.commit("src/b.txt", "b\n", "Add b", tree_of(session))
    assert session.call("land") == {"branch": "main", "before": before, "after": head, "commits": 1, "committed": None}
    assert project.main == head
    assert (project.path / "src/b.txt").read_text() == "b\n"
    assert git(project.path, "status", "--porcelain") == ""


def test_a_branch_that_nobody_has_checked_out_is_moved_all_the_same(daemon: Harness, project: Project) -> None:
    session = opened(daemon, project)
    git(project.path, "switch", "-q", "-c", "other")
    head = project.commit("src/b.txt", "b\n", "Add b", tree_of(session))
    session.call("land")
    assert project.main == head
    assert not (project.path / "src/b.txt").exists()


def test_landing_twice_is_no_error_and_the_session_goes_on(daemon: Harness, project: Project) -> None:
    session = opened(daemon, project)
    project.commit("src/b.txt", "b\n", "Add b", tree_of(session))
    session.call("land")
    assert session.call("land")["commits"] == 0
    head = project.commit("src/c.txt", "c\n", "Add c", tree_of(session))
    assert session.call("land")["after"] == head == project.main


def test_uncommitted_work_is_refused_unless_a_message_is_given(daemon: Harness, project: Project) -> None:
    session = opened(daemon, project)
    (tree_of(session) / "new.txt").write_text("new\n")
    before = project.main
    refusal(lambda: session.call("land"), "uncommitted")
    assert project.main == before
    done = session.call("land", commit="Add new\n\nWith a body.")
    assert (done["committed"], done["commits"]) == (project.main, 1)
    assert git(project.path, "log", "-1", "--format=%an: %B") == "Ann: Add new\n\nWith a body."


def test_a_base_that_has_moved_is_refused_and_a_rebase_helps(daemon: Harness, project: Project) -> None:
    session = opened(daemon, project)
    project.commit("src/b.txt", "b\n", "Add b", tree_of(session))
    moved = project.commit("src/other.txt", "other\n", "Meanwhile")
    error = refusal(lambda: session.call("land"), "base_moved")
    assert project.main == moved
    assert "rebase main" in error.hint
    git(tree_of(session), "rebase", "-q", "main")
    session.call("land")
    assert (project.path / "src/b.txt").exists()


def test_changes_in_the_repository_that_a_landing_would_overwrite_stay(daemon: Harness, project: Project) -> None:
    session = opened(daemon, project)
    project.commit("src/a.txt", "theirs\n", "Change a", tree_of(session))
    before = project.main
    (project.path / "src/a.txt").write_text("mine\n")
    refusal(lambda: session.call("land"), "target_busy")
    assert project.main == before
    assert (project.path / "src/a.txt").read_text() == "mine\n"


def test_a_detached_head_gets_a_worktree_and_no_landing(daemon: Harness, project: Project) -> None:
    git(project.path, "switch", "-q", "--detach")
    session = opened(daemon, project)
    head = project.commit("src/b.txt", "b\n", "Add b", tree_of(session))
    error = refusal(lambda: session.call("land"), "detached")
    assert "git merge clisup/" in error.hint
    git(project.path, "merge", "-q", "--ff-only", tree_of(session).name and f"clisup/{tree_of(session).name}")
    assert git(project.path, "rev-parse", "HEAD") == head


def test_a_target_that_is_gone_and_another_branch_in_the_worktree_are_refused(
    daemon: Harness, project: Project
) -> None:
    session = opened(daemon, project)
    git(tree_of(session), "switch", "-q", "-c", "elsewhere")
    refusal(lambda: session.call("land"), "other_branch")
    git(tree_of(session), "switch", "-q", f"clisup/{session.id[:8]}")
    git(project.path, "switch", "-q", "-c", "other")
    git(project.path, "branch", "-q", "-D", "main")
    refusal(lambda: session.call("land"), "target_gone")


def test_a_repository_inside_the_worktree_is_not_landed_as_an_empty_link(daemon: Harness, project: Project) -> None:
    session = opened(daemon, project)
    inner = tree_of(session) / "inner"
    git(tree_of(session), "init", "-q", "inner")
    git(inner, "-c", "user.name=A", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "Inside")
    (inner / "work").write_text("work")
    refusal(lambda: session.call("land", commit="All"), "inner_repository")
    refusal(lambda: session.call("discard"), "inner_repository")
    assert (inner / "work").read_text() == "work"


def test_nothing_lands_and_nothing_is_discarded_while_a_turn_runs(daemon: Harness, project: Project) -> None:
    session = opened(daemon, project)
    turn = session.prompt("@stall")
    session.await_event("session_init")
    for method in ("land", "discard"):
        with pytest.raises(ClisupError) as busy:
            session.call(method)
        assert busy.value.kind == "session_busy"
    assert session.call("diff")["uncommitted"] == 0
    session.call("interrupt", turn_id=turn)
    session.call("discard")


# -- discard -----------------------------------------------------------------------------------------------------------


def test_a_discard_removes_worktree_and_branch_and_names_the_commit_that_has_it_all(
    daemon: Harness, project: Project
) -> None:
    session = opened(daemon, project)
    tree = tree_of(session)
    head = project.commit("src/b.txt", "b\n", "Add b", tree)
    (tree / "loose.txt").write_text("loose\n")
    (tree / "src/a.txt").unlink()
    done = session.call("discard")
    assert (done["commits"], done["uncommitted"], done["path"]) == (1, 2, str(tree))
    assert not tree.exists()
    assert not tree.parent.exists()
    assert project.branches() == ["main"]
    git(project.path, "branch", "again", done["commit"])
    assert git(project.path, "show", "again:loose.txt") == "loose"
    assert git(project.path, "rev-parse", "again^") == head
    assert git(project.path, "ls-tree", "again", "src/a.txt") == ""
    row = session.get()
    assert (row["state"], row["worktree"]["state"]) == ("closed", "removed")
    refusal(lambda: session.call("discard"), "removed")


def test_a_discard_saves_the_branch_too_where_another_is_checked_out(daemon: Harness, project: Project) -> None:
    session = opened(daemon, project)
    project.commit("src/b.txt", "b\n", "Add b", tree_of(session))
    git(tree_of(session), "switch", "-q", "--detach", "main")
    done = session.call("discard")
    assert git(project.path, "log", "--format=%s", "-3", done["commit"]).count("Add b") == 1


def test_a_locked_worktree_is_not_discarded_and_the_session_stays_open(daemon: Harness, project: Project) -> None:
    session = opened(daemon, project)
    git(project.path, "worktree", "lock", "--reason", "on a stick", str(tree_of(session)))
    error = refusal(lambda: session.call("discard"), "locked")
    assert "on a stick" in str(error)
    assert session.get()["state"] == "idle"
    git(project.path, "worktree", "unlock", str(tree_of(session)))
    session.call("discard")


def test_a_worktree_that_somebody_removed_can_be_discarded_and_its_branch_is_named(
    daemon: Harness, project: Project
) -> None:
    session = opened(daemon, project)
    tree = tree_of(session)
    head = project.commit("src/b.txt", "b\n", "Add b", tree)
    subprocess.run(["rm", "-r", str(tree)], check=True)
    refusal(lambda: session.call("diff"), "worktree_gone")
    refusal(lambda: session.call("land"), "worktree_gone")
    assert session.call("discard")["commit"] == head
    assert project.branches() == ["main"]


def test_a_repository_that_has_moved_away_loses_nothing(daemon: Harness, project: Project) -> None:
    session = opened(daemon, project)
    (tree_of(session) / "new.txt").write_text("new\n")
    away = project.path.rename(project.path.with_name("moved"))
    for method in ("diff", "land", "discard"):
        refusal(lambda method=method: session.call(method), "repository_gone")
    session.call("close")
    assert "cannot be read" in session.get()["worktree"]["kept"]
    away.rename(project.path)
    assert session.call("diff")["untracked"] == ["new.txt"]
    session.call("discard")


# -- the end of sessions -----------------------------------------------------------------------------------------------


def test_a_close_removes_a_worktree_without_work(daemon: Harness, project: Project) -> None:
    session = opened(daemon, project)
    tree = tree_of(session)
    project.commit("src/b.txt", "b\n", "Add b", tree)
    session.call("land")
    assert session.call("close") == {"ok": True, "worktree_kept": None}
    assert not tree.exists()
    assert project.branches() == ["main"]
    assert session.get()["worktree"]["state"] == "removed"
    refusal(lambda: session.call("diff"), "removed")
    refusal(lambda: session.call("land"), "removed")


@pytest.mark.parametrize("work", ["uncommitted", "untracked", "committed", "elsewhere", "locked"])
def test_a_close_keeps_a_worktree_with_work_and_everybody_says_why(
    daemon: Harness, project: Project, work: str
) -> None:
    session = opened(daemon, project)
    tree, why = tree_of(session), "1 uncommitted file"
    if work == "uncommitted":
        (tree / "src/a.txt").write_text("changed\n")
    elif work == "untracked":
        (tree / "new.txt").write_text("new\n")
    elif work == "committed":
        project.commit("src/b.txt", "b\n", "Add b", tree)
        why = "1 commit not landed"
    elif work == "elsewhere":
        git(tree, "switch", "-q", "--detach")
        why = "a detached head is checked out"
    else:
        git(project.path, "worktree", "lock", str(tree))
        why = "git locks the worktree"
    assert why in session.call("close")["worktree_kept"]
    assert session.get()["worktree"]["state"] == "kept"
    assert why in session.get()["worktree"]["kept"]
    assert tree.is_dir()
    cleared = daemon.call("daemon/gc", dry_run=True)
    assert [why in kept["error"] for kept in cleared["kept"] if kept["path"] == str(tree)] == [True]


def test_a_closed_session_with_work_can_still_be_compared_landed_and_is_then_removed(
    daemon: Harness, project: Project
) -> None:
    session = opened(daemon, project)
    tree = tree_of(session)
    (tree / "new.txt").write_text("new\n")
    session.call("close")
    assert session.call("diff")["untracked"] == ["new.txt"]
    assert session.call("land", commit="Add new")["commits"] == 1
    assert not tree.exists()
    assert (project.path / "new.txt").read_text() == "new\n"


def test_gc_removes_a_worktree_once_its_work_has_landed_by_hand(daemon: Harness, project: Project) -> None:
    session = opened(daemon, project)
    tree = tree_of(session)
    project.commit("src/b.txt", "b\n", "Add b", tree)
    session.call("close")
    session.call("delete")
    assert any(kept["path"] == str(tree) for kept in daemon.call("daemon/gc", older_than_s=1e9)["kept"])
    assert tree.is_dir()
    git(project.path, "merge", "-q", "--ff-only", f"clisup/{tree.name}")
    listed = daemon.call("daemon/gc", dry_run=True, older_than_s=1e9)["items"]
    assert [item["path"] for item in listed if item["kind"] == "worktree"] == [str(tree)]
    assert tree.is_dir()
    daemon.call("daemon/gc", older_than_s=1e9)
    assert not tree.exists()
    assert project.branches() == ["main"]


def test_gc_without_a_daemon_removes_the_same_worktrees_and_loses_nothing(serve: Any, project: Project) -> None:
    daemon = serve()
    landed, work, open_ = (opened(daemon, project) for _ in range(3))
    trees = [tree_of(session) for session in (landed, work, open_)]
    project.commit("src/b.txt", "b\n", "Add b", trees[0])
    (trees[1] / "draft").write_text("mine")
    landed.call("close")
    work.call("close")
    landed.call("delete")
    daemon.stop()
    git(project.path, "merge", "-q", "--ff-only", f"clisup/{trees[0].name}")
    for words in (["--dry-run"], []):
        done = run(daemon, "gc", "--older-than", "999d", "--json", *words)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert [item["path"] for item in found["items"] if item["kind"] == "worktree"] == [str(trees[0])]
        assert [(kept["path"], kept["error"]) for kept in found["kept"]] == [(str(trees[1]), "1 uncommitted file")]
        assert trees[0].exists() == bool(words)
    assert (trees[1] / "draft").read_text() == "mine" and trees[2].is_dir()
    assert f"clisup/{trees[0].name}" not in project.branches()


def test_gc_spares_the_worktree_of_an_open_session(daemon: Harness, project: Project) -> None:
    session = opened(daemon, project)
    cleared = daemon.call("daemon/gc", older_than_s=1e9)
    assert str(tree_of(session)) not in [entry["path"] for entry in (*cleared["items"], *cleared["kept"])]
    assert tree_of(session).is_dir()


# -- sessions that share a worktree ------------------------------------------------------------------------------------


def test_a_fork_works_in_the_same_worktree_which_stays_until_both_are_closed(daemon: Harness, project: Project) -> None:
    session = opened(daemon, project)
    session.ask("hello")
    fork = SessionProbe(daemon, session.call("fork")["session_id"])
    tree = tree_of(session)
    assert (tree_of(fork), fork.get()["cwd"]) == (tree, str(tree))
    with pytest.raises(ClisupError) as busy:
        session.call("discard")
    assert (busy.value.kind, busy.value.data["session_id"]) == ("session_busy", fork.id)
    session.call("close")
    session.call("delete")
    assert tree.is_dir()
    daemon.call("daemon/gc", older_than_s=1e9)
    assert tree.is_dir()
    fork.ask("still there?")
    fork.call("close")
    assert not tree.exists()


def test_a_new_session_may_share_the_worktree_of_another(daemon: Harness, project: Project) -> None:
    first = opened(daemon, project)
    second = opened(daemon, project, {"session_id": first.id})
    assert tree_of(second) == tree_of(first)
    first.call("close")
    assert tree_of(second).is_dir()
    second.call("close")
    refusal(lambda: opened(daemon, project, {"session_id": first.id}), "removed")
    with pytest.raises(ClisupError) as unknown:
        opened(daemon, project, {"session_id": str(uuid.uuid4())})
    assert unknown.value.kind == "session_not_found"


# -- kill -9 -----------------------------------------------------------------------------------------------------------


def test_worktrees_and_their_state_survive_a_kill(serve: Any, project: Project) -> None:
    daemon = serve()
    session = opened(daemon, project, {"name": "a"})
    kept = opened(daemon, project, {"name": "b"})
    (tree_of(kept) / "new.txt").write_text("new\n")
    kept.call("close")
    daemon.restart()
    assert session.get()["worktree"]["state"] == "open"
    assert kept.get()["worktree"]["state"] == "kept"
    session.call("close")
    assert project.branches() == ["clisup/b", "main"]


@pytest.mark.parametrize("stage", ["record", "branch", "no files", "files"])
def test_what_a_kill_leaves_of_an_opening_is_taken_over_by_the_next_attempt(
    serve: Any, project: Project, stage: str
) -> None:
    daemon = serve()
    params = {"session_id": str(uuid.uuid4()), "worktree": {"name": "x"}, "cwd": str(project.path)}
    tree = tree_of(daemon.new(**params))
    daemon.kill()
    subprocess.run(["rm", "-r", str(daemon.state / "sessions" / params["session_id"])], check=True)
    if stage == "no files":
        index = Path(git(tree, "rev-parse", "--path-format=absolute", "--git-path", "index"))
        index.unlink()
        (tree / "src/a.txt").unlink()
    elif stage != "files":
        git(project.path, "worktree", "remove", str(tree))
        if stage == "record":
            git(project.path, "branch", "-q", "-D", "clisup/x")
    daemon.start()
    session = daemon.new(**params)
    assert (tree_of(session) / "src/a.txt").read_text() == "one\n"
    assert git(tree, "status", "--porcelain") == ""
    assert session.call("diff")["base"] == project.main


def test_work_in_what_a_kill_left_is_taken_over_and_never_removed_by_gc(serve: Any, project: Project) -> None:
    daemon = serve()
    params = {"session_id": str(uuid.uuid4()), "worktree": {"name": "x"}, "cwd": str(project.path)}
    tree = tree_of(daemon.new(**params))
    daemon.kill()
    subprocess.run(["rm", "-r", str(daemon.state / "sessions" / params["session_id"])], check=True)
    (tree / "new.txt").write_text("new\n")
    daemon.start()
    assert [kept["path"] for kept in daemon.call("daemon/gc")["kept"]] == [str(tree)]
    with pytest.raises(ClisupError) as other:
        daemon.new(**{**params, "worktree": {"name": "y"}})
    assert other.value.data["reason"] == "leftover"
    session = daemon.new(**params)
    assert session.call("diff")["untracked"] == ["new.txt"]
    assert (tree / "new.txt").read_text() == "new\n"


def test_what_a_kill_leaves_without_work_is_removed_by_gc(serve: Any, project: Project) -> None:
    daemon = serve()
    session = opened(daemon, project)
    daemon.kill()
    subprocess.run(["rm", "-r", str(daemon.state / "sessions" / session.id)], check=True)
    daemon.start()
    removed = daemon.call("daemon/gc")["items"]
    assert [item["kind"] for item in removed if item["session_id"] == session.id] == ["worktree"]
    assert project.branches() == ["main"]
    until(lambda: not list((daemon.state / "worktrees").iterdir()))


# -- a program of the user's that git starts -----------------------------------------------------------------------------


def test_what_git_has_started_does_not_outlive_a_killed_daemon(tmp_path: Path, project: Project) -> None:
    home, pid = tmp_path / "home", tmp_path / "pid"
    home.mkdir()
    leaves = (
        f"env -i setsid /bin/sh -c '/bin/sh -c \"echo \\$\\$ > {pid}.new; mv {pid}.new {pid}; exec sleep 600\" & exit'"
    )
    program = tmp_path / "filter"
    program.write_text(f"#!/bin/sh\n{leaves} </dev/null >/dev/null 2>&1 &\nsleep 600\n")
    program.chmod(0o755)
    (home / ".gitconfig").write_text(f'[filter "slow"]\n smudge = {program}\n clean = cat\n')
    project.commit(".gitattributes", "src/* filter=slow\n", "Filter")
    daemon = Harness({"HOME": str(home)})
    try:
        daemon.start()
        with daemon.wire() as wire:
            wire.post("session/new", backend="demo", cwd=str(project.path), worktree=True)
            until(pid.exists, "the filter did not run")
            daemon.kill()
        daemon.start()
        until(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists(), "a process outlived the daemon")
    finally:
        daemon.close()
