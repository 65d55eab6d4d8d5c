"""`history` and `output_schema` with the real qwen."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from clisup.errors import ClisupError
from tests.e2e.qwen.lab import QwenLab, environment, qwen_command
from tests.e2e.qwen.scenarios import message, text, tool
from tests.e2e.scenarios import Body, Reply, Scenario

pytestmark = pytest.mark.e2e
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]}
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "  My name is Ada. @src/main.py /clear\n"},
    {"role": "assistant", "content": [
        {"type": "thinking", "text": "hm", "signature": "of another"}, {"type": "text", "text": "I look, Ada."},
        {"type": "tool_use", "id": "c1", "name": "grep_search", "input": {"pattern": "port"}},
        {"type": "tool_use", "id": "c2", "name": "mcp__clisup__add", "input": {}},
    ]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "c1", "content": "port = 80"},
        {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "no such"}], "is_error": True},
        {"type": "text", "text": "And?"},
    ]},
    {"role": "assistant", "content": "At 80."},
]  # fmt: skip


def by_schema(body: Body, n: int) -> Reply:
    if any(offered["function"]["name"] == "structured_output" for offered in body.get("tools", ())):
        return list(message(n, *tool("structured_output", f"so{n}", {"answer": 42}), finish="tool_calls"))
    return list(message(n, *text("Words alone.")))


BY_SCHEMA = Scenario("by_schema", by_schema)


def sent(here: QwenLab) -> list[Any]:
    """The last request in short: texts without the CLI's reminders, calls of tools, and what they answered."""
    found: list[Any] = []
    for said in here.api.main_requests[-1].body["messages"]:
        content = said["content"]
        texts = [content] if isinstance(content, str) else [part["text"] for part in content or ()]
        words = [part for part in texts if not part.startswith("<system-reminder>")]
        calls = [
            (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in said.get("tool_calls", ())
        ]
        found += [(said["role"], said.get("tool_call_id"), words, calls)] if said["role"] != "system" else []
    return [entry for entry in found if entry[2] or entry[3]]


AS_SENT: list[Any] = [
    ("user", None, ["  My name is Ada. @src/main.py /clear\n"], []),
    ("assistant", None, ["I look, Ada."], [("c1", "grep_search", {"pattern": "port"}), ("c2", "mcp__clisup__add", {})]),
    ("tool", "c1", ["port = 80"], []),
    ("tool", "c2", ["no such"], []),
    ("user", None, ["And?"], []),
    ("assistant", None, ["At 80."], []),
]


def test_the_api_gets_exactly_these_messages_and_a_vanilla_qwen_reads_them(lab: Callable[..., QwenLab]) -> None:
    here = lab(BY_SCHEMA)
    here.asked_by_others = True
    session = here.open(history=HISTORY)
    assert here.turn("What now?", session=session)["outcome"] == "completed"
    assert sent(here)[:-1] == AS_SENT and "What now?" in sent(here)[-1][2][-1]
    assert here.events(session, "session_seeded")[0]["messages"] == 4
    env = {"PATH": os.environ["PATH"], "HOME": str(here.home), **environment(here.api.url)}
    settings = here.root / "quiet.json"
    settings.write_text(
        json.dumps({"$version": 4, "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False}})
    )
    env |= {"QWEN_USAGE_STATISTICS_ENABLED": "false", "QWEN_CODE_SYSTEM_DEFAULTS_PATH": str(settings)}
    argv = [str(qwen_command()), f"--resume={session}"]
    done = subprocess.run(
        argv, input="By hand.", env=env, cwd=here.cwd, capture_output=True, text=True, check=True, timeout=90
    )
    assert "Words alone." in done.stdout
    assert sent(here)[: len(AS_SENT)] == AS_SENT and "By hand." in sent(here)[-1][2][-1]


def test_a_history_with_images_is_refused(lab: Callable[..., QwenLab]) -> None:
    here = lab(BY_SCHEMA)
    image = {"type": "image", "media_type": "image/png", "data": "iVBORw0KGgoAAA=="}
    with pytest.raises(ClisupError) as caught:
        here.open(
            history=[
                {"role": "user", "content": [image, {"type": "text", "text": "Look."}]},
                {"role": "assistant", "content": "b"},
            ]
        )
    assert caught.value.kind == "unsupported"


@pytest.mark.parametrize("mode", ["default", "yolo"])
def test_each_turn_has_its_own_schema_and_the_conversation_goes_on(lab: Callable[..., QwenLab], mode: str) -> None:
    here = lab(BY_SCHEMA)
    session = here.open(permission_mode=mode)
    first = here.turn("First.", session=session, output_schema=SCHEMA)
    assert (first["outcome"], first["structured"]) == ("completed", {"answer": 42})
    plain = here.turn("Second.", session=session)
    assert plain["text"] == "Words alone." and "structured" not in plain
    assert "First." in json.dumps(here.api.main_requests[-1].body["messages"])


def test_the_longest_schema_is_taken(lab: Callable[..., QwenLab]) -> None:
    here = lab(BY_SCHEMA)
    assert here.turn("Go.", output_schema={**SCHEMA, "description": "x" * 98_000})["structured"] == {"answer": 42}
