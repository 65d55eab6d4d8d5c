"""The figures of a run as a table for people, as JSON for programs, and as the tables of docs/proofs/performance.md."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.bench.figures import Figure, far_off
from tests.bench.machine import sentence

__all__ = ["PARTS", "as_text", "document", "merged", "regressions", "splice", "write"]

PARTS = ("paced", "counts", "throughput", "latency", "memory", "start", "recovery", "growth", "turns")
BEGIN, END = "<!-- made by `make bench RECORD=1`: begin -->", "<!-- made by `make bench RECORD=1`: end -->"
HEAD = ("figure", "value", "reference", "ratio", "spread", "must (moonshot)", "reached", "stolen")
PAGE_HEAD = ("figure", "value", "reference", "ratio", "must (moonshot)", "reached")
NOTHING = "Nothing is recorded yet: `make bench RECORD=1`.\n"


def as_text(figures: Sequence[Figure]) -> str:
    """Columns of plain text, a block for each part."""
    blocks = []
    for part in PARTS:
        rows = [_cells(figure.as_dict()) for figure in figures if figure.part == part]
        if rows:
            table = [(part, *HEAD[1:]), *rows]
            widths = [max(len(row[column]) for row in table) for column in range(len(HEAD))]
            blocks.append("\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in table))
    return "\n\n".join(blocks)


def document(figures: Sequence[Figure], machine: dict[str, Any], size: str) -> dict[str, Any]:
    """What `.bench/results.json` and tests/bench/recorded.json hold."""
    return {
        "schema": 1,
        "size": size,
        "machine": machine,
        "figures": {figure.key: figure.as_dict() for figure in figures},
    }


def merged(before: dict[str, Any] | None, now: dict[str, Any]) -> dict[str, Any]:
    """A record of some parts leaves the others as they were; the machine's facts are the newest."""
    parts = {figure["part"] for figure in now["figures"].values()}
    kept = {key: row for key, row in (before or {"figures": {}})["figures"].items() if row["part"] not in parts}
    order = {part: place for place, part in enumerate(PARTS)}
    rows = sorted({**kept, **now["figures"]}.items(), key=lambda item: order[item[1]["part"]])
    return {**now, "figures": dict(rows)}


def regressions(figures: Iterable[Figure], recorded: dict[str, Any] | None) -> dict[str, str]:
    """What is far worse than it was, by the figure's key; empty where nothing was recorded."""
    before = (recorded or {"figures": {}})["figures"]
    return {figure.key: word for figure in figures if (word := far_off(figure, before.get(figure.key)))}


def write(path: Path, data: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def splice(page: str, recorded: dict[str, Any] | None) -> str:
    """The page with the tables of what was recorded between its marks."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{_tables(recorded) if recorded else NOTHING}\n{END}{after}"


def _tables(recorded: dict[str, Any]) -> str:
    """The figures with a target, and what the turns of real CLIs take: recorded.json has all of them, with their spreads."""
    rows = [row for part in PARTS for row in recorded["figures"].values() if row["part"] == part]
    shown = [_page_row(row) for row in rows if row["target"] or (row["part"] == "turns" and row["value"] is not None)]
    return f"{sentence(recorded['machine'])}\n\n{_table(PAGE_HEAD, shown)}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _page_row(row: dict[str, Any]) -> tuple[str, ...]:
    name, value, reference, ratio, _, target, verdict, _ = _cells(row if row["value"] is None else {**row, "note": ""})
    return name, value, reference, ratio, target, verdict


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    if row["value"] is None:
        return row["name"], row["note"], "", "", "", row["target"], "", ""
    reference = row["reference"]
    if row["reference_value"] is not None:
        reference += f": {_number(row['reference_value'])}"
    ratio = "" if row["ratio"] is None else f"{_number(row['ratio'])}x"
    spread = f"{_number(row['low'])} to {_number(row['high'])}" if row["rounds"] > 1 else ""
    stolen = "" if row.get("stolen") is None else f"{row['stolen'] * 100:.1f} %"
    note = f" ({row['note']})" if row["note"] else ""
    return (row["name"] + note, f"{_number(row['value'])} {row['unit']}".rstrip(), reference, ratio, spread, row["target"],
            row["verdict"], stolen)  # fmt: skip


def _number(value: float) -> str:
    """Three digits that count."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}"
