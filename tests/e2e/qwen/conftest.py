"""Fixtures for the real Qwen Code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.e2e.lab import running
from tests.e2e.qwen.lab import QwenLab, qwen_command
from tests.e2e.scenarios import Scenario


@pytest.fixture(scope="session", autouse=True)
def _cli_is_installed() -> None:
    if not qwen_command().exists():
        pytest.fail("the pinned qwen CLI is not there: run `make e2e-install`")


@pytest.fixture
def lab() -> Iterator[Callable[..., QwenLab]]:
    """Starts a lab for a scenario: `lab("text")`."""
    with ExitStack() as stack:

        def start(scenario: str | Scenario, **options: Any) -> QwenLab:
            return stack.enter_context(running(QwenLab(scenario, **options)))

        yield start
