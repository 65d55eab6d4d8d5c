"""The life of a session is a table: what it holds happens, everything else is a fault of the daemon."""

from __future__ import annotations

from itertools import product

import pytest

from clisup.model.lifecycle import TRANSITIONS, Cause, SessionState, advance

WORKING = (SessionState.STARTING, SessionState.RUNNING, SessionState.ENDING)


def reachable(start: SessionState) -> set[SessionState]:
    found, new = {start}, {start}
    while new:
        new = {after for (before, _), after in TRANSITIONS.items() if before in new} - found
        found |= new
    return found


def test_no_state_is_unreachable_from_idle() -> None:
    assert reachable(SessionState.IDLE) == set(SessionState)


def test_every_state_but_closed_can_still_be_closed() -> None:
    assert all(SessionState.CLOSED in reachable(state) for state in SessionState)
    assert reachable(SessionState.CLOSED) == {SessionState.CLOSED}


def test_every_cause_is_in_the_table() -> None:
    assert {cause for _, cause in TRANSITIONS} == set(Cause)


@pytest.mark.parametrize(("state", "cause"), list(product(SessionState, Cause)))
def test_every_pair_is_a_transition_or_a_loud_fault(state: SessionState, cause: Cause) -> None:
    if (state, cause) in TRANSITIONS:
        assert advance(state, cause) is TRANSITIONS[state, cause]
    else:
        with pytest.raises(RuntimeError, match=f"a session that is {state} cannot {cause}"):
            advance(state, cause)


@pytest.mark.parametrize("state", [SessionState.WAITING, *WORKING])
def test_the_end_of_a_turn_makes_a_session_idle_whatever_it_was_doing(state: SessionState) -> None:
    assert advance(state, Cause.TURN_OVER) is SessionState.IDLE


@pytest.mark.parametrize("state", WORKING)
def test_an_end_may_be_asked_for_more_than_once_and_at_any_time_of_a_turn(state: SessionState) -> None:
    assert advance(advance(state, Cause.END), Cause.END) is SessionState.ENDING


@pytest.mark.parametrize("state", WORKING)
def test_a_late_or_repeated_first_frame_never_takes_an_ending_back(state: SessionState) -> None:
    after = advance(state, Cause.FIRST_FRAME)
    assert after is (SessionState.ENDING if state is SessionState.ENDING else SessionState.RUNNING)


def test_a_failed_session_tries_once_more_at_a_new_prompt() -> None:
    assert advance(advance(SessionState.IDLE, Cause.CRASH_LOOP), Cause.PROMPT) is SessionState.WAITING


def test_only_an_idle_session_takes_up_a_turn_that_another_daemon_left() -> None:
    assert {before for before, cause in TRANSITIONS if cause is Cause.ADOPT} == {SessionState.IDLE}
