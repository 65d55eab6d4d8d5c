"""What clisup tells of the tokens is what the API served, and what the CLI itself counts.

A recorder notes what the fake API served to a process (`served` in the meta file). A cut answer has no such number: how much of it a CLI
counts is its own affair.
"""

from __future__ import annotations

import json
from fnmatch import fnmatch
from pathlib import Path

import pytest

from clisup.model.usage import Usage
from tests.backends.recorded import PATHS, Recording, name_of

NOT_COUNTED = {
    "*/live_controls": "a new model is tried with a request that claude does not count",
    "*/live_controls_busy": "a new model is tried with a request that claude does not count",
    "*/live_async_agent_interrupt": "no result follows the interrupt of a sub-agent",
    "acp/claude-agent-acp-*": "the agent asks for a title of the session, and does not count that",
    "codex*/content_filter": "codex tells no tokens of an answer that a filter has cut",
    "codex-exec/max_tokens*": "codex exec tells no tokens of a turn that failed",
    "gemini/live_tool_cancelled": "gemini tells no tokens of a cancelled prompt",
    "gemini/prompt_blocked": "gemini tells no tokens of a prompt that was blocked",
    "gemini/loop": "gemini tells no tokens of a turn that it has stopped as a loop",
}
"""Patterns of recordings in which the CLI's own total is less than what was served, with the reason."""

SERVED = [path for path in PATHS if '"served"' in path.with_suffix(".meta.json").read_text()]
CLAUDE = [path for path in PATHS if path.parents[1].name == "claude"]


def told(recording: Recording) -> Usage:
    return Usage.total(one.terminal.usage for one in recording.decode() if one.terminal)


def was_told(recording: Recording) -> bool:
    """A process that was killed, or never began a turn, tells nothing."""
    return any(one.terminal for one in recording.decode())


@pytest.mark.parametrize("path", SERVED, ids=name_of)
def test_the_turns_of_a_process_have_used_what_the_api_served(path: Path) -> None:
    recording = Recording(path)
    served = recording.meta["served"]
    if served["broken"] or not was_told(recording) or any(fnmatch(name_of(path), pattern) for pattern in NOT_COUNTED):
        return
    usage = told(recording)
    if usage.source == "estimated":  # gemini's live mode does not tell of the thoughts, codex exec not of sub-agents
        return
    assert (usage.total_input_tokens or 0, usage.output_tokens or 0) == (
        served["input_tokens"],
        served["output_tokens"],
    )


@pytest.mark.parametrize("path", CLAUDE, ids=name_of)
def test_the_turns_of_a_claude_have_used_and_cost_what_its_own_totals_grew_by(path: Path) -> None:
    recording = Recording(path)
    frames = [json.loads(line.data) for line in recording.lines() if line.data.startswith(b'{"')]
    results = [frame for frame in frames if frame["type"] == "result" and frame.get("modelUsage")]
    if not results:
        return
    before = total(results[0]["modelUsage"]) - total(results[0]["model_usage_since_last_result"])
    assert told(recording).total_tokens == total(results[-1]["modelUsage"]) - before
    costs = [one.terminal.cost_usd or 0 for one in recording.decode() if one.terminal]
    own = cost(results[-1]["modelUsage"]) - cost(results[0]["modelUsage"])
    assert sum(costs) == pytest.approx(own + cost(results[0]["model_usage_since_last_result"]))


def total(models: dict[str, dict[str, float]]) -> float:
    names = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
    return sum(model[name] for model in models.values() for name in names)


def cost(models: dict[str, dict[str, float]]) -> float:
    return sum(model["costUSD"] for model in models.values())


def test_most_recordings_prove_their_sum() -> None:
    """Guards the two tests above against recordings that all fall under an exception."""
    proved = [path for path in map(Recording, SERVED) if not path.meta["served"]["broken"] and was_told(path)]
    assert len(proved) > 0.7 * len(SERVED)
