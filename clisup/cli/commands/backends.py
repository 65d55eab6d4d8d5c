"""`clisup backends` and `clisup env`: the backends, and the environment of their processes."""

from __future__ import annotations

import json

import click

from clisup.cli.options import complete_backend, json_option
from clisup.cli.views.terminal import Ink, plain, print_table
from clisup.client.raw import JsonObject
from clisup.client.sync import Client
from clisup.errors import EXIT_OK

__all__ = ["backends", "env"]

_TITLES = {"kept": "Kept from the daemon's environment", "set": "Set on purpose", "dropped": "Dropped"}


@click.command("backends")
@click.option("--models", "name", metavar="NAME", help="List the models that the provider of this API backend offers.")
@json_option("Print the daemon's answer as JSON.")
def backends(name: str | None, as_json: bool) -> int:
    """List the backends, and the reason if one cannot be used.

    \b
    Example:
      clisup backends
      clisup backends --models anthropic-api
      clisup backends --json | jq -r '.[] | select(.supported) | .name'
    """
    with Client.connect(name="clisup-backends") as client:
        if name is not None:
            models = client.models(name)
            print(json.dumps(models) if as_json else plain("\n".join(models)))
            return EXIT_OK
        found = client.call("backend/list")
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
        return EXIT_OK
    print_table(["BACKEND", "KIND", "VERSION", "SUPPORTED", "PATH"], [_row(b) for b in found])
    notes = [f"{b['name']}: {b['unavailable_reason']}" for b in found if b.get("unavailable_reason")]
    if notes:
        print("\n" + plain("\n".join(notes)))
    return EXIT_OK


def _row(b: JsonObject) -> list[str]:
    supported = f"{'yes' if b['supported'] else 'no'} ({b['supported_versions'] or 'any'})"
    return [b["name"], b["kind"], b.get("version") or "-", supported, b.get("path") or "-"]


@click.command("env")
@click.argument("backend", shell_complete=complete_backend)
@json_option("Print the daemon's answer as JSON.")
def env(backend: str, as_json: bool) -> int:
    """Show which variables BACKEND's processes get.

    Each name comes with the rule that decided. The output has names, never values.

    \b
    Example:
      clisup env claude
      clisup env claude --json | jq -r '.dropped[].name'
    """
    with Client.connect(name="clisup-env") as client:
        report = client.call("backend/env", name=backend)
    if as_json:
        print(json.dumps(report, ensure_ascii=False))
        return EXIT_OK
    ink = Ink()
    for part, title in _TITLES.items():
        print(ink("bold", f"{title}: {len(report[part])}"))
        if report[part]:
            print_table(["  NAME", "RULE"], [["  " + item["name"], item["rule"]] for item in report[part]])
        print()
    if lists := report.get("lists"):
        print(ink("bold", "Scrub lists, and the versions that they were checked with"))
        print_table(
            ["  LIST", "SOURCE", "DATE"], [["  " + stamp["list"], stamp["source"], stamp["date"]] for stamp in lists]
        )
    return EXIT_OK
