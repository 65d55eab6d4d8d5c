"""Failpoints: what arms them, when they strike, and that each of them stands in the code."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clisup.errors import ConfigurationError
from clisup.host.failpoints import ARMED, FAILPOINTS, arm, failpoint

PACKAGE = Path(__file__).resolve().parents[2] / "clisup"


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    arm("")


def strikes(name: str, times: int) -> list[int]:
    """At which of so many times it raises."""
    found = []
    for n in range(1, times + 1):
        try:
            failpoint(name)
        except OSError:
            found.append(n)
    return found


@pytest.mark.parametrize(
    ("rule", "when"), [("EIO", [1]), ("EIO@3", [3]), ("EIO@2-4", [2, 3, 4]), ("EIO@5-", [5, 6]), ("EIO@9", [])]
)
def test_a_failpoint_strikes_when_its_rule_says(rule: str, when: list[int]) -> None:
    assert arm(f"journal.before={rule}") == ["journal.before"]
    assert strikes("journal.before", 6) == when
    assert strikes("journal.after", 6) == []


def test_the_error_is_the_one_that_was_asked_for() -> None:
    arm("file.write=ENOSPC, sync.before=EROFS")
    with pytest.raises(OSError, match="No space left"):
        failpoint("file.write")
    with pytest.raises(OSError, match="Read-only"):
        failpoint("sync.before")
    assert "file.write" in ARMED and "journal.torn" not in ARMED


@pytest.mark.parametrize(
    "spec", ["nowhere=kill", "journal.before", "journal.before=EWHAT", "journal.before=kill@x", "=kill"]
)
def test_a_rule_that_is_none_is_refused_and_named(spec: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(repr(spec))):
        arm(spec)


def test_kill_is_a_sigkill_to_the_process_itself() -> None:
    code = "from clisup.host.failpoints import arm, failpoint; arm('end.after=kill'); failpoint('end.after')"
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL


def test_every_failpoint_of_the_table_stands_in_the_code_and_no_other() -> None:
    found = re.findall(r'failpoint\("([a-z.]+)"\)', "".join(path.read_text() for path in PACKAGE.rglob("*.py")))
    assert set(found) == set(FAILPOINTS) and len(found) == len(set(found))
