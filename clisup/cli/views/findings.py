"""Findings of a doctor as text: a group for each backend, then the counts."""

from __future__ import annotations

import sys
from itertools import groupby

from clisup.cli.views.terminal import Ink, plain, print_table
from clisup.client.raw import JsonObject

__all__ = ["print_findings"]

_COLOURS = {"ok": "", "warn": "yellow", "fail": "red"}


def print_findings(found: list[JsonObject], title: str) -> None:
    """Print findings. Those without a backend stand below `title`."""
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # the C locale lacks letters
    ink, width = Ink(), max(len(finding["check"]) for finding in found)
    for number, (backend, group) in enumerate(groupby(found, key=lambda finding: finding["backend"])):
        rows: list[list[str]] = []
        styles: list[str] = []
        for finding in group:
            rows.append([f"  {finding['status']:<4}", finding["check"].ljust(width), finding["detail"]])
            rows += [["", "", f"-> {finding['fix']}"]] if finding["fix"] else []
            styles += [_COLOURS[finding["status"]]] * (len(rows) - len(styles))
        print(("\n" if number else "") + ink("bold", plain(backend or title)))
        print_table(None, rows, styles)
    counts = [(word, sum(finding["status"] == word for finding in found)) for word in ("fail", "warn")]
    print("\n" + (", ".join(f"{count} {word}" for word, count in counts if count) or "no problems"))
