"""Prompts with images, as each adapter hands them to its CLI: whole, in order where the CLI has one, never in argv."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from clisup.backends.acp.adapter import AcpAdapter
from clisup.backends.base import Adapter, Carried, Decoder, LaunchRequest
from clisup.backends.claude.adapter import ClaudeAdapter
from clisup.backends.codex.adapter import CodexAdapter
from clisup.backends.codex.exec import CodexExecAdapter
from clisup.backends.codex.protocol import open_thread, start_turn
from clisup.backends.gemini.adapter import GeminiAdapter
from clisup.backends.registry import BUILT_IN, get_adapter
from clisup.errors import UsageError
from clisup.model.lines.framing import Line
from clisup.model.prompts.content import Content, Image, text_of

PNG = b"\x89PNG\r\n\x1a\n"
IMAGE = Image("image/png", base64.b64encode(PNG).decode())
OTHER = Image("image/gif", base64.b64encode(b"GIF89a").decode())
SESSION = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
BARE = LaunchRequest(("/bin/x",), "-", SESSION, resume=False, cwd="/work", scratch="/run/my scratch", model="m")


def request(*content: str | Image, **changes: Any) -> LaunchRequest:
    return replace(BARE, prompt=text_of(content), content=content, **changes)


def heard(decoder: Decoder, *answers: dict[str, Any]) -> dict[str, Any]:
    """The last thing said after the CLI's answers, each a line."""
    said: Any = None
    for number, answer in enumerate(answers):
        data = json.dumps(answer).encode()
        said = decoder.decode(Line(number * 1000, number * 1000 + len(data), data)).replies[-1]
    return dict(json.loads(said))


@pytest.mark.fault(40)
@pytest.mark.parametrize("adapter", [get_adapter(kind) for kind in BUILT_IN if get_adapter(kind).capabilities.images])
def test_no_word_and_no_byte_of_a_prompt_stands_in_argv(adapter: Adapter) -> None:
    spec = adapter.launch(request("secret words", IMAGE, "$secret @secret /secret"))
    assert "secret" not in " ".join(spec.argv) and IMAGE.data not in " ".join(spec.argv)


def test_claude_gets_one_line_of_stream_json_and_then_the_end() -> None:
    spec = ClaudeAdapter().launch(request("What is", IMAGE, "/this"))
    at = spec.argv.index("--input-format")
    assert spec.argv[at + 1] == "stream-json" and spec.stdin_eof
    content = json.loads(spec.stdin)["message"]["content"]
    assert [block.get("text") or block["source"]["data"] for block in content] == ["What is", IMAGE.data, "\n/this"]
    assert spec.prompt_altered == "newline before a leading slash"
    assert "--input-format" not in ClaudeAdapter().launch(replace(BARE, prompt="text")).argv


def test_codex_gets_items_in_order_by_the_dialogue() -> None:
    asked = request("See", IMAGE, "and $mine")
    assert CodexAdapter().launch(asked).prompt_altered is None
    items = json.loads(start_turn("t", asked))["params"]["input"]
    assert [item.get("text") or item["url"] for item in items] == [
        "See",
        f"data:image/png;base64,{IMAGE.data}",
        "and $mine",
    ]
    config = json.loads(open_thread(asked))["params"]["config"]
    assert config["skills"] == {"config": [{"name": "mine", "enabled": False}]}
    assert "skills" not in json.loads(open_thread(replace(asked, expand=True)))["params"]["config"]
    assert "skills" not in json.loads(open_thread(request("no mention")))["params"]["config"]


def test_codex_tells_what_it_hides_of_a_prompt() -> None:
    linked = replace(BARE, prompt="See [$x](/s/SKILL.md)")
    assert "\u200b" in start_turn("t", linked) or "\\u200b" in start_turn("t", linked)
    assert CodexAdapter().launch(linked).prompt_altered
    assert CodexAdapter().launch(replace(linked, expand=True)).prompt_altered is None


@pytest.mark.parametrize(
    ("content", "altered"),
    [
        ((IMAGE, OTHER, "What?"), None),
        (("What", IMAGE, OTHER), "images put before the text"),
        (
            ("What", IMAGE, "is $x", OTHER),
            "zero-width space in each $name that could name a skill, images put before the text",
        ),
    ],
)
def test_codex_exec_gets_images_as_files_of_the_run(content: Content, altered: str | None) -> None:
    spec = CodexExecAdapter().launch(request(*content))
    assert spec.files == {"image-1.png": PNG, "image-2.gif": b"GIF89a"}
    given = [word for word in spec.argv if word.startswith("--image")]
    assert given == ["--image=/run/my scratch/image-1.png", "--image=/run/my scratch/image-2.gif"]
    assert spec.argv[-1] == "-" and spec.prompt_altered == altered
    assert spec.stdin == text_of(content).replace("$x", "$\u200bx")


def test_gemini_gets_images_by_their_files_from_a_directory_of_the_run() -> None:
    spec = GeminiAdapter().launch(request("/what @a is", IMAGE, OTHER))
    assert spec.files == {"image-1.png": PNG, "image-2.gif": b"GIF89a"}
    assert "--include-directories=/run/my scratch" in spec.argv
    assert spec.stdin == "\n/what \\@a is\n@/run/my\\ scratch/image-1.png\n@/run/my\\ scratch/image-2.gif"
    expanded = GeminiAdapter().launch(request("/what @a", IMAGE, expand=True))
    assert expanded.stdin == "/what @a\n@/run/my\\ scratch/image-1.png"
    assert expanded.prompt_altered == "mention of its file in the place of each image"
    assert not any("include" in word for word in GeminiAdapter().launch(replace(BARE, prompt="text")).argv)


def test_gemini_cannot_be_shown_a_directory_with_a_comma() -> None:
    with pytest.raises(UsageError, match="comma") as refused:
        GeminiAdapter().launch(request("What?", IMAGE, scratch="/run/a,b"))
    assert refused.value.kind == "unsupported"


def test_an_acp_agent_gets_blocks_in_order_where_it_takes_images() -> None:
    asked = request(IMAGE, " /help", "and /this", "/that", model=None)
    adapter = AcpAdapter()
    can = {"protocolVersion": 1, "agentCapabilities": {"promptCapabilities": {"image": True}}}
    opened = {"sessionId": "s"}
    said = heard(adapter.decoder(Carried(), asked), {"id": 0, "result": can}, {"id": 1, "result": opened})
    assert said["params"]["prompt"] == [
        {"type": "image", "mimeType": "image/png", "data": IMAGE.data},
        {"type": "text", "text": "\u200b /help"},
        {"type": "text", "text": "and /this"},
        {"type": "text", "text": "\u200b/that"},
    ]
    assert adapter.launch(asked).prompt_altered == "zero-width space before a leading command character"


@pytest.mark.parametrize("told", [{}, {"promptCapabilities": {}}, {"promptCapabilities": {"image": "yes"}}])
def test_an_acp_agent_that_does_not_say_so_gets_none(told: dict[str, Any]) -> None:
    decoder = AcpAdapter().decoder(Carried(), request("What?", IMAGE))
    data = json.dumps({"id": 0, "result": {"protocolVersion": 1, "agentCapabilities": told}}).encode()
    decoded = decoder.decode(Line(0, len(data), data))
    assert decoded.terminal is not None and decoded.terminal.error is not None
    assert decoded.terminal.error.kind == "invalid_request"


def entry(**fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def test_claudes_transcript_tells_of_a_prompt_with_images_that_was_altered() -> None:
    line = ClaudeAdapter().launch(request("a", IMAGE, "/b @agent-x")).stdin
    appended = entry(type="user", message=json.loads(line)["message"]) + entry(type="assistant", message={})
    assert ClaudeAdapter().transcript_says(appended, "a\n/b @agent-x") == "answered"
    assert ClaudeAdapter().transcript_says(appended, "a\n/b") == "prompt_not_found"


def test_codexs_transcript_tells_of_a_prompt_whose_images_came_as_files() -> None:
    texts = ['<image name=[Image #1] path="/run/image-1.png">', "</image>", "Take $\u200bx"]
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text} for text in texts]}
    appended = entry(type="response_item", payload=message)
    assert CodexExecAdapter().transcript_says(appended, "Take $x") == "prompt_found"
    assert CodexExecAdapter().transcript_says(appended, "Take x") == "prompt_not_found"
