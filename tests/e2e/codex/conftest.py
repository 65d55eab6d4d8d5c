"""Fixtures for the real codex. `make e2e-install` fetches it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.e2e.codex.lab import CodexLab
from tests.e2e.codex.provider import codex_binary
from tests.e2e.codex.scenarios import BOTH, SCENARIOS, Scenario
from tests.e2e.lab import running


@pytest.fixture(scope="session", autouse=True)
def _cli_is_installed() -> None:
    if not codex_binary().exists():
        pytest.fail("the pinned codex CLI is not there: run `make e2e-install`")


@pytest.fixture(params=BOTH)
def kind(request: pytest.FixtureRequest) -> str:
    """Both ways to run codex."""
    return str(request.param)


@pytest.fixture
def lab() -> Iterator[Callable[..., CodexLab]]:
    """Starts a lab for a scenario by name or a scenario made for one test: `lab("text", kind="codex-exec")`."""
    with ExitStack() as stack:

        def start(scenario: str | Scenario, *, kind: str = "codex", **options: Any) -> CodexLab:
            played = SCENARIOS[(kind, scenario)] if isinstance(scenario, str) else scenario
            return stack.enter_context(running(CodexLab(played, kind=kind, **options)))

        yield start
