"""What goes wrong with the real Qwen Code, and what must come of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.qwen.lab import QwenLab

pytestmark = pytest.mark.e2e
YOLO = {"permission_mode": "yolo"}


@pytest.mark.fault(64)
@pytest.mark.parametrize(("scenario", "kind"), [("http_429", "rate_limit"), ("http_503", "overloaded")])
def test_retries_are_capped_at_seven_requests(lab: Callable[..., QwenLab], scenario: str, kind: str) -> None:
    """By itself the CLI makes 28, and after a 429 it waits 1, 2, 4 .. minutes for ten times more."""
    here = lab(scenario)
    turn = here.turn()
    assert turn["outcome"] == "failed" and turn["error"]["kind"] == kind
    assert len(here.api.requests) == 7
