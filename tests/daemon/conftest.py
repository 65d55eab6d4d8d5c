"""Fixtures: `serve(...)` starts daemons with configurations of their own, `daemon` is one that a module shares.

Daemons are forked by a zygote; where a test or a module is marked `cold`, those of `serve` are whole `python -m clisup serve`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from harness import Harness


@pytest.fixture
def serve(request: pytest.FixtureRequest) -> Iterator[Callable[..., Harness]]:
    """`serve(daemon={...}, timeouts={...}, env={...})`; `start=False` leaves the start to the test."""
    made: list[Harness] = []
    cold = request.node.get_closest_marker("cold") is not None

    def make(*, start: bool = True, **tables: Any) -> Harness:
        made.append(Harness(**{"cold": cold, **tables}))
        if start:
            made[-1].start()
        return made[-1]

    yield make
    failures = [failure for harness in made if (failure := _failure_of(harness))]
    if failures:
        raise failures[0]


def _failure_of(harness: Harness) -> Exception | None:
    try:
        harness.close()
    except (AssertionError, Exception) as error:
        return error
    return None


@pytest.fixture(scope="module")
def daemon() -> Iterator[Harness]:
    """One for all tests of a module that do it no harm."""
    harness = Harness()
    harness.start()
    yield harness
    harness.close()
