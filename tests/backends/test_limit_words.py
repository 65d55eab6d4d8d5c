"""Words of a spent plan or quota without a code are `quota_exceeded` with every CLI, and absurd usage is no usage."""

from __future__ import annotations

import json
from typing import Any

import pytest
from test_acp import prompted

from clisup.backends.base import Carried, LaunchRequest
from clisup.backends.frames import MOST_TOKENS, get_cost, get_tokens
from clisup.backends.registry import get_adapter
from clisup.model.events import TurnError
from clisup.model.lines.framing import Line
from clisup.model.usage import NO_USAGE
from clisup.model.verdict import Terminal

WORDS = (
    "Claude AI usage limit reached|1749924000", "5-hour limit reached ∙ resets 3am", "Opus weekly limit reached",
    "You've hit your limit · resets 10pm", "You've hit your session limit", "You're out of extra usage · resets 4:20am",
    "You have exhausted your capacity on this model. Your quota will reset after 3h12m.",
    "You have exhausted your daily quota on this model.", "You've hit your usage limit. Try again in 3 days.",
    "Monthly usage limit reached. Resets in 12 days", "insufficient_quota", "Quota exceeded for this key",
)  # fmt: skip
KINDS = ("claude", "codex-exec", "gemini", "qwen", "opencode", "acp")


def ended(kind: str, *frames: Any) -> Terminal:
    adapter = get_adapter(kind)
    request = LaunchRequest(command=("cli",), prompt="p", native_session_id="s", resume=False, cwd="/w")
    decoder = adapter.decoder(Carried(0.0, NO_USAGE), request)
    found = []
    for frame in frames:
        data = json.dumps(frame).encode()
        found.append(decoder.decode(Line(0, len(data) + 1, data)).terminal)
    (terminal,) = [one for one in found if one is not None]
    return terminal


def failure(kind: str, words: str) -> TurnError | None:
    """Return the error of a turn that the CLI fails with these words alone."""
    match kind:
        case "claude":
            return ended(kind, {"type": "result", "subtype": "success", "is_error": True, "result": words}).error
        case "codex-exec":
            return ended(kind, {"type": "turn.failed", "error": {"message": words}}).error
        case "gemini":
            return ended(kind, {"type": "result", "status": "error", "error": {"message": words}}).error
        case "qwen":
            said = {
                "type": "result",
                "subtype": "error",
                "is_error": True,
                "error": {"message": f"[API Error: {words}]"},
            }
            return ended(kind, said).error
        case "opencode":
            data = {"name": "UnknownError", "data": {"message": words}}
            return ended(kind, {"type": "error", "sessionID": "s", "error": data}).error
    return prompted().fail(-32603, words)


@pytest.mark.fault(95)
@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("kind", KINDS)
def test_words_of_a_spent_plan_are_a_spent_quota(kind: str, words: str) -> None:
    error = failure(kind, words)
    assert error is not None and error.kind == "quota_exceeded"


@pytest.mark.parametrize("kind", KINDS)
def test_other_words_about_limits_are_none(kind: str) -> None:
    for words in ("rate limit reached, slow down", "The time limit was reached."):
        error = failure(kind, words)
        assert error is not None and error.kind != "quota_exceeded"


@pytest.mark.fault(96)
@pytest.mark.parametrize("value", [-1, MOST_TOKENS + 1, "12", 1.5, None, True])
def test_absurd_tokens_are_unknown(value: Any) -> None:
    assert get_tokens({"n": value}, "n") is None
    usage = {"input_tokens": value, "output_tokens": 7}
    terminal = ended(
        "claude", {"type": "result", "subtype": "success", "is_error": False, "result": "a", "usage": usage}
    )
    assert (terminal.usage.input_tokens, terminal.usage.output_tokens) == (None, 7)


@pytest.mark.fault(96)
@pytest.mark.parametrize("value", [-0.01, 1e300, "1"])
def test_an_absurd_cost_is_unknown(value: Any) -> None:
    assert get_cost({"n": value}, "n") is None
    said = {"type": "result", "subtype": "success", "is_error": False, "result": "a", "total_cost_usd": value}
    assert ended("claude", said).cost_usd is None
