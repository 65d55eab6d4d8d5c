"""Images and hygiene with the real gemini."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.gemini.lab import GeminiLab
from tests.e2e.pictures import GIF, PNG_BASE64, image, text

pytestmark = pytest.mark.e2e
Start = Callable[..., GeminiLab]
CANARY = "the file's own words"
SENT_IMAGE = {"inlineData": {"data": PNG_BASE64, "mimeType": "image/png"}}


def sent(here: GeminiLab) -> list[dict[str, Any]]:
    """The parts of the last user message that the model was sent, but for the context that gemini describes."""
    messages = [entry for entry in here.api.main_requests[-1].body["contents"] if entry["role"] == "user"]
    return [part for part in messages[-1]["parts"] if "<session_context>" not in str(part.get("text"))]


def asked(here: GeminiLab) -> str:
    return json.dumps([request.body for request in here.api.requests], ensure_ascii=False)


def test_an_image_reaches_the_model_as_it_is_and_is_named_in_its_place(lab: Start) -> None:
    here = lab("text")
    turn = here.turn([text("What is"), image(), text("this?")])
    assert sent(here)[0]["text"] == "What is\n @image-1.png\nthis?"
    assert SENT_IMAGE in sent(here)
    (started,) = here.events(turn["session_id"], "turn_started")
    assert started["prompt_images"] == 1
    assert started["prompt_altered"] == "mention of its file in the place of each image"
    assert turn["outcome"] == "completed" and PNG_BASE64 not in json.dumps(here.events(turn["session_id"]))


@pytest.mark.fault(69)
def test_beside_an_image_nothing_is_a_command_or_names_a_file(lab: Start) -> None:
    here = lab("memory")
    (here.cwd / "canary.txt").write_text(CANARY)
    first = here.turn("My name is Ada.")
    here.turn([text("/help and @canary.txt"), image(), image(GIF, "image/gif")], session=first["session_id"])
    assert "/help and \\@canary.txt" in sent(here)[0]["text"] and CANARY not in asked(here)
    assert [part["inlineData"]["mimeType"] for part in sent(here) if "inlineData" in part] == ["image/png", "image/gif"]
    done = here.events(first["session_id"], "turn_started")[1]["prompt_altered"]
    assert done == (
        "newline before a leading slash and a backslash before each @ that could name a file "
        "and a mention of its file in the place of each image"
    )


def test_with_expand_a_mentioned_file_is_read(lab: Start) -> None:
    here = lab("text")
    (here.cwd / "canary.txt").write_text(CANARY)
    turn = here.turn("See @canary.txt", expand=True)
    assert CANARY in asked(here) and here.altered(turn) is None


def test_with_expand_a_command_of_the_user_is_run(lab: Start) -> None:
    here = lab("text")
    (here.home / ".gemini" / "commands").mkdir()
    (here.home / ".gemini" / "commands" / "greet.toml").write_text('prompt = "the words of the command"\n')
    here.turn("/greet")
    assert "the words of the command" not in asked(here)
    here.turn("/greet", expand=True)
    assert "the words of the command" in asked(here)


@pytest.mark.fault(69)
def test_shell_marks_and_templates_reach_the_model_as_they_are(lab: Start) -> None:
    prompt = "!touch made.txt !{touch made.txt}\n# note: $HOME ${HOME} {{args}}"
    here = lab("text")
    turn = here.turn(prompt)
    assert prompt in [part.get("text") for part in sent(here)]
    assert here.altered(turn) is None and not (here.cwd / "made.txt").exists()


def test_the_transcript_tells_of_a_prompt_with_an_image(lab: Start) -> None:
    """The evidence for a turn whose end nobody saw, read from the file that gemini has written."""
    from clisup.backends.gemini.adapter import GeminiAdapter

    here = lab("text")
    here.turn([text("What is"), image(), text("this @thing?")])
    (path,) = (here.home / ".gemini" / "tmp").glob("*/chats/session-*.jsonl")
    says = GeminiAdapter().transcript_says
    assert says(path.read_bytes(), "What is\nthis @thing?") == "answered"
    assert says(path.read_bytes(), "What was this?") == "prompt_not_found"
