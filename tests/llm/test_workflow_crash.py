"""A workflow is killed with SIGKILL at every place, and goes on: nothing that is recorded is asked for again, and the end is the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("crashing_workflow.py")
ORDER = ["think 1", "begin 1", "end 1", "think 2", "begin 2", "end 2"]
SEEDS = 10
END = {
    "outcome": "done",
    "rounds": [
        {"think": "answer to think 1 after 0", "do": "answer to begin 1 after 2, answer to end 1 after 4"},
        {"think": "answer to think 2 after 6", "do": "answer to begin 2 after 8, answer to end 2 after 10"},
    ],
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    command = [sys.executable, str(PROGRAM), str(tmp_path_factory.mktemp("crashes")), str(SEEDS)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_every_place_was_tried(seen: list[dict[str, Any]]) -> None:
    places = [one["place"].rsplit(" ", 1)[0] for one in seen if "place" in one]
    counts = {place: places.count(place) for place in places}
    # twelve records; the directory is synced, too; six answers, and four stages to be told of
    assert counts == {
        "before write": 12,
        "half write": 12,
        "after write": 12,
        "before sync": 13,
        "after sync": 13,
        "before answer": 6,
        "after answer": 6,
        "told": 4,
    }


def test_what_is_recorded_is_never_asked_for_again(seen: list[dict[str, Any]]) -> None:
    for one in (one for one in seen if "place" in one):
        assert one["recorded"] == ORDER[: len(one["recorded"])], one
        assert one["asked_after"] == ORDER[len(one["recorded"]) :], one
        assert len(one["asked_before"]) - len(one["recorded"]) in (0, 1), one  # the answer that it died at, at most


def test_the_end_is_as_if_nothing_had_been(seen: list[dict[str, Any]]) -> None:
    assert all(one["result"] == END for one in seen)


def test_so_it_is_where_it_is_killed_again_and_again(seen: list[dict[str, Any]]) -> None:
    often = [one for one in seen if "seed" in one]
    assert len(often) == SEEDS
    assert sum(one["kills"] for one in often) > SEEDS
    assert all(one["asked_what_was_recorded"] == [] for one in often)
