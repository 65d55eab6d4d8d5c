"""The command line of `clisup mcp`: options, and the entry for a CLI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def run(*words: str, path: str = os.defpath, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "clisup", "mcp", *words], capture_output=True, text=True, timeout=60, check=False,
        stdin=subprocess.DEVNULL, env={"PATH": path, "HOME": "/nonexistent", "PYTHONPATH": str(ROOT), **env},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("cli", "before", "after"),
    [
        ("claude", "claude mcp add --scope user clisup -- ", " mcp --root /srv --budget-usd 2.5 --may-approve\n"),
        ("codex", "codex mcp add clisup -- ", " mcp --root /srv --budget-usd 2.5 --may-approve\n"),
        ("gemini", "gemini mcp add --scope user clisup ", " -- mcp --root /srv --budget-usd 2.5 --may-approve\n"),
    ],
)
def test_the_command_that_adds_the_entry_is_printed(cli: str, before: str, after: str) -> None:
    ran = run("--root", "/srv", "--budget-usd", "2.5", "--may-approve", "install", cli)
    assert ran.returncode == 0 and ran.stdout.startswith(before) and ran.stdout.endswith(after), ran


def test_a_cli_that_is_missing_or_fails_is_told_with_the_command(tmp_path: Path) -> None:
    ran = run("install", "codex", "--write", path=str(tmp_path))
    assert ran.returncode == 69 and "codex is not installed" in ran.stderr and "codex mcp add" in ran.stderr
    (tmp_path / "codex").write_text("#!/bin/sh\nexit 7\n")
    (tmp_path / "codex").chmod(0o755)
    ran = run("install", "codex", "--write", path=f"{tmp_path}:{os.defpath}")
    assert ran.returncode == 69 and "exit code 7" in ran.stderr


@pytest.mark.parametrize("mode", ["=x", "claude=", ""])
def test_a_permission_mode_that_cannot_be_understood_is_refused(mode: str) -> None:
    ran = run("--permission-mode", mode, "install", "claude")
    assert ran.returncode == 2 and "--permission-mode" in ran.stderr


def test_without_the_package_the_command_says_how_to_install_it(tmp_path: Path) -> None:
    (tmp_path / "mcp.py").write_text("raise ModuleNotFoundError(\"No module named 'mcp'\", name='mcp')\n")
    ran = run(PYTHONPATH=f"{tmp_path}:{ROOT}", CLISUP_SOCKET=str(tmp_path / "none"))
    assert ran.returncode == 78 and "pip install 'clisup[mcp]'" in ran.stderr
