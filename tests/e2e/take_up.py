"""Take up a new version of a real CLI: install it, record every scenario with it, and print what is new.

    make take-up CLI=claude                    # the newest version in the registry
    make take-up CLI=codex VERSION=0.170.0

The order of work, and what to do with the output, is in docs/how-to/new-cli-version.md. The command changes the pin in `tests/e2e/clis`,
the recordings, their stories and the known fields, so `git diff` shows the whole of it and `git checkout .` undoes it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from tests.e2e.codex.provider import codex_binary
from tests.e2e.lab import ROOT, claude_binary
from tests.e2e.qwen.lab import qwen_command
from tests.versions import CLIS, PACKAGES, pinned

RECORDINGS = ROOT / "tests" / "recordings"
STORIES = ROOT / "tests" / "backends" / "expected"
KNOWN_FIELDS = ROOT / "clisup" / "backends" / "known_fields"
HELP_LIMIT_S = 60.0
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")


class Cli(NamedTuple):
    """A real CLI: how it is started, its pages of help, its recorders, and the folders of its recordings."""

    command: Callable[[], list[str]]
    helps: tuple[str, ...]
    recorders: tuple[str, ...]
    folders: tuple[str, ...]
    """Below `tests/recordings`, with `{version}`."""


def _usual(name: str) -> Cli:
    """A CLI whose folder is `tests/e2e/<name>`: `lab.py` has its `COMMAND`, and `record.py` records it."""
    lab = import_module(f"tests.e2e.{name}.lab")
    helps = getattr(lab, "HELPS", ("--help",))
    return Cli(lambda: list(lab.COMMAND), helps, (f"tests.e2e.{name}.record",), (f"{name}/{{version}}",))


_UNUSUAL = {
    "claude": Cli(lambda: [str(claude_binary())], ("--help",), ("tests.e2e.record_claude",), ("claude/{version}",)),
    "codex": Cli(
        lambda: [str(codex_binary())],
        ("--help", "exec --help", "exec resume --help", "app-server --help"),
        ("tests.e2e.codex.record",),
        ("codex/{version}", "codex-exec/{version}"),
    ),
    "qwen": Cli(
        lambda: [str(qwen_command())],
        ("--help",),
        ("tests.e2e.qwen.record", "tests.e2e.acp.record"),
        ("qwen/{version}", "acp/qwen-{version}"),
    ),
}
REAL = {
    name: _UNUSUAL[name] if name in _UNUSUAL else _usual(name)
    for name in PACKAGES
    if (Path(__file__).parent / name).is_dir() or name in _UNUSUAL
}
"""CLI name to how it is taken up. `tests.e2e.acp.record --agent NAME` records the ACP adapters, which are no kinds."""


class Look(NamedTuple):
    """What one version shows of itself."""

    flags: frozenset[str]
    fields: Mapping[str, frozenset[str]]
    """Frame to its fields."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cli", choices=sorted(REAL))
    parser.add_argument("version", nargs="?", help="default: the newest in the registry")
    options = parser.parse_args()
    old = pinned(options.cli)
    new = options.version or _output("npm", "view", PACKAGES[options.cli], "version").strip()
    if new == old:
        sys.exit(f"{options.cli} {old} is pinned already, and nothing newer was named")
    with tempfile.TemporaryDirectory() as scratch:
        take_up(options.cli, old, new, Path(scratch))


def take_up(name: str, old: str, new: str, scratch: Path) -> None:
    """Install `new` in place of `old`, record it, and print what differs."""
    cli = REAL[name]
    _install(name)
    before = _look(cli)
    _variables(name, cli, scratch)
    _pin(name, new)
    _install(name)
    for recorder in cli.recorders:
        print(f"{recorder} ...", flush=True)
        subprocess.run([sys.executable, "-m", recorder], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    for folder in cli.folders:
        shutil.rmtree(RECORDINGS / folder.format(version=old), ignore_errors=True)
        renamed = STORIES / folder.format(version=old)
        if renamed.is_dir():
            renamed.rename(STORIES / folder.format(version=new))
    subprocess.run([sys.executable, "-m", "tests.backends.known_fields"], check=True, cwd=ROOT)
    stories = [sys.executable, "-m", "pytest", "-q", "-n2", "tests/backends/test_recordings.py"]
    subprocess.run(stories, cwd=ROOT, env={**os.environ, "CLISUP_UPDATE_EXPECTED": "1"}, stdout=subprocess.DEVNULL)
    print(f"\n{name} {old} -> {new}\n")
    print("\n".join(report(before, _look(cli), _variables(name, cli, scratch), _changed_stories())))


def report(before: Look, after: Look, variables: list[str], stories: list[str]) -> list[str]:
    """Say in lines what is new and what is gone; a heading without lines below it has the word `none`."""
    frames_before, frames_after = frozenset(before.fields), frozenset(after.fields)
    common = sorted(frames_before & frames_after)
    return [
        *_section("new frames", sorted(frames_after - frames_before)),
        *_section("frames not seen any more", sorted(frames_before - frames_after)),
        *_section("new fields", [f"{f}: {n}" for f in common for n in sorted(after.fields[f] - before.fields[f])]),
        *_section(
            "fields not seen any more",
            [f"{f}: {n}" for f in common for n in sorted(before.fields[f] - after.fields[f])],
        ),
        *_section("new flags", sorted(after.flags - before.flags)),
        *_section("flags gone", sorted(before.flags - after.flags)),
        *_section("new variables that no scrub list decides about", variables),
        *_section("stories that changed (git diff tests/backends/expected)", stories),
    ]


def flags_in(text: str) -> frozenset[str]:
    """Return the long options that a page of help names."""
    return frozenset(_FLAG.findall(text))


def _section(title: str, lines: list[str]) -> list[str]:
    return [f"{title}: {len(lines) or 'none'}", *[f"  {line}" for line in lines]]


def _look(cli: Cli) -> Look:
    pages = [_output(*cli.command(), *words.split(), limit=HELP_LIMIT_S) for words in cli.helps]
    kinds = {folder.partition("/")[0] for folder in cli.folders}
    files = [(kind, json.loads((KNOWN_FIELDS / f"{kind}.json").read_text())) for kind in sorted(kinds)]
    fields = {f"{kind} {frame}": frozenset(names) for kind, frames in files for frame, names in frames.items()}
    return Look(flags_in("\n".join(pages)), fields)


def _variables(name: str, cli: Cli, scratch: Path) -> list[str]:
    """Read the CLI's files as `clisup doctor --drift` does; the second look in one scratch home tells what is new."""
    config = scratch / "config.toml"
    command = json.dumps(cli.command())
    config.write_text(f'[backends.{name}]\nkind = "{name}"\ncommand = {command}\n')
    clisup = [sys.executable, "-m", "clisup", "doctor", "--config", str(config), "--drift", name, "--json"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(scratch), "XDG_RUNTIME_DIR": str(scratch)}
    found: dict[str, Any] = json.loads(_output(*clisup, env=environment, limit=600))
    return list(found["new"] or [])


def _pin(name: str, version: str) -> None:
    """Write the pin and its lock file. The lock holds integrity hashes and no address of a registry."""
    folder = CLIS / name
    pins = json.loads((folder / "package.json").read_text())
    pins["dependencies"][PACKAGES[name]] = version
    (folder / "package.json").write_text(json.dumps(pins, indent=2) + "\n")
    (folder / "package-lock.json").unlink()
    lock = [
        "npm",
        "install",
        "--package-lock-only",
        "--omit-lockfile-registry-resolved",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
    ]
    subprocess.run(lock, check=True, cwd=folder, stdout=subprocess.DEVNULL)


def _install(name: str) -> None:
    subprocess.run(["sh", str(ROOT / "tests" / "e2e" / "install_cli.sh"), name], check=True)


def _changed_stories() -> list[str]:
    return _output("git", "status", "--short", "tests/backends/expected").splitlines()


def _output(*argv: str, env: Mapping[str, str] | None = None, limit: float = HELP_LIMIT_S) -> str:
    return subprocess.run(argv, check=True, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, timeout=limit).stdout


if __name__ == "__main__":
    main()
