"""Fixtures for real ACP agents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.acp.qwen import QwenAcpLab, qwen_acp_command
from tests.e2e.lab import running


@pytest.fixture(scope="session", autouse=True)
def _cli_is_installed() -> None:
    if not Path(qwen_acp_command()[2]).exists():
        pytest.fail("the pinned qwen CLI is not there: run `make e2e-install`")


@pytest.fixture
def lab() -> Iterator[Callable[..., QwenAcpLab]]:
    """Starts a lab for a scenario: `lab("text")`."""
    with ExitStack() as stack:

        def start(scenario: str, **options: Any) -> QwenAcpLab:
            return stack.enter_context(running(QwenAcpLab(scenario, **options)))

        yield start
