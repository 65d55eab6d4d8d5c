"""LiteLLM, which nobody here wrote, before the gateway. `make doors` installs it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from gateway_kit import Served

PYTHON = Path(__file__).parents[3] / ".e2e" / "litellm" / "bin" / "python"
PROGRAM = Path(__file__).parent / "programs" / "ask_by_litellm.py"
BOUND_S = 240

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not PYTHON.exists() and "CLISUP_CI" not in os.environ, reason="LiteLLM: make doors"),
]


def test_litellm_asks_streams_calls_tools_and_knows_the_errors_in_each_dialect(gateway: Callable[..., Served]) -> None:
    served = gateway()
    env = {
        "PATH": "/usr/bin:/bin", "HOME": str(served.root / "home"), "GATEWAY_URL": served.url, "GATEWAY_TOKEN": served.token,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "127.0.0.1",
    }  # fmt: skip
    ended = subprocess.run([PYTHON, PROGRAM], env=env, capture_output=True, text=True, timeout=BOUND_S)
    assert ended.returncode == 0, ended.stderr[-3000:]
    told = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    both = {
        "text": "You said: Hello.",
        "stream": "chunk 000000\nchunk 000001\nchunk 000002\n",
        "failures": ["RateLimitError", "ContextWindowExceededError"],
    }
    for found, name in zip(told[:2], ("openai", "anthropic"), strict=True):
        reason, tool, given, text = found.pop("tool")
        assert (reason, tool, json.loads(given), text) == ("tool_calls", "add", {"a": 1}, "Done.")
        assert found == {"dialect": name, **both}
    assert told[2] == {"dialect": "responses", "text": "You said: Hello."}
