"""One table of the real CLIs: `CLIS["codex"].playing("text")` is a daemon with codex, whose model plays that scenario.

A test of all CLIs composes its scenario from the words of a `Voice`, which each API writes in its own way:

    with cli.playing(cli.voice.shell("echo hi"), cli.voice.say("It said hi.")) as here:
        here.turn(**cli.free)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import scenarios as claude
from tests.e2e.acp.qwen import QwenAcpLab
from tests.e2e.codex import scenarios as codex
from tests.e2e.codex.fake_api import call, events, message, said
from tests.e2e.codex.lab import CodexLab
from tests.e2e.gemini import scenarios as gemini
from tests.e2e.gemini.lab import GeminiLab
from tests.e2e.lab import ClaudeLab, Lab, running
from tests.e2e.opencode import scenarios as opencode
from tests.e2e.opencode.lab import OpencodeLab
from tests.e2e.qwen import scenarios as chat
from tests.e2e.qwen.lab import QwenLab
from tests.e2e.scenarios import Body, Reply, Respond, Scenario, Stall, in_turn
from tests.versions import RECORDED

__all__ = ["CLIS", "WORDS_OF_A_401", "Cli", "Voice", "cli_of", "each", "is_installed"]

Played = str | Respond
WORDS_OF_A_401 = "Incorrect API key provided: fake."
PIECES = ("The answer ", "is")


@dataclass(frozen=True)
class Voice:
    """The answers of the model, as one API writes them. Request `n` has `40 + n` tokens of output."""

    say: Callable[[str], Respond]
    shell: Callable[..., Respond]
    """Calls of the CLI's own shell tool, one for each command, in one answer."""
    partly: Respond
    """`The answer is`, and then silence."""
    remember: Respond
    """Quote the first prompt of the conversation."""
    unauthorised: Respond
    forbidden: Respond
    """Refuse by a 403, which no CLI tries again."""
    usage: Callable[[int], Body]
    """What a client is told of the tokens of request `n`."""


@dataclass(frozen=True)
class Cli:
    """A row of the table. `make` makes the lab of a scenario, by its name or by the answers of its model."""

    kind: str
    make: Callable[..., Lab]
    voice: Voice
    tool: str
    """Name of the CLI's own shell tool."""
    free: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of a session whose tools run unasked."""
    asking: Mapping[str, Any] = field(default_factory=lambda: {"permission_mode": "default"})
    """Parameters of a live session that asks for the commands of `asks`."""
    asks: Callable[..., Respond] | None = None
    patient: Mapping[str, Any] = field(default_factory=dict)
    """Options of a lab whose CLI retries a 401 for long."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Scenarios that have another name here."""

    def lab(self, *played: Played, **options: Any) -> Lab:
        """Make a lab for a scenario by its name, or for a model that gives these answers, the last one again and again."""
        first = played[0]
        return self.make(self.names.get(first, first) if isinstance(first, str) else in_turn(*played), **options)  # type: ignore[arg-type]

    def playing(self, *played: Played, **options: Any) -> AbstractContextManager[Any]:
        """Start the lab, and close it behind the test."""
        return running(self.lab(*played, **options))

    def live(self, here: Lab) -> str:
        """Open a live session that asks for tools."""
        return here.open(mode="live", **self.asking)

    def asked_for(self, command: str) -> Respond:
        """A command that a session of `live` asks for."""
        return (self.asks or self.voice.shell)(command)


def _chat_shell(*commands: str) -> Respond:
    def respond(body: Body, n: int) -> Reply:
        calls = [chat.shell(f"{n}{at}", command, at) for at, command in enumerate(commands)]
        return [*chat.message(n, *(delta for deltas in calls for delta in deltas), finish="tool_calls")]

    return respond


def _opencode_shell(*commands: str) -> Respond:
    def respond(body: Body, n: int) -> Reply:
        calls = [opencode.bash(f"{n}{at}", command, at) for at, command in enumerate(commands)]
        return [*chat.message(n, *(delta for deltas in calls for delta in deltas), finish="tool_calls")]

    return respond


def _codex_shell(*commands: str, **more: Any) -> Respond:
    return lambda body, n: said(n, *[call("exec_command", cmd=command, **more) for command in commands])


def _codex_asks(command: str) -> Respond:
    return _codex_shell(command, sandbox_permissions="require_escalated", justification="I want it")


CLAUDE = Voice(
    claude.say,
    lambda *commands: (
        lambda body, n: [
            *claude.message(body, n, *[claude.bash(f"{n}{at}", command) for at, command in enumerate(commands)])
        ]
    ),
    claude.partial(Stall()),
    claude.remember,
    claude.fail(401, "authentication_error", WORDS_OF_A_401),
    claude.FORBIDDEN,
    lambda n: {"input_tokens": 1000 + n, "cache_read_input_tokens": 30000 + n, "output_tokens": 40 + n},
)
CODEX = Voice(
    codex.say,
    _codex_shell,
    lambda body, n: [*events(n, message(*PIECES))[:-1], Stall()],
    codex.remember,
    codex.fail(401, WORDS_OF_A_401),
    codex.fail(403, "no access"),
    lambda n: {
        "input_tokens": 700,
        "cache_read_input_tokens": 300 + n,
        "output_tokens": 40 + n,
        "reasoning_tokens": 7,
    },
)
CHAT = Voice(
    chat.say,
    _chat_shell,
    chat.partial(Stall()),
    chat.remember,
    chat.fail(401, "invalid_api_key", WORDS_OF_A_401),
    chat.fail(403, "forbidden", "Your account may not use this model."),
    lambda n: {"input_tokens": 700, "cache_read_input_tokens": 300 + n, "output_tokens": 40 + n},
)
OPENCODE = replace(CHAT, shell=_opencode_shell)
GEMINI = Voice(
    lambda words: lambda body, n: gemini.says(words, n=n),
    lambda *commands: lambda body, n: gemini.calls(*map(gemini.shell, commands), text="I need it.", n=n),
    lambda body, n: [*(gemini.chunk({"text": piece}) for piece in PIECES), Stall()],
    gemini.remembers,
    lambda body, n: [gemini.error(401, "UNAUTHENTICATED", WORDS_OF_A_401)],
    lambda body, n: [gemini.error(403, "PERMISSION_DENIED", "The caller does not have permission.")],
    lambda n: {"input_tokens": 700 + n, "cache_read_input_tokens": 300},
)


def _claude(played: Played, **options: Any) -> Lab:
    return ClaudeLab(played if isinstance(played, str) else Scenario("played", played), **options)


def _codex(kind: str) -> Callable[..., Lab]:
    def make(played: Played, **options: Any) -> Lab:
        named = codex.SCENARIOS[kind, played] if isinstance(played, str) else codex.Scenario("played", played)
        return CodexLab(named, kind=kind, **options)

    return make


def _qwen(played: Played, **options: Any) -> Lab:
    return QwenLab(played if isinstance(played, str) else Scenario("played", played), **options)


def _acp(played: Played, **options: Any) -> Lab:
    return QwenAcpLab(played if isinstance(played, str) else Scenario("played", played), **options)


def _gemini(played: Played, **options: Any) -> Lab:
    return GeminiLab(played if isinstance(played, str) else gemini.Scenario("played", played), **options)


def _opencode(played: Played, **options: Any) -> Lab:
    return OpencodeLab(played if isinstance(played, str) else opencode.OpencodeScenario("played", played), **options)


_YOLO = {"permission_mode": "yolo"}
_BYPASS = {"permission_mode": "bypassPermissions"}
_ROWS = (
    Cli("claude", _claude, CLAUDE, "Bash", _BYPASS, names={"reasoning": "thinking"}),
    Cli(
        "codex",
        _codex("codex"),
        CODEX,
        "exec_command",
        asking={},
        asks=_codex_asks,
        patient={"retries": 5},
        names={"cut_mid_stream": "cut"},
    ),
    Cli("codex-exec", _codex("codex-exec"), CODEX, "exec_command", patient={"retries": 5}),
    Cli("qwen", _qwen, CHAT, "run_shell_command", _YOLO),
    Cli("gemini", _gemini, GEMINI, "run_shell_command", _YOLO, names={"reasoning": "thinking"}),
    Cli("opencode", _opencode, OPENCODE, "bash"),
    Cli("acp", _acp, CHAT, "run_shell_command", _YOLO),
)
CLIS: Mapping[str, Cli] = {cli.kind: cli for cli in _ROWS}
"""By the kind of the backend."""
_PROGRAMS = {"codex-exec": "codex", "acp": "qwen"}
_WORDS = {"codex-exec": "codex exec", "acp": "qwen --acp"}


def each(kinds: Iterable[str] = CLIS, *, but: str = "") -> pytest.MarkDecorator:
    """Parametrize a test by rows of the table, `cli`."""
    chosen = [kind for kind in kinds if kind not in but.split()]
    return pytest.mark.parametrize("cli", [CLIS[kind] for kind in chosen], ids=chosen)


def cli_of(kind: str) -> str:
    """Return the CLI of a kind with its pinned version: `codex 0.169.0`."""
    return f"{_WORDS.get(kind, kind)} {RECORDED.get(kind) or RECORDED[_PROGRAMS[kind]]}"


def is_installed(kind: str) -> bool:
    """Tell whether `make e2e-install` has fetched the CLI."""
    return (Path(__file__).resolve().parents[2] / ".e2e" / _PROGRAMS.get(kind, kind) / "node_modules").is_dir()
