"""Taking up a new version of a CLI: what the report says is new."""

from __future__ import annotations

import pytest

from tests.e2e.take_up import KNOWN_FIELDS, REAL, RECORDINGS, Look, Result, Stories, bag, flags_in, report, summary
from tests.versions import PACKAGES, VERSIONS

BEFORE = Look(frozenset({"--model", "--old"}), {"result": frozenset({"text", "cost"}), "gone": frozenset({"a"})})
AFTER = Look(frozenset({"--model", "--new"}), {"result": frozenset({"text", "ids"}), "fresh": frozenset({"b"})})
STORIES = Stories(same=["a"], order=["b", "c"], races=["d"], changed=["e"], new=["f"], gone=["g"])
CHANGED = Result("1.0", "1.1", BEFORE, AFTER, ["ODD_API_KEY"], STORIES, "1 failed, 8 passed in 2s", ["tests/x.py::y"])
SAME = Result("1.0", "1.1", BEFORE, BEFORE, [], Stories(same=["a"]), "9 passed in 2s", [])


def test_frames_fields_flags_variables_stories_and_failed_tests_are_named() -> None:
    assert report("odd", CHANGED) == [
        "odd 1.0 -> 1.1",
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
        "stories: 1 the same, 2 order only, 1 races, 1 changed (e), 1 new (f), 1 gone (g)",
        "tests: 1 failed, 8 passed in 2s",
        "tests that failed: 1",
        "  tests/x.py::y",
    ]


def test_a_version_that_brings_nothing_new_says_so_under_every_heading_and_in_one_line() -> None:
    headings = [line for line in report("odd", SAME)[1:] if not line.startswith(("stories: ", "tests: "))]
    assert all(line.endswith(": none") for line in headings)
    assert summary(SAME) == "nothing new; stories: 1 the same, 0 order only, 0 races; tests: 9 passed in 2s"


def test_one_line_counts_what_is_new() -> None:
    assert summary(CHANGED).startswith(
        "1 new frames, 1 new fields, 1 new flags, 1 flags gone, 1 new variables; stories: "
    )


def test_stories_that_differ_by_order_or_by_numbers_alone_have_the_same_bag() -> None:
    first = "a -> tool_use  x2\nb -> -\nc -> TERMINAL(good, 700+301 cached in, 42 out, $0.01)"
    again = "c -> TERMINAL(good, 900+101 cached in, 40 out, $0.02)\na -> tool_use\nb -> -\na -> tool_use"
    assert bag(first) == bag(again)
    assert bag(first) != bag(again + "\nb -> -")


def test_flags_are_read_from_a_page_of_help_and_not_from_words_in_it() -> None:
    page = "  -p, --print   one turn --\n  --no-color (see --color=when)\n  a--b --- --X"
    assert flags_in(page) == {"--print", "--no-color", "--color"}


@pytest.mark.parametrize("name", sorted(REAL))
def test_every_pinned_cli_can_be_taken_up_and_its_recordings_are_where_the_pin_says(name: str) -> None:
    assert name in PACKAGES
    for recorder in REAL[name].recorders:
        assert list((RECORDINGS / recorder.folder.format(version=VERSIONS[name])).glob("*.jsonl"))
        assert (KNOWN_FIELDS / f"{recorder.kind}.json").exists()
