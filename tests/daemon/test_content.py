"""Images in prompts, through a real daemon: what is refused at once, what is kept, and what comes to the CLI."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import Harness, until

from clisup.errors import ClisupError

AGENT = Path(__file__).with_name("dialogue_agent.py")
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
Start = Callable[..., Harness]


def image(data: bytes = PNG, media_type: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "media_type": media_type, "data": base64.b64encode(data).decode()}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


@pytest.fixture
def agent(serve: Start, tmp_path: Path) -> Start:
    """A daemon with an ACP agent that takes images as its backend `agent`, and one that does not as `blind`."""

    def start(**options: Any) -> Harness:
        command = [sys.executable, str(AGENT), str(tmp_path / "told")]
        tables = (
            f'[backends.{name}]\nkind = "acp"\ncommand = {json.dumps([*command, *more])}\n'
            for name, more in (("agent", ["images"]), ("blind", []))
        )
        return serve(**options, raw="".join(tables))

    return start


def heard(tmp_path: Path) -> list[list[dict[str, Any]]]:
    """The prompts that came to the agent, as it got them."""
    path = tmp_path / "told"
    lines = path.read_text().splitlines() if path.exists() else []
    frames = [json.loads(line) for line in lines if line != "the end"]
    return [frame["params"]["prompt"] for frame in frames if frame.get("method") == "session/prompt"]


def acp(block: dict[str, Any]) -> dict[str, Any]:
    """A block as the protocol of the agent has it."""
    return {"type": "image", "mimeType": block["media_type"], "data": block["data"]} if "data" in block else block


def test_blocks_come_to_the_cli_in_their_order_and_no_event_has_the_data(agent: Start, tmp_path: Path) -> None:
    session = agent().new(backend="agent")
    blocks = [image(), text("say hello"), image(b"GIF89a...", "image/gif"), text("and more")]
    done = session.ask(blocks)
    assert (done["outcome"], done["text"]) == ("completed", "hello")
    assert heard(tmp_path) == [[acp(block) for block in blocks]]
    (started,) = session.events("turn_started")
    assert (started["prompt_images"], started["prompt_preview"]) == (2, "say hello\nand more")
    assert started["prompt_bytes"] == len("say hello\nand more")
    assert image()["data"] not in json.dumps(session.events())
    until(lambda: not list((session.dir / "prompts").iterdir()))


def test_a_prompt_of_text_alone_counts_no_images(agent: Start, tmp_path: Path) -> None:
    session = agent().new(backend="agent")
    session.ask([text("say one"), text("say two")])
    assert "prompt_images" not in session.events("turn_started")[0]
    assert heard(tmp_path) == [[text("say one\nsay two")]]


def test_a_queued_image_outlives_kill_9(agent: Start, tmp_path: Path) -> None:
    daemon = agent()
    session = daemon.new(backend="agent")
    gate = tmp_path / "gate"
    session.prompt(f"wait {gate}")
    until(lambda: heard(tmp_path), "the first prompt came")
    turn = session.prompt([image(), text("say seen")], key="k")
    daemon.restart()
    gate.touch()
    assert session.end_of(turn)["text"] == "seen"
    assert heard(tmp_path)[1:] == [[acp(image()), text("say seen")]]
    assert session.call("prompt", prompt=[image(), text("say seen")], key="k")["delivery"] == "duplicate"


@pytest.mark.parametrize("point", ["spawn.after", "handover.after", "keeper.stdin.before", "keeper.stdin.after"])
def test_kill_9_while_an_image_is_on_its_way_sends_it_once(agent: Start, tmp_path: Path, point: str) -> None:
    daemon = agent()
    session = daemon.new(backend="agent")
    daemon.kill()
    daemon.env["CLISUP_FAILPOINTS"] = f"{point}=kill"
    daemon.start()
    with daemon.wire() as wire:
        wire.post("session/prompt", session_id=session.id, prompt=[image(), text("say seen")], key="k")
        assert daemon.process is not None
        daemon.process.wait(30)
    del daemon.env["CLISUP_FAILPOINTS"]
    daemon.start()
    done = session.ask([image(), text("say seen")], key="k")
    assert (done["outcome"], done["text"]) == ("completed", "seen")
    assert heard(tmp_path) == [[acp(image()), text("say seen")]]


@pytest.mark.parametrize(
    ("blocks", "why"),
    [
        ([text("x"), image() | {"data": "%%%"}], "data is no base64"),
        ([text("x"), image(b"")], "data is empty"),
        ([text("x"), image(media_type="image/jpeg")], "media_type is image/jpeg, but data is image/png"),
        ([text("x"), image(b"%PDF")], "data is no image"),
        ([text("x"), image() | {"media_type": "image/tiff"}], "Input should be 'image/png'"),
        ([image()], "prompt is empty"),
        ([image(), text(" \n")], "prompt is empty"),
        ([], "prompt is empty"),
    ],
)
def test_a_bad_image_is_refused_by_its_place_and_nothing_is_accepted(
    agent: Start, blocks: list[dict[str, Any]], why: str
) -> None:
    session = agent().new(backend="agent")
    with pytest.raises(ClisupError, match=why) as refused:
        session.ask(blocks)
    assert refused.value.kind == "invalid_params"
    if len(blocks) == 2 and blocks[0] == text("x"):
        assert refused.value.data["param"].startswith("prompt.blocks.1.image")
    assert not session.events("prompt_accepted") and not list((session.dir / "prompts").iterdir())


def test_the_limits_are_named_told_and_settable(agent: Start) -> None:
    daemon = agent(daemon={"max_images": 2, "max_image_bytes": 300})
    session = daemon.new(backend="agent")
    limits = daemon.call("initialize")["limits"]
    assert (limits["max_images"], limits["max_image_bytes"]) == (2, 300)
    for blocks, limit, value in (
        ([image(), text("say x"), image(PNG + b"\0" * 37)], "max_image_bytes", 300),
        ([image(), image(), image(), text("say x")], "max_images", 2),
    ):
        with pytest.raises(ClisupError, match=f"daemon.{limit} is {value}") as refused:
            session.ask(blocks)
        assert refused.value.kind == "invalid_params"
        assert (refused.value.data["limit"], refused.value.data["value"]) == (limit, value)
    assert session.ask([image(PNG + b"\0" * 36), image(), text("say fits")])["text"] == "fits"
    assert len(session.events("prompt_accepted")) == 1


def test_an_image_of_8_mib_comes_whole(agent: Start, tmp_path: Path) -> None:
    session = agent().new(backend="agent")
    big = image(PNG.ljust(8 * 1024 * 1024, b"x"))
    assert session.ask([big, text("say big")])["text"] == "big"
    assert heard(tmp_path) == [[acp(big), text("say big")]]


@pytest.mark.parametrize("mode", ["one-shot", "live"])
def test_the_demo_sees_images_in_both_modes_and_text_still_goes_as_text(serve: Start, mode: str) -> None:
    session = serve(demo={"mode": mode}).new()
    assert session.ask([image(), text("@images"), image()])["text"] == "images: 2"
    assert session.ask("@images")["text"] == "images: 0"
    assert session.ask([text("@images"), image()])["text"] == "images: 1"
    assert [event.get("prompt_images") for event in session.events("turn_started")] == [2, None, 1]
    assert not session.events("unparsed")


def test_a_backend_without_images_refuses_them_before_the_prompt_is_accepted(serve: Start, tmp_path: Path) -> None:
    cli = tmp_path / "qwen"
    cli.write_text("#!/bin/sh\necho 0.24.4\n")
    cli.chmod(0o755)
    daemon = serve(raw=f'[backends.blind]\nkind = "qwen"\ncommand = ["{cli}"]\n')
    session = daemon.new(backend="blind")
    with pytest.raises(ClisupError, match="takes no images in its prompts") as refused:
        session.ask([image(), text("hello")])
    assert refused.value.kind == "unsupported"
    assert not session.events("prompt_accepted")


def test_an_agent_that_takes_no_images_fails_the_turn(agent: Start, tmp_path: Path) -> None:
    session = agent().new(backend="blind")
    error = session.ask([image(), text("say x")])["error"]
    assert error["kind"] == "invalid_request" and "takes none in its prompts" in error["message"]
    assert heard(tmp_path) == []
    assert session.ask("say fine")["text"] == "fine"
