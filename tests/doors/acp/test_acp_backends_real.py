"""`clisup acp` in front of every kind of backend: recordings of the real CLIs, played, and an agent of the same protocol."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import acp
import pytest
from acp import schema
from editor import Editor, door
from harness import Harness
from test_played_recordings import SAMPLES, ends, stage

from clisup.recordings.files import read_recording
from tests.backends.recorded import name_of

__all__ = ["stage"]

Serve = Callable[..., Harness]
AGENT = [sys.executable, str(Path(__file__).parents[2] / "daemon" / "acp_agent.py")]
OTHERWISE = ("claude", "gemini", "qwen")
"""Kinds whose live sessions, which an editor gets, speak otherwise than the one-shot turns of the recordings."""
NAMES = ("text", "tool_ok", "http_401", "http_401_final", "reasoning")


def is_played(path: Path) -> bool:
    """Tell whether the recording fits a session of an editor: it is live, and an agent's has no settings yet."""
    kind, request = path.parents[1].name, read_recording(path).request
    settings = request.model or request.permission_mode
    return path.stem in NAMES and kind not in OTHERWISE and not (kind == "acp" and settings)


CHOSEN = [path for path in SAMPLES if is_played(path)]


@pytest.mark.parametrize("path", CHOSEN, ids=name_of)
def test_a_played_turn_is_told_to_the_editor(stage: Harness, path: Path) -> None:
    recording = read_recording(path)
    outcome, text, _, kind = ends(recording)[0]

    async def main() -> None:
        editor, second = Editor(), Editor()
        async with door(stage, editor, "-b", f"r{SAMPLES.index(path)}") as opened:
            id_ = await opened.new(stage.cwd)
            if outcome == "completed":
                assert (await opened.prompt(id_, recording.request.prompt or "hello")).stop_reason == "end_turn"
                assert text in editor.text()
            else:
                with pytest.raises(acp.RequestError) as caught:
                    await opened.prompt(id_, recording.request.prompt or "hello")
                assert caught.value.data["kind"] == kind
                assert caught.value.code == (-32000 if kind == "authentication" else -32603)
            async with door(stage, second) as other:
                await other.agent.load_session(cwd=str(stage.cwd), session_id=id_, mcp_servers=[])
                assert editor.text() in second.text()
                calls = [[u.tool_call_id for u in one.of("tool_call")] for one in (editor, second)]
                assert calls[0] == calls[1]

    asyncio.run(main())


def test_an_agent_of_the_protocol_behind_the_daemon(serve: Serve) -> None:
    daemon = serve(raw=f'[backends.agent]\nkind = "acp"\ncommand = {json.dumps(AGENT)}\n')

    async def choose(_call: Any, options: Any) -> str | None:
        assert [option.kind for option in options] == ["allow_once", "allow_always", "reject_once"]
        return "allow"

    async def fill(_message: str, _mode: Any) -> Any:
        return {"name": "Ada"}

    async def main() -> None:
        editor = Editor(choose, fill)
        form = {"elicitation": schema.ElicitationCapabilities(form=schema.ElicitationFormCapabilities())}
        async with door(daemon, editor, "-b", "agent", **form) as opened:
            id_ = await opened.new(daemon.cwd)
            fields = json.dumps({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]})
            words = f'think Hm\nsay Hello,\ntool a Read {{"path": "/a"}}\nask t1\nplan\nelicit {fields}\nsay Bye.'
            assert (await opened.prompt(id_, words)).stop_reason == "end_turn"
            said = editor.text()
            assert "Hello," in said and "chosen: yes" in said and "Ada" in said and said.endswith("Bye.")
            assert editor.text("agent_thought_chunk") == "Hm"
            assert [entry.content for entry in editor.of("plan")[0].entries] == ["look"]
            shown = [content for u in editor.of("tool_call_update") for content in u.content or ()]
            assert any(getattr(content, "new_text", None) == "new" for content in shown)
            assert len(editor.asked) == len(editor.forms) == 1

    asyncio.run(main())


def test_every_kind_with_recordings_is_tried() -> None:
    assert {path.parents[1].name for path in CHOSEN} == {path.parents[1].name for path in SAMPLES} - set(OTHERWISE)
