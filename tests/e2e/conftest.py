"""Fixtures of the real CLI lane. `make e2e` fetches the CLI; without it these tests are not collected by default."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.e2e.lab import ClaudeLab, claude_binary, running
from tests.e2e.scenarios import Scenario


@pytest.fixture(scope="session", autouse=True)
def _cli_is_installed() -> None:
    if not claude_binary().exists():
        pytest.fail("the pinned claude CLI is not there: run `make e2e-install`")


@pytest.fixture
def lab() -> Iterator[Callable[..., ClaudeLab]]:
    """Starts a lab for a scenario: `lab("text")`."""
    with ExitStack() as stack:

        def start(scenario: str | Scenario, **options: Any) -> ClaudeLab:
            return stack.enter_context(running(ClaudeLab(scenario, **options)))

        yield start
