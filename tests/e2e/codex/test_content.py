"""Images and hygiene with the real codex, both ways to run it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.codex.lab import CodexLab
from tests.e2e.pictures import GIF, PNG_BASE64, image, text

pytestmark = pytest.mark.e2e
Start = Callable[..., CodexLab]
CANARY = "the file's own words"
SKILL = "---\nname: {0}\ndescription: a skill called {0}\n---\nthe words of skill {0}\n"
SENT_IMAGE = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG_BASE64}", "detail": "high"}


def said(text: str) -> dict[str, str]:
    return {"type": "input_text", "text": text}


def sent(here: CodexLab) -> list[dict[str, Any]]:
    """What the last request says in the user's name, but for the environment that codex describes."""
    messages = [entry for entry in here.api.main_requests[-1].body["input"] if entry.get("role") == "user"]
    parts = [part for message in messages for part in message["content"]]
    return [part for part in parts if not str(part.get("text")).startswith("<environment_context>")]


def skill(directory: Path, name: str) -> Path:
    """A skill of this name; gives its file."""
    (directory / name).mkdir(parents=True)
    path = directory / name / "SKILL.md"
    path.write_text(SKILL.format(name))
    return path


def words_of_skills(here: CodexLab) -> list[str]:
    everything = json.dumps([request.body for request in here.api.main_requests])
    return [name for name in ("mine", "theirs") if f"the words of skill {name}" in everything]


def test_images_reach_the_model_as_they_are_and_in_their_places(lab: Start) -> None:
    here = lab("text")
    turn = here.turn([text("What is"), image(), text("this?")])
    assert sent(here) == [said("What is"), SENT_IMAGE, said("this?")]
    (started,) = here.events(turn["session_id"], "turn_started")
    assert started["prompt_images"] == 1 and "prompt_altered" not in started
    assert turn["outcome"] == "completed" and PNG_BASE64 not in json.dumps(here.events(turn["session_id"]))


def test_exec_takes_images_by_file_and_before_the_text(lab: Start) -> None:
    here = lab("text", kind="codex-exec")
    turn = here.turn([text("What is"), image(), text("this?")])
    tag, shown, end, words = sent(here)
    assert tag["text"].startswith("<image name=[Image #1] path=") and end == said("</image>")
    assert (shown, words) == (SENT_IMAGE, said("What is\nthis?"))
    assert here.altered(turn) == "images put before the text"
    (started,) = here.events(turn["session_id"], "process_started")
    path = next(word for word in started["argv"] if word.startswith("--image=")).removeprefix("--image=")
    assert path.endswith("/image-1.png") and not Path(path).exists()


def test_a_resumed_session_takes_images_too(lab: Start, kind: str) -> None:
    here = lab("resume", kind=kind)
    first = here.turn("My name is Ada.")
    second = here.turn([image(GIF, "image/gif"), image(), text("Look.")], session=first["session_id"])
    assert second["text"] == "You first said: My name is Ada."
    assert len([part for part in sent(here) if part["type"] == "input_image"]) == 2


@pytest.mark.fault(69)
def test_a_skill_that_a_prompt_names_is_not_put_beside_it(lab: Start, kind: str) -> None:
    """Neither the user's own nor, worse, one of the repository."""
    prompt = "/status $mine `$theirs` ${mine} !touch x @canary.txt {{mine}} /prompts:hello $HOME"
    here = lab("resume", kind=kind)
    (here.cwd / "canary.txt").write_text(CANARY)
    skill(here.codex_home / "skills", "mine")
    skill(here.cwd / ".agents" / "skills", "theirs")
    turn = here.turn(prompt)
    assert words_of_skills(here) == [] and CANARY not in json.dumps([r.body for r in here.api.requests])
    if kind == "codex":
        assert turn["text"] == f"You first said: {prompt}"
        assert here.altered(turn) is None
    else:
        assert turn["text"].replace("\u200b", "") == f"You first said: {prompt}"
        assert here.altered(turn) == "zero-width space in each $name that could name a skill"
    assert "mine" not in str(here.events(turn["session_id"], "process_started"))


@pytest.mark.fault(69)
def test_a_skill_stays_out_of_each_turn_and_whatever_block_names_it(lab: Start) -> None:
    here = lab("resume")
    skill(here.cwd / ".agents" / "skills", "theirs")
    first = here.turn("My name is Ada.")
    here.turn([text("Look."), image(), text("Take $theirs")], session=first["session_id"])
    assert sent(here)[1:] == [said("Look."), SENT_IMAGE, said("Take $theirs")]
    assert words_of_skills(here) == []


@pytest.mark.fault(69)
def test_a_link_to_a_skill_is_text(lab: Start, kind: str) -> None:
    here = lab("resume", kind=kind)
    path = skill(here.cwd / ".agents" / "skills", "theirs")
    turn = here.turn(f"See [$other]({path})")
    assert words_of_skills(here) == []
    assert "zero-width space in each " in (here.altered(turn) or "")


def test_the_users_own_rules_for_skills_still_hold(lab: Start) -> None:
    here = lab("resume")
    skill(here.codex_home / "skills", "mine")
    (here.codex_home / "config.toml").write_text('[[skills.config]]\nname = "mine"\nenabled = false\n')
    here.turn("Take $nothing")
    assert "a skill called mine" not in json.dumps(here.api.main_requests[-1].body)
    assert words_of_skills(here) == []


def test_with_expand_codex_reads_the_skill(lab: Start, kind: str) -> None:
    here = lab("resume", kind=kind)
    skill(here.codex_home / "skills", "mine")
    turn = here.turn("Take $mine", expand=True)
    assert words_of_skills(here) == ["mine"] and here.altered(turn) is None


def test_more_names_than_rules_are_hidden_in_the_text(lab: Start) -> None:
    here = lab("resume")
    skill(here.codex_home / "skills", "mine")
    turn = here.turn("Take $mine" + "".join(f" $v{number}" for number in range(600)))
    assert words_of_skills(here) == []
    assert here.altered(turn) == "zero-width space in each $name that could name a skill"
