"""Mentions of skills that codex 0.169.0 would look up: switched off by name, or hidden."""

from __future__ import annotations

import pytest

from clisup.backends.codex.protocol import hidden, switched_off
from clisup.model.prompts.content import Image

IMAGE = Image("image/png", "iVBORw0KGgo=")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Take $mine, and $my-skill: then $plug:in_2", ["mine", "my-skill:", "plug:in_2"]),
        ("`$mine` x$mine \\$mine $$mine $mine\u00e9", ["mine"]),
        ("echo $HOME ${HOME} $(ls) $ $? $5", ["HOME", "5"]),
        ("costs 5$", []),
    ],
)
def test_rules_switch_off_what_the_text_names_and_leave_the_text(text: str, names: list[str]) -> None:
    said = switched_off((text,))
    assert said.content == (text,) and said.altered is None
    assert said.rules == [{"name": name, "enabled": False} for name in names]


def test_names_in_all_texts_count_once_and_images_stay() -> None:
    said = switched_off(("$a $b", IMAGE, "$a"))
    assert [rule["name"] for rule in said.rules] == ["a", "b"] and said.content == ("$a $b", IMAGE, "$a")


def test_a_link_names_its_file_whatever_name_it_has_so_it_is_hidden() -> None:
    said = switched_off(("See [$other](/skills/mine/SKILL.md)",))
    assert said.content == ("See [$\u200bother](/skills/mine/SKILL.md)",)
    assert said.altered == "zero-width space in each [$name](path) that could name a skill"


def test_too_many_names_are_hidden_instead() -> None:
    many = " ".join(f"$v{number}" for number in range(501))
    said = switched_off((many,))
    assert said == hidden((many,)) and said.rules == []
    assert switched_off((many.rpartition(" ")[0],)).altered is None


def test_hidden_names_have_a_character_of_no_name_behind_the_dollar() -> None:
    said = hidden(("$a ${b} $5 [$c](d) 5$", IMAGE))
    assert said.content == ("$\u200ba ${b} $\u200b5 [$\u200bc](d) 5$", IMAGE)
    assert said.altered == "zero-width space in each $name that could name a skill"
    assert hidden(("no mention", IMAGE)).altered is None
