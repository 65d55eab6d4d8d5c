"""Repositories and worktrees that a model's tool has prepared: git runs none of the programs that they name."""

# ruff: noqa: ASYNC240  # nothing else runs in the loop of these tests
from __future__ import annotations

import json
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import trio

from clisup.config.session_spec import SessionSpec
from clisup.daemon.worktrees.worktrees import Worktrees
from clisup.errors import ClisupError
from clisup.host.process.helpers import HELPERS
from clisup.host.process.keepers import KeeperZygote
from clisup.store.worktree_records import load_records

pytestmark = pytest.mark.skipif(not os.path.exists("/usr/bin/git"), reason="needs git")
OWNER = "6f0a1d3e-0000-4000-8000-000000000001"
HOSTILE = {
    # settings that name a program, each with the command that the program is
    "filter": "[filter \"e\"]\n clean = {0}\n smudge = {0}\n process = {0}\n required = false\n",
    "fsmonitor": "[core]\n fsmonitor = {0}\n fsmonitorhookversion = 2\n",
    "hooks": "[core]\n hooksPath = {1}/hooks\n",
    "ssh": "[core]\n sshCommand = {0}\n gitProxy = {0}\n askPass = {0}\n[credential]\n helper = !{0}\n",
    "editors": "[core]\n editor = {0}\n pager = {0}\n[sequence]\n editor = {0}\n[pager]\n diff = {0}\n log = {0}\n status = {0}\n",
    "diff": "[diff]\n external = {0}\n[diff \"e\"]\n command = {0}\n textconv = {0}\n[interactive]\n diffFilter = {0}\n",
    "merge": "[merge \"e\"]\n driver = {0}\n[merge]\n tool = e\n[mergetool \"e\"]\n cmd = {0}\n",
    "gpg": "[commit]\n gpgSign = true\n[log]\n showSignature = true\n[gpg]\n program = {0}\n format = ssh\n"
    "[gpg \"ssh\"]\n program = {0}\n[merge]\n verifySignatures = true\n",
    "alias": "[alias]\n status = !{0}\n diff = !{0}\n reset = !{0}\n ls-files = !{0}\n",
    "include": "[include]\n path = {1}/included\n",
    "includeIf": "[includeIf \"gitdir:/\"]\n path = {1}/included\n",
    "promisor": "[core]\n repositoryformatversion = 1\n alternateRefsCommand = {0}\n[extensions]\n partialClone = o\n"
    "[remote \"o\"]\n url = \"ext::{0}\"\n promisor = true\n uploadpack = {0}\n vcs = e\n"
    "[protocol]\n allow = always\n[protocol \"ext\"]\n allow = always\n[fetch]\n bundleURI = \"ext::{0}\"\n",
    "submodule": "[submodule \"m\"]\n update = !{0}\n active = true\n url = \"ext::{0}\"\n[submodule]\n recurse = true\n"
    "[status]\n submoduleSummary = true\n",
    "trailer": "[trailer \"e\"]\n command = {0}\n cmd = {0}\n[commit]\n template = {1}/fifo\n[init]\n templateDir = {1}\n",
    "lfs": "[lfs \"customtransfer.e\"]\n path = {0}\n[lfs]\n standalonetransferagent = e\n[uploadpack]\n packObjectsHook = {0}\n",
}  # fmt: skip


class Ground:
    """A repository, a directory of an attacker, and the worktrees of a daemon."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home, self.evil, self.repo = root / "home", root / "evil", root / "repo"
        for path in (self.home, self.evil / "hooks", self.repo / "src"):
            path.mkdir(parents=True)
        self.env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self.home)}
        (self.home / ".gitconfig").write_text("[user]\n name = Ann\n email = ann@example.org\n")
        self.git("init", "-q", "-b", "main")
        (self.repo / "src" / "a.txt").write_text("one\n")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "Begin")
        self.proof = root / "proof"
        self.command = self.evil / "command"
        self.command.write_text(f"#!/bin/sh\ntouch {self.proof}\n(setsid sleep 600 &)\nexit 1\n")
        self.command.chmod(0o755)
        for hook in ("post-checkout", "reference-transaction", "pre-commit", "post-commit", "post-merge", "fsmonitor"):
            (self.evil / "hooks" / hook).symlink_to(self.command)
        (self.evil / "included").write_text(
            "".join(HOSTILE[name] for name in ("filter", "fsmonitor")).format(self.command)
        )
        self.worktrees = Worktrees(str(root / "state"), self.env)

    def git(self, *arguments: str, at: Path | None = None) -> str:
        done = subprocess.run(
            ["git", "-C", str(at or self.repo), *arguments], env=self.env, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    async def open(self, name: str = "w") -> SessionSpec:
        worktree, cwd = await self.worktrees.make(str(self.repo), OWNER, "digest", name, None)
        return SessionSpec(
            session_id=OWNER, backend="demo", cwd=cwd, created_at="2026-11-27T00:00:00Z", digest="d", worktree=worktree
        )

    def attributes(self) -> None:
        """Let every file use the attacker's drivers, by a file that no commit holds."""
        (self.repo / ".git" / "info").mkdir(exist_ok=True)
        (self.repo / ".git" / "info" / "attributes").write_text("* filter=e diff=e merge=e\n")

    def write(self, text: str, worktree: Path | None = None) -> None:
        """Add settings to the repository, or to the worktree's own settings."""
        config = self.repo / ".git" / "config"
        if worktree is not None:
            with config.open("a") as file:
                file.write("[extensions]\n worktreeConfig = true\n")
            config = self.repo / ".git" / "worktrees" / worktree.name / "config.worktree"
        with config.open("a") as file:
            file.write(text.format(self.command, self.evil))
        self.attributes()

    async def use(self, spec: SessionSpec) -> list[str]:
        """Do all that a client can with a worktree. Return the reasons of refusals."""
        refusals = []
        assert spec.worktree is not None
        path = Path(spec.worktree.path)

        async def nothing() -> None:
            pass

        steps: list[Callable[[], Awaitable[object]]] = [
            lambda: self.worktrees.diff(spec, patch=True, max_bytes=10_000),
            lambda: self.worktrees.land(spec, "All"),
            lambda: self.worktrees.tidy(OWNER, dry_run=True),
            lambda: self.worktrees.discard(spec, nothing),
            lambda: self.worktrees.closed(OWNER, spec.worktree),
        ]
        for step in steps:
            if path.is_dir():
                (path / "src" / "a.txt").write_text(f"changed {len(refusals)}\n")
                (path / "new.txt").write_text("new\n")
            try:
                await step()
            except ClisupError as error:
                refusals.append(str(error.data.get("reason")))
        return refusals

    def check(self) -> None:
        assert not self.proof.exists(), "a program of the repository ran"
        copies = self.root / "state" / "git"
        assert not copies.exists() or not list(copies.iterdir()), "a copy of the settings stayed"


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    """Give a ground. A zygote starts git, as in a daemon."""
    zygote = KeeperZygote()
    async with trio.open_nursery() as nursery:
        assert await zygote.up()
        nursery.start_soon(zygote.receive_answers)
        HELPERS.zygote = zygote
        yield Ground(tmp_path)
        HELPERS.zygote = None
        nursery.cancel_scope.cancel()
    await zygote.end()


@pytest.mark.parametrize("where", ["before", "after", "worktree"])
@pytest.mark.parametrize("what", HOSTILE)
async def test_no_setting_of_a_repository_starts_a_program(ground: Ground, what: str, where: str) -> None:
    if where == "before":
        ground.write(HOSTILE[what])
        try:
            spec = await ground.open()
        except ClisupError as refusal:
            assert (what, refusal.data["reason"]) == ("filter", "repository_filter")
            ground.check()
            return
    else:
        spec = await ground.open()
        ground.write(HOSTILE[what], Path("w") if where == "worktree" else None)
    refusals = await ground.use(spec)
    assert set(refusals) <= {"repository_filter", "removed"} and ("repository_filter" in refusals) == (what == "filter")
    ground.check()


async def test_work_is_landed_and_discarded_as_ever(ground: Ground) -> None:
    spec = await ground.open()
    path = Path(spec.cwd)
    (path / "src" / "a.txt").rename(path / "src" / "b.txt")
    (path / "src" / "a.txt").mkdir()  # a directory in the place of a file
    (path / "src" / "a.txt" / "c\tü.txt").write_text("c\n")
    landed = await ground.worktrees.land(spec, "Rename")
    assert landed.commits == 1 and ground.git("rev-parse", "main") == landed.after
    assert ground.git("ls-files", "-z") == ground.git("ls-tree", "-r", "-z", "--name-only", "main")
    assert (ground.repo / "src" / "b.txt").read_text() == "one\n" and ground.git("status", "--porcelain") == ""
    await ground.worktrees.closed(OWNER, spec.worktree)
    assert not path.exists() and "clisup" not in ground.git("branch")


async def test_the_users_own_filter_runs(ground: Ground) -> None:
    with (ground.home / ".gitconfig").open("a") as file:
        file.write('[filter "caps"]\n clean = tr a-z A-Z\n smudge = tr A-Z a-z\n required = true\n')
    ground.write('[filter "caps"]\n clean = {0}\n smudge = {0}\n')
    (ground.repo / ".git" / "info" / "attributes").unlink()
    (ground.repo / ".gitattributes").write_text("*.up filter=caps\n")
    ground.git("config", "--remove-section", "filter.caps")
    ground.git("add", "-A")
    ground.git("commit", "-q", "-m", "Attributes")
    ground.write('[filter "caps"]\n clean = {0}\n smudge = {0}\n')
    (ground.repo / ".git" / "info" / "attributes").unlink()
    spec = await ground.open()
    (Path(spec.cwd) / "x.up").write_text("hello\n")
    landed = await ground.worktrees.land(spec, "Up")
    assert ground.git("cat-file", "-p", f"{landed.after}:x.up") == "HELLO"
    ground.check()


async def test_a_sparse_checkout_gives_a_sparse_worktree(ground: Ground) -> None:
    (ground.repo / "other").mkdir()
    (ground.repo / "other" / "b.txt").write_text("b\n")
    ground.git("add", "-A")
    ground.git("commit", "-q", "-m", "Other")
    ground.git("sparse-checkout", "set", "src")
    spec = await ground.open()
    assert sorted(path.name for path in Path(spec.cwd).iterdir()) == [".git", "src"]
    assert ground.git("status", "--porcelain", at=Path(spec.cwd)) == ""


async def test_a_repository_inside_of_a_worktree_is_not_asked(ground: Ground) -> None:
    spec = await ground.open()
    inner = Path(spec.cwd) / "inner"
    ground.git("init", "-q", str(inner))
    ground.git("commit", "-q", "--allow-empty", "-m", "x", at=inner)
    commit = ground.git("rev-parse", "HEAD", at=inner)
    (inner / "x").write_text("x")
    ground.git("add", "x", at=inner)
    ground.git("update-index", "--add", "--cacheinfo", f"160000,{commit},inner", at=Path(spec.cwd))
    with (inner / ".git" / "config").open("a") as file:
        file.write(HOSTILE["fsmonitor"].format(ground.command))
    await ground.use(spec)
    ground.check()


@pytest.mark.parametrize("how", ["other", "directory", "link", "pipe", "huge", "unreadable", "missing", "one-way"])
async def test_a_worktree_whose_link_was_changed_is_refused_and_stays(ground: Ground, how: str) -> None:
    spec = await ground.open()
    assert spec.worktree is not None and spec.worktree.own_git_dir is not None
    path = Path(spec.worktree.path)
    dotgit = path / ".git"
    other = ground.root / "other"
    ground.git("init", "-q", str(other))
    with (other / ".git" / "config").open("a") as file:
        file.write(HOSTILE["fsmonitor"].format(ground.command))
    if how == "one-way":
        (Path(spec.worktree.own_git_dir) / "gitdir").write_text(f"{other}/.git\n")
    else:
        dotgit.unlink()
    if how == "other":
        dotgit.write_text(f"gitdir: {other}/.git\n")
    elif how == "directory":
        (other / ".git").rename(dotgit)
    elif how == "link":
        dotgit.symlink_to(other / ".git")
    elif how == "pipe":
        os.mkfifo(dotgit)
    elif how == "huge":
        dotgit.write_text("gitdir: " + "x" * 100_000)
    elif how == "unreadable":
        dotgit.write_bytes(b"\xff\xfe\0")
    with trio.fail_after(120):
        refusals = await ground.use(spec)
    assert set(refusals) == {"worktree_gone"} and path.is_dir()
    assert "clisup/w" in ground.git("branch") and other.is_dir()
    ground.check()


@pytest.mark.parametrize("how", ["file", "link"])
async def test_a_directory_that_leads_to_the_repository_of_another_gets_no_worktree(ground: Ground, how: str) -> None:
    there = ground.root / "there"
    there.mkdir()
    if how == "file":
        (there / ".git").write_text(f"gitdir: {ground.repo}/.git\n")
    else:
        (there / ".git").symlink_to(ground.repo / ".git")
    with pytest.raises(ClisupError) as refused:
        await ground.worktrees.make(str(there), OWNER, "digest", "w", None)
    assert refused.value.data["reason"] == "not_a_repository"
    assert "clisup" not in ground.git("branch")


async def test_a_file_that_hangs_is_a_failure_after_the_limit(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = await ground.open()
    (Path(spec.cwd) / ".gitattributes").unlink(missing_ok=True)
    os.mkfifo(Path(spec.cwd) / ".gitignore")
    monkeypatch.setattr("clisup.host.git.Git.run.__kwdefaults__", {"stdin": b"", "limit_bytes": 10_000, "limit_s": 3.0})
    with trio.fail_after(120), pytest.raises(ClisupError, match="did not end within") as late:
        await ground.worktrees.diff(spec, patch=True, max_bytes=1000)
    assert late.value.kind == "git_failed"


@pytest.mark.parametrize("change", ["path", "repository", "branch", "owner", "base", "own_git_dir", "shape", "pipe"])
async def test_a_forged_record_removes_nothing(ground: Ground, change: str) -> None:
    precious = ground.root / "precious"
    precious.mkdir()
    (precious / "file").write_text("mine\n")
    spec = await ground.open()
    record = ground.root / "state" / "worktrees" / f"{OWNER}.json"
    value = json.loads(record.read_text())
    forged = {
        "path": {"path": str(precious)},
        "repository": {"git_dir": str(precious), "repository": str(precious)},
        "branch": {"branch": "main"},
        "owner": {"owner": "../../x"},
        "base": {"base": "--upload-pack=x"},
        "own_git_dir": {"own_git_dir": str(precious)},
        "shape": {"path": ["x"]},
        "pipe": {},
    }[change]
    value["worktree"] |= forged
    record.unlink()
    if change == "pipe":
        os.mkfifo(record)
    else:
        record.write_text(json.dumps(value))
    found, damaged = load_records(str(ground.root / "state"))
    assert (found, damaged) == ({}, [f"{OWNER}.json"])
    later = Worktrees(str(ground.root / "state"), ground.env)
    later.load()
    assert later.idle() == [] and await later.tidy(OWNER) is None
    assert (precious / "file").exists() and record.exists() and Path(spec.cwd).is_dir()
