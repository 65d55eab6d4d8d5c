"""A lab for each real CLI, by the kind of its backend: `LABS["codex"]("text")` plays the scenario of that name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tests.e2e.acp.qwen import QwenAcpLab
from tests.e2e.codex.lab import CodexLab
from tests.e2e.codex.scenarios import SCENARIOS as CODEX
from tests.e2e.gemini.lab import GeminiLab
from tests.e2e.lab import ClaudeLab, Lab
from tests.e2e.opencode.lab import OpencodeLab
from tests.e2e.qwen.lab import QwenLab
from tests.versions import RECORDED

__all__ = ["LABS", "cli_of", "is_installed"]

LABS: Mapping[str, Callable[[str], Lab]] = {
    "claude": ClaudeLab,
    "codex": lambda name: CodexLab(CODEX["codex", name]),
    "codex-exec": lambda name: CodexLab(CODEX["codex-exec", name], kind="codex-exec"),
    "qwen": QwenLab,
    "gemini": GeminiLab,
    "opencode": OpencodeLab,
    "acp": QwenAcpLab,
}
_PROGRAMS = {"codex-exec": "codex", "acp": "qwen"}
_WORDS = {"codex-exec": "codex exec", "acp": "qwen --acp"}


def cli_of(kind: str) -> str:
    """Return the CLI of a kind with its pinned version: `codex 0.169.0`."""
    return f"{_WORDS.get(kind, kind)} {RECORDED.get(kind) or RECORDED[_PROGRAMS[kind]]}"


def is_installed(kind: str) -> bool:
    """Tell whether `make e2e-install` has fetched the CLI."""
    return (Path(__file__).resolve().parents[2] / ".e2e" / _PROGRAMS.get(kind, kind) / "node_modules").is_dir()
