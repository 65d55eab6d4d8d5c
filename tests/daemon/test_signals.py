"""Signals that mean nothing to the daemon."""

from __future__ import annotations

import signal

import pytest
from harness import Harness, until


@pytest.mark.fault(92)
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM])
def test_a_signal_that_means_nothing_is_a_line_in_the_log(daemon: Harness, number: signal.Signals) -> None:
    daemon.signal(number)
    until(lambda: number.name in daemon.log.read_text())
    assert daemon.new().ask("Hello.")["outcome"] == "completed"
