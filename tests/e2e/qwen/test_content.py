"""Hygiene with the real qwen, and no images: what of a prompt reaches the model."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from clisup.errors import ClisupError
from tests.e2e.pictures import image, text
from tests.e2e.qwen.lab import QwenLab

pytestmark = pytest.mark.e2e
Start = Callable[..., QwenLab]
CANARY = "the file's own words"


def asked(here: QwenLab) -> str:
    return json.dumps([request.body for request in here.api.requests], ensure_ascii=False)


def test_an_image_is_refused_before_the_prompt_is_accepted(lab: Start) -> None:
    here = lab("text")
    session = here.open()
    with pytest.raises(ClisupError, match="takes no images in its prompts") as refused:
        here.turn([text("What is this?"), image()], session=session)
    assert refused.value.kind == "unsupported"
    assert here.events(session, "prompt_accepted") == [] == here.api.requests


@pytest.mark.fault(69)
def test_no_text_block_is_a_command_or_names_a_file(lab: Start) -> None:
    here = lab("text")
    (here.cwd / "canary.txt").write_text(CANARY)
    turn = here.turn([text("/about"), text("/about @canary.txt")])
    assert CANARY not in asked(here) and "\\n/about\\n/about" in asked(here)
    assert here.altered(turn) == "newline before a leading slash, backslash before each @"


def test_with_expand_a_mentioned_file_is_read_and_a_command_asks_no_model(lab: Start) -> None:
    here = lab("text")
    (here.cwd / "canary.txt").write_text(CANARY)
    turn = here.turn("See @canary.txt", expand=True)
    assert CANARY in asked(here) and here.altered(turn) is None
    there = lab("text")
    there.turn("/about", expand=True)
    assert there.api.main_requests == []


@pytest.mark.fault(69)
def test_a_skill_of_the_user_is_run_only_with_expand(lab: Start) -> None:
    here = lab("text")
    directory = here.home / ".qwen" / "skills" / "mine"
    directory.mkdir(parents=True)
    (directory / "SKILL.md").write_text("---\nname: mine\ndescription: a skill\n---\nthe words of the skill\n")
    here.turn("/mine now")
    assert "the words of the skill" not in asked(here)
    here.turn("/mine now", expand=True)
    assert "the words of the skill" in asked(here)


@pytest.mark.fault(69)
def test_shell_marks_and_templates_reach_the_model_as_they_are(lab: Start) -> None:
    here = lab("text")
    turn = here.turn("!touch made.txt !{touch made.txt}\n# note: $HOME ${HOME} {{args}}")
    assert "!touch made.txt !{touch made.txt}\\n# note: $HOME ${HOME} {{args}}" in asked(here)
    assert here.altered(turn) is None and not (here.cwd / "made.txt").exists()
