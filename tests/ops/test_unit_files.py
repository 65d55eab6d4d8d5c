"""What `clisup install` writes: the shipped text, this clisup's path, and a sum by which an edit is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from clisup.host.systemd.units import standing_of, unit_text, unit_word

SHIPPED = {file.name: file.read_text() for file in (Path(__file__).resolve().parents[2] / "systemd").iterdir()}


@pytest.mark.parametrize("name", ["clisup.service", "clisup@.service"])
def test_every_command_of_a_unit_is_this_clisup(name: str) -> None:
    text = unit_text(SHIPPED[name], "/opt/x y/bin/clisup", "1.0")
    assert 'ExecStart="/opt/x y/bin/clisup" serve\n' in text
    assert 'ExecReload="/opt/x y/bin/clisup" daemon restart\n' in text
    assert "/opt/clisup" not in text and "%h/.local" not in text


@pytest.mark.parametrize("name", SHIPPED)
def test_all_else_stays_as_it_is_shipped(name: str) -> None:
    kept = [line for line in unit_text(SHIPPED[name], "/c", "1.0").splitlines() if not line.startswith("Exec")]
    assert kept[2:] == [line for line in SHIPPED[name].splitlines() if not line.startswith("Exec")]


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("/usr/bin/clisup", "/usr/bin/clisup"),
        ("/a b/clisup", '"/a b/clisup"'),
        ("/50%/clisup", "/50%%/clisup"),
        ("/$HOME/clisup", "/$$HOME/clisup"),
        ('/"q"/clisup', '"/\\"q\\"/clisup"'),
    ],
)
def test_a_path_means_itself_to_systemd(path: str, word: str) -> None:
    assert unit_word(path) == word


def test_what_was_installed_before_may_be_replaced_and_what_was_edited_may_not() -> None:
    shipped = SHIPPED["clisup.service"]
    wanted, before = unit_text(shipped, "/new", "2.0"), unit_text("[Service]\nExecStart=/old serve\n", "/old", "1.0")
    assert standing_of(None, wanted, shipped) == "new"
    assert standing_of(wanted, wanted, shipped) == "same"
    assert standing_of(before, wanted, shipped) == "older"
    assert standing_of(shipped, wanted, shipped) == "older"
    assert standing_of(before.replace("old", "mine"), wanted, shipped) == "edited"
    assert standing_of(wanted + "Nice=5\n", wanted, shipped) == "edited"
    assert standing_of("[Service]\nExecStart=/mine\n", wanted, shipped) == "edited"
    assert standing_of("", wanted, shipped) == "edited"
