"""Logging: the level can be changed while loggers are in use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog

from clisup.host.log import configure_logging, set_log_level


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()
    set_log_level("info")


def test_a_level_holds_for_loggers_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    log = structlog.get_logger()
    log.info("one")
    log.debug("two")
    set_log_level("error")
    log.warning("three")
    log.error("four")
    set_log_level("debug")
    log.debug("five")
    said = capsys.readouterr().err
    assert [word for word in ("one", "two", "three", "four", "five") if f'"{word}"' in said] == ["one", "four", "five"]


def test_an_exception_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("error", "json")
    try:
        raise ValueError("x")
    except ValueError:
        structlog.get_logger().exception("failed")
    assert '"failed"' in capsys.readouterr().err
