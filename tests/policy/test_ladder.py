"""How a run is ended: the steps of each kind of ending."""

from __future__ import annotations

from clisup.policy.watchdog import TurnTimeouts, ladder_for

TIMEOUTS = TurnTimeouts(int_grace=2, term_grace=7)


def test_an_ending_is_gentle_first() -> None:
    assert ladder_for("graceful", TIMEOUTS) == [("INT", 2), ("TERM", 7)]


def test_a_term_ending_leaves_sigint_out() -> None:
    assert ladder_for("term", TIMEOUTS) == [("TERM", 7)]


def test_a_kill_has_no_step_before_sigkill() -> None:
    assert ladder_for("kill", TIMEOUTS) == []
