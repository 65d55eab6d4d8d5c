"""What clisup needs of the system is checked before anything is touched."""

from __future__ import annotations

import platform

import pytest

from clisup.errors import ConfigurationError
from clisup.host.machine import check_system


@pytest.mark.parametrize("release", ["5.10", "5.10.0-31-amd64", "5.15", "6.1.0", "7.0-rc1", platform.release()])
def test_linux_from_5_10_on_is_taken(release: str) -> None:
    check_system(system="linux", release=release)


@pytest.mark.parametrize(
    ("system", "release", "reason"),
    [
        ("darwin", "23.0", "'darwin'"),
        ("win32", "10", "'win32'"),
        ("linux", "5.9.16", "the kernel is 5.9"),
        ("linux", "4.19.0", "the kernel is 4.19"),
        ("linux", "unknown", "the kernel is 0.0"),
    ],
)
def test_anything_else_is_refused_with_what_is_missing(system: str, release: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason) as caught:
        check_system(system=system, release=release)
    assert (caught.value.kind, caught.value.exit_code) == ("unsupported_system", 78)


def test_this_machine_is_taken() -> None:
    check_system()
