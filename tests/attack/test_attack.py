"""Rules of `make attack` that need no process: rows and attacks fit each other, and the verdict is right."""

from __future__ import annotations

import json

import pytest

from tests.attack import cell, play
from tests.attack.inside import ACTIONS, SPOILERS
from tests.attack.model import Attack, NotPlayed, Outcome, Row, beyond, rows, table
from tests.attack.run import PARTS

ALL = {part: play.attacks_of(part) for part in PARTS}
PROMISED = {"T1": Row("T1", "connect", True), "T2": Row("T2", "read", False)}


def outcome(row: str, word: str) -> Outcome:
    return Outcome("tool", row, "name", word, "detail")


def test_each_attack_names_a_row_of_the_page() -> None:
    named = {attack.row for attacks in ALL.values() for attack in attacks}
    assert sorted(named - set(rows())) == []


def test_each_row_of_the_page_has_an_attack() -> None:
    named = {attack.row for attacks in ALL.values() for attack in attacks}
    assert sorted(set(rows()) - named) == []


def test_the_attacks_of_a_part_have_names_of_their_own() -> None:
    doubled = [one for attacks in ALL.values() for one in {(a.row, a.name) for a in attacks if sum(
        (b.row, b.name) == (a.row, a.name) for b in attacks) > 1}]  # fmt: skip
    assert doubled == []


@pytest.mark.parametrize("part", PARTS)
def test_each_part_has_attacks_in_the_short_form(part: str) -> None:
    assert any(attack.short for attack in ALL[part]) or part == "tool-load"


def test_rows_are_read_with_their_promise() -> None:
    text = "| id | tries to | held | because |\n|---|---|---|---|\n| T1 | connect | yes | x |\n| T2 | read | **no** | y |\n"
    assert rows(text) == PROMISED


def test_an_id_that_stands_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="two rows have the id T1"):
        rows("| T1 | connect | yes | x |\n| T1 | read | **no** | y |\n")


@pytest.mark.parametrize(
    ("row", "word", "fails"),
    [
        ("T1", "held", False), ("T1", "reached", True), ("T2", "reached", False), ("T2", "held", False),
        ("T1", "broken", True), ("T2", "broken", True), ("T9", "held", True), ("T1", "not played", False),
    ],
)  # fmt: skip
def test_a_run_fails_for_what_the_page_does_not_say(row: str, word: str, fails: bool) -> None:
    assert bool(beyond([outcome(row, word)], PROMISED)) == fails


def test_what_was_not_played_fails_only_where_all_must_be_played() -> None:
    missed = [outcome("T1", "not played")]
    assert beyond(missed, PROMISED) == [] and len(beyond(missed, PROMISED, all_played=True)) == 1


def test_the_table_counts_and_names_what_got_through() -> None:
    lines = list(table([outcome("T1", "held"), outcome("T1", "reached")], PROMISED))
    assert len(lines) == 3
    assert lines[1].split()[:5] == ["T1", "2", "1", "1", "held"] and "reached: name: detail" in lines[2]


@pytest.mark.parametrize(
    ("attack", "word"),
    [
        (lambda _: None, "held"), (lambda _: "a proof", "reached"),
        (lambda _: (_ for _ in ()).throw(NotPlayed("no root")), "not played"), (lambda _: 1 / 0, "broken"),
    ],
)  # fmt: skip
def test_an_attack_that_raises_is_no_success_of_the_defence(attack: object, word: str) -> None:
    found = play.play("tool", Attack("T1", "name", attack), None)  # type: ignore[arg-type]
    assert found.word == word and json.loads(json.dumps(found))[3] == word


def test_a_cell_gives_up_the_rights_of_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell, "confined", lambda: True)
    words = " ".join(cell.command(["true"], "/tmp/x"))
    assert "--clear-groups" in words and "--nproc=1500:1500" in words and words.endswith("cell true")
    assert "setpriv" not in " ".join(cell.command(["true"], "/tmp/x", as_root=True))


def test_every_spoiler_and_action_has_a_function() -> None:
    assert all(map(callable, ACTIONS.values())) and all(map(callable, SPOILERS.values()))
