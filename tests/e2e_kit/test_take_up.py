"""Taking up a new version of a CLI: what the report says is new."""

from __future__ import annotations

import pytest

from tests.e2e.take_up import KNOWN_FIELDS, REAL, RECORDINGS, Look, flags_in, report
from tests.versions import PACKAGES, VERSIONS

BEFORE = Look(frozenset({"--model", "--old"}), {"result": frozenset({"text", "cost"}), "gone": frozenset({"a"})})
AFTER = Look(frozenset({"--model", "--new"}), {"result": frozenset({"text", "ids"}), "fresh": frozenset({"b"})})


def test_frames_fields_flags_and_variables_that_are_new_or_gone_are_named() -> None:
    assert report(BEFORE, AFTER, ["ODD_API_KEY"], ["M x.txt"]) == [
        "new frames: 1",
        "  fresh",
        "frames not seen any more: 1",
        "  gone",
        "new fields: 1",
        "  result: ids",
        "fields not seen any more: 1",
        "  result: cost",
        "new flags: 1",
        "  --new",
        "flags gone: 1",
        "  --old",
        "new variables that no scrub list decides about: 1",
        "  ODD_API_KEY",
        "stories that changed (git diff tests/backends/expected): 1",
        "  M x.txt",
    ]


def test_a_version_that_brings_nothing_new_says_so_under_every_heading() -> None:
    assert all(line.endswith(": none") for line in report(BEFORE, BEFORE, [], []))


def test_flags_are_read_from_a_page_of_help_and_not_from_words_in_it() -> None:
    page = "  -p, --print   one turn --\n  --no-color (see --color=when)\n  a--b --- --X"
    assert flags_in(page) == {"--print", "--no-color", "--color"}


@pytest.mark.parametrize("name", sorted(REAL))
def test_every_pinned_cli_can_be_taken_up_and_its_recordings_are_where_the_pin_says(name: str) -> None:
    assert name in PACKAGES
    for folder in REAL[name].folders:
        assert list((RECORDINGS / folder.format(version=VERSIONS[name])).glob("*.jsonl"))
        assert (KNOWN_FIELDS / f"{folder.partition('/')[0]}.json").exists()
