"""What pages show of the code's tables is what the code says now."""

from __future__ import annotations

import pytest

from clisup.cli.root import GROUPS
from clisup.model.lifecycle import TRANSITIONS, SessionState
from tests.docs.generate import (
    GENERATED,
    ROOT,
    UNEXPLAINED,
    between_marks,
    command_table,
    made,
    room_diagram,
    rooms,
    state_diagram,
)
from tests.test_architecture import reachable


@pytest.mark.parametrize("page", GENERATED)
def test_the_page_is_as_the_code_would_write_it(page: str) -> None:
    text = (ROOT / page).read_text()
    assert text == made(page), f"run: python -m tests.docs.generate, and read what it wrote into {page}"
    assert UNEXPLAINED not in text


def test_the_diagram_has_every_state_and_an_arrow_for_each_change() -> None:
    text = state_diagram()
    changes = {(state, after) for (state, _), after in TRANSITIONS.items() if state is not after}
    assert text.count(" --> ") == len(changes) + 2  # and the beginning and the end
    for state in SessionState:
        assert f" {state} " in text or f"--> {state}" in text


def test_the_picture_of_the_rooms_shows_each_room_and_every_import_as_an_arrow_or_a_path() -> None:
    arrows: dict[str, set[str]] = {room: set() for room in rooms()}
    for line in room_diagram().splitlines():
        if " --> " in line:
            room, _, other = line.strip().partition(" --> ")
            arrows[room].add(other)
    for room, imported in rooms().items():
        assert imported <= reachable(arrows, room), room
        assert arrows[room] <= imported


def test_a_row_that_is_new_waits_for_its_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.docs import generate

    fields = {"time": "string", "zone": "string"}
    monkeypatch.setattr(generate, "_candidates", lambda page, mark, name: [("field", fields)] if name == "ping" else [])
    assert f"| `zone` | string | {UNEXPLAINED} |" in made("docs/reference/protocol.md")
    assert "| `time` | string | the daemon's wall clock, RFC 3339 |" in made("docs/reference/protocol.md")


def test_every_exit_code_has_a_meaning() -> None:
    from clisup import errors

    defined = {code for name, code in vars(errors).items() if name.startswith("EXIT_") and isinstance(code, int)}
    assert set(errors.EXIT_CODES) == defined


def test_every_command_has_a_row() -> None:
    table = command_table()
    for names in GROUPS.values():
        assert [name for name in names if f"| `{name}" not in table] == []


def test_what_is_not_between_the_marks_stays() -> None:
    from tests.docs.generate import BEGIN, END

    assert between_marks(f"a\n{BEGIN}old\n{END}z\n", "new\n") == f"a\n{BEGIN}new\n{END}z\n"
