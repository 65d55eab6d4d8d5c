"""The fixture `serve`, for every folder of tests that needs real daemons: its conftest takes it from here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness import Harness

__all__ = ["serve"]


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
