"""Live processes of qwen and gemini by their own adapters, to record as agents: one turn of each, with answers and interrupts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from clisup.backends.base import ApprovalAnswer
from clisup.backends.gemini.adapter import GeminiAdapter
from clisup.backends.qwen.adapter import QwenAdapter
from tests.e2e.acp.agent import Agent, Run
from tests.e2e.acp.agents import ALLOW
from tests.e2e.acp.qwen import _ANSWERS, QUIET, qwen_acp_command, scenario_of
from tests.e2e.gemini import scenarios as gemini
from tests.e2e.gemini.fake_api import FAKE_KEY, FakeGeminiAPI
from tests.e2e.gemini.lab import COMMAND, write_settings
from tests.e2e.lab import ROOT
from tests.e2e.qwen.fake_api import FakeChatAPI
from tests.e2e.qwen.lab import environment
from tests.versions import VERSIONS

__all__ = ["NATIVE"]

_LIVE: dict[str, Any] = {"live": True}
_ASKS = {**_LIVE, "permission_mode": "default"}
_USE = "Use your tools."
DENY = ApprovalAnswer("deny", message="Not that.")
_QWEN = Agent(
    "qwen-live",
    VERSIONS["qwen"],
    lambda _: qwen_acp_command()[:-1],
    lambda scenario: FakeChatAPI(scenario_of(scenario)),
    lambda run, url, home: {**environment(run.url or url, key=run.key), **QUIET},
    (
        (Run("live_text", "text", request=_LIVE),),
        (Run("live_allowed", "asked", _USE, request=_ASKS, answer=ALLOW),),
        (Run("live_denied", "asked", _USE, request=_ASKS, answer=DENY),),
        (Run("live_question", "question", "Ask me.", request=_ASKS, answer=_ANSWERS),),
        (Run("live_interrupt", "stall_mid_stream", request=_LIVE, cancel_after='"text":"is"'),),
        (
            Run(
                "live_interrupt_asked", "asked", _USE, request=_ASKS, answers={"run_shell_command": None},
                cancel_after='"subtype":"can_use_tool"',
            ),
        ),
        (Run("live_http_401", "http_401", request=_LIVE),),
    ),
    QwenAdapter(),
    f"qwen/{VERSIONS['qwen']}",
)  # fmt: skip

_TOUCH = gemini.calls(gemini.shell("touch made.txt"), text="I need it.")
_GEMINI_SCENARIOS = {
    "text": gemini.SCENARIOS["text"].respond,
    "thinking": gemini.SCENARIOS["thinking"].respond,
    "memory": gemini.remembers,
    "asked": gemini.in_turn(_TOUCH, gemini.says("Well.", n=1)),
    "mcp": gemini.in_turn(gemini.calls(gemini.call("mcp_tools_fail", {"a": "b"})), gemini.says("It failed.", n=1)),
    "slow": gemini.in_turn(gemini.calls(gemini.shell("sleep 30")), gemini.says("late", n=1)),
    "stall": gemini.always(gemini.WAIT, gemini.Stall()),
    "http_401": gemini.always(gemini.error(401, "UNAUTHENTICATED", "Request had invalid credentials.")),
    "empty": gemini.always(*gemini.says("", n=0)),
}
_SERVER = {"tools": {"command": sys.executable, "args": [str(ROOT / "tests" / "e2e" / "tool_server.py")]}}
_YOLO = {**_LIVE, "permission_mode": "yolo", "model": "fake-model"}
_DEFAULT = {**_LIVE, "model": "fake-model"}


def _gemini_environment(run: Run, url: str, home: Path) -> dict[str, str]:
    write_settings(home, gemini.ONCE)
    return {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": FAKE_KEY, "NO_COLOR": "1"}


_GEMINI = Agent(
    "gemini-live",
    VERSIONS["gemini"],
    lambda _: list(COMMAND),
    lambda scenario: FakeGeminiAPI(gemini.Scenario(scenario, _GEMINI_SCENARIOS[scenario])),
    _gemini_environment,
    (
        (Run("live_text", "text", request=_DEFAULT),),
        (Run("live_thinking", "thinking", request=_DEFAULT),),
        (
            Run("live_memory", "memory", "My name is Ada.", request=_DEFAULT),
            Run("live_memory_resume", "memory", "What did I say?", "again", request=_DEFAULT),
        ),
        (Run("live_allowed", "asked", _USE, request=_DEFAULT, answer=ALLOW),),
        (Run("live_denied", "asked", _USE, request=_DEFAULT),),
        (Run("live_mcp", "mcp", _USE, request={**_YOLO, "mcp_servers": _SERVER}),),
        (Run("live_tool_cancelled", "slow", _USE, request=_YOLO, cancel_after='"in_progress"'),),
        (Run("live_interrupt", "stall", request=_DEFAULT, cancel_after='"Wait"'),),
        (Run("live_http_401", "http_401", request=_DEFAULT),),
        (Run("live_empty", "empty", request=_DEFAULT),),
        (Run("live_unknown_session", "text", session="00000000-0000-4000-8000-000000000000", request=_DEFAULT),),
    ),
    GeminiAdapter(),
    f"gemini/{VERSIONS['gemini']}",
)
NATIVE = (_QWEN, _GEMINI)
"""Their recordings lie beside those of one-shot processes."""
