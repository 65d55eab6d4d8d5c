"""The stages of these tests; the real CLIs are fetched by `make e2e-install`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.e2e.codex.provider import codex_binary
from tests.e2e.tools.stage import KINDS, Stage


@pytest.fixture(scope="session", autouse=True)
def _clis_are_installed() -> None:
    if not codex_binary().exists():
        pytest.fail("the pinned codex CLI is not there: run `make e2e-install`")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Each of `KINDS`."""
    return str(request.param)


@pytest.fixture
def stage() -> Iterator[Callable[..., Stage]]:
    """Starts a stage: `stage(kind, [[("add", {"a": 2, "b": 3})]])`."""
    with ExitStack() as stack:

        def start(kind: str, script: Any, **options: Any) -> Stage:
            made = Stage(kind, script, **options)
            stack.enter_context(made.playing())
            return made

        yield start
