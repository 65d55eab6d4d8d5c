"""`clisup backends`."""

from __future__ import annotations

import json
from typing import Any

import click

from clisup.cli.views.terminal import plain, table
from clisup.client.sync import Client

__all__ = ["command"]


@click.command("backends")
@click.option("--models", "name", metavar="NAME", help="List the models that the provider of this API backend offers.")
@click.option("--json", "as_json", is_flag=True, help="Print the daemon's answer as JSON.")
def command(name: str | None, as_json: bool) -> int:
    """List the backends, and why one cannot be used.

    \b
    Example:
      clisup backends
      clisup backends --models anthropic-api
      clisup backends --json | jq -r '.[] | select(.supported) | .name'
    """
    with Client.connect(name="clisup-backends") as client:
        if name is not None:
            return _print_models(client.models(name), as_json)
        found = client.call("backend/list")
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
        return 0
    print(table(["BACKEND", "KIND", "VERSION", "SUPPORTED", "PATH"], [_row(b) for b in found]))
    notes = [f"{b['name']}: {b['unavailable_reason']}" for b in found if b.get("unavailable_reason")]
    if notes:
        print("\n" + plain("\n".join(notes)))
    return 0


def _print_models(models: list[str], as_json: bool) -> int:
    print(json.dumps(models) if as_json else plain("\n".join(models)))
    return 0


def _row(b: dict[str, Any]) -> list[str]:
    range_ = b["supported_versions"] or "any"
    supported = f"yes ({range_})" if b["supported"] else f"no ({range_})"
    return [
        b["name"],
        b["kind"],
        b.get("version") or "-",
        supported,
        b.get("path") or "-",
    ]
