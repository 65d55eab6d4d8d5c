"""kill -9 of the daemon and of `clisup mcp` in every phase of an agent's turn: nothing is lost, nothing runs twice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from harness import Harness
from mcp_kit import BOUND_S, McpCaller, mcp_door

pytestmark = pytest.mark.long
Serve = Callable[..., Harness]
PHASES = ("sent", "streaming", "approval", "tool")
CHUNKS = 30


def script(phase: str, go: Path) -> str:
    """Return a prompt that stops in this phase until the file `go` exists."""
    return {
        "sent": f"@stream {CHUNKS}",
        "streaming": f'@tool Read {{"file_path": "a"}}\n@stream {CHUNKS}\n@wait-file {go}\nStreamed.',
        "approval": '@run Bash {"command": "echo ran >> ran"}\nDone asking.',
        "tool": f"@bash while [ ! -e {go} ]; do sleep 0.05; done; echo ran >> ran\nDone running.",
    }[phase]


async def reach(phase: str, door: McpCaller, news: dict[str, Any]) -> dict[str, Any]:
    """Follow until the turn has come to its phase."""
    while not {"sent": True, "streaming": news["tools"], "approval": news["approvals"], "tool": news["tools"]}[phase]:
        news = await door.call("follow", session=news["session"], wait_s=0.2)
    return news


def seqs_and_runs(daemon: Harness, session_id: str) -> tuple[list[int], list[str]]:
    """Return the seqs of the journal, and the turns that have begun."""
    events = daemon.call("session/events", session_id=session_id, limit=1000)["events"]
    return [event["seq"] for event in events], [e["turn_id"] for e in events if e["type"] == "turn_started"]


def check(daemon: Harness, phase: str, news: dict[str, Any]) -> None:
    """Check that the turn ran once, and whole."""
    assert news["state"] == "done"
    seqs, turns = seqs_and_runs(daemon, news["session"])
    assert seqs == list(range(1, len(seqs) + 1)) and turns == [news["turn"]]
    if phase in ("approval", "tool"):
        assert (daemon.cwd / "ran").read_text() == "ran\n"


@pytest.mark.parametrize("phase", PHASES)
def test_the_daemon_is_killed_while_a_tool_waits_for_an_agent(serve: Serve, tmp_path: Path, phase: str) -> None:
    daemon, go = serve(), tmp_path / "go"

    async def main() -> None:
        async with mcp_door(daemon) as door:
            news = await door.call("start", backend="demo", prompt=script(phase, go), wait_s=0)
            news = await reach(phase, door, news)
            ended: list[dict[str, Any]] = []

            async def follow() -> None:
                found = news
                while found["state"] in ("running", "waiting"):
                    found = await door.call("follow", session=news["session"], after_seq=found["after_seq"], wait_s=2)
                ended.append(found)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(follow)
                await trio.to_thread.run_sync(daemon.restart)
                go.touch()
                if phase == "approval":
                    (asked,) = await door.until(lambda: door.call("approvals"))
                    daemon.call(
                        "approval/respond",
                        approval_id=asked["approval_id"],
                        session_id=news["session"],
                        decision="allow",
                    )
            (last,) = ended if phase != "sent" else [await door.call("follow", session=news["session"])]
            check(daemon, phase, last)
            more = await door.call("send", session=news["session"], prompt="Still there?")
            assert "Still there?" in more["text"]

    trio.run(main)


@pytest.mark.parametrize("phase", PHASES)
def test_the_server_is_killed_and_the_next_one_goes_on(serve: Serve, tmp_path: Path, phase: str) -> None:
    daemon, go = serve(), tmp_path / "go"
    asked = {"backend": "demo", "prompt": script(phase, go), "key": "the-same"}

    async def main() -> None:
        with suppress(BaseExceptionGroup):
            async with mcp_door(daemon) as first, trio.open_nursery() as nursery:

                async def start() -> None:
                    with suppress(Exception):  # its server is killed
                        await first.raw("start", **asked, wait_s=BOUND_S)

                if phase != "approval":  # there it would return at once
                    nursery.start_soon(start)
                news = await first.call("start", **asked, wait_s=0)
                await reach(phase, first, news)
                first.process.kill()
        async with mcp_door(daemon) as door:
            again = await door.call("start", **asked, wait_s=0)
            go.touch()
            if phase == "approval":
                (open_,) = await door.until(lambda: door.call("approvals"))
                daemon.call(
                    "approval/respond", approval_id=open_["approval_id"], session_id=again["session"], decision="allow"
                )
            news = await door.call("follow", session=again["session"], wait_s=BOUND_S)
            while news["state"] in ("running", "waiting"):
                news = await door.call("follow", session=again["session"], wait_s=2)
            check(daemon, phase, news)

    trio.run(main)


def test_a_killed_server_leaves_agents_that_the_next_one_serves(serve: Serve, tmp_path: Path) -> None:
    """An agent that may start agents calls a tool while no server runs. The next server answers the call."""
    daemon, go = serve(), tmp_path / "go"
    inner = '{"backend": "demo", "prompt": "Inner words."}'

    async def main() -> None:
        with suppress(BaseExceptionGroup):
            async with mcp_door(daemon, "--depth", "2") as first:
                prompt = f"@wait-file {go}\n@mcp start {inner}\n@text Outer words."
                news = await first.call("start", backend="demo", prompt=prompt, wait_s=0, key="outer")
                await first.until(lambda: served(daemon, news["session"]))
                first.process.kill()
        go.touch()
        (session,) = daemon.call("session/list")["sessions"]
        async with mcp_door(daemon, "--depth", "2") as door:
            news = await door.call("follow", session=session["session_id"], wait_s=BOUND_S)
            assert news["state"] == "done" and news["text"].endswith("Outer words.")
            assert len(await door.call("sessions", label="mcp_parent")) == 1

    trio.run(main)


async def served(daemon: Harness, session_id: str) -> bool:
    return bool(daemon.call("session/get", session_id=session_id)["tools"]["served"])
