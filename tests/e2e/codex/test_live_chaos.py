"""A short chaos over live sessions of the real codex. `CLI=codex make chaos` plays all of it."""

from __future__ import annotations

import pytest
import trio

from tests.chaos.run import Chaos, Settings, reference

SHORT = Settings(kills=12, sessions=3, seed=5, scripts=3, cold=0, cli="codex")


@pytest.mark.e2e
@pytest.mark.fault(1)
def test_kills_of_the_daemon_lose_no_event_of_codex_and_send_no_prompt_twice() -> None:
    model, counts = trio.run(reference, SHORT)
    assert counts.clean, counts.details
    chaos = Chaos(SHORT, model)
    trio.run(chaos.run)
    assert chaos.counts.clean and not chaos.faults, (chaos.counts.details, chaos.faults)
    assert chaos.killer.kills == 12 and chaos.turns >= 9
