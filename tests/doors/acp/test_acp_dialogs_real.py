"""Questions, forms, plans and images between an editor and a real daemon."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

import acp
from acp import schema
from editor import Editor, door
from harness import Harness

Serve = Callable[..., Harness]
PNG = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
    )
).decode()
QUESTIONS = {
    "questions": [
        {"question": "Which colour?", "header": "Colour", "multiSelect": False,
         "options": [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}]},
        {"question": "Which days?", "header": "Days", "multiSelect": True,
         "options": [{"label": "Monday", "description": ""}, {"label": "Friday", "description": ""}]},
    ]
}  # fmt: skip
FORM = {
    "message": "Who are you?",
    "mode": "form",
    "requested_schema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
}


def form_capability() -> dict[str, Any]:
    return {"elicitation": schema.ElicitationCapabilities(form=schema.ElicitationFormCapabilities())}


def test_questions_are_a_form(serve: Serve) -> None:
    daemon = serve()

    async def fill(_message: str, _mode: Any) -> Any:
        return {"question_1": "Blue", "question_2": ["Monday", "Friday"]}

    async def main() -> None:
        editor = Editor(fill=fill)
        async with door(daemon, editor, **form_capability()) as opened:
            id_ = await opened.new(daemon.cwd)
            ended = await opened.prompt(id_, f"@ask AskUserQuestion {json.dumps(QUESTIONS)}")
            assert ended.stop_reason == "end_turn" and len(editor.forms) == 1 and not editor.asked
            shown = json.dumps([u.model_dump() for _, u in editor.updates], default=str)
            assert "Blue" in shown and "Monday, Friday" in shown

    asyncio.run(main())


def test_questions_are_asked_one_by_one_without_forms(serve: Serve) -> None:
    daemon = serve()
    chosen = iter(["1", "0"])

    async def choose(_call: Any, _options: Any) -> str | None:
        return next(chosen)

    async def main() -> None:
        editor = Editor(choose)
        async with door(daemon, editor) as opened:
            id_ = await opened.new(daemon.cwd)
            await opened.prompt(id_, f"@ask AskUserQuestion {json.dumps(QUESTIONS)}")
            assert [[o.name for o in options] for _, options in editor.asked] == [
                ["Red", "Blue", "Deny"],
                ["Monday", "Friday", "Deny"],
            ]

    asyncio.run(main())


def test_an_elicitation_is_a_form(serve: Serve) -> None:
    daemon = serve()

    async def fill(message: str, _mode: Any) -> Any:
        assert "Who are you?" in message
        return {"name": "Ada"}

    async def main() -> None:
        editor = Editor(fill=fill)
        async with door(daemon, editor, **form_capability()) as opened:
            id_ = await opened.new(daemon.cwd)
            asked = {"message": "Who are you?", "mode": "form", "requested_schema": FORM["requested_schema"]}
            await opened.prompt(id_, f"@ask mcp__who__elicitation {json.dumps(asked)}")
            assert len(editor.forms) == 1
            results = [u for u in editor.of("tool_call_update") if u.content]
            assert "Ada" in json.dumps([u.model_dump() for u in results], default=str)

    asyncio.run(main())


def test_an_elicitation_without_forms_can_be_declined(serve: Serve) -> None:
    daemon = serve()

    async def decline(_call: Any, options: Any) -> str | None:
        assert [o.kind for o in options] == ["reject_once"]
        return "deny"

    async def main() -> None:
        editor = Editor(decline)
        async with door(daemon, editor) as opened:
            id_ = await opened.new(daemon.cwd)
            asked = {"message": "Who are you?", "mode": "form", "requested_schema": FORM["requested_schema"]}
            assert (
                await opened.prompt(id_, f"@ask mcp__who__elicitation {json.dumps(asked)}")
            ).stop_reason == "end_turn"

    asyncio.run(main())


def test_a_plan_is_shown_and_approved(serve: Serve) -> None:
    daemon = serve()

    async def main() -> None:
        editor = Editor()
        async with door(daemon, editor) as opened:
            id_ = await opened.new(daemon.cwd)
            await opened.prompt(id_, '@ask ExitPlanMode {"plan": "# First look"}')
            ((call, options),) = editor.asked
            assert call.kind == "switch_mode" and call.content[0].content.text == "# First look"
            assert [o.name for o in options] == ["Approve the plan", "Keep planning"]

    asyncio.run(main())


def test_images_reach_the_cli_and_come_back_in_a_replay(serve: Serve) -> None:
    daemon = serve()
    words = "word " * 5000  # more than an event holds

    async def main() -> None:
        first, second = Editor(), Editor()
        async with door(daemon, first) as opened:
            id_ = await opened.new(daemon.cwd)
            blocks = [acp.text_block(words), acp.image_block(PNG, "image/png")]
            assert (await opened.agent.prompt(session_id=id_, prompt=blocks)).stop_reason == "end_turn"
        async with door(daemon, second) as opened:
            await opened.agent.load_session(cwd=str(daemon.cwd), session_id=id_, mcp_servers=[])
            text, image = second.of("user_message_chunk")
            assert text.content.text == words
            assert (image.content.data, image.content.mime_type) == (PNG, "image/png")

    asyncio.run(main())


def test_usage_and_cost_come_after_a_turn(serve: Serve) -> None:
    daemon = serve()

    async def main() -> None:
        editor = Editor()
        async with door(daemon, editor) as opened:
            id_ = await opened.new(daemon.cwd)
            await opened.prompt(id_, "Hello")
            (usage,) = await editor.until(lambda: editor.of("usage_update"))
            assert 0 < usage.used < usage.size and usage.cost.currency == "USD"

    asyncio.run(main())
