"""`clisup mcp`, driven by the official MCP client: what each tool gives, and its bounds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from commands import run
from harness import Harness, until
from mcp_kit import BOUND_S, McpCaller, mcp_door, text_of

pytestmark = pytest.mark.long
Serve = Callable[..., Harness]


def drive(daemon: Harness, body: Callable[[McpCaller], Any], *options: str, **more: Any) -> None:
    async def main() -> None:
        async with mcp_door(daemon, *options, **more) as door:
            await body(door)

    trio.run(main)


def test_an_agent_is_started_followed_and_given_more_work(serve: Serve) -> None:
    daemon = serve()

    async def body(door: McpCaller) -> None:
        (row,) = [row for row in await door.call("backends") if row["name"] == "demo"]
        assert row["available"] and row["version"]
        news = await door.call(
            "start", backend="demo", prompt='@tool Bash {"command": "ls"}\nDone with it.', title="Nightly"
        )
        assert (news["state"], news["text"], news["tools"], news["approvals"]) == (
            "done",
            "Done with it.",
            {"Bash": 1},
            [],
        )
        assert news["cost_usd"] is not None and news["after_seq"] > 0 and news["turn"]
        idle = await door.call("follow", session=news["session"], after_seq=news["after_seq"], wait_s=1)
        assert idle["state"] == "idle" and idle["text"] == ""
        whole = await door.call("follow", session=news["session"])
        assert (whole["text"], whole["turn"]) == ("Done with it.", news["turn"])
        more = await door.call("send", session=news["session"], prompt="@count")
        assert "turn 2" in more["text"] and more["turn"] != news["turn"]
        (row,) = await door.call("sessions")
        assert (row["title"], row["turns"], row["yours"], row["labels"]["mcp"]) == ("Nightly", 2, True, "tester")
        assert await door.call("sessions", label="mcp=other") == []
        assert len(await door.call("sessions", label="mcp_depth")) == 1
        assert (await door.call("close", session=news["session"]))["done"] == "closed"
        assert await door.call("sessions") == []
        assert (await door.refusal("send", session=news["session"], prompt="Go on."))["kind"] == "session_closed"

    drive(daemon, body)


def test_start_returns_early_and_follow_waits_for_the_end(serve: Serve, tmp_path: Path) -> None:
    daemon, go = serve(), tmp_path / "go"

    async def body(door: McpCaller) -> None:
        news = await door.call(
            "start", backend="demo", prompt=f'@tool Read {{"file_path": "a"}}\n@wait-file {go}\nThe end.', wait_s=0
        )
        assert news["state"] == "running" and "follow" in news["next"]
        while not news["tools"]:
            news = await door.call("follow", session=news["session"], wait_s=0.2)
            assert news["state"] == "running"
        door.progress.clear()
        async with trio.open_nursery() as nursery:
            ended: list[Any] = []

            async def follow() -> None:
                ended.append(
                    await door.call("follow", session=news["session"], after_seq=news["after_seq"], wait_s=BOUND_S)
                )

            nursery.start_soon(follow)
            await door.until(lambda: _true(door.progress))
            go.touch()
        assert ended[0]["state"] == "done" and "The end." in ended[0]["text"]

    drive(daemon, body)


async def _true(value: Any) -> Any:
    return value


def test_a_call_that_comes_again_with_its_key_runs_once(serve: Serve) -> None:
    daemon = serve()

    async def body(door: McpCaller) -> None:
        prompt = "@bash echo x >> ran\nDone."
        news = [await door.call("start", backend="demo", prompt=prompt, key="nightly") for _ in range(3)]
        assert len({item["session"] for item in news}) == 1 and len({item["turn"] for item in news}) == 1
        sent = [await door.call("send", session=news[0]["session"], prompt=prompt, key="again") for _ in range(2)]
        assert sent[0]["turn"] == sent[1]["turn"] != news[0]["turn"]
        assert (daemon.cwd / "ran").read_text() == "x\nx\n"
        other = await door.call("start", backend="demo", prompt=prompt)
        assert other["session"] != news[0]["session"]

    drive(daemon, body)


def test_a_failure_an_interrupt_and_changed_files_are_told(serve: Serve) -> None:
    daemon = serve()

    async def body(door: McpCaller) -> None:
        failed = await door.call("start", backend="demo", prompt="@error server")
        assert failed["state"] == "failed" and failed["error"].startswith("server: ")
        news = await door.call("start", backend="demo", prompt='@tool Write {"file_path": "/srv/a.py", "content": "x"}\n@stall',
                               wait_s=0)  # fmt: skip
        id_ = news["session"]

        async def written() -> Any:
            return (await door.call("follow", session=id_, wait_s=0.2))["files"]

        assert await door.until(written) == ["/srv/a.py"]
        assert "interrupted" in (await door.call("interrupt", session=id_))["done"]
        assert (await door.call("follow", session=id_))["state"] == "interrupted"
        assert (await door.refusal("interrupt", session=id_))["kind"] == "turn_not_found"

    drive(daemon, body)


NOBODY = "00000000-0000-0000-0000-000000000000"
ASKS = '@run Bash {"command": "echo allowed >> ran"}\nDone asking.'


def test_a_person_answers_the_approvals_of_an_agent(serve: Serve) -> None:
    daemon = serve()

    async def body(door: McpCaller) -> None:
        assert "answer" not in [tool.name for tool in (await door.client.list_tools()).tools]
        news = await door.call("start", backend="demo", prompt=ASKS, wait_s=BOUND_S)
        assert news["state"] == "waiting" and "A person" in news["next"]
        (asked,) = news["approvals"]
        assert (asked["tool"], asked["about"]) == ("Bash", "Bash echo allowed >> ran")
        assert await door.call("approvals") == [asked]
        still = await door.call("follow", session=news["session"], after_seq=news["after_seq"], wait_s=0.2)
        assert still["state"] == "waiting" and still["approvals"] == [asked]
        daemon.call("approval/respond", approval_id=asked["approval_id"], session_id=news["session"], decision="allow")
        done = await door.call("follow", session=news["session"], after_seq=still["after_seq"], wait_s=BOUND_S)
        assert done["state"] == "done" and (daemon.cwd / "ran").read_text() == "allowed\n"
        unknown = await door.raw("answer", session=news["session"], approval_id=asked["approval_id"], decision="allow")
        assert unknown.is_error

    drive(daemon, body)


def test_with_may_approve_the_client_answers_them_itself(serve: Serve) -> None:
    daemon = serve()

    async def body(door: McpCaller) -> None:
        news = await door.call("start", backend="demo", prompt=ASKS, wait_s=BOUND_S)
        (asked,) = news["approvals"]
        about = {"session": news["session"], "approval_id": asked["approval_id"]}
        assert (await door.call("answer", **about, decision="deny", message="Not now."))["done"] == "deny: Bash"
        done = await door.call("follow", session=news["session"], after_seq=news["after_seq"], wait_s=BOUND_S)
        assert done["state"] == "done" and not (daemon.cwd / "ran").exists()
        assert (await door.refusal("answer", **about, decision="allow"))["kind"] == "approval_not_found"

    drive(daemon, body, "--may-approve")


def test_bounds_that_are_hit_say_what_to_do(serve: Serve, tmp_path: Path) -> None:
    daemon = serve()
    (daemon.cwd / "inside").mkdir()
    (daemon.cwd / "out").symlink_to(tmp_path)
    theirs = daemon.new()
    outside = daemon.call("session/new", backend="demo", cwd=str(tmp_path))["session_id"]

    async def body(door: McpCaller) -> None:
        for cwd in (str(tmp_path), "..", "/", "out"):
            refused = await door.refusal("start", backend="demo", prompt="Hi.", cwd=cwd)
            assert refused["kind"] == "permission_denied" and "--root" in refused["hint"], cwd
        refused = await door.refusal("start", backend="none", prompt="Hi.")
        assert refused["kind"] == "backend_not_found" and "demo" in refused["hint"]
        refused = await door.refusal("start", backend="demo", prompt="Hi.", budget_usd=9)
        assert refused["kind"] == "limit_exceeded" and "--budget-usd" in refused["hint"]
        news = await door.call("start", backend="demo", prompt="Hi.", cwd="inside")
        about = daemon.call("session/get", session_id=news["session"])
        assert about["cwd"] == str(daemon.cwd / "inside") and about["budget"]["limit"]["usd"] == 2
        assert about["labels"]["mcp_depth"] == "1"
        other = await door.call("start", backend="demo", prompt="Hi.", budget_usd=0.5)
        assert daemon.call("session/get", session_id=other["session"])["budget"]["limit"]["usd"] == 0.5
        refused = await door.refusal("start", backend="demo", prompt="Hi.")
        assert refused["kind"] == "limit_exceeded" and "--agents" in refused["hint"]
        # A person's session can be read, and not driven. One outside of the root can not even be read.
        assert (await door.call("follow", session=theirs.id, wait_s=0))["state"] == "idle"
        for tool, more in (("send", {"prompt": "Hi."}), ("interrupt", {}), ("close", {})):
            assert (await door.refusal(tool, session=theirs.id, **more))["kind"] == "permission_denied"
        assert (await door.refusal("follow", session=outside))["kind"] == "permission_denied"
        assert {row["session"] for row in await door.call("sessions")} == {theirs.id, news["session"], other["session"]}
        assert (await door.refusal("follow", session=NOBODY))["kind"] == "session_not_found"

    drive(daemon, body, "--budget-usd", "2", "--agents", "2")


def test_a_worktree_outside_of_the_root_is_refused_and_one_below_it_is_made(serve: Serve) -> None:
    daemon = serve()
    project = daemon.cwd / "project"
    project.mkdir()
    for command in (
        "init -q",
        "config user.name Ann",
        "config user.email ann@example.org",
        "commit -q --allow-empty -m 1",
    ):
        subprocess.run(["git", "-C", str(project), *command.split()], check=True, timeout=60)

    async def refused(door: McpCaller) -> None:
        error = await door.refusal("start", backend="demo", prompt="Hi.", worktree=True)
        assert error["kind"] == "worktree_refused" and str(project) in error["message"]
        assert await door.call("sessions") == []

    async def made(door: McpCaller) -> None:
        news = await door.call("start", backend="demo", prompt="Hi.", cwd="project", worktree=True)
        assert news["state"] == "done"
        (row,) = await door.call("sessions")
        assert row["cwd"].startswith(f"{project}.worktrees/")

    drive(daemon, refused, "--root", str(project))
    drive(daemon, made)


def test_agents_of_another_root_can_neither_be_read_nor_driven(serve: Serve) -> None:
    daemon = serve()
    here, there = daemon.cwd / "here", daemon.cwd / "there"
    here.mkdir()
    there.mkdir()
    outside = daemon.new(cwd=str(there), labels={"mcp": "tester", "mcp_depth": "1"}, mode="live")
    outside.prompt('@ask Bash {"command": "true"}')
    until(lambda: outside.get()["approvals"])

    async def body(door: McpCaller) -> None:
        assert await door.call("sessions") == [] and await door.call("approvals") == []
        for tool, more in (("follow", {}), ("send", {"prompt": "Hi."}), ("interrupt", {}), ("close", {})):
            assert (await door.refusal(tool, session=outside.id, **more))["kind"] == "permission_denied", tool
        # A directory that becomes a link after the start takes its agent out of the root.
        (here / "sub").mkdir()
        news = await door.call("start", backend="demo", prompt="Hi.", cwd="sub")
        (here / "sub").rmdir()
        (here / "sub").symlink_to(there)
        assert (await door.refusal("send", session=news["session"], prompt="Hi."))["kind"] == "permission_denied"

    drive(daemon, body, "--root", str(here))


def test_a_root_that_does_not_exist_is_refused(serve: Serve) -> None:
    daemon = serve()
    done = run(daemon, "mcp", "--root", "absent")
    assert done.returncode == 2 and "no such directory" in done.stderr


def test_wrong_arguments_and_unknown_tools_are_refused(serve: Serve) -> None:
    daemon = serve()

    async def body(door: McpCaller) -> None:
        assert "prompt" in text_of(await door.raw("start", backend="demo"))
        assert (await door.raw("start", backend="demo", prompt="")).is_error
        assert (await door.raw("start", backend="demo", prompt="Hi.", budget_usd=-1)).is_error
        assert (await door.raw("follow", session="x" * 65)).is_error
        assert (await door.raw("nothing")).is_error
        assert (await door.call("start", backend="demo", prompt="Hi."))["state"] == "done"

    drive(daemon, body)


def test_the_conversation_is_a_resource(serve: Serve) -> None:
    daemon = serve()

    async def body(door: McpCaller) -> None:
        news = await door.call("start", backend="demo", prompt='@tool Bash {"command": "ls"}\nFirst words.')
        await door.call("send", session=news["session"], prompt="@error server")
        (template,) = (await door.client.list_resource_templates()).resource_templates
        assert template.uri_template == "clisup://session/{session_id}"
        read = await door.client.read_resource(f"clisup://session/{news['session']}")
        text = read.contents[0].text  # type: ignore[union-attr]
        assert text.startswith("## User\n\n@tool Bash") and "- tool: Bash ls" in text and "First words." in text
        assert "is failed" in text
        with pytest.raises(Exception, match="session_not_found"):
            await door.client.read_resource("clisup://session/" + NOBODY)

    drive(daemon, body)


def test_a_door_without_a_daemon_says_how_to_start_one(serve: Serve) -> None:
    daemon = serve(start=False)
    daemon.log.touch()

    async def body(door: McpCaller) -> None:
        refused = await door.refusal("backends")
        assert refused["kind"] == "daemon_not_running" and "clisup" in refused["hint"]

    drive(daemon, body)


def test_the_permission_mode_is_the_users_and_not_the_models(serve: Serve) -> None:
    daemon = serve()

    async def body(door: McpCaller) -> None:
        schema = next(tool for tool in (await door.client.list_tools()).tools if tool.name == "start").input_schema
        assert "permission_mode" not in schema["properties"]
        asks = f'@run Write {{"file_path": "{daemon.cwd}/made", "content": "x"}}\nDone.'
        news = await door.call("start", backend="demo", prompt=asks, wait_s=BOUND_S)
        assert news["state"] == "done" and (daemon.cwd / "made").exists()

    drive(daemon, body, "--permission-mode", "demo=acceptEdits", "--permission-mode", "plan")


def test_agents_start_agents_as_deep_as_the_user_allows(serve: Serve) -> None:
    """The first agent calls the tools over the daemon's bridge. Its own agent has none."""
    daemon = serve()
    inner = json.dumps({"backend": "demo", "prompt": "@mcp start {\"backend\": \"demo\", \"prompt\": \"x\"}\n@text Inner words.",
                        "budget_usd": 0.5})  # fmt: skip

    async def body(door: McpCaller) -> None:
        news = await door.call(
            "start", backend="demo", prompt=f"@mcp start {inner}\n@text Outer words.", wait_s=BOUND_S
        )
        assert news["state"] == "done" and "Outer words." in news["text"]
        rows = {row["session"]: row for row in await door.call("sessions", label="mcp")}
        assert len(rows) == 2
        (child,) = [row for row in rows.values() if row["labels"].get("mcp_parent") == news["session"]]
        assert child["labels"]["mcp_depth"] == "2" and child["turns"] == 1
        words = (await door.call("follow", session=child["session"]))["text"]
        assert words.endswith("Inner words.")
        # Its own agent was not possible, and its budget came from its parent's.
        assert daemon.call("session/get", session_id=news["session"])["budget"]["limit"]["usd"] == 1.5
        assert daemon.call("session/get", session_id=child["session"])["budget"]["limit"]["usd"] == 0.5
        results = [
            e["content"]
            for e in daemon.call("session/events", session_id=news["session"], limit=1000)["events"]
            if e["type"] == "tool_result"
        ]
        assert any("Inner words." in content for content in results)

    drive(daemon, body, "--depth", "2", "--budget-usd", "2")


def test_a_server_that_an_agent_starts_by_itself_is_refused(serve: Serve) -> None:
    """The daemon serves no process of its own CLIs: the tools say so."""
    daemon = serve()
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    frames = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "backends", "arguments": {}}},
    ]
    (daemon.cwd / "asked").write_text("".join(json.dumps({"jsonrpc": "2.0", **frame}) + "\n" for frame in frames))
    root = Path(__file__).parents[3]
    run = f"CLISUP_SOCKET={daemon.socket} PYTHONPATH={root} {sys.executable} -m clisup mcp"
    daemon.new().ask(f"@bash (cat asked; until grep -q '\"id\":2' said; do sleep 0.1; done) | {run} > said")
    said = [json.loads(line) for line in (daemon.cwd / "said").read_text().splitlines()]
    (answer,) = [frame["result"] for frame in said if frame.get("id") == 2]
    assert answer["isError"] and "permission_denied" in answer["content"][0]["text"]
