"""The same script through the daemon with every real CLI: the same story, up to the differences that docs/backends names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from clisup.backends.contract import essence, expected, frame_faults
from clisup.backends.registry import get_adapter
from tests.e2e.lab import Lab, running
from tests.e2e.labs import CLIS

pytestmark = pytest.mark.e2e

PERMISSIONS = {"qwen": "yolo", "acp": "yolo", "gemini": "yolo", "claude": "bypassPermissions"}


@contextmanager
def lab_of(kind: str, case: str) -> Iterator[Lab]:
    with running(CLIS[kind].lab(case)) as lab:
        yield lab


@pytest.mark.parametrize("case", ["reasoning", "tool_ok", "tool_fail"])
@pytest.mark.parametrize("kind", CLIS)
def test_one_script_one_story(kind: str, case: str) -> None:
    with lab_of(kind, case) as lab:
        mode: dict[str, Any] = {"permission_mode": PERMISSIONS[kind]} if kind in PERMISSIONS else {}
        session = lab.open(**mode)
        lab.turn("Use your tools, then say what you think.", session=session)
        events = lab.events(session)
        told = essence(events)
        can = get_adapter(kind).capabilities.of(live=False)
        assert told == expected(case, told, thinking=can.thinking), events[-1]
        assert frame_faults(events) == []
        assert [event["type"] for event in events].count("turn_completed") == 1
        assert lab.events(session, "process_started")[0]["env_attested"] is True
