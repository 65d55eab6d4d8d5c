"""Fixtures for the real opencode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.lab import running
from tests.e2e.opencode.lab import COMMAND, OpencodeLab


@pytest.fixture(scope="session", autouse=True)
def _cli_is_installed() -> None:
    if not Path(COMMAND[0]).exists():
        pytest.fail("the pinned opencode is not there: run `make e2e-install`")


@pytest.fixture
def lab() -> Iterator[Callable[..., OpencodeLab]]:
    """Starts a lab for a scenario: `lab("text")`."""
    with ExitStack() as stack:

        def start(scenario: Any, **options: Any) -> OpencodeLab:
            return stack.enter_context(running(OpencodeLab(scenario, **options)))

        yield start
