"""A slice of the zoo over live sessions of the real codex. `CLI=codex make zoo` plays all of it."""

from __future__ import annotations

import pytest

from tests.e2e.lab import running
from tests.zoo.codex import ENDINGS, CodexPauses, codex_lab, pause_codex, play_codex

pytestmark = pytest.mark.e2e


@pytest.mark.fault(4)
@pytest.mark.fault(10)
@pytest.mark.fault(11)
@pytest.mark.parametrize("kind", ["cleared environment", "ignoring TERM"])
def test_however_a_live_codex_ends_nothing_of_its_tree_is_left(kind: str) -> None:
    with running(codex_lab()) as lab:
        rounds = [play_codex(lab, kind, ending) for ending in ENDINGS]
    assert not [each for each in rounds if each.left or each.wrong]


@pytest.mark.fault(21)
def test_a_pause_of_the_daemon_ends_no_healthy_turn_of_a_live_codex_and_a_hung_one() -> None:
    assert pause_codex(2) == CodexPauses(pauses=6)
