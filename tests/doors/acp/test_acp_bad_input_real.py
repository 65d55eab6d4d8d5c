"""What `clisup acp` says to an editor that does something wrong, or whose world is broken."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import acp
import pytest
from acp import schema
from editor import Editor, door, environment
from harness import Harness, until

from clisup.doors.acp.connection import MAX_FRAME

Serve = Callable[..., Harness]
BOUND_S = 120.0
HELLO = {"id": 0, "method": "initialize", "params": {"protocolVersion": 1}}


def exchange(
    daemon: Harness, *frames: dict[str, Any] | bytes, args: tuple[str, ...] = ("-b", "demo"), **env: str
) -> list[Any]:
    """Send frames to a door of its own, close its stdin, and return all that it has said."""
    lines = b"".join(
        frame if isinstance(frame, bytes) else json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n"
        for frame in frames
    )
    words = [sys.executable, "-m", "clisup", "acp", *args]
    done = subprocess.run(
        words, input=lines, env=environment(daemon, **env), capture_output=True, timeout=BOUND_S, check=False
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def talk(daemon: Harness, *frames: dict[str, Any] | bytes, args: tuple[str, ...] = ("-b", "demo")) -> list[Any]:
    """As `exchange`, but each frame with an id is answered before the next one is sent."""
    words = [sys.executable, "-m", "clisup", "acp", *args]
    said: list[Any] = []
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(daemon)) as process:
        assert process.stdin is not None and process.stdout is not None
        for frame in frames:
            data = frame if isinstance(frame, bytes) else json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n"
            process.stdin.write(data)
            process.stdin.flush()
            while isinstance(frame, bytes) or "id" in frame:
                answer = json.loads(process.stdout.readline())
                if "method" not in answer:
                    said.append(answer)
                    break
        process.stdin.close()
    return said


def test_the_version_is_negotiated(serve: Serve) -> None:
    daemon = serve()
    asked = [
        {"id": id_, "method": "initialize", "params": {"protocolVersion": v}} for id_, v in enumerate((1, 2, 0, "1"))
    ]
    versions = talk(daemon, *asked)
    assert [answer.get("result", {}).get("protocolVersion") for answer in versions] == [1, 1, 1, None]
    assert versions[-1]["error"]["code"] == -32602


def test_wrong_requests_get_the_codes_of_the_protocol(serve: Serve) -> None:
    daemon = serve()
    nowhere = "00000000-0000-4000-8000-000000000000"
    said = talk(
        daemon,
        {"id": 1, "method": "session/list", "params": {}},
        HELLO,
        {"id": 2, "method": "session/dance", "params": {}},
        {"id": 3, "method": "session/prompt", "params": {"sessionId": nowhere, "prompt": []}},
        {"id": 4, "method": "session/load", "params": {"sessionId": nowhere, "cwd": "/", "mcpServers": []}},
        {"id": 5, "method": "session/new", "params": {"cwd": "relative", "mcpServers": []}},
        {"id": 6, "method": "session/new", "params": {"cwd": str(daemon.cwd)}},
        {"id": 7, "method": "session/new", "params": {"cwd": "/no/such/directory", "mcpServers": []}},
        {"id": 8, "method": "authenticate", "params": {"methodId": "x"}},
        b'{"jsonrpc": "2.0", "id": 9, "method": \n',
        {"method": "session/cancel", "params": {"sessionId": nowhere}},
        {"method": "_editor/whatever", "params": {}},
        {"id": 10, "method": "session/list", "params": {}},
    )
    codes = {answer["id"]: answer.get("error", {}).get("code") for answer in said}
    assert codes == {
        0: None, 1: -32600, 2: -32601, 3: -32002, 4: -32002, 5: -32602, 6: -32602, 7: -32602, 8: -32602, None: -32700, 10: None,
    }  # fmt: skip
    assert "initialize first" in next(a["error"]["message"] for a in said if a["id"] == 1)


def test_without_a_daemon_each_request_gets_the_reason(serve: Serve, tmp_path: Path) -> None:
    daemon = serve()
    socket = str(tmp_path / "none.sock")
    said = exchange(daemon, HELLO, {"id": 1, "method": "session/list", "params": {}}, CLISUP_SOCKET=socket)
    assert [answer["id"] for answer in said] == [0, 1]
    assert all("clisup start" in answer["error"]["message"] for answer in said)


def test_a_door_starts_the_daemon_that_is_missing(serve: Serve, tmp_path: Path) -> None:
    daemon = serve(start=False)
    daemon.log.touch()
    env = {**environment(daemon), "CLISUP_CONFIG": str(daemon.config), "XDG_RUNTIME_DIR": str(tmp_path)}
    del env["CLISUP_SOCKET"]

    async def main() -> None:
        editor = Editor()
        async with door(daemon, editor, env=env) as opened:
            assert (await opened.prompt(await opened.new(daemon.cwd), "Hello")).stop_reason == "end_turn"

    try:
        asyncio.run(main())
    finally:
        subprocess.run(
            [sys.executable, "-m", "clisup", "stop"], env=env, check=True, timeout=BOUND_S, capture_output=True
        )


def test_an_unknown_backend_is_told_at_once(serve: Serve) -> None:
    daemon = serve()
    (said,) = talk(daemon, HELLO, args=("-b", "nonsense"))
    assert "there is no backend 'nonsense'" in said["error"]["message"]


def test_directories_outside_of_the_root_are_refused(serve: Serve, tmp_path: Path) -> None:
    daemon = serve()
    outside = daemon.call("session/new", backend="demo", cwd="/")["session_id"]
    said = talk(
        daemon,
        HELLO,
        {"id": 1, "method": "session/new", "params": {"cwd": "/", "mcpServers": []}},
        {"id": 2, "method": "session/new", "params": {"cwd": f"{daemon.cwd}/..", "mcpServers": []}},
        {"id": 3, "method": "session/load", "params": {"sessionId": outside, "cwd": "/", "mcpServers": []}},
        {"id": 4, "method": "session/delete", "params": {"sessionId": outside}},
        {"id": 5, "method": "session/list", "params": {}},
        {"id": 6, "method": "session/new", "params": {"cwd": str(daemon.cwd), "mcpServers": []}},
        args=("-b", "demo", "--cwd-root", str(daemon.cwd)),
    )
    refused = [answer["id"] for answer in said if "error" in answer]
    assert refused == [1, 2, 3, 4]
    assert said[5]["result"]["sessions"] == []


def test_a_resource_of_20_mb_is_refused_and_the_session_goes_on(serve: Serve) -> None:
    daemon = serve()

    async def main() -> None:
        editor = Editor()
        async with door(daemon, editor) as opened:
            id_ = await opened.new(daemon.cwd)
            await opened.prompt(id_, "Before.")
            large = schema.TextResourceContents(uri="file:///a/large.txt", text="x" * 20_000_000)
            with pytest.raises(acp.RequestError, match="bytes") as caught:
                await opened.agent.prompt(session_id=id_, prompt=[acp.resource_block(large)])
            assert caught.value.code == -32600
            assert (await opened.prompt(id_, "After.")).stop_reason == "end_turn"
            assert editor.text() == "You said: Before.You said: After."

    asyncio.run(main())


def test_a_message_without_an_end_ends_the_door_and_no_turn(serve: Serve) -> None:
    daemon = serve()
    said = exchange(daemon, HELLO, b"x" * (MAX_FRAME + 1))
    [refused] = [answer["error"] for answer in said if "error" in answer]  # the answer to HELLO may come after it
    assert refused["data"]["limit"] == "max_frame_bytes"
    assert daemon.call("session/list")["sessions"] == []


def test_an_editor_that_dies_leaves_its_approval_to_others(serve: Serve) -> None:
    daemon = serve()

    async def never(_call: object, _options: object) -> str | None:
        await asyncio.sleep(3600)
        return None

    async def main() -> str:
        editor = Editor(never)
        async with door(daemon, editor) as opened:
            id_ = await opened.new(daemon.cwd)
            prompt = asyncio.create_task(opened.prompt(id_, '@run Bash {"command": "touch made"}'))
            await editor.until(lambda: editor.asked)
            prompt.cancel()
            return id_

    id_ = asyncio.run(main())
    (approval,) = daemon.call("approval/list")["approvals"]
    assert approval["session_id"] == id_
    daemon.call("approval/respond", approval_id=approval["approval_id"], decision="allow")

    async def again() -> None:
        editor = Editor()
        async with door(daemon, editor) as opened:
            await opened.agent.load_session(cwd=str(daemon.cwd), session_id=id_, mcp_servers=[])
            await opened.prompt(id_, "And now?")
            assert "You said: And now?" in editor.text()

    asyncio.run(again())
    assert (daemon.cwd / "made").exists()


def test_an_editor_without_dialogs_leaves_the_approval_open(serve: Serve) -> None:
    daemon = serve()

    async def refuse(_call: object, _options: object) -> str | None:
        raise acp.RequestError.method_not_found("session/request_permission")

    async def main() -> None:
        editor = Editor(refuse)
        async with door(daemon, editor) as opened:
            id_ = await opened.new(daemon.cwd)
            prompt = asyncio.create_task(opened.prompt(id_, '@run Bash {"command": "touch made"}'))
            await editor.until(lambda: editor.asked)
            (approval,) = (await asyncio.to_thread(daemon.call, "approval/list"))["approvals"]
            await asyncio.to_thread(
                daemon.call, "approval/respond", approval_id=approval["approval_id"], decision="allow"
            )
            assert (await prompt).stop_reason == "end_turn"

    asyncio.run(main())


def test_the_log_has_methods_and_no_texts(serve: Serve, tmp_path: Path) -> None:
    daemon = serve()
    log = tmp_path / "acp.log"

    async def main() -> None:
        async with door(daemon, Editor(), "-b", "demo", "--log-file", str(log)) as opened:
            await opened.prompt(await opened.new(daemon.cwd), "a secret of mine")
            with pytest.raises(acp.RequestError):
                await opened.prompt("nowhere", "a secret of mine")

    asyncio.run(main())
    text = log.read_text()
    assert "session/prompt" in text and "error -32002" in text and "secret" not in text


def test_an_editor_that_does_not_read_for_a_while_loses_nothing(serve: Serve) -> None:
    daemon = serve()
    count = 20_000
    words = [sys.executable, "-m", "clisup", "acp", "-b", "demo"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(daemon)) as process:
        assert process.stdin is not None and process.stdout is not None

        def send(frame: dict[str, Any]) -> None:
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]

        def until_answer(id_: int) -> list[dict[str, Any]]:
            said: list[dict[str, Any]] = []
            while not said or said[-1].get("id") != id_:
                said.append(json.loads(process.stdout.readline()))  # type: ignore[union-attr]
            return said

        send(HELLO)
        until_answer(0)
        send({"id": 1, "method": "session/new", "params": {"cwd": str(daemon.cwd), "mcpServers": []}})
        id_ = until_answer(1)[-1]["result"]["sessionId"]
        text = {"type": "text", "text": f"@stream {count}"}
        send({"id": 2, "method": "session/prompt", "params": {"sessionId": id_, "prompt": [text]}})
        until(lambda: daemon.call("session/get", session_id=id_)["turns"] == 1, "the turn goes on without the editor")
        said = until_answer(2)
        chunks = "".join(
            frame["params"]["update"]["content"]["text"]
            for frame in said
            if frame.get("params", {}).get("update", {}).get("sessionUpdate") == "agent_message_chunk"
        )
        assert chunks.count("chunk ") == count and said[-1]["result"]["stopReason"] == "end_turn"
        process.stdin.close()


def test_a_form_that_is_refused_is_asked_again(serve: Serve) -> None:
    daemon = serve()
    fields = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 1}}, "required": ["age"]}
    answers = iter([{"age": -1}, {"age": 7}])

    async def fill(_message: str, _mode: Any) -> Any:
        return next(answers)

    async def main() -> None:
        editor = Editor(fill=fill)
        form = {"elicitation": schema.ElicitationCapabilities(form=schema.ElicitationFormCapabilities())}
        async with door(daemon, editor, **form) as opened:
            id_ = await opened.new(daemon.cwd)
            asked = json.dumps({"message": "How old?", "mode": "form", "requested_schema": fields})
            assert (await opened.prompt(id_, f"@ask mcp__who__elicitation {asked}")).stop_reason == "end_turn"
            assert len(editor.forms) == 2 and "The answer was not taken" in editor.text()

    asyncio.run(main())
