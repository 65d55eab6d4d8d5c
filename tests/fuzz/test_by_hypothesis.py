"""The same targets, with values that hypothesis makes: no recording stands behind them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clisup.backends.claude.rare_frames import RARE
from clisup.wire.methods import METHODS
from tests.fuzz.targets import TARGETS

KEYS = ["type", "subtype", "event", "message", "content", "delta", "index", "text", "id", "input", "usage", "is_error", "result",
        "total_cost_usd", "tasks", "task_id", "patch", "status", "method", "params", "session_id", "prompt", "timeouts"]  # fmt: skip
WORDS = ["assistant", "user", "system", "result", "stream_event", "tool_use", "tool_result", "text", "content_block_delta", "text_delta",
         *(name.removeprefix("system/") for name in RARE), *METHODS]  # fmt: skip
TEXTS = st.text(st.characters(exclude_categories=[]), max_size=12)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.sampled_from(WORDS)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS) | TEXTS, inner, max_size=6),
    max_leaves=20,
)
LINES = st.builds(
    lambda value, escaped: json.dumps(value, ensure_ascii=escaped).encode("utf-8", "surrogatepass"),
    VALUES,
    st.booleans(),
)
DATA = st.lists(LINES | st.binary(max_size=60), min_size=1, max_size=4).map(b"\n".join)


@pytest.mark.fault(25)
@pytest.mark.fault(29)
@pytest.mark.fault(46)
@pytest.mark.parametrize("target", TARGETS)
def test_made_up_values_break_nothing(target: str) -> None:
    @settings(max_examples=60, derandomize=True, database=None)
    @given(DATA, st.booleans(), st.integers(0, 2**32))
    def holds(data: bytes, ended: bool, salt: Any) -> None:
        TARGETS[target](data + b"\n" * ended, salt)

    holds()
