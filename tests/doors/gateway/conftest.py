"""Fixtures: a real daemon with `clisup gateway` beside it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "daemon"))
sys.path.insert(0, str(Path(__file__).parent))
from gateway_kit import Served
from harness import Harness


@pytest.fixture
def gateway(serve: Callable[..., Harness]) -> Iterator[Callable[..., Served]]:
    """`gateway(cli_tools="default", before=..., daemon={...})` starts a daemon with the demo backend, and its gateway."""
    made: list[Served] = []

    def make(*, before: str = "", daemon: dict[str, Any] | None = None, **table: Any) -> Served:
        harness = serve(**(daemon or {}))
        made.append(Served(harness.root, harness.socket, **{"backends": ["demo"], **table}))
        made[-1].daemon = harness
        made[-1].start(before=before)
        return made[-1]

    yield make
    for one in made:
        one.end()
