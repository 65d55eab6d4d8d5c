"""`clisup env`: what a backend's processes inherit."""

from __future__ import annotations

import json

import click

from clisup.cli.views.terminal import Ink, table
from clisup.client.sync import Client

__all__ = ["command"]

_TITLES = {"kept": "Kept from the daemon's environment", "set": "Set on purpose", "dropped": "Dropped"}


@click.command("env")
@click.argument("backend")
@click.option("--json", "as_json", is_flag=True, help="Print the daemon's answer as JSON.")
def command(backend: str, as_json: bool) -> int:
    """Show which variables BACKEND's processes get.

    With each name stands the rule that decided. Names only, never values.

    \b
    Example:
      clisup env claude
      clisup env claude --json | jq -r '.dropped[].name'
    """
    with Client.connect(name="clisup-env") as client:
        report = client.call("backend/env", name=backend)
    if as_json:
        print(json.dumps(report, ensure_ascii=False))
        return 0
    ink = Ink()
    for part, title in _TITLES.items():
        rows = [["  " + item["name"], item["rule"]] for item in report[part]]
        print(ink("bold", f"{title}: {len(rows)}"))
        if rows:
            print(table(["  NAME", "RULE"], rows))
        print()
    rows = [["  " + stamp["list"], stamp["source"], stamp["date"]] for stamp in report.get("lists") or []]
    if rows:
        print(ink("bold", "Scrub lists, and what they were checked with"))
        print(table(["  LIST", "SOURCE", "DATE"], rows))
    return 0
