"""A short chaos: real daemons, killed a few times, and daemons that were broken on purpose."""

from __future__ import annotations

import dataclasses

import pytest
import trio

from tests.chaos.run import Chaos, Model, Settings, reference

SHORT = Settings(kills=10, sessions=4, seed=11, scripts=2, cold=0)


@pytest.fixture(scope="module")
def model() -> Model:
    """The undisturbed run."""
    turns, counts = trio.run(reference, SHORT)
    assert counts.clean, counts.details
    return turns


def played(settings: Settings, model: Model) -> Chaos:
    chaos = Chaos(settings, model)
    trio.run(chaos.run)
    return chaos


@pytest.mark.fault(1)
@pytest.mark.fault(2)
def test_ten_kills_lose_double_and_reorder_nothing(model: Model) -> None:
    chaos = played(SHORT, model)
    assert chaos.counts.clean and not chaos.faults, (chaos.counts.details, chaos.faults)
    assert chaos.killer.kills == 10 and chaos.sessions >= 4 and sum(chaos.killer.plan.struck.values()) > 0
    assert chaos.events > 300  # something was compared


@pytest.mark.fault(86)
def test_daemons_on_copies_take_nothing_from_the_original(model: Model) -> None:
    chaos = played(dataclasses.replace(SHORT, kills=5, copy=True), model)
    assert chaos.counts.clean and not chaos.faults, (chaos.counts.details, chaos.faults)
    assert chaos.copies is not None and chaos.copies.served > 0


@pytest.mark.parametrize(
    ("sabotage", "counts"),
    [("rewind", {"doubled"}), ("skip", {"lost"}), ("ahead", {"lost", "wrong_exits"}), ("shuffle", {"reordered"})],
)
def test_a_broken_daemon_is_seen(sabotage: str, counts: set[str], model: Model) -> None:
    chaos = played(dataclasses.replace(SHORT, kills=100, sessions=3, scripts=1, sabotage=sabotage), model)
    seen = {count for count in counts if getattr(chaos.counts, count) > 0}
    assert seen, f"{sabotage} was not seen in {chaos.killer.kills} kills"
