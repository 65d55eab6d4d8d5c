"""An attack, what came of it, and the rows of docs/explanation/security.md that attacks name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Attack", "NotPlayed", "Outcome", "Row", "beyond", "rows", "table"]

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "security.md"
_ROW = re.compile(r"^\| ([A-Z]\d+) \| (.+?) \| (yes|\*\*no\*\*) \|", re.MULTILINE)
_WIDEST = 78


class NotPlayed(Exception):
    """This machine lacks what the attack needs."""


class Attack(NamedTuple):
    """One try of an attacker.

    `play` gets the ground of its part and returns the proof of what the attacker reached, or None. `row` is the id of the
    row in security.md. `short` attacks belong to the short form, too.
    """

    row: str
    name: str
    play: Callable[[Any], str | None]
    short: bool = False


class Outcome(NamedTuple):
    """Result of one attack. `word` is `held`, `reached`, `not played` or `broken`: an attack that failed by itself."""

    part: str
    row: str
    name: str
    word: str
    detail: str = ""
    seconds: float = 0.0


class Row(NamedTuple):
    """One promise of the page, or one limit of what it promises."""

    id: str
    tries: str
    held: bool


def rows(text: str | None = None) -> dict[str, Row]:
    """Return the rows of the page's tables by their ids. Raises `ValueError` for an id that stands there twice."""
    found: dict[str, Row] = {}
    for id_, tries, held in _ROW.findall(PAGE.read_text() if text is None else text):
        if id_ in found:
            raise ValueError(f"two rows have the id {id_}")
        found[id_] = Row(id_, tries, held == "yes")
    return found


def beyond(outcomes: list[Outcome], promised: dict[str, Row], *, all_played: bool = False) -> list[str]:
    """Return what the run has to fail for: more was reached than the page says, or an attack could not be played."""
    found = []
    for one in outcomes:
        where = f"{one.row} {one.part}: {one.name}"
        if one.row not in promised:
            found.append(f"{where}: the page has no row {one.row}")
        elif one.word == "reached" and promised[one.row].held:
            found.append(f"{where}: {one.detail}")
        elif one.word == "broken" or (one.word == "not played" and all_played):
            found.append(f"{where}: {one.word}: {one.detail}")
    return found


def table(outcomes: list[Outcome], promised: dict[str, Row]) -> Iterator[str]:
    """Yield the lines of the table of what each attacker reached: one for each row, and one for each attack that got through."""
    yield f"{'row':4} {'attacks':>7} {'held':>5} {'reached':>7} {'page says':10} the attacker tries to"
    for id_, row in promised.items():
        mine = [one for one in outcomes if one.row == id_]
        if not mine:
            continue
        count = {word: sum(one.word == word for one in mine) for word in ("held", "reached")}
        says = "held" if row.held else "not held"
        yield f"{id_:4} {len(mine):7} {count['held']:5} {count['reached']:7} {says:10} {row.tries[:_WIDEST]}"
        for one in mine:
            if one.word != "held":
                yield f"       {one.word}: {one.name}: {one.detail}"
