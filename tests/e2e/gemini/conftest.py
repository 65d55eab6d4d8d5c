"""Fixtures of the real gemini's lane."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.e2e.gemini.lab import GeminiLab, installed
from tests.e2e.lab import running


@pytest.fixture(scope="session", autouse=True)
def _cli_is_installed() -> None:
    if not installed():
        pytest.fail("the pinned gemini is not there: run `make e2e-install`")


@pytest.fixture
def lab() -> Iterator[Callable[..., GeminiLab]]:
    """Starts a lab for a scenario: `lab("text")`."""
    with ExitStack() as stack:

        def start(scenario: str = "text", **options: Any) -> GeminiLab:
            return stack.enter_context(running(GeminiLab(scenario, **options)))

        yield start
