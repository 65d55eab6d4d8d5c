"""Holds: one account's limit on several boxes, and the one box that probes it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clisup.errors import WorldError
from clisup.fleet.holds import (
    AccountHold,
    BoxHold,
    believable,
    clock_agrees,
    fleet_hold,
    next_step,
    read_hold,
    refuted,
    reported,
    write_hold,
)
from clisup.policy.rate_limit import AccountLimit

NOW = 1_800_000_000.0
LIMITED = AccountLimit(state="limited", until=NOW + 600, said_at=NOW)
OK = AccountLimit(state="ok", said_at=NOW + 700)
AFTER = NOW + 601
HOLD_S = 3600.0


def step(hold: AccountHold, box: str = "a", now: float = AFTER, probed_s: float = 0.0) -> tuple[str, float | None]:
    found = next_step(hold, box, now, HOLD_S, probed_s)
    return found.do, found.until


def test_the_later_report_wins() -> None:
    assert reported(AccountHold(), LIMITED) == AccountHold(limit=LIMITED)
    assert reported(AccountHold(limit=LIMITED), OK) == AccountHold(limit=OK)
    assert reported(AccountHold(limit=OK), LIMITED) is None
    assert reported(AccountHold(limit=OK), AccountLimit()) is None


def test_a_report_ends_the_probe() -> None:
    again = LIMITED.model_copy(update={"said_at": NOW + 605, "until": NOW + 900})
    assert reported(AccountHold(limit=LIMITED, probe="b"), again) == AccountHold(limit=again)


def test_every_box_waits_for_the_end_of_the_limit() -> None:
    assert step(AccountHold(limit=LIMITED), now=NOW + 1) == ("wait", NOW + 600)
    assert step(AccountHold(), now=NOW) == ("start", None)
    assert step(AccountHold(limit=OK)) == ("start", None)
    assert next_step(AccountHold(limit=LIMITED), "a", NOW + 1, 0, 0).do == "start"


def test_after_the_end_one_box_probes_and_the_others_wait_for_it() -> None:
    hold = AccountHold(limit=LIMITED)
    mine = next_step(hold, "a", AFTER, HOLD_S, 0)
    assert mine.hold == AccountHold(limit=LIMITED, probe="a", probed=NOW)
    assert step(mine.hold) == ("probe", None)
    assert step(mine.hold, "b", probed_s=10) == ("wait", AFTER + 50)
    assert next_step(mine.hold, "b", AFTER, HOLD_S, 61).hold == AccountHold(limit=LIMITED, probe="b", probed=NOW)


def test_a_box_announces_its_probe_shortly_before_the_end() -> None:
    hold = AccountHold(limit=LIMITED)
    assert step(hold, now=NOW + 580) == ("wait", NOW + 600)
    early = next_step(hold, "a", NOW + 595, HOLD_S, 0)
    assert (early.do, early.hold) == ("probe", AccountHold(limit=LIMITED, probe="a", probed=NOW))
    assert step(AccountHold(limit=LIMITED, probe="a"), "b", NOW + 595, probed_s=3)[0] == "wait"


def test_a_report_from_the_future_is_not_believed() -> None:
    hold = AccountHold(limit=LIMITED, probe="a")
    assert believable(hold, NOW - 4) == hold
    assert believable(hold, NOW - 6) == AccountHold()


def test_a_hold_survives_its_value_and_another_value_is_refused() -> None:
    hold = AccountHold(limit=LIMITED, probe="a")
    assert read_hold(write_hold(hold)) == hold
    assert read_hold(b'{"later": 1}') == AccountHold()
    for value in (b"", b"[]", b'{"limit": 3}'):
        with pytest.raises(WorldError, match="hold of an account"):
            read_hold(value)


def test_a_box_whose_clock_is_off_shares_no_limit() -> None:
    assert clock_agrees(NOW, NOW + 4)
    assert not clock_agrees(NOW, NOW - 6)


LIMITS = st.builds(
    AccountLimit,
    state=st.sampled_from(["ok", "limited", "warned"]),
    until=st.sampled_from([None, NOW + 50, NOW + 500]),
    said_at=st.integers(0, 300).map(lambda s: NOW + s),
)


@given(limits=st.lists(LIMITS, max_size=6, unique_by=lambda limit: limit.said_at), data=st.data())
def test_the_order_of_reports_does_not_matter(limits: list[AccountLimit], data: st.DataObject) -> None:
    latest = max(limits, key=lambda limit: limit.said_at or 0.0, default=AccountLimit())
    hold = AccountHold()
    for limit in data.draw(st.permutations(limits)):
        hold = reported(hold, limit) or hold
    assert hold == AccountHold(limit=latest)


def test_of_all_boxes_the_latest_limit_counts_and_the_first_probe_of_it() -> None:
    probe = AccountHold(limit=OK.model_copy(update={"said_at": NOW - 9}), probe="x", probed=NOW)
    holds = [
        BoxHold("a", AccountHold(limit=LIMITED), 1),
        BoxHold("b", probe, 7),
        BoxHold("c", probe, 5),
        BoxHold("stale", probe, 2, probed_s=61.0),
        BoxHold("other", probe.model_copy(update={"probed": NOW - 1}), 3),
    ]
    assert fleet_hold(holds) == BoxHold("a", AccountHold(limit=LIMITED, probe="c", probed=NOW), 5)
    assert fleet_hold([]).hold == AccountHold()


def test_a_turn_of_its_own_refutes_a_limit_of_another_box() -> None:
    answered = AccountLimit(state="ok", said_at=NOW + 300)
    assert refuted(LIMITED, answered)
    assert not refuted(LIMITED, answered.model_copy(update={"said_at": NOW + 601}))
    assert not refuted(LIMITED, answered.model_copy(update={"said_at": NOW - 1}))
    assert not refuted(LIMITED, LIMITED.model_copy(update={"said_at": NOW + 300}))
    assert not refuted(OK, answered)


@given(boxes=st.lists(st.sampled_from("abc"), max_size=12))
def test_one_box_probes_at_a_time(boxes: list[str]) -> None:
    """Each box reads the same holds. Of two that take the probe at once, the first one in the engine has it."""
    holds = {"x": BoxHold("x", AccountHold(limit=LIMITED))}
    for revision, box in enumerate(boxes):
        hold = AccountHold(probe=box, probed=NOW)
        holds.setdefault(box, BoxHold(box, hold, revision))
    probing = [box for box in "abc" if step(fleet_hold(holds.values()).hold, box)[0] == "probe"]
    assert probing == (boxes[:1] or ["a", "b", "c"])
