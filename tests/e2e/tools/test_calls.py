"""Tools of a client in the real claude, codex and codex exec, and in the demo: the same calls give the same events."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from tests.e2e.tools.stage import ADD, BURST, FAIL, TWO_TEXTS, Arguments, Given, Stage, ended, interactions

pytestmark = pytest.mark.e2e
Start = Callable[..., Stage]
FIVE = {"name": "mcp__clisup__add", "input": {"a": 2, "b": 3}, "content": "5", "blocks": None, "is_error": False}


def test_a_call_is_run_by_the_client_and_its_answer_reaches_the_model(stage: Start, kind: str) -> None:
    here = stage(kind, [[("add", {"a": 2, "b": 3})]])
    events = here.turn(ADD)
    assert interactions(events) == [FIVE]
    assert (ended(events)["outcome"], ended(events)["text"]) == ("completed", "Done.")
    assert not [e for e in events if e["type"] in ("approval_requested", "permission_denied", "unparsed", "watchdog")]


def test_calls_of_one_message_run_side_by_side(stage: Start, kind: str) -> None:
    """Each waits for the other one: one after the other they would wait for ever."""
    here = stage(kind, [[("meet", {"n": 1}), ("meet", {"n": 2})]])
    arrived: list[trio.Event] = []

    async def meet(arguments: Arguments) -> str:
        arrived.append(trio.Event())
        if len(arrived) == 2:
            for event in arrived:
                event.set()
        await arrived[0].wait()
        return f"met {arguments['n']}"

    events = here.turn(Given("meet", meet))
    told = [(one["input"], one["content"], one["is_error"]) for one in interactions(events)]
    assert told == [({"n": 1}, "met 1", False), ({"n": 2}, "met 2", False)]


def test_errors_results_of_blocks_and_several_messages_look_the_same_whichever_cli_it_is(
    stage: Start, kind: str
) -> None:
    here = stage(kind, [[("add", {"a": 2, "b": 3}), ("fail", {})], [("burst", {"key": "é"})], [("two_texts", {})]])
    events = here.turn(ADD, FAIL, BURST, TWO_TEXTS)
    assert interactions(events) == [
        FIVE,
        {
            "name": "mcp__clisup__burst",
            "input": {"key": "é"},
            "content": "The tool failed: LookupError: no such key",
            "blocks": None,
            "is_error": True,
        },
        {"name": "mcp__clisup__fail", "input": {}, "content": "it went wrong", "blocks": None, "is_error": True},
        {"name": "mcp__clisup__two_texts", "input": {}, "content": "one\ntwo", "blocks": None, "is_error": False},
    ]
    assert ended(events)["outcome"] == "completed"
