"""`clisup metrics`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fake_daemon import FakeDaemon

Run = Callable[..., Any]
TEXT = '# HELP clisup_turns_total Turns.\n# TYPE clisup_turns_total counter\nclisup_turns_total{backend="demo"} 3.0\n'


def test_the_text_is_printed_as_the_daemon_gives_it(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.handlers["daemon/metrics"] = lambda peer, params: {"text": TEXT, "content_type": "text/plain"}
    assert clisup("metrics") == (0, TEXT, "")
    assert clisup("metrics", "--openmetrics").code == 0
    assert [call["format"] for call in daemon.calls("daemon/metrics")] == ["prometheus", "openmetrics"]


def test_as_json_it_is_a_list_of_metrics_with_their_samples(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.handlers["daemon/metrics"] = lambda peer, params: {"text": TEXT, "content_type": "text/plain"}
    sample = {"name": "clisup_turns_total", "labels": {"backend": "demo"}, "value": 3.0}
    wanted = [{"name": "clisup_turns_total", "type": "counter", "help": "Turns.", "samples": [sample]}]
    assert json.loads(clisup("metrics", "--json", "--openmetrics").out) == wanted
    assert daemon.calls("daemon/metrics") == [{"format": "prometheus"}]


def test_without_a_daemon_nothing_is_printed_that_a_scraper_could_take_for_figures(clisup: Run) -> None:
    ran = clisup("metrics")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err
