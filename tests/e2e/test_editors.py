"""The real claude in an editor: `clisup acp`, driven by the official Python client of the Agent Client Protocol."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from acp import schema

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
sys.path.insert(0, str(Path(__file__).parents[1] / "doors" / "acp"))
from editor import Editor, door

from tests.e2e.lab import ClaudeLab
from tests.e2e.test_live_forms import ASKS

pytestmark = pytest.mark.e2e
Lab = Callable[..., ClaudeLab]
CLAUDE = ("-b", "claude")


def environment(here: ClaudeLab) -> dict[str, str]:
    root = str(Path(__file__).parents[2])
    return {"PATH": os.environ["PATH"], "HOME": str(here.home), "CLISUP_SOCKET": here.socket, "PYTHONPATH": root}


def test_an_editor_allows_a_tool_while_the_daemon_is_killed(lab: Lab) -> None:
    here = lab("tool_denied")
    back = asyncio.Event()

    async def late(_call: Any, _options: Any) -> str | None:
        await back.wait()
        return "allow"

    async def main() -> None:
        editor, second = Editor(late), Editor()
        async with door(here, editor, *CLAUDE, env=environment(here)) as opened:
            id_ = await opened.new(here.cwd)
            prompt = asyncio.create_task(opened.prompt(id_, "Use your tools."))
            await editor.until(lambda: editor.asked)
            await asyncio.to_thread(here.kill)
            await asyncio.to_thread(here.start)
            back.set()
            assert (await prompt).stop_reason == "end_turn"
            ((call, _),) = editor.asked
            (diff,) = call.content
            assert (diff.type, diff.path) == ("diff", call.raw_input["file_path"])
            assert await asyncio.to_thread(Path(diff.path).read_text) == diff.new_text
            (usage,) = await editor.until(lambda: editor.of("usage_update"))
            assert 0 < usage.used < usage.size
            async with door(here, second, *CLAUDE, env=environment(here)) as other:
                await other.agent.load_session(cwd=str(here.cwd), session_id=id_, mcp_servers=[])
                assert second.text("user_message_chunk") == "Use your tools."
                assert second.text() == editor.text() and not second.asked

    asyncio.run(main())


def test_an_editor_answers_claudes_questions_by_a_form(lab: Lab) -> None:
    here = lab(ASKS)

    async def fill(_message: str, _mode: Any) -> Any:
        return {"question_1": "Postgres", "question_2": ["lint", "unit, slow"], "question_3": "443"}

    async def main() -> None:
        editor = Editor(fill=fill)
        form = {"elicitation": schema.ElicitationCapabilities(form=schema.ElicitationFormCapabilities())}
        async with door(here, editor, *CLAUDE, env=environment(here), **form) as opened:
            id_ = await opened.new(here.cwd)
            assert (await opened.prompt(id_, "Ask me.")).stop_reason == "end_turn"
            assert len(editor.forms) == 1 and editor.text().endswith("Thanks.")
            (result,) = here.events(id_, "tool_result")
            assert "Postgres" in result["content"] and 'lint, "unit, slow"' in result["content"]

    asyncio.run(main())


def test_modes_and_models_reach_claude(lab: Lab) -> None:
    here = lab("tool_denied")

    async def main() -> None:
        editor = Editor()
        async with door(here, editor, *CLAUDE, env=environment(here)) as opened:
            id_ = await opened.new(here.cwd)
            await opened.agent.set_session_mode(session_id=id_, mode_id="acceptEdits")
            assert (await opened.prompt(id_, "Use your tools.")).stop_reason == "end_turn"
            assert editor.asked == []  # the mode allows it
            options = (await editor.until(lambda: editor.of("config_option_update")))[-1].config_options
            assert {o.id for o in options} == {"mode", "model"}

    asyncio.run(main())
