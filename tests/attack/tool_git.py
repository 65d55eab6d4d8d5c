"""A hostile tool that writes in a worktree and in the repository's `.git`, and git that the daemon runs there."""

from __future__ import annotations

import os
import random
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.attack.ground import Box, running_with, said
from tests.attack.model import Attack

__all__ = ["ATTACKS", "ground"]

HOME = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent",
        "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example.org"}  # fmt: skip
ALL = "* filter=x diff=x merge=x\n"
USES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("session/diff", {"patch": True}), ("session/land", {"commit": "Land it"}), ("session/discard", {}), ("session/close", {}),
)  # fmt: skip
MOMENT_S = 0.6


class GitGround(NamedTuple):
    """A box, and a place for repositories."""

    box: Box
    root: Path


@contextmanager
def ground(chance: random.Random) -> Iterator[GitGround]:
    """A daemon whose sessions have worktrees."""
    with Box(chance) as box:
        (box.daemon.root / "repositories").mkdir()
        yield GitGround(box, box.daemon.root / "repositories")


def git(place: Path, *words: str) -> str:
    """Run git as the attacker's own process."""
    done = subprocess.run(
        ["git", "-C", str(place), *words], env=HOME, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"git {words}: {done.stderr}"
    return done.stdout.strip()


def repository(path: Path) -> Path:
    """Make a repository with two files in one commit."""
    path.mkdir(parents=True)
    git(path, "init", "-q", "-b", "main")
    git(path, "config", "user.name", "Ann")
    git(path, "config", "user.email", "ann@example.org")
    (path / "a.txt").write_text("one\n")
    (path / "b.txt").write_text("two\n")
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", "Begin")
    return path


# -- what git can be told to run. `run` is the shell command of the payload.

Config = Callable[[str, Path], str]
SETTINGS: dict[str, Config] = {
    "filter.clean and smudge": lambda run, _: f'[filter "x"]\n clean = {run}\n smudge = {run}\n required = true\n',
    "filter.process": lambda run, _: f'[filter "x"]\n process = {run}\n required = true\n',
    "filter.lfs of the repository": lambda run, _: f'[filter "lfs"]\n process = {run}\n clean = {run}\n smudge = {run}\n required = true\n',
    "diff.external": lambda run, _: f"[diff]\n external = {run}\n",
    "diff driver and textconv": lambda run, _: f'[diff "x"]\n command = {run}\n textconv = {run}\n',
    "merge driver": lambda run, _: f'[merge "x"]\n driver = {run}\n',
    "core.fsmonitor": lambda run, _: f"[core]\n fsmonitor = {run}\n",
    "gpg.program": lambda run, _: f"[gpg]\n program = {run}\n[commit]\n gpgSign = true\n[log]\n showSignature = true\n[user]\n signingKey = x\n",
    "gpg.ssh": lambda run, _: f'[gpg]\n format = ssh\n[gpg "ssh"]\n program = {run}\n defaultKeyCommand = {run}\n[commit]\n gpgSign = true\n',
    "core.editor, pager and askPass": lambda run, _: f"[core]\n editor = {run}\n pager = {run}\n askPass = {run}\n[sequence]\n editor = {run}\n",
    "core.sshCommand and a lazy fetch": lambda run, _: (
        f'[core]\n sshCommand = {run}\n repositoryformatversion = 1\n[extensions]\n partialClone = o\n'
        '[remote "o"]\n url = ssh://127.0.0.1/x\n promisor = true\n'),
    "an ext:: remote and a lazy fetch": lambda run, _: (
        '[core]\n repositoryformatversion = 1\n[extensions]\n partialClone = o\n[protocol]\n allow = always\n'
        f'[protocol "ext"]\n allow = always\n[remote "o"]\n url = "ext::{run}"\n promisor = true\n'),
    "uploadpack of a promisor": lambda run, top: (
        '[core]\n repositoryformatversion = 1\n[extensions]\n partialClone = o\n'
        f'[remote "o"]\n url = file://{top}\n promisor = true\n uploadpack = {run}\n'),
    "hooks by core.hooksPath": lambda _run, top: f"[core]\n hooksPath = {top / 'evil-hooks'}\n",
    "an included file": lambda _run, top: f"[include]\n path = {top / 'evil-include'}\n",
    "an included file for a directory": lambda _run, top: f'[includeIf "gitdir:/**"]\n path = {top / "evil-include"}\n',
    "alias of a command": lambda run, _: "[alias]\n" + "".join(
        f" {name} = !{run}\n" for name in ("status", "diff", "rev-parse", "add", "write-tree", "worktree")),
    "alternate refs and credentials": lambda run, _: (
        f"[core]\n alternateRefsCommand = {run}\n[credential]\n helper = !{run}\n[maintenance]\n auto = true\n[gc]\n auto = 1\n"),
    "the config of the worktree": lambda run, _: "[extensions]\n worktreeConfig = true\n[core]\n repositoryformatversion = 1\n",
}  # fmt: skip
HOOKS = ("post-checkout", "post-commit", "pre-commit", "reference-transaction", "post-index-change", "post-merge", "pre-auto-gc",
         "fsmonitor-watchman", "post-rewrite", "commit-msg", "prepare-commit-msg", "sendemail-validate")  # fmt: skip


class Payload:
    """Program that proves by which git it was run, and tries to be served."""

    def __init__(self, ground: GitGround) -> None:
        self.ran, self.served = ground.box.proof("ran"), ground.box.proof("served")
        command = ground.box.command(
            "connect", path=ground.box.daemon.socket, proof=self.served, how=["double fork"], victims={}
        )
        self.file = ground.box.proof("payload")
        self.file.write_text(
            f"#!/bin/sh\necho $PPID $(tr '\\0' ' ' < /proc/$PPID/cmdline) >> {self.ran}\n{command} </dev/null >/dev/null 2>&1\ncat\nexit 0\n"
        )
        self.file.chmod(0o755)
        self.words = command.split()[-1]

    def reached(self) -> str | None:
        """Return which program ran it, and whether the daemon served it."""
        ran = said(self.ran, MOMENT_S)
        if ran is None:
            return None
        time.sleep(MOMENT_S)
        served = ", and was served" if self.served.exists() else ""
        left = ", and outlived the session" if running_with(self.words) else ""
        return f"ran by {' '.join(ran.split()[1:9])}{served}{left}"


def attack(place: str, setting: str, ground: GitGround) -> str | None:
    """A tool writes one setting in one place. Then the session is looked at, landed, discarded, and another one opened."""
    top = repository(ground.root / f"r{random.getrandbits(32):x}")
    payload = Payload(ground)
    run = str(payload.file)
    session = ground.box.session(cwd=str(top), worktree=True)
    tree = Path(session.get()["worktree"]["path"])
    (tree / "a.txt").write_text("changed by the tool\n")
    (tree / "new.txt").write_text("new\n")
    text = SETTINGS[setting](run, top)
    (top / "evil-hooks").mkdir()
    for name in HOOKS:
        _program(top / "evil-hooks" / name, run)
    (top / "evil-include").write_text(
        SETTINGS["filter.clean and smudge"](run, top) + SETTINGS["core.fsmonitor"](run, top)
    )
    PLACES[place](top, tree, text, run)
    _use(ground.box, session, top)
    return payload.reached()


def _program(path: Path, run: str) -> None:
    path.write_text(f"#!/bin/sh\nexec {run}\n")
    path.chmod(0o755)


def _attributes(git_dir: Path, tree: Path, text: str) -> None:
    """Let the setting count for all files. An absent object makes git fetch it lazily."""
    value = ALL.replace("=x", "=lfs") if '"lfs"' in text else ALL
    (git_dir / "info").mkdir(exist_ok=True)
    (git_dir / "info" / "attributes").write_text(value)
    (tree / ".gitattributes").write_text(value)
    if "partialClone" in text:
        for blob in (git_dir / "objects").glob("??/*"):
            if git_kind(git_dir, blob) == "blob":
                blob.unlink()


def git_kind(git_dir: Path, path: Path) -> str:
    """Return the kind of a loose object."""
    done = subprocess.run(["git", f"--git-dir={git_dir}", "cat-file", "-t", path.parent.name + path.name], env=HOME,
                          capture_output=True, text=True, check=False)  # fmt: skip
    return done.stdout.strip()


def _in_repository(top: Path, tree: Path, text: str, run: str) -> None:
    """Write the settings of the repository, its attributes and its hooks."""
    with (top / ".git" / "config").open("a") as file:
        file.write(text)
    if "worktreeConfig" in text:
        trees = top / ".git" / "worktrees"
        own = next(trees.iterdir()) if trees.is_dir() else top / ".git"
        (own / "config.worktree").write_text(
            SETTINGS["filter.clean and smudge"](run, top) + SETTINGS["core.fsmonitor"](run, top)
        )
    _attributes(top / ".git", tree, text)


def _own_git_dir(top: Path, tree: Path, text: str, run: str) -> None:
    """Replace the worktree's `.git` file by one that names a repository of the tool."""
    other = repository(tree / ".tool")
    _in_repository(other, tree, text, run)
    (tree / ".git").unlink()
    (tree / ".git").write_text(f"gitdir: {other / '.git'}\n")


def _own_git_directory(top: Path, tree: Path, text: str, run: str) -> None:
    """Replace the worktree's `.git` file by a repository."""
    other = repository(top.parent / f"{top.name}-other")
    _in_repository(other, tree, text, run)
    (tree / ".git").unlink()
    os.rename(other / ".git", tree / ".git")


def _own_common_dir(top: Path, tree: Path, text: str, run: str) -> None:
    """Name another common directory in the recorded git directory."""
    other = repository(tree / ".tool")
    _in_repository(other, tree, text, run)
    own = next((top / ".git" / "worktrees").iterdir())
    (own / "commondir").write_text(f"{other / '.git'}\n")


def _submodule(top: Path, tree: Path, text: str, run: str) -> None:
    """Add a repository inside of the worktree as a submodule that git looks into."""
    inner = repository(tree / "inner")
    git(tree, "-c", "protocol.file.allow=always", "add", "inner")
    git(tree, "commit", "-q", "-m", "Add inner")
    (tree / ".gitmodules").write_text(
        f'[submodule "inner"]\n path = inner\n url = ./inner\n update = !{run}\n ignore = none\n'
    )
    _in_repository(inner, inner, text, run)
    (inner / "a.txt").write_text("changed again\n")


def _hooks(top: Path, tree: Path, _text: str, run: str) -> None:
    """Write every hook into the repository."""
    for name in HOOKS:
        _program(top / ".git" / "hooks" / name, run)


PLACES: dict[str, Callable[[Path, Path, str, str], None]] = {
    "the repository": _in_repository,
    "a .git file of the tool": _own_git_dir,
    "a .git directory of the tool": _own_git_directory,
    "another common directory": _own_common_dir,
    "a submodule": _submodule,
    "the hooks": _hooks,
}


def _use(box: Box, session: Any, top: Path) -> None:
    """Let the user look at the session, land it, open another one, and clean up. Refusals are answers."""
    other = box.ask_quickly("session/new", 20, backend="demo", cwd=str(top), worktree=True)
    for method, words in USES:
        box.ask_quickly(method, 20, session_id=session.id, **words)
    if other is not None:
        for method, words in USES:
            box.ask_quickly(method, 20, session_id=other["session_id"], **words)
    box.ask_quickly("daemon/gc", 20, dry_run=False)


def outlives(ground: GitGround) -> str | None:
    """git that the daemon waits for hangs. It must end with its request, and not stay."""
    top = repository(ground.root / f"r{random.getrandbits(32):x}")
    mark = ground.box.proof("stay.sh")
    mark.write_text("#!/bin/sh\nsetsid sleep 300 &\nsleep 300\n")
    mark.chmod(0o755)
    session = ground.box.session(cwd=str(top), worktree=True)
    tree = Path(session.get()["worktree"]["path"])
    (tree / "a.txt").write_text("x\n")
    _own_git_dir(top, tree, SETTINGS["filter.clean and smudge"](shlex.quote(str(mark)), top), str(mark))
    ground.box.ask_quickly("session/diff", 3, session_id=session.id, patch=True)
    with suppress(Exception):
        ground.box.ask_quickly("session/close", 8, session_id=session.id)
    time.sleep(MOMENT_S)
    left = running_with(str(mark)) + running_with("sleep\x00300")
    for pid in left:
        with suppress(OSError):
            os.kill(pid, 9)
    return f"{len(left)} processes of a hanging git stay after the close" if left else None


IN_SHORT = {("a .git file of the tool", "filter.clean and smudge"), ("the repository", "core.fsmonitor"),
            ("a submodule", "filter.clean and smudge")}  # fmt: skip
CELLS = [
    *(("the repository", setting) for setting in SETTINGS),
    *(("a .git file of the tool", setting) for setting in SETTINGS if "lfs" not in setting and "alias" not in setting),
    *(
        ("a .git directory of the tool", setting)
        for setting in ("filter.clean and smudge", "core.fsmonitor", "diff.external")
    ),
    *(
        ("another common directory", setting)
        for setting in ("filter.clean and smudge", "core.fsmonitor", "an included file")
    ),
    *(
        ("a submodule", setting)
        for setting in ("filter.clean and smudge", "filter.process", "core.fsmonitor", "diff driver and textconv")
    ),
    ("the hooks", "alias of a command"),
]
ATTACKS = (
    *(Attack("T5", f"{setting}, in {place}", partial(attack, place, setting), (place, setting) in IN_SHORT)
      for place, setting in CELLS),
    Attack("T5", "git that hangs outlives its request", outlives),
)  # fmt: skip
