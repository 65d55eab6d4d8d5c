"""The blocking twin is what the generator makes of the trio client."""

from __future__ import annotations

import pytest
from make_blocking import CLIENT, TWINS, blocking


@pytest.mark.parametrize("source", TWINS)
def test_the_blocking_twin_is_generated_from_the_trio_client(source: str) -> None:
    assert (CLIENT / TWINS[source]).read_text() == blocking((CLIENT / source).read_text()), "run `make client`"


def test_a_line_may_say_what_stands_in_its_place() -> None:
    source = "async def f() -> None:\n    await trio.lowlevel.checkpoint()  # blocking: pass\n"
    assert blocking(source) == "def f() -> None:\n    pass\n"


def test_an_awaitable_is_what_it_gives() -> None:
    assert blocking("f: Callable[[], Awaitable[dict[str, Any]]]\n") == "f: Callable[[], dict[str, Any]]\n"
