"""Under which id a run names the CLI's own session, where the CLI has odd rules for ids."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from clisup.backends.base import Capabilities
from clisup.daemon.sessions.cli_session import CliSession

ID = "3f2a77be-1c1d-4d8b-9a3e-0d6c5b0f9a11"


def native(can: Capabilities, *, told: str | None = None, completed: int = 0, live: bool = False) -> CliSession:
    adapter = SimpleNamespace(capabilities=can, transcript_pattern=lambda *_: None)
    backend = SimpleNamespace(adapter=adapter, environment=lambda **_: ({}, None), own_environment=lambda _: {})
    session = SimpleNamespace(
        id=ID,
        native_id=told or can.native_id_prefix + ID,
        backend=backend,
        capabilities=can.of(live=live),
        ledger=SimpleNamespace(native_lost=False, completed=completed),
        spec=SimpleNamespace(resume_native_id=None),
        dir=SimpleNamespace(secrets=dict),
        request_env={},
    )
    return CliSession(cast("Any", session))


@pytest.mark.parametrize(
    ("can", "run", "expected"),
    [
        (Capabilities(), 1, (ID, False)),
        (Capabilities(), 2, (ID, False)),
        (Capabilities(native_id_prefix="_"), 2, (f"_{ID}", False)),
        (Capabilities(native_id_prefix="_", ids_once=True), 1, (f"_{ID}", False)),
        (Capabilities(native_id_prefix="_", ids_once=True), 2, (f"_2{ID}", False)),
        (Capabilities(chosen_id=False), 1, (None, False)),
    ],
)
def test_a_new_session_gets_the_id_that_its_cli_can_take(can: Capabilities, run: int, expected: Any) -> None:
    assert native(can).name("fresh", run) == expected


def test_a_cli_may_take_an_id_in_one_mode_alone() -> None:
    can = Capabilities(native_id_prefix="_", one_shot_only=("chosen_id",))
    assert native(can).name("fresh", 1) == (f"_{ID}", False)
    assert native(can, live=True).name("fresh", 1) == (None, False)


@pytest.mark.parametrize("can", [Capabilities(), Capabilities(native_id_prefix="_", ids_once=True)])
def test_a_session_that_has_answered_is_resumed_by_the_id_that_it_told(can: Capabilities) -> None:
    assert native(can, told="_2told", completed=1).name(None, 5) == ("_2told", True)
