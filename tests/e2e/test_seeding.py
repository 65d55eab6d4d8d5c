"""`history` of session/new with the real claude: what its API gets, what it reads again by itself, and what stays as it was."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.lab import QUIET, ClaudeLab, claude_binary

pytestmark = pytest.mark.e2e
PNG = base64.b64encode(
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89"
    b"\x00\x00\x00\rIDATx\x9ccd`\xf8_\x0f\x00\x02\x87\x01\x80\xeb\xc7\xba\x92\x00\x00\x00\x00IEND\xaeB`\x82"
).decode()
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "  My name is Ada. /cost \u2028 \U0001f600\n"},
    {"role": "assistant", "content": [
        {"type": "thinking", "text": "nobody has signed this"},
        {"type": "text", "text": "I look, Ada."},
        {"type": "tool_use", "id": "toolu_1", "name": "Grep", "input": {"pattern": "port", "deep": {"a": [1, None]}}},
        {"type": "tool_use", "id": "toolu_2", "name": "mcp__clisup__add", "input": {}},
    ]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "port = 80"},
        {"type": "tool_result", "tool_use_id": "toolu_2", "content": [{"type": "text", "text": "no such"}], "is_error": True},
    ]},
    {"role": "assistant", "content": [{"type": "text", "text": "At 80."}]},
    {"role": "user", "content": [{"type": "image", "media_type": "image/png", "data": PNG}, {"type": "text", "text": "And this?"}]},
    {"role": "assistant", "content": "A point."},
]  # fmt: skip
AS_SENT: list[dict[str, Any]] = [
    {"role": "user", "content": "  My name is Ada. /cost \u2028 \U0001f600\n"},
    {"role": "assistant", "content": [
        {"type": "text", "text": "I look, Ada."},
        {"type": "tool_use", "id": "toolu_1", "name": "Grep", "input": {"pattern": "port", "deep": {"a": [1, None]}}},
        {"type": "tool_use", "id": "toolu_2", "name": "mcp__clisup__add", "input": {}},
    ]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "port = 80"},
        {"type": "tool_result", "tool_use_id": "toolu_2", "content": [{"type": "text", "text": "no such"}], "is_error": True},
    ]},
    {"role": "assistant", "content": [{"type": "text", "text": "At 80."}]},
    {"role": "user", "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "text", "text": "And this?"},
    ]},
    {"role": "assistant", "content": [{"type": "text", "text": "A point."}]},
]  # fmt: skip


def transcript(here: ClaudeLab, session: str) -> Path:
    (path,) = (here.home / ".claude" / "projects").glob(f"*/{session}.jsonl")
    return path


def identity(path: Path) -> tuple[bytes, int, int, int]:
    found = path.stat()
    return path.read_bytes(), found.st_mtime_ns, found.st_ino, found.st_mode


def sent(here: ClaudeLab) -> list[dict[str, Any]]:
    """The conversation of the last request: without what the CLI says of the machine, and without cache markers.

    Its own words are messages of role `system`, and reminders in front of the prompt that a session begins with here.
    """
    found: list[dict[str, Any]] = []
    for message in json.loads(json.dumps(here.api.main_requests[-1].body["messages"])):
        if message["role"] == "system":
            continue
        if isinstance(message["content"], list):
            for block in message["content"]:
                block.pop("cache_control", None)
            message["content"] = [
                b for b in message["content"] if not b.get("text", "").startswith("<system-reminder>")
            ]
        found.append({"role": message["role"], "content": message["content"]})
    return found


def vanilla(here: ClaudeLab, session: str, prompt: str) -> str:
    """What `claude -p --resume` says, started by hand."""
    here.asked_by_others = True
    env = {"PATH": os.environ["PATH"], "HOME": str(here.home), **here.variables, **QUIET}
    argv = [str(claude_binary()), "-p", "--resume", session, prompt]
    done = subprocess.run(
        argv, env=env, cwd=here.cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    return done.stdout


def prompted(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


@pytest.mark.parametrize("mode", ["one-shot", "live"])
def test_the_api_gets_exactly_these_messages_and_the_new_prompt(lab: Callable[..., ClaudeLab], mode: str) -> None:
    here = lab("text")
    session = here.open(history=HISTORY, mode=mode)
    assert here.turn("What now?", session=session)["outcome"] == "completed"
    assert sent(here) == [*AS_SENT, prompted("What now?")]
    assert here.events(session, "session_init")[0]["native_session_id"] == session
    answer = here.turn("And then?", session=session)
    assert sent(here)[:-2] == [*AS_SENT, prompted("What now?")] and sent(here)[-1] == prompted("And then?")
    assert answer["outcome"] == "completed" and not here.events(session, "unparsed")


def test_a_vanilla_claude_reads_it_before_any_turn_and_after_one(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("memory")
    session = here.open(history=HISTORY)
    assert "My name is Ada." in vanilla(here, session, "What did I say?")
    assert sent(here) == [*AS_SENT, prompted("What did I say?")]
    here.turn("And now?", session=session)
    assert sent(here)[: len(AS_SENT) + 1] == [*AS_SENT, prompted("What did I say?")]
    assert "My name is Ada." in vanilla(here, session, "Once more?")


def test_an_edited_conversation_leaves_the_old_transcript_byte_for_byte(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("memory")
    old = here.turn("My name is Ada.")["session_id"]
    here.turn("I live in Turin.", session=old)
    before = identity(transcript(here, old))
    edited = [
        {"role": "user", "content": "My name is Ada."},
        {"role": "assistant", "content": "Noted; the rest was dropped."},
    ]
    new = here.open(history=edited)
    here.turn("Who am I?", session=new)
    texts = json.dumps(sent(here))
    assert "the rest was dropped" in texts and "Turin" not in texts
    assert identity(transcript(here, old)) == before
    assert transcript(here, new).parent == transcript(here, old).parent
    here.turn("Still there?", session=old)
    assert "Turin" in json.dumps(sent(here)) and "the rest was dropped" not in json.dumps(sent(here))


def test_the_system_prompt_and_the_model_of_the_session_count(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("text")
    session = here.open(history=HISTORY, system_prompt="BEWARE OF DOGS", model="claude-sonnet-4-5")
    here.turn("What now?", session=session)
    body = here.api.main_requests[-1].body
    assert "BEWARE OF DOGS" in json.dumps(body["system"]) and body["model"] == "claude-sonnet-4-5"


def test_thinking_with_its_signature_goes_to_the_model_that_the_session_names(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("text")
    history = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": [
            {"type": "thinking", "text": "hm", "signature": "proof"}, {"type": "text", "text": "Gone."},
        ]},
    ]  # fmt: skip
    here.turn("On.", history=history, model="claude-opus-5-5")
    assert sent(here)[1]["content"][0] == {"type": "thinking", "thinking": "hm", "signature": "proof"}
    here.turn("On.", history=history)  # nobody says that it was this model's
    assert sent(here)[1]["content"] == [{"type": "text", "text": "Gone."}]


def test_a_directory_with_a_long_and_odd_name_has_its_own_folder_of_the_clis(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("memory")
    deep = here.cwd / ("ü" * 60) / ("x" * 100) / ("y\U0001f600" * 20) / "z.a b"
    deep.mkdir(parents=True)
    with here.client() as client:
        seeded = client.call("session/new", backend="claude", cwd=str(deep), history=HISTORY)["session_id"]
        plain = client.call("session/new", backend="claude", cwd=str(deep))["session_id"]
    here.turn("One.", session=plain)
    here.turn("Two.", session=seeded)
    assert transcript(here, seeded).parent == transcript(here, plain).parent
    assert sent(here) == [*AS_SENT, prompted("Two.")]


def test_it_is_forked_at_its_turns_as_any_other(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("memory")
    session = here.open(history=HISTORY)
    here.turn("First of ours.", session=session)
    here.turn("Second of ours.", session=session)
    with here.client() as client:
        forked = client.call("session/fork", session_id=session, at_turn="t1")["session_id"]
    here.turn("In the fork.", session=forked)
    texts = json.dumps(sent(here))
    assert "My name is Ada." in texts and "First of ours." in texts and "Second of ours." not in texts


@pytest.mark.parametrize("mode", ["one-shot", "live"])
def test_it_is_compacted_as_any_other(lab: Callable[..., ClaudeLab], mode: str) -> None:
    here = lab("compact")
    session = here.open(history=HISTORY, mode=mode)
    with here.client() as client:
        done = client.call("session/compact", session_id=session, wait=True)
    assert done["outcome"] == "completed"
    here.turn("After it.", session=session)
    texts = json.dumps(sent(here))
    assert "being continued" in texts and "My name is Ada." not in texts and "After it." in texts


def test_three_hundred_exchanges_come_whole(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("text")
    history = [
        message
        for n in range(300)
        for message in (
            {"role": "user", "content": f"question {n}"},
            {"role": "assistant", "content": [{"type": "text", "text": f"answer {n}"}]},
        )
    ]
    here.turn("The last.", history=history)
    assert sent(here) == [*history, prompted("The last.")]
