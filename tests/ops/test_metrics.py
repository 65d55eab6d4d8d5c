"""The table of metrics keeps to Prometheus' naming conventions, and docs/reference/observe.md says the same as the table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from clisup.daemon.metrics import METRICS, SINCE, UNITS, Metric, unit_of

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "observe.md").read_text()
FORBIDDEN = {"session", "session_id", "turn", "turn_id", "model", "path", "pid", "uid", "client", "account", "tool"}
ODD_UNITS = ("_ms", "_milliseconds", "_kb", "_mb", "_percent", "_minutes", "_hours", "_dollars")
IDS = [metric.name for metric in METRICS]


@pytest.mark.parametrize("metric", METRICS, ids=IDS)
def test_a_name_is_as_the_conventions_ask(metric: Metric) -> None:
    assert re.fullmatch(r"clisup(_[a-z]+)+", metric.name)
    assert metric.name.endswith("_total") == (metric.type == "counter")
    assert metric.name.endswith("_info") == (metric.type == "info")
    assert not metric.name.removesuffix("_total").endswith(ODD_UNITS)
    assert not metric.name.endswith(("_bucket", "_count", "_sum", "_created"))


@pytest.mark.parametrize("metric", METRICS, ids=IDS)
def test_a_unit_stands_at_the_end_of_the_name(metric: Metric) -> None:
    assert all(unit not in metric.name.split("_") or unit_of(metric) == unit for unit in UNITS)
    if metric.type == "histogram":
        assert unit_of(metric) == "seconds"


@pytest.mark.parametrize("metric", METRICS, ids=IDS)
def test_a_help_is_a_sentence_and_says_since_when_a_counter_counts(metric: Metric) -> None:
    assert metric.help.endswith(".") and metric.help[0] in "ABCDEFGHIJKLMNOPQRSTUVWXYZ1" and "\n" not in metric.help
    if metric.type in ("counter", "histogram"):
        assert metric.help.endswith((SINCE, "Since the process began."))


@pytest.mark.parametrize("metric", METRICS, ids=IDS)
def test_a_label_has_a_plain_name_and_names_nobody(metric: Metric) -> None:
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", label) for label in metric.labels)
    assert not FORBIDDEN & set(metric.labels)
    assert "le" not in metric.labels
    assert "backend" not in metric.labels[1:]
    assert (metric.type == "histogram") == bool(metric.bounds)


def test_a_name_stands_once() -> None:
    assert len(set(IDS)) == len(IDS)


def test_the_page_has_every_metric_with_its_type_its_labels_and_its_meaning() -> None:
    rows = re.findall(r"^\| `(clisup_\w+)` \| (\w+) \| (.+?) \| (.+) \|$", PAGE, re.MULTILINE)
    assert rows == [
        (m.name, m.type, ", ".join(f"`{label}`" for label in m.labels) or "-", m.help.removesuffix(SINCE).rstrip())
        for m in METRICS
    ]


def test_the_example_alerts_ask_for_metrics_and_labels_that_there_are() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    rules = re.findall(r"- alert: (\w+)\n +expr: (.+?)\n +(?:for|annotations):", block, re.DOTALL)
    assert len(dict(rules)) == len(rules) == block.count("- alert:") > 5
    known = {metric.name: metric for metric in METRICS}
    for rule, expression in rules:
        used = re.findall(r"(clisup_\w+)(?:\{([^}]*)\})?", expression)
        assert used, rule
        for name, matchers in used:
            metric = known[name.removesuffix("_bucket")]
            assert set(re.findall(r"(\w+)\s*[=!]", matchers)) <= set(metric.labels), rule
            assert "rate(" not in expression or metric.type in ("counter", "histogram"), rule


def test_every_name_on_the_page_is_a_metric() -> None:
    known = {*IDS, *(f"{m.name}_bucket" for m in METRICS if m.type == "histogram")}
    assert set(re.findall(r"\bclisup_\w+", PAGE)) <= known
