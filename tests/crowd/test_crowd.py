"""What `make crowd` takes for a broken promise. The scenes take minutes: tests/daemon/test_fairness.py is the short of them."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import Any

import pytest

from tests.crowd.good import Good
from tests.crowd.offenders import KINDS
from tests.crowd.run import LIMIT_MS, RSS_LIMIT_MB, broken
from tests.crowd.scenes import SCENES, Result, ending, quantiles


def result(**fields: Any) -> Result:
    good = {"pings_ms": [1.0] * 400, "lags_ms": [1.0] * 50, "unanswered": 0, "hello_ms": 1.0, "events": 50, "expected": 50,
            "lost": 0, "doubled_or_late": 0, "rss_mb": 100.0}  # fmt: skip
    return Result("scene", **{**good, **fields})


def test_a_good_scene_breaks_nothing() -> None:
    assert broken(result()) == []


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"pings_ms": [1.0] * 395 + [LIMIT_MS] * 5}, "p99"),
        ({"pings_ms": []}, "p99"),
        ({"lost": 1}, "lost"),
        ({"expected": 0}, "lost"),
        ({"doubled_or_late": 1}, "out of order"),
        ({"unanswered": 1}, "unanswered"),
        ({"rss_mb": RSS_LIMIT_MB + 1}, "memory"),
    ],
)
def test_each_broken_promise_is_named(fields: dict[str, Any], word: str) -> None:
    [problem] = broken(result(**fields))
    assert word in problem


def test_figures_longer_than_a_pipe_holds_are_read() -> None:
    words = ["import json; print(json.dumps({'pings_ms': [0.125] * 100_000}))"]
    process = subprocess.Popen([sys.executable, "-c", *words], stdout=subprocess.PIPE)
    assert ending(process) == {"pings_ms": [0.125] * 100_000}


def test_a_client_without_any_answer_has_figures_that_break_promises() -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        figures = Good(sock, "session").figures()
    problems = broken(Result("scene", **figures))
    assert [word for word in ("p99", "lost", "unanswered") if not any(word in problem for problem in problems)] == []


def test_the_p99_of_400_pings_leaves_out_the_four_worst() -> None:
    assert quantiles([1.0] * 396 + [99.0] * 4) == {"p50": 1.0, "p99": 99.0, "max": 99.0}
    assert quantiles([1.0] * 397 + [99.0] * 3) == {"p50": 1.0, "p99": 1.0, "max": 99.0}


def test_the_scenes_are_those_of_the_requirement() -> None:
    counts = {scene.name: scene.offenders for scene in SCENES}
    assert counts["quiet"] == {}
    assert counts["never-readers"] == {"never-read": 100}
    assert counts["half frames"] == {"half-frame": 500}
    assert [offenders for name, offenders in counts.items() if name.startswith("flood")] == [
        {kind: 200} for kind in ("ping", "garbage", "pages")
    ]
    assert set(counts["all together"]) == set(KINDS)
    assert [scene.clis for scene in SCENES if scene.clis] == [4, 20]
    assert all(scene.clis for scene in SCENES[-2:]), "nobody ends their floods before the daemon goes"
