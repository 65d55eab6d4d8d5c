"""`clisup acp` with the official Python client: what an editor gets of a real daemon."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import acp
import pytest
from acp import schema
from editor import BOUND_S, Door, Editor, door, environment
from harness import Harness

Serve = Callable[..., Harness]


def test_a_prompt_streams_its_answer_and_ends(serve: Serve) -> None:
    daemon = serve()

    async def main() -> None:
        editor = Editor()
        async with door(daemon, editor) as opened:
            assert opened.told.protocol_version == 1
            assert opened.told.agent_capabilities and opened.told.agent_capabilities.load_session
            id_ = await opened.new(daemon.cwd)
            ended = await opened.prompt(id_, "@stream 5\nThat is all.")
            assert ended.stop_reason == "end_turn"
            assert ended.usage is not None and ended.usage.output_tokens > 0
            text = editor.text()
            assert text.count("chunk") == 5 and text.count("That is all.") == 1
            assert editor.of("user_message_chunk") == []  # the editor shows its own prompts
            commands = (await editor.until(lambda: editor.of("available_commands_update")))[0]
            assert {"compact", "fork", "status"} <= {command.name for command in commands.available_commands}
            await editor.until(lambda: [u for u in editor.of("session_info_update") if u.title])

    asyncio.run(main())


def test_thinking_tools_diffs_and_plans_are_shown(serve: Serve) -> None:
    daemon = serve()

    async def main() -> None:
        editor = Editor()
        async with door(daemon, editor) as opened:
            id_ = await opened.new(daemon.cwd)
            await opened.prompt(
                id_,
                "@think Hm.\n"
                '@tool Edit {"file_path": "/a/b.py", "old_string": "x = 1", "new_string": "x = 2"} => done\n'
                '@tool TodoWrite {"todos": [{"content": "Look", "status": "completed", "activeForm": "Looking"}]}\n'
                "@bash echo hello",
            )
            assert "Hm." in editor.text("agent_thought_chunk")
            edit, todo, bash = editor.of("tool_call")
            assert (edit.kind, edit.title, edit.locations[0].path) == ("edit", "Edit /a/b.py", "/a/b.py")
            assert (edit.content[0].old_text, edit.content[0].new_text) == ("x = 1", "x = 2")
            assert (bash.kind, bash.raw_input["command"]) == ("execute", "echo hello")
            assert [(e.content, e.status) for e in editor.of("plan")[0].entries] == [("Look", "completed")]
            states = {u.tool_call_id: u for u in editor.of("tool_call_update") if u.status == "completed"}
            assert set(states) == {edit.tool_call_id, todo.tool_call_id, bash.tool_call_id}
            assert states[edit.tool_call_id].content is None  # the change stays
            assert states[bash.tool_call_id].content[0].content.text.strip() == "hello"

    asyncio.run(main())


def test_a_tool_is_allowed_or_denied_by_the_editor(serve: Serve) -> None:
    daemon = serve()
    decisions = iter(["allow", "deny"])

    async def decide(_call: object, _options: object) -> str | None:
        return next(decisions)

    async def main() -> None:
        editor = Editor(decide)
        async with door(daemon, editor) as opened:
            id_ = await opened.new(daemon.cwd)
            ask = '@run Bash {"command": "touch made%d"}'
            assert (await opened.prompt(id_, ask % 1)).stop_reason == "end_turn"
            assert (await opened.prompt(id_, ask % 2)).stop_reason == "end_turn"
            call, options = editor.asked[0]
            assert call.raw_input["command"] == "touch made1" and call.kind == "execute"
            assert call.tool_call_id in {u.tool_call_id for u in editor.of("tool_call")}
            assert [o.kind for o in options] == ["allow_once", "allow_always", "reject_once"]
            assert ((daemon.cwd / "made1").exists(), (daemon.cwd / "made2").exists()) == (True, False)

    asyncio.run(main())


def test_an_answer_from_elsewhere_withdraws_the_dialog(serve: Serve) -> None:
    daemon = serve()
    withdrawn = asyncio.Event()

    async def never(_call: object, _options: object) -> str | None:
        await asyncio.sleep(3600)
        return None

    async def main() -> None:
        editor = Editor(never)
        async with door(daemon, editor) as opened:
            id_ = await opened.new(daemon.cwd)
            prompt = asyncio.create_task(opened.prompt(id_, '@run Bash {"command": "touch made"}'))
            await editor.until(lambda: editor.asked)
            found = await asyncio.to_thread(daemon.call, "approval/list")
            await asyncio.to_thread(
                daemon.call, "approval/respond", approval_id=found["approvals"][0]["approval_id"], decision="allow"
            )
            assert (await prompt).stop_reason == "end_turn"
            asked = [m["id"] for m in editor.raw if m.get("method") == "session/request_permission"]
            gone = [m["params"]["requestId"] for m in editor.raw if m.get("method") == "$/cancel_request"]
            assert asked == gone and len(asked) == 1
            assert (daemon.cwd / "made").exists()
            withdrawn.set()

    asyncio.run(main())


def test_of_two_editors_that_answer_at_once_the_first_wins_and_the_second_is_told(serve: Serve) -> None:
    daemon = serve()

    async def main() -> None:
        go = asyncio.Event()

        def saying(option: str) -> Callable[[object, object], Awaitable[str | None]]:
            async def decide(_call: object, _options: object) -> str | None:
                await go.wait()
                return option

            return decide

        first, second = Editor(saying("allow")), Editor(saying("deny"))
        async with door(daemon, first) as one, door(daemon, second) as two:
            id_ = await one.new(daemon.cwd)
            await one.prompt(id_, "hello")
            await two.agent.load_session(cwd=str(daemon.cwd), session_id=id_, mcp_servers=[])
            prompt = asyncio.create_task(one.prompt(id_, '@run Bash {"command": "touch made"}'))
            await first.until(lambda: first.asked)
            await second.until(lambda: second.asked)
            go.set()
            assert (await prompt).stop_reason == "end_turn"
            page = await asyncio.to_thread(daemon.call, "session/events", session_id=id_, after_seq=0, limit=1000)
            (resolved,) = [event for event in page["events"] if event["type"] == "approval_resolved"]
            allowed = resolved["decision"] == "allow"
            assert (daemon.cwd / "made").exists() == allowed
            lost = second if allowed else first
            withdrawn = lambda: any(m.get("method") == "$/cancel_request" for m in lost.raw)  # noqa: E731
            await lost.until(lambda: withdrawn() or "another client was first" in lost.text())

    asyncio.run(main())


def test_two_editors_see_one_session_and_either_may_answer(serve: Serve) -> None:
    daemon = serve()

    async def never(_call: object, _options: object) -> str | None:
        await asyncio.sleep(3600)
        return None

    async def main() -> None:
        first, second = Editor(never), Editor()
        async with door(daemon, first) as one, door(daemon, second) as two:
            id_ = await one.new(daemon.cwd)
            await one.prompt(id_, "Hello there.")
            await two.agent.load_session(cwd=str(daemon.cwd), session_id=id_, mcp_servers=[])
            assert second.text("user_message_chunk") == "Hello there."
            assert second.text() == first.text() == "You said: Hello there."
            ended = await one.prompt(id_, 'Asking.\n@run Bash {"command": "touch made"}')  # the second editor allows it
            assert ended.stop_reason == "end_turn" and len(second.asked) == 1
            await two.prompt(id_, "From the second.")
            await first.until(lambda: "You said: From the second." in first.text())
            assert "From the second." in first.text("user_message_chunk")
            await second.until(lambda: second.text().count("From the second.") == 1)

    asyncio.run(main())


def test_a_cancelled_prompt_ends_as_cancelled(serve: Serve) -> None:
    daemon = serve()

    async def main() -> None:
        editor = Editor()
        async with door(daemon, editor) as opened:
            id_ = await opened.new(daemon.cwd)
            prompt = asyncio.create_task(opened.prompt(id_, "Before.\n@stall"))
            await editor.until(lambda: "Before." in editor.text())
            await opened.agent.cancel(session_id=id_)
            assert (await prompt).stop_reason == "cancelled"
            at_once = asyncio.create_task(opened.prompt(id_, "@stall"))
            await asyncio.sleep(0)
            await opened.agent.cancel(session_id=id_)
            assert (await at_once).stop_reason == "cancelled"
            assert (await opened.prompt(id_, "On we go.")).stop_reason == "end_turn"

    asyncio.run(main())


def test_modes_options_titles_and_the_list(serve: Serve) -> None:
    daemon = serve()

    async def main() -> None:
        editor = Editor()
        async with door(daemon, editor) as opened:
            state = await opened.agent.new_session(cwd=str(daemon.cwd), mcp_servers=[])
            assert state.modes is not None and state.modes.current_mode_id == "default"
            assert {option.id for option in state.config_options or []} >= {"mode"}
            id_ = state.session_id
            await opened.agent.set_session_mode(session_id=id_, mode_id="plan")
            await editor.until(lambda: [u for u in editor.of("current_mode_update") if u.current_mode_id == "plan"])
            told = await opened.agent.set_config_option(session_id=id_, config_id="mode", value="acceptEdits")
            assert told is not None
            assert next(o for o in told.config_options if o.id == "mode").current_value == "acceptEdits"
            await opened.prompt(id_, "What is the weather?")
            listed = await opened.agent.list_sessions(cwd=str(daemon.cwd))
            assert [(s.session_id, s.title) for s in listed.sessions] == [(id_, "What is the weather?")]
            assert (await opened.agent.list_sessions(cwd="/elsewhere")).sessions == []
            with pytest.raises(acp.RequestError, match="no permission mode"):
                await opened.agent.set_session_mode(session_id=id_, mode_id="nonsense")

    asyncio.run(main())


def test_blocks_of_a_prompt_reach_the_cli(serve: Serve) -> None:
    daemon = serve()

    async def main() -> None:
        editor = Editor()
        async with door(daemon, editor) as opened:
            id_ = await opened.new(daemon.cwd)
            link = acp.resource_link_block("main.py", "file:///a/main.py")
            text = schema.TextResourceContents(uri="file:///a/b.txt", text="the content")
            await opened.agent.prompt(
                session_id=id_, prompt=[acp.text_block("Look at "), link, acp.resource_block(text)]
            )
            said = editor.text()
            assert "Look at [@main.py](/a/main.py)[@b.txt](/a/b.txt)" in said
            assert '<context ref="file:///a/b.txt">\nthe content\n</context>' in said
            with pytest.raises(acp.RequestError, match="audio"):
                await opened.agent.prompt(session_id=id_, prompt=[acp.audio_block("AAAA", "audio/wav")])

    asyncio.run(main())


def test_commands_of_the_door_answer_by_themselves(serve: Serve) -> None:
    daemon = serve()

    async def main() -> None:
        editor = Editor()
        async with door(daemon, editor) as opened:
            id_ = await opened.new(daemon.cwd)
            await opened.prompt(id_, "Hi")
            await opened.prompt(id_, "/status")
            await editor.until(lambda: "- backend: demo" in editor.text())
            await opened.prompt(id_, "/budget 5")
            await editor.until(lambda: "The budget of this session" in editor.text())
            await opened.prompt(id_, "/model nothing-yet")
            assert (await opened.prompt(id_, "/compact")).stop_reason == "end_turn"
            await opened.prompt(id_, "/handover")
            await editor.until(lambda: "name the backend" in editor.text())
            await opened.prompt(id_, "/handover demo")
            await editor.until(lambda: "of demo has this conversation" in editor.text())
            await opened.prompt(id_, "/fork")
            await editor.until(lambda: "has this conversation" in editor.text())

    asyncio.run(main())


def test_forks_are_replayed_with_what_came_before(serve: Serve) -> None:
    daemon = serve()

    async def main() -> None:
        editor, second = Editor(), Editor()
        async with door(daemon, editor) as opened:
            id_ = await opened.new(daemon.cwd)
            await opened.prompt(id_, "First words.")
            forked = await opened.agent.fork_session(session_id=id_, cwd=str(daemon.cwd), mcp_servers=[])
            await opened.prompt(forked.session_id, "Second words.")
            async with door(daemon, second) as other:
                await other.agent.load_session(cwd=str(daemon.cwd), session_id=forked.session_id, mcp_servers=[])
                assert second.text("user_message_chunk") == "First words.Second words."
                assert second.text() == "You said: First words.You said: Second words."

    asyncio.run(main())


def test_closing_leaves_the_session_and_deleting_removes_it(serve: Serve) -> None:
    daemon = serve()

    async def main() -> None:
        editor = Editor()
        async with door(daemon, editor) as opened:
            id_ = await opened.new(daemon.cwd)
            await opened.prompt(id_, "Hi")
            await opened.agent.close_session(session_id=id_)
            with pytest.raises(acp.RequestError) as caught:
                await opened.prompt(id_, "Hi")
            assert caught.value.code == -32002
            editor.updates.clear()
            await opened.agent.load_session(cwd=str(daemon.cwd), session_id=id_, mcp_servers=[])
            assert editor.text() == "You said: Hi"
            assert (await opened.prompt(id_, "Again")).stop_reason == "end_turn"
            await opened.request("session/delete", {"sessionId": id_})
            assert (await opened.agent.list_sessions()).sessions == []

    asyncio.run(main())


async def _cold(opened: Door, editor: Editor, cwd: Path) -> None:
    id_ = await opened.new(cwd)
    with pytest.raises(acp.RequestError) as caught:
        await opened.prompt(id_, "@error login")
    assert caught.value.code == -32000
    assert "log in with the CLI itself" in str(caught.value)


def test_a_cli_that_is_not_logged_in_says_so(serve: Serve) -> None:
    daemon = serve()

    async def main() -> None:
        editor = Editor()
        async with door(daemon, editor) as opened:
            await _cold(opened, editor, daemon.cwd)

    asyncio.run(main())


def test_an_editor_reaches_a_box(serve: Serve, tmp_path: Path) -> None:
    daemon = serve()
    env = {**environment(daemon), "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    del env["CLISUP_SOCKET"]
    words = [sys.executable, "-m", "clisup", "fleet", "add", "build", f"unix://{daemon.socket}"]
    subprocess.run(words, env=env, check=True, capture_output=True, timeout=BOUND_S)

    async def main() -> None:
        editor = Editor()
        async with door(daemon, editor, "--on", "build", "-b", "demo", env=env) as opened:
            id_ = await opened.new(daemon.cwd)
            prompt = asyncio.create_task(opened.prompt(id_, '@stream 5\n@run Bash {"command": "true"}'))
            await editor.until(lambda: editor.asked)
            await asyncio.to_thread(daemon.restart)
            assert (await prompt).stop_reason == "end_turn"
            assert editor.text().count("chunk ") == 5
            await opened.prompt(id_, "/handover demo")
            await editor.until(lambda: "has this conversation" in editor.text())

    asyncio.run(main())


def test_a_request_is_cancelled_by_its_id(serve: Serve) -> None:
    daemon = serve()

    async def main() -> None:
        editor = Editor()
        async with door(daemon, editor) as opened:
            id_ = await opened.new(daemon.cwd)
            prompt = asyncio.create_task(opened.prompt(id_, "Before.\n@stall"))
            await editor.until(lambda: "Before." in editor.text())
            (number,) = [m["id"] for m in editor.raw if m.get("method") == "session/prompt"]
            await opened.agent._conn.send_notification("$/cancel_request", {"requestId": number})
            assert (await prompt).stop_reason == "cancelled"

    asyncio.run(main())


def test_prompts_that_come_at_once_run_in_their_order(serve: Serve) -> None:
    daemon = serve()

    async def main() -> None:
        editor = Editor()
        async with door(daemon, editor) as opened:
            id_ = await opened.new(daemon.cwd)
            prompts = [asyncio.create_task(opened.prompt(id_, f"@sleep 0.2\n@echo number {n}")) for n in range(8)]
            assert {(await prompt).stop_reason for prompt in prompts} == {"end_turn"}
            assert editor.text() == "".join(f"You said: number {n}" for n in range(8))
            assert "The prompt waits for the turns before it" in editor.text("agent_thought_chunk")

    asyncio.run(main())


def test_sub_agents_and_a_crash_are_told(serve: Serve) -> None:
    daemon = serve()

    async def main() -> None:
        editor, other = Editor(), Editor()
        async with door(daemon, editor) as opened, door(daemon, other) as second:
            id_ = await opened.new(daemon.cwd)
            await second.agent.load_session(cwd=str(daemon.cwd), session_id=id_, mcp_servers=[])
            await opened.prompt(id_, "@delegate 0.1 The report. => The answer.")
            assert "The answer." in editor.text()
            with pytest.raises(acp.RequestError, match="the turn failed"):
                await opened.prompt(id_, "@crash")
            await other.until(lambda: "The turn failed" in other.text())
            assert (await opened.prompt(id_, "Alive?")).stop_reason == "end_turn"

    asyncio.run(main())


def test_without_a_backend_the_daemon_chooses_and_still_asks(serve: Serve) -> None:
    daemon = serve(raw='[defaults]\nbackend = "demo"')

    async def main() -> None:
        editor = Editor()
        async with door(daemon, editor, "--no-start") as opened:
            id_ = await opened.new(daemon.cwd)
            assert (await opened.prompt(id_, '@run Bash {"command": "touch made"}')).stop_reason == "end_turn"
            assert len(editor.asked) == 1 and (daemon.cwd / "made").exists()

    asyncio.run(main())


def test_closing_a_thread_ends_its_prompt_as_cancelled(serve: Serve) -> None:
    daemon = serve()

    async def main() -> None:
        editor = Editor()
        async with door(daemon, editor) as opened:
            id_ = await opened.new(daemon.cwd)
            prompts = [asyncio.create_task(opened.prompt(id_, "Before.\n@stall")) for _ in range(2)]
            await editor.until(lambda: "Before." in editor.text())
            await opened.agent.close_session(session_id=id_)
            assert [(await prompt).stop_reason for prompt in prompts] == ["cancelled"] * 2
            assert (await asyncio.to_thread(daemon.call, "session/get", session_id=id_))["queue"] == []

    asyncio.run(main())


def test_a_session_that_was_closed_or_deleted_elsewhere_says_so(serve: Serve) -> None:
    daemon = serve()

    async def main() -> None:
        editor = Editor()
        async with door(daemon, editor) as opened:
            id_ = await opened.new(daemon.cwd)
            await opened.prompt(id_, "Hello")
            prompt = asyncio.create_task(opened.prompt(id_, "Before.\n@stall"))
            await editor.until(lambda: "Before." in editor.text())
            await asyncio.to_thread(daemon.call, "session/close", session_id=id_)
            assert (await prompt).stop_reason == "cancelled"
            with pytest.raises(acp.RequestError, match="closed"):
                await opened.prompt(id_, "Again")
            editor.updates.clear()
            await opened.agent.load_session(cwd=str(daemon.cwd), session_id=id_, mcp_servers=[])
            assert "You said: Hello" in editor.text()  # it can still be read
            await asyncio.to_thread(daemon.call, "session/delete", session_id=id_)
            with pytest.raises(acp.RequestError) as caught:
                await opened.prompt(id_, "Again")
            assert caught.value.code == -32002

    asyncio.run(main())
