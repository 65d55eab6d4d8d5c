"""What is said to claude: text that it takes for nothing else, and lines of stream-json. Measured with 2.1.329."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clisup.backends.claude.adapter import as_text, user_message
from clisup.model.prompts.content import Content, Image

IMAGE = Image("image/png", "iVBORw0KGgo=")
SENT_IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}


def message(content: str | Content, **options: Any) -> tuple[dict[str, Any], str | None]:
    line, altered = user_message(content, **options)
    assert line.endswith("\n") and line.count("\n") == 1 and line.isascii()
    return json.loads(line), altered


def test_a_text_is_one_line_whatever_is_in_it() -> None:
    said, altered = message("two\nlines\u2028 and \U0001f600")
    assert said == {"type": "user", "message": {"role": "user", "content": "two\nlines\u2028 and \U0001f600"}}
    assert altered is None


def test_a_uuid_names_the_message() -> None:
    assert message("hi", uuid="u-1")[0]["uuid"] == "u-1"
    assert "uuid" not in message("hi")[0]


def test_blocks_keep_their_order() -> None:
    said, altered = message(("What is", IMAGE, "this?"))
    blocks = [{"type": "text", "text": "What is"}, SENT_IMAGE, {"type": "text", "text": "this?"}]
    assert said["message"]["content"] == blocks and altered is None


@pytest.mark.fault(69)
def test_each_text_that_begins_with_a_slash_gets_its_newline() -> None:
    said, altered = message(("/clear", IMAGE, "a /b", "/cost"))
    texts = [block["text"] for block in said["message"]["content"] if block["type"] == "text"]
    assert texts == ["\n/clear", "a /b", "\n/cost"]
    assert altered == "newline before a leading slash"
    assert message("/clear")[0]["message"]["content"] == "\n/clear"


@pytest.mark.fault(69)
@pytest.mark.parametrize(
    ("prompt", "sent"),
    [
        ("@agent-Explore go", "@\u200bagent-Explore go"),
        ('ask @"my agent (agent)" and', None),
        ('ask @"agent (agent)" and', 'ask @\u200b"agent (agent)" and'),
        ("a\n@agent-x, @agent-y", "a\n@\u200bagent-x, @\u200bagent-y"),
        ("me@agent-smith.com", None),
        ("@path/of/a/file @server:uri", None),
    ],
)
def test_a_mention_of_an_agent_is_hidden_and_nothing_else(prompt: str, sent: str | None) -> None:
    done = "zero-width space in each mention of an agent"
    assert as_text(prompt) == ((sent, done) if sent else (prompt, None))


def test_both_are_said() -> None:
    done = "newline before a leading slash and a zero-width space in each mention of an agent"
    assert as_text("/go @agent-x") == ("\n/go @\u200bagent-x", done)


def test_with_expand_all_of_it_is_left_to_claude() -> None:
    assert as_text("/go @agent-x", expand=True) == ("/go @agent-x", None)
    said, altered = message(("/go", IMAGE, "@agent-x"), expand=True)
    assert [block.get("text") for block in said["message"]["content"]] == ["/go", None, "@agent-x"]
    assert altered is None
