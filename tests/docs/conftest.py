"""The harness of tests/daemon, for the programs of the pages that need a daemon that can be restarted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
from harness import Harness


@pytest.fixture
def serve() -> Iterator[Callable[..., Harness]]:
    """`serve(daemon={...})` starts a real daemon with a configuration of its own."""
    made: list[Harness] = []

    def make(**tables: Any) -> Harness:
        made.append(Harness(**tables))
        made[-1].start()
        return made[-1]

    yield make
    for harness in made:
        harness.close()
