"""Version ranges as the configuration writes them."""

from __future__ import annotations

import pytest

from clisup.errors import ConfigurationError
from clisup.policy.versions import in_range, newer_than, version_key

RANGE = ">=2.1.197,<3"


@pytest.mark.parametrize(
    ("version", "wanted", "inside"),
    [
        ("2.1.197", RANGE, True),
        ("2.1.196", RANGE, False),
        ("2.2", RANGE, True),
        ("2.10.0", RANGE, True),
        ("2.9", ">=2.10", False),
        ("3", RANGE, False),
        ("3.0.0", RANGE, False),
        ("2.99.99-beta.1", RANGE, True),
        ("1.0", "==1", True),
        ("1.0.0", "!=1", False),
        ("1.0.1", ">1", True),
        ("1", "<=1.0", True),
        ("0", "", True),
        ("7", " , ", True),
        ("2.5", " >= 2 , < 3 ", True),
    ],
)
def test_a_version_is_inside_or_outside_a_range(version: str, wanted: str, inside: bool) -> None:
    assert in_range(version, wanted) is inside


@pytest.mark.parametrize("wanted", ["2.1", "~=2", ">=two", ">=2.1.197,<3x", "=>2", ">=2;<3", ">="])
@pytest.mark.parametrize("version", ["0", "2.5", "99"])
def test_a_range_that_cannot_be_read_is_refused_whatever_the_version(wanted: str, version: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot read the version range"):
        in_range(version, wanted)


@pytest.mark.parametrize(("version", "key"), [("2.0.0", (2,)), (" 2.1.0 (x)", (2, 1)), ("0.0", (0,)), ("none", (0,))])
def test_only_the_leading_numbers_count_and_zeros_at_the_end_do_not(version: str, key: tuple[int, ...]) -> None:
    assert version_key(version) == key


@pytest.mark.parametrize(
    ("version", "newest", "told"),
    [
        ("2.1.333", "2.1.332", "2.1.332"),
        ("3", "2.1.332", "2.1.332"),
        ("2.1.332", "2.1.332", None),
        ("2.1.99", "2.1.332", None),
        ("2.1.332-beta.1", "2.1.332", None),
        (None, "2.1.332", None),
        ("9", "", None),
    ],
)
def test_a_version_above_the_newest_checked_one_is_told_with_that_one(
    version: str | None, newest: str, told: str | None
) -> None:
    assert newer_than(version, newest) == told
