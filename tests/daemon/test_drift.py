"""Which runs are compared with the recordings: all of a version's first ones, then some."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clisup.daemon.journal.storage import Storage
from clisup.daemon.ops.drift import EVERY, FIRST_RUNS, Drift
from clisup.model.events import BackendStatus, Unparsed
from clisup.model.lines.framing import Line
from clisup.ops.drift import FrameSample


@pytest.fixture
def drift(tmp_path: Path) -> Drift:
    return Drift(str(tmp_path), Storage(str(tmp_path)))


def run(drift: Drift, version: str) -> FrameSample:
    """One whose CLI says a field that no recording has."""
    sample = drift.sample("claude")
    data = json.dumps({"type": "system", "subtype": "status", "brand_new": 1}).encode()
    sample.see(Line(0, len(data) + 1, data), [BackendStatus(status="x")])
    drift.add("claude", sample, version)
    return sample


def test_the_first_runs_of_a_version_are_compared_and_then_each_eighth(drift: Drift) -> None:
    looked = [bool(run(drift, "2.1.329").fields) for _ in range(1 + FIRST_RUNS + 3 * EVERY)]
    first, later = looked[: 1 + FIRST_RUNS], looked[1 + FIRST_RUNS :]  # the first one makes its version known
    assert all(first) and sum(later) == 3


def test_a_new_version_is_looked_at_from_its_second_run_on(drift: Drift) -> None:
    for _ in range(1 + FIRST_RUNS + 1):
        run(drift, "2.1.329")
    run(drift, "2.1.400")
    assert all(run(drift, "2.1.400").fields for _ in range(FIRST_RUNS))
    assert {row["version"]: row["fields"] for row in drift.describe()}["2.1.400"] == {
        "system/status: brand_new": FIRST_RUNS
    }


def test_unknown_frames_are_counted_in_every_run(drift: Drift) -> None:
    data = b'{"type":"never_heard_of"}'
    for _ in range(FIRST_RUNS + EVERY + 2):
        sample = drift.sample("claude")
        sample.see(Line(0, len(data) + 1, data), [Unparsed(reason="unknown_type", bytes=len(data))])
        drift.add("claude", sample, "2.1.329")
    assert drift.describe()[0]["frames"] == {"never_heard_of": FIRST_RUNS + EVERY + 2}
