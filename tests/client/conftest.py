"""Fixtures: a fake daemon on a socket of the test's own, and real ones."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
sys.path.insert(0, str(Path(__file__).parent))
from fake_daemon import FakeDaemon
from harness import Harness


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    fake = FakeDaemon(tmp_path / "d.sock")
    yield fake
    fake.close()


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
