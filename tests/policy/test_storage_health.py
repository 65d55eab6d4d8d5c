"""The word for the state of the storage: entered at a refusal, left when nothing has been refused for a while."""

from __future__ import annotations

import errno

import pytest

from clisup.policy.storage_health import CALM_S, HOPELESS_S, StorageHealth, is_hopeless


@pytest.mark.fault(90)
def test_space_can_be_freed_but_a_limit_and_after_a_while_a_broken_disk_are_not_waited_for() -> None:
    long = HOPELESS_S + 1
    assert not is_hopeless(errno.ENOSPC, long) and not is_hopeless(errno.EDQUOT, long)
    assert is_hopeless(errno.EFBIG, 0)
    for number in (errno.EIO, errno.EROFS):
        assert is_hopeless(number, long) and not is_hopeless(number, 1)


@pytest.mark.fault(55)
@pytest.mark.parametrize(
    ("number", "state"),
    [
        (errno.ENOSPC, "full"),
        (errno.EDQUOT, "full"),
        (errno.EROFS, "read_only"),
        (errno.EIO, "failing"),
        (errno.EACCES, "failing"),
        (0, "failing"),
    ],
)
def test_a_refused_write_gives_the_state_its_word_and_is_news_once(number: int, state: str) -> None:
    health = StorageHealth("t0")
    assert (health.state, health.since, health.error) == ("ok", "t0", None)
    assert health.failed(number, "why", now=10.0, ts="t1") is True
    assert health.failed(number, "why still", now=10.2, ts="t2") is False
    assert (health.state, health.since, health.error, health.failures) == (state, "t1", "why still", 2)


def test_another_cause_is_news_again() -> None:
    health = StorageHealth("t0")
    health.failed(errno.ENOSPC, "full", now=1.0, ts="t1")
    assert health.failed(errno.EROFS, "read-only", now=2.0, ts="t2") is True
    assert (health.state, health.since) == ("read_only", "t2")


def test_one_write_that_works_among_others_that_do_not_is_no_recovery() -> None:
    health = StorageHealth("t0")
    health.failed(errno.ENOSPC, "full", now=1.0, ts="t1")
    assert health.worked(now=1.0 + CALM_S / 2, ts="t2") is False
    health.failed(errno.ENOSPC, "full", now=1.5, ts="t3")
    assert health.worked(now=1.5 + CALM_S / 2, ts="t4") is False and health.state == "full"
    assert health.worked(now=1.5 + CALM_S, ts="t5") is True
    assert (health.state, health.since, health.error, health.failures) == ("ok", "t5", None, 2)


def test_a_write_that_works_is_no_news_where_nothing_was_wrong() -> None:
    health = StorageHealth("t0")
    assert health.worked(now=99.0, ts="t1") is False and health.since == "t0"
