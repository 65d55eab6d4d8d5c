"""Images and hygiene with the real claude: what of a prompt reaches the model, and what the CLI makes of it itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.lab import ClaudeLab
from tests.e2e.pictures import GIF, PNG_BASE64, image, text

pytestmark = pytest.mark.e2e
Start = Callable[..., ClaudeLab]
CANARY = "the file's own words"
SENT_IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG_BASE64}}


def sent(here: ClaudeLab) -> list[dict[str, Any]]:
    """The blocks of the last user message that the model was sent, without the CLI's reminders.

    Behind the prompt the CLI tells the model where it keeps a copy of each image, after a newline of its own.
    """
    messages = [m for m in here.api.main_requests[-1].body["messages"] if m["role"] == "user"]
    content = messages[-1]["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [
        {key: value.rstrip("\n") if key == "text" else value for key, value in block.items() if key != "cache_control"}
        for block in blocks
        if not str(block.get("text")).startswith(("<system-reminder>", "[Image: source: "))
    ]


def asked(here: ClaudeLab) -> str:
    """All that the API was ever sent."""
    return json.dumps([request.body for request in here.api.requests], ensure_ascii=False)


def canary(directory: Path) -> None:
    (directory / "canary.txt").write_text(CANARY)


def test_an_image_reaches_the_model_as_it_is_and_in_its_place(lab: Start) -> None:
    here = lab("text")
    turn = here.turn([text("What is"), image(), text("this?")])
    assert turn["outcome"] == "completed" and turn["text"].startswith("Hello, ")
    assert sent(here) == [{"type": "text", "text": "What is"}, SENT_IMAGE, {"type": "text", "text": "this?"}]
    (started,) = here.events(turn["session_id"], "turn_started")
    assert (started["prompt_preview"], started["prompt_bytes"], started["prompt_images"]) == ("What is\nthis?", 13, 1)
    assert "prompt_altered" not in started
    assert PNG_BASE64 not in json.dumps(here.events(turn["session_id"]))
    assert not here.events(turn["session_id"], "unparsed")
    (init,) = here.events(turn["session_id"], "session_init")
    assert init["native_session_id"] == turn["session_id"]
    (exited,) = here.events(turn["session_id"], "process_exited")
    assert (exited["exit_code"], exited["ended_by"]) == (0, "cli")


def test_turns_with_and_without_images_are_one_conversation(lab: Start) -> None:
    here = lab("memory")
    first = here.turn("My name is Ada.")
    here.turn([image(GIF, "image/gif"), text("Look.")], session=first["session_id"])
    last = here.turn("What did I say?", session=first["session_id"])
    assert "My name is Ada." in last["text"]
    everything = json.dumps(here.api.main_requests[-1].body["messages"])
    assert "My name is Ada." in everything and "image/gif" in everything
    assert not here.events(first["session_id"], "notice")


@pytest.mark.fault(69)
@pytest.mark.parametrize(
    "blocks",
    [
        [text("/clear"), image()],
        [image(), text("/clear")],
        [image(), text("/cost"), text("/clear")],
        [text("/clear"), text("and @canary.txt"), image(), text("/cost and @canary.txt")],
    ],
)
def test_no_block_beside_an_image_is_a_command_or_names_a_file(lab: Start, blocks: list[dict[str, Any]]) -> None:
    here = lab("text")
    canary(here.cwd)
    turn = here.turn(blocks)
    said = [block["text"].removeprefix("\n") for block in sent(here) if block["type"] == "text"]
    assert said == [block["text"] for block in blocks if block["type"] == "text"]
    assert CANARY not in asked(here)
    assert here.altered(turn) == "newline before a leading slash"
    assert turn["text"].startswith("Hello, ")


def test_with_expand_a_command_behind_an_image_is_run_and_asks_no_model(lab: Start) -> None:
    here = lab("text")
    turn = here.turn([image(), text("/cost")], expand=True)
    assert here.api.main_requests == [] and here.altered(turn) is None
    assert "cost" in turn["text"].lower()


def test_with_expand_a_mentioned_file_is_read(lab: Start) -> None:
    for prompt in ("See @canary.txt", [image(), text("See @canary.txt")]):
        here = lab("text")
        canary(here.cwd)
        here.turn(prompt, expand=True)
        assert CANARY in asked(here), prompt


@pytest.mark.fault(69)
@pytest.mark.parametrize("prompt", ["Ask @agent-Explore now", 'Ask @"Explore (agent)" now'])
def test_a_mentioned_agent_is_text(lab: Start, prompt: str) -> None:
    here = lab("text")
    turn = here.turn(prompt)
    assert "desire to invoke the agent" not in asked(here)
    assert sent(here)[0]["text"] == prompt.replace("@", "@\u200b")
    assert here.altered(turn) == "zero-width space in each mention of an agent"
    here.turn(prompt, expand=True)
    assert "desire to invoke the agent" in asked(here)


@pytest.mark.fault(69)
def test_shell_marks_and_templates_reach_the_model_as_they_are(lab: Start) -> None:
    prompt = "!touch made.txt\n# note: $HOME ${HOME} {{args}} `touch made.txt`"
    for said in (prompt, [image(), text(prompt)]):
        here = lab("text")
        turn = here.turn(said)
        assert prompt in [block.get("text") for block in sent(here)]
        assert here.altered(turn) is None
        assert not (here.cwd / "made.txt").exists()


@pytest.mark.fault(69)
def test_a_live_process_takes_images_and_every_prompt_as_text(lab: Start) -> None:
    here = lab("text", config='mode = "live"')
    canary(here.cwd)
    first = here.turn([text("What is"), image(), text("this?")])
    assert sent(here) == [{"type": "text", "text": "What is"}, SENT_IMAGE, {"type": "text", "text": "this?"}]
    session = first["session_id"]
    for prompt in ("/clear", "/cost @canary.txt", [image(), text("/clear and @canary.txt")], "Ask @agent-Explore"):
        said = here.turn(prompt, session=session)
        words = prompt if isinstance(prompt, str) else prompt[-1]["text"]
        assert sent(here)[-1]["text"].removeprefix("\n").replace("\u200b", "") == words
        assert said["text"].startswith("Hello, ")
    assert CANARY not in asked(here) and "desire to invoke the agent" not in asked(here)
    altered = [event.get("prompt_altered") for event in here.events(session, "turn_started")]
    assert altered == [None, *["newline before a leading slash"] * 3, "zero-width space in each mention of an agent"]
    assert len(here.events(session, "process_started")) == 1
    here.turn("See @canary.txt", session=session, expand=True)
    assert CANARY in asked(here) and len(here.events(session, "process_started")) == 2
    here.turn("See @canary.txt again", session=session)
    assert len(here.events(session, "process_started")) == 3 and not here.events(session, "unparsed")
