"""kill -9 of the daemon and of the door in every phase of a turn: nothing is lost, nothing comes twice, `end_turn` arrives."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from editor import Editor, door
from harness import Harness

Serve = Callable[..., Harness]

CHUNKS = 30


def script(phase: str, go: Path) -> str:
    """Return a prompt that stops in this phase until the file `go` exists, then streams the rest."""
    held = {
        "sent": f"@stream {CHUNKS}",
        "streaming": f"@stream {CHUNKS // 2}\n@wait-file {go}\n@stream {CHUNKS // 2}",
        "approval": f'@stream {CHUNKS}\n@run Bash {{"command": "echo allowed >> ran"}}\nDone asking.',
        "tool": f"@stream {CHUNKS}\n@bash while [ ! -e {go} ]; do sleep 0.05; done; echo ran >> ran\nDone running.",
    }
    return held[phase]


PHASES = ("sent", "streaming", "approval", "tool")


def reached(phase: str, editor: Editor) -> bool:
    """Tell whether the turn has come to its phase, as the editor sees it."""
    chunks = editor.text().count("chunk ")
    return {
        "sent": True,
        "streaming": chunks >= CHUNKS // 2,
        "approval": bool(editor.asked),
        "tool": bool(editor.of("tool_call")),
    }[phase]


def numbers(editor: Editor) -> list[int]:
    return [int(n) for n in re.findall(r"chunk (\d+)", editor.text())]


def expected(phase: str) -> list[int]:
    return [*range(CHUNKS // 2)] * 2 if phase == "streaming" else [*range(CHUNKS)]


@pytest.mark.parametrize("phase", PHASES)
def test_the_daemon_is_killed(serve: Serve, tmp_path: Path, phase: str) -> None:
    daemon = serve()
    go = tmp_path / "go"
    answered = asyncio.Event()

    async def late(_call: object, _options: object) -> str | None:
        await answered.wait()
        return "allow"

    async def main() -> None:
        editor = Editor(late)
        async with door(daemon, editor) as opened:
            id_ = await opened.new(daemon.cwd)
            prompt = asyncio.create_task(opened.prompt(id_, script(phase, go)))
            await editor.until(lambda: reached(phase, editor))
            await asyncio.to_thread(daemon.restart)
            go.touch()
            answered.set()
            assert (await prompt).stop_reason == "end_turn"
            assert numbers(editor) == expected(phase)
            assert len(editor.asked) == (phase == "approval")
            if phase in ("approval", "tool"):
                assert (daemon.cwd / "ran").read_text().count("\n") == 1
            again = await opened.prompt(id_, "Still there?")
            assert again.stop_reason == "end_turn" and editor.text().count("You said: Still there?") == 1

    asyncio.run(main())


@pytest.mark.parametrize("phase", PHASES)
def test_the_door_is_killed_and_the_next_one_goes_on(serve: Serve, tmp_path: Path, phase: str) -> None:
    daemon = serve()
    go = tmp_path / "go"

    async def never(_call: object, _options: object) -> str | None:
        await asyncio.sleep(3600)
        return None

    async def main() -> None:
        first, second = Editor(never), Editor()
        key = {"clisup": {"key": "the-same"}}
        async with door(daemon, first) as opened:
            id_ = await opened.new(daemon.cwd)
            prompt = asyncio.create_task(opened.prompt(id_, script(phase, go), **key))
            await first.until(lambda: reached(phase, first))
            opened.process.kill()
            await opened.process.wait()
            with pytest.raises(ConnectionError):
                await prompt
        async with door(daemon, second) as opened:
            await opened.agent.load_session(cwd=str(daemon.cwd), session_id=id_, mcp_servers=[])
            go.touch()
            # The same prompt again is the same turn, and its end arrives.
            assert (await opened.prompt(id_, script(phase, go), **key)).stop_reason == "end_turn"
            await second.until(lambda: len(numbers(second)) >= CHUNKS)
            assert numbers(second) == expected(phase)
            assert len(second.asked) == (phase == "approval")
            if phase in ("approval", "tool"):
                assert (daemon.cwd / "ran").read_text().count("\n") == 1
            assert (await opened.prompt(id_, "@count")).stop_reason == "end_turn"
            await second.until(lambda: "turn 2" in second.text())

    asyncio.run(main())


def test_an_editor_that_resumes_by_seq_gets_the_rest_alone(serve: Serve, tmp_path: Path) -> None:
    daemon = serve()
    go = tmp_path / "go"

    async def main() -> None:
        first, second = Editor(), Editor()
        async with door(daemon, first) as opened:
            id_ = await opened.new(daemon.cwd)
            prompt = asyncio.create_task(opened.prompt(id_, script("streaming", go)))
            await first.until(lambda: reached("streaming", first))
            opened.process.kill()
            with pytest.raises(ConnectionError):
                await prompt
        seen = numbers(first)
        async with door(daemon, second) as opened:
            after = {"clisup": {"afterSeq": max(first.seqs)}}
            await opened.agent.resume_session(cwd=str(daemon.cwd), session_id=id_, mcp_servers=[], **after)
            go.touch()
            await second.until(lambda: len(seen) + len(numbers(second)) >= CHUNKS)
            await opened.prompt(id_, "The end.")
            assert seen + numbers(second) == expected("streaming")

    asyncio.run(main())
