"""A prompt that is taken back while it waits for a live process is done with at once, whatever that process still does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness import Harness, until

SCHEMA = {"type": "object", "properties": {"port": {"type": "integer"}}}


def test_while_another_process_is_needed_and_this_one_works_in_the_background(serve: Callable[..., Harness]) -> None:
    session = serve(demo={"mode": "live"}, timeouts={"background": 300}).new()
    session.ask("@background 300 never\nanswered")
    pid = session.cli()
    turn = session.prompt("words", output_schema=SCHEMA)
    until(lambda: session.get()["state"] == "starting")
    end: dict[str, Any] = session.call("interrupt", turn_id=turn)
    assert (end["turn_id"], end["outcome"]) == (turn, "interrupted")
    assert session.cli() == pid and session.ask("@text on")["text"] == "on"
