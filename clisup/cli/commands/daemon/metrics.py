"""`clisup metrics`."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from clisup.client.sync import Client

__all__ = ["command"]


@click.command("metrics")
@click.option("--openmetrics", is_flag=True, help="Print OpenMetrics instead of Prometheus' text format.")
@click.option("--json", "as_json", is_flag=True, help="Print the metrics as JSON, each with its samples.")
def command(openmetrics: bool, as_json: bool) -> int:
    """Print what the daemon counts, in Prometheus' text format.

    For node_exporter's textfile collector, or to look at; docs/metrics.md says what each of them means.

    \b
    Example:
      clisup metrics | grep clisup_turns_total
      clisup metrics > clisup.prom.tmp && mv clisup.prom.tmp clisup.prom
      clisup metrics --json | jq '.[] | select(.name == "clisup_tokens_total").samples'
    """
    form = "openmetrics" if openmetrics and not as_json else "prometheus"
    with Client.connect(name="clisup-metrics") as client:
        text = client.call("daemon/metrics", format=form)["text"]
    sys.stdout.write(json.dumps(_families(text), ensure_ascii=False) + "\n" if as_json else text)
    return 0


def _families(text: str) -> list[dict[str, Any]]:
    from prometheus_client.parser import text_string_to_metric_families

    return [
        {
            "name": f"{family.name}_total" if family.type == "counter" else family.name,  # as the page calls it
            "type": family.type,
            "help": family.documentation,
            "samples": [{"name": s.name, "labels": s.labels, "value": s.value} for s in family.samples],
        }
        for family in text_string_to_metric_families(text)
    ]
