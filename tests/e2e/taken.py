"""Table of the real CLIs that `tests.e2e.take_up` takes up: how each starts, and what records it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tests.e2e.codex.provider import codex_binary
from tests.e2e.gemini.lab import COMMAND as GEMINI
from tests.e2e.lab import claude_binary
from tests.e2e.opencode.lab import COMMAND as OPENCODE
from tests.e2e.opencode.lab import HELPS as OPENCODE_HELPS
from tests.e2e.qwen.lab import qwen_command

__all__ = ["REAL", "Cli", "Recorder"]

_LIVE = "live_"


class Recorder(NamedTuple):
    """One way to record a CLI. `module` takes the names of scenarios behind `args`; none means all of them.

    `folder` is below tests/recordings. `bound` are the scenarios that are recorded with the oldest accepted version: a session of two
    turns, a tool, a resume, and a fork and a compaction where the CLI has them.
    """

    module: str
    kind: str
    folder: str
    bound: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    everything: tuple[str, ...] = ()
    """What names all scenarios, if nothing does not."""
    live: bool | None = None
    """Tell whether this recorder makes the recordings named `live_*`, or the others, or all (None)."""

    def owns(self, name: str) -> bool:
        """Tell whether this recorder makes the recording."""
        return self.live is None or name.startswith(_LIVE) == self.live

    def scenario(self, name: str, scenario: str) -> str:
        """Return what the module calls the scenario of a recording, whose meta file names `scenario`."""
        if self.args:  # of ACP agents a session is named by its first run
            return name.removesuffix("_resume")
        return f"{self.kind}/{scenario}" if self.everything else scenario


class Cli(NamedTuple):
    """A real CLI: its command, its pages of help, its recorders, the file of its adapter, and its scrub lists."""

    recorders: tuple[Recorder, ...]
    command: Callable[[], list[str]] = list
    helps: tuple[str, ...] = ()
    adapter: str | None = None
    lists: str | None = None
    table: str = ""
    """More lines of the backend's table in the configuration, for `clisup doctor --drift`."""


def _agent(name: str) -> Recorder:
    return Recorder("tests.e2e.acp.record", "acp", f"acp/{name}-{{version}}", args=("--agent", name))


def _live(kind: str, *bound: str) -> Recorder:
    return Recorder(
        "tests.e2e.acp.record", kind, f"{kind}/{{version}}", bound, args=("--agent", f"{kind}-live"), live=True
    )


def _codex(kind: str, *bound: str) -> Recorder:
    return Recorder("tests.e2e.codex.record", kind, f"{kind}/{{version}}", bound, everything=(kind,))


def _plain(kind: str, module: str, *bound: str, live: bool | None = None) -> Recorder:
    return Recorder(module, kind, f"{kind}/{{version}}", bound, live=live)


_CLAUDE = (
    "text", "memory", "tool_ok", "compact", "subagent", "async_agents", "async_agents_at_once", "json_schema", "live_text", "live_memory",
    "live_merged", "live_interrupt", "live_ask_allow", "live_background", "live_async_agents", "live_compact", "live_compact_fails",
    "live_controls",
)  # fmt: skip
_CODEX = ("codex/text", "codex/resume", "codex/tool_ok", "codex/compact", "codex/subagent", "codex/approved")
_EXEC = ("codex-exec/text", "codex-exec/resume", "codex-exec/tool_ok")
_COMMON = ("text", "tool_ok", "tool_fail")

REAL: Mapping[str, Cli] = {
    "claude": Cli(
        (_plain("claude", "tests.e2e.record_claude", *_CLAUDE),),
        lambda: [str(claude_binary())],
        ("--help",),
        "clisup/backends/claude/adapter.py",
        "claude",
    ),
    "codex": Cli(
        (_codex("codex", *_CODEX), _codex("codex-exec", *_EXEC)),
        lambda: [str(codex_binary())],
        ("--help", "exec --help", "exec resume --help", "app-server --help"),
        "clisup/backends/codex/adapter.py",
        "codex",
    ),
    "qwen": Cli(
        (
            _plain("qwen", "tests.e2e.qwen.record", *_COMMON, "memory", "subagent", live=False),
            _live("qwen", "live_text", "live_allowed"),
            _agent("qwen"),
        ),
        lambda: [str(qwen_command())],
        ("--help",),
        "clisup/backends/qwen/adapter.py",
        "qwen",
    ),
    "gemini": Cli(
        (
            _plain("gemini", "tests.e2e.gemini.record", *_COMMON, "memory", live=False),
            _live("gemini", "live_text", "live_memory", "live_allowed"),
        ),
        lambda: list(GEMINI),
        ("--help",),
        "clisup/backends/gemini/adapter.py",
        "gemini",
    ),
    "opencode": Cli(
        (_plain("opencode", "tests.e2e.opencode.record", *_COMMON, "memory", "subagent"), _agent("opencode")),
        lambda: list(OPENCODE),
        OPENCODE_HELPS,
        "clisup/backends/opencode/adapter.py",
        "opencode",
        'setting_sources = "user,project"',
    ),
    "codex-acp": Cli((_agent("codex-acp"),)),
    "claude-agent-acp": Cli((_agent("claude-agent-acp"),)),
}
"""By the name of the folder in tests/e2e/clis."""
