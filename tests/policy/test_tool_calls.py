"""When an open call of a tool ends without an answer, and with which words. Times are the test's own."""

from __future__ import annotations

from typing import Any

import pytest

from clisup.policy.open_calls import MAX_OPEN_CALLS, OpenCall, OpenCalls, OwnTimes, ToolAnswer, ToolLimits

LIMITS = ToolLimits(timeout_s=600, wait_s=60)


@pytest.fixture
def calls() -> OpenCalls:
    return OpenCalls({"add": OwnTimes(), "quick": OwnTimes(5.0), "patient": OwnTimes(wait_s=500.0)})


def begin(calls: OpenCalls, call_id: str = "c1", name: str = "add", *, served: bool = True, now: float = 0) -> OpenCall:
    told: dict[str, Any] = {"tool_use_id": None, "turn_id": None, "limits": LIMITS, "served": served, "now": now}
    return calls.begin(call_id, name, {}, **told)


def test_the_first_answer_ends_a_call_and_there_is_no_second(calls: OpenCalls) -> None:
    call = begin(calls)
    assert calls.settle("c1", ToolAnswer("4")) is call and call.answer == ToolAnswer("4")
    assert calls.settle("c1", ToolAnswer("5")) is None and call.answer == ToolAnswer("4")
    assert len(calls) == 0


def test_the_same_id_is_the_same_call_with_the_time_that_it_had(calls: OpenCalls) -> None:
    call = begin(calls)
    assert begin(calls, now=100) is call
    assert call.ends_at == 600


@pytest.mark.parametrize(("name", "ends_at"), [("add", 600.0), ("quick", 5.0)])
def test_a_tools_own_time_goes_before_the_configurations(calls: OpenCalls, name: str, ends_at: float) -> None:
    call = begin(calls, name=name)
    assert calls.next_at(call) == ends_at
    assert not calls.expire(call, ends_at - 0.1)
    assert calls.expire(call, ends_at)
    assert (call.ended, len(calls)) == ("timeout", 0)
    assert call.answer is not None and call.answer.is_error and f"within {ends_at:g} s" in str(call.answer.content)
    assert not calls.expire(call, ends_at), "it ends once"


def test_a_call_that_nobody_serves_waits_from_the_moment_since_nobody_does(calls: OpenCalls) -> None:
    call = begin(calls)
    calls.serving(served=False, wait_s=60, now=100)
    assert calls.next_at(call) == 160
    calls.serving(served=True, wait_s=60, now=159)
    assert calls.next_at(call) == 600
    calls.serving(served=False, wait_s=60, now=580)
    assert calls.next_at(call) == 600, "its own time is the outer one"
    other = begin(calls, "c2", served=False, now=580)
    assert calls.expire(other, 640) and other.ended == "unserved"
    assert "no client" in str(other.answer and other.answer.content)


def test_a_tools_own_wait_goes_before_the_configurations(calls: OpenCalls) -> None:
    call = begin(calls, name="patient", served=False)
    assert calls.next_at(call) == 500
    calls.serving(served=True, wait_s=60, now=100)
    calls.serving(served=False, wait_s=60, now=200)
    assert not calls.expire(call, 599)
    assert calls.expire(call, 600) and call.answer is not None
    patient = begin(calls, "c2", "patient", served=False, now=0)
    assert calls.expire(patient, 500) and "for 500 s" in str(patient.answer and patient.answer.content)


def test_what_is_no_tool_and_what_is_too_much_is_refused_in_words(calls: OpenCalls) -> None:
    assert calls.refusal("c1", "add") is None
    refusal = calls.refusal("c1", "rm")
    assert (
        refusal is not None
        and refusal.is_error
        and refusal.content == "There is no tool 'rm'; there are: add, patient, quick."
    )
    for number in range(MAX_OPEN_CALLS):
        begin(calls, f"c{number}")
    assert calls.refusal("new", "add") is not None
    assert calls.refusal("c3", "add") is None, "it is open already"
    assert calls.drop("c3") and not calls.drop("c3")
    assert calls.refusal("new", "add") is None
