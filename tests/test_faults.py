"""The fault catalogue and the tests that prove it: every number used is in docs/proofs/faults.md, and what is open is said there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CATALOGUE = ROOT / "docs" / "proofs" / "faults.md"
MARK = re.compile(r"mark\.fault\((\d+)\)")


def listed() -> set[int]:
    """The numbers of the catalogue, each at the beginning of a line."""
    promises = CATALOGUE.read_text().split("## Not proved yet")[0]
    return {int(number) for number in re.findall(r"^(\d+)\. (?=\S)", promises, re.MULTILINE)}


def said_open() -> set[int]:
    """The numbers that docs/proofs/faults.md says no test proves."""
    section = CATALOGUE.read_text().split("## Not proved yet")[1]
    return {int(number) for number in re.findall(r"^- (\d+)", section, re.MULTILINE)}


def proved() -> set[int]:
    """The numbers that tests name."""
    return {int(n) for path in (ROOT / "tests").rglob("test_*.py") for n in MARK.findall(path.read_text())}


def test_the_catalogue_has_all_its_numbers() -> None:
    assert listed() == set(range(1, 106))


def test_every_number_that_a_test_names_is_in_the_catalogue() -> None:
    assert proved() <= listed()


def test_what_no_test_proves_is_said_and_nothing_else() -> None:
    assert said_open() == listed() - proved()
