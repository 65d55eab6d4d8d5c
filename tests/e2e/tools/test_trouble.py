"""Tools that take long, that never answer, and a daemon that is killed while one runs; what the CLI's other children see."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import trio

from clisup.client.aio import open_client
from clisup.llm.serving import serving
from tests.e2e.tools.stage import ADD, LIMIT_S, PICTURE, REAL, Arguments, Given, Stage, ended, interactions

pytestmark = pytest.mark.e2e
Start = Callable[..., Stage]


async def sleep(arguments: Arguments) -> str:
    await trio.sleep(arguments["s"])
    return "slept"


async def hang(arguments: Arguments) -> str:
    await trio.sleep_forever()
    return "never"


def test_a_call_that_runs_is_no_idle_tool(stage: Start, kind: str) -> None:
    """It takes three times as long as a tool may say nothing."""
    here = stage(kind, [[("sleep", {"s": 3})]])
    events = here.turn(Given("sleep", sleep), timeouts={"tool_idle": 1})
    assert [one["content"] for one in interactions(events)] == ["slept"]
    assert ended(events)["outcome"] == "completed" and not [e for e in events if e["type"] == "watchdog"]


def test_a_call_that_takes_too_long_is_an_error_for_the_model_and_the_turn_goes_on(stage: Start, kind: str) -> None:
    here = stage(kind, [[("hang", {})], [("add", {"a": 2, "b": 3})]])
    events = here.turn(Given("hang", hang, timeout_s=1), ADD)
    (added, hung) = interactions(events)
    assert added["content"] == "5"
    assert hung["is_error"] and "1" in hung["content"]
    assert (ended(events)["outcome"], ended(events)["text"]) == ("completed", "Done.")


def test_a_call_outlives_a_kill_of_the_daemon_and_is_run_once(stage: Start, kind: str) -> None:
    here = stage(kind, [[("slow", {})]])
    runs: list[Arguments] = []
    begun, go_on = trio.Event(), trio.Event()

    async def slow(arguments: Arguments) -> str:
        runs.append(arguments)
        begun.set()
        await go_on.wait()
        return "after all"

    async def play() -> str:
        tool = Given("slow", slow)
        with trio.fail_after(LIMIT_S):
            async with open_client(here.lab.socket) as client:
                session = await here.open(client, [tool])
                async with serving(client, session, [tool]):
                    asked = await client.call("session/prompt", session_id=session, prompt=here.prompt)
                    await begun.wait()
                    await trio.to_thread.run_sync(here.lab.kill)
                    await trio.to_thread.run_sync(here.lab.start)
                    go_on.set()
                    await trio.to_thread.run_sync(
                        lambda: here.lab.wait_for(session, "turn_completed", turn_id=asked["turn_id"])
                    )
                return session

    session = trio.run(play)
    events = here.lab.events(session)
    assert [(one["content"], one["is_error"]) for one in interactions(events)] == [("after all", False)]
    assert ended(events)["outcome"] == "completed" and len(runs) == 1
    assert len([e for e in events if e["type"] == "process_started"]) == 1


def test_a_call_names_the_tool_use_that_events_name(stage: Start, kind: str) -> None:
    """Not so with codex exec, whose events have ids of their own; qwen tells a server no id."""
    here = stage(kind, [[("add", {"a": 2, "b": 3})]])
    told: list[dict[str, Any]] = []

    async def play() -> str:
        async with open_client(here.lab.socket) as client:
            session = await here.open(client, [ADD])
            received = client._tool_calls.received
            client._tool_calls.received = lambda frame, connection: (told.append(frame), received(frame, connection))[1]  # type: ignore[method-assign]
            async with serving(client, session, [ADD]):
                await client.call("session/prompt", session_id=session, prompt=here.prompt, wait=True)
            return session

    events = here.lab.events(trio.run(play))
    (call,) = [frame["params"] for frame in told if frame["method"] == "tool/call"]
    (use,) = [e for e in events if e["type"] == "tool_use"]
    assert (call["tool_use_id"] == use["tool_use_id"]) is (kind.removesuffix("-live") not in ("codex-exec", "qwen"))
    assert call["turn_id"] == ended(events)["turn_id"]


@pytest.mark.parametrize("kind", REAL)
def test_a_picture_comes_as_one(stage: Start, kind: str) -> None:
    """claude adds the path of a copy, which is said nowhere else."""
    here = stage(kind, [[("picture", {})]])
    (shown,) = interactions(here.turn(PICTURE))
    blocks = shown["blocks"]
    assert [block["kind"] for block in blocks][:2] == ["text", "image"] and blocks[1]["media_type"] == "image/png"
    assert len(blocks) == (3 if kind.startswith("claude") else 2)


@pytest.mark.parametrize("kind", ["claude", "codex", "codex-exec"])
def test_a_shell_of_the_model_has_nothing_of_the_bridges(stage: Start, kind: str) -> None:
    here = stage(kind, [[("add", {"a": 2, "b": 3}), ("!", {"command": "env | sort; cat /proc/$PPID/cmdline"})]])
    mode = "bypassPermissions" if kind == "claude" else "danger-full-access"
    events = here.turn(ADD, permission_mode=mode)
    (shell,) = [e for e in events if e["type"] == "tool_use" and not e["name"].startswith("mcp__")]
    (shown,) = [e for e in events if e["type"] == "tool_result" and e["tool_use_id"] == shell["tool_use_id"]]
    (tokens,) = (here.lab.state / "sessions").glob("*/private/tools.json")
    token = json.loads(tokens.read_text())["token"]
    assert "PATH=" in shown["content"]
    assert "CLISUP_BRIDGE" not in shown["content"] and token not in shown["content"]
    (started,) = [e for e in events if e["type"] == "process_started"]
    assert token not in json.dumps(events) and not [n for n in started["env_names"] if n.startswith("CLISUP_BRIDGE")]
