"""Tools of a client need nobody's approval, in no mode of any CLI; what else the model wants keeps its rules."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from clisup.backends.claude.adapter import PERMISSION_MODES as CLAUDE_MODES
from clisup.backends.codex.adapter import PERMISSION_MODES as CODEX_MODES
from clisup.backends.qwen.adapter import PERMISSION_MODES as QWEN_MODES
from clisup.client.aio import open_client
from clisup.llm.serving import serving
from tests.e2e.tools.stage import ADD, LIMIT_S, Stage, ended, interactions

pytestmark = pytest.mark.e2e
Start = Callable[..., Stage]
CALL = ("add", {"a": 2, "b": 3})
MODES = [(kind, mode) for kind in ("claude", "claude-live") for mode in CLAUDE_MODES]
MODES += [(kind, mode) for kind in ("codex", "codex-exec") for mode in CODEX_MODES]
MODES += [("qwen", mode) for mode in QWEN_MODES]


@pytest.mark.parametrize(("kind", "mode"), MODES)
def test_a_tool_runs_in_every_permission_mode(stage: Start, kind: str, mode: str) -> None:
    here = stage(kind, [[CALL]])
    events = here.turn(ADD, permission_mode=mode)
    assert [one["content"] for one in interactions(events)] == ["5"] and ended(events)["outcome"] == "completed"
    assert not [e for e in events if e["type"] in ("approval_requested", "permission_denied")]


def test_in_a_live_process_the_mode_may_change(stage: Start) -> None:
    here = stage("claude-live", [[CALL]] * 2)

    async def play() -> str:
        with trio.fail_after(LIMIT_S):
            async with open_client(here.lab.socket) as client:
                session = await here.open(client, [ADD], permission_mode="acceptEdits")
                async with serving(client, session, [ADD]):
                    await client.call("session/prompt", session_id=session, prompt="One.", wait=True)
                    await client.call("session/set_permission_mode", session_id=session, permission_mode="plan")
                    await client.call("session/prompt", session_id=session, prompt="Two.", wait=True)
                return session

    events = here.lab.events(trio.run(play))
    assert [one["content"] for one in interactions(events)] == ["5", "5"]
    assert not [e for e in events if e["type"] in ("approval_requested", "permission_denied")]


def test_another_tool_is_still_asked_for(stage: Start) -> None:
    config = "[backends.claude.approvals]\nunattended_after_s = 0\n"
    here = stage("claude-live", [[CALL, ("!", {"command": "touch made"})]], config=config)
    events = here.turn(ADD, approvals={"unattended": "deny"})
    assert [one["content"] for one in interactions(events)] == ["5"]
    assert [e["tool_name"] for e in events if e["type"] == "approval_requested"] == ["Bash"]
    assert not (here.lab.cwd / "made").exists()


def test_another_tool_is_still_denied_in_a_process_for_one_turn(stage: Start) -> None:
    here = stage("claude", [[CALL, ("!", {"command": "touch made"})]])
    events = here.turn(ADD)
    assert [one["content"] for one in interactions(events)] == ["5"]
    assert ended(events)["denied"] == ["Bash"] and not (here.lab.cwd / "made").exists()


@pytest.mark.parametrize("kind", ["codex", "codex-exec"])
def test_codexs_sandbox_holds_beside_our_tools(stage: Start, kind: str) -> None:
    here = stage(kind, [[CALL, ("!", {"command": "touch made"})]])
    events = here.turn(ADD, permission_mode="read-only")
    assert [one["content"] for one in interactions(events)] == ["5"]
    assert not (here.lab.cwd / "made").exists()
