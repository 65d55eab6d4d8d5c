"""The MCP bridge as a CLI sees it: the official client of the MCP project speaks to it, and a real daemon is behind it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self

import mcp_types
import pytest
import trio
from harness import Harness
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError

from clisup.bridge import bridge
from clisup.client.aio import open_client
from clisup.client.aio_tools import ToolCall, ToolReply, serve_tools

BOUND_S = 60.0
BRIDGE = bridge.__file__
ADD = {
    "name": "add",
    "description": "Adds.",
    "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}},
}
HANG = {"name": "hang", "description": "Never ends.", "input_schema": {"type": "object"}}
GIF = "R0lGODlhAAAAAAAAAAAA"


def configured(daemon: Harness, session_id: str) -> dict[str, str]:
    path = daemon.state / "sessions" / session_id / "private" / "tools.json"
    return {"CLISUP_BRIDGE_SOCKET": daemon.socket, "CLISUP_BRIDGE_TOKEN": json.loads(path.read_text())["token"]}


class Desk:
    """What the client of the session has seen."""

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []
        self.dropped = trio.Event()
        self.gate = trio.Event()

    async def run(self, call: ToolCall) -> ToolReply:
        self.calls.append(call)
        if call.name == "hang":
            try:
                await self.gate.wait()
            finally:
                self.dropped.set()
        if "error" in call.input:
            return ToolReply(call.input["error"], is_error=True)
        if "image" in call.input:
            image = {"type": "image", "media_type": "image/gif", "data": GIF}
            return ToolReply([{"type": "text", "text": "a dot"}, image])
        return ToolReply(str(call.input.get("a", "done")))


@asynccontextmanager
async def served(daemon: Harness) -> AsyncIterator[tuple[str, Desk]]:
    """A session with two tools, and who runs them."""
    with trio.fail_after(BOUND_S):
        async with open_client(daemon.socket) as client, trio.open_nursery() as nursery:
            session = await client.open("demo", str(daemon.cwd), tools=[ADD, HANG])
            desk = Desk()
            await nursery.start(serve_tools, client, session.id, desk.run)
            yield session.id, desk
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def speaking(env: dict[str, str]) -> AsyncIterator[ClientSession]:
    server = StdioServerParameters(command=sys.executable, args=["-I", "-S", BRIDGE], env=env)
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        yield session


@pytest.fixture
def daemon(serve: Callable[..., Harness]) -> Harness:
    return serve()


def text_of(result: mcp_types.CallToolResult) -> str:
    block = result.content[0]
    assert isinstance(block, mcp_types.TextContent)
    return block.text


async def test_the_official_client_finds_the_tools_and_calls_them(daemon: Harness) -> None:
    async with served(daemon) as (session_id, desk), speaking(configured(daemon, session_id)) as mcp:
        tools = (await mcp.list_tools()).tools
        assert [(tool.name, tool.description, tool.input_schema) for tool in tools] == [
            ("add", "Adds.", ADD["input_schema"]), ("hang", "Never ends.", HANG["input_schema"]),
        ]  # fmt: skip
        assert text_of(await mcp.call_tool("add", {"a": 7})) == "7"
        assert (desk.calls[0].name, desk.calls[0].input) == ("add", {"a": 7})
        failed = await mcp.call_tool("add", {"error": "no"})
        assert failed.is_error and text_of(failed) == "no"
        drawn = (await mcp.call_tool("add", {"image": True})).content
        assert drawn[1] == mcp_types.ImageContent(type="image", data=GIF, mime_type="image/gif")
        await mcp.send_ping()


async def test_an_unknown_tool_is_told_in_words(daemon: Harness) -> None:
    async with served(daemon) as (session_id, _), speaking(configured(daemon, session_id)) as mcp:
        result = await mcp.call_tool("rm", {})
        assert result.is_error and text_of(result) == "There is no tool 'rm'; there are: add, hang."


async def test_calls_of_the_official_client_run_side_by_side(daemon: Harness) -> None:
    async with (
        served(daemon) as (session_id, desk),
        speaking(configured(daemon, session_id)) as mcp,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(mcp.call_tool, "hang", {})
        while not desk.calls:
            await trio.sleep(0.01)
        assert text_of(await mcp.call_tool("add", {"a": 1})) == "1"
        desk.gate.set()


async def test_a_call_that_the_cli_cancels_is_cancelled_at_the_client(daemon: Harness) -> None:
    async with served(daemon) as (session_id, desk):
        with Raw(configured(daemon, session_id)) as raw:
            raw.say({"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": {"name": "hang"}})
            while not desk.calls:
                await trio.sleep(0.01)
            raw.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "x"}})
            await desk.dropped.wait()
            raw.say({"jsonrpc": "2.0", "id": 2, "method": "ping"})
            assert (await trio.to_thread.run_sync(raw.hear))["id"] == 2  # and nothing was said of the call


async def test_a_bridge_whose_cli_dies_drops_its_calls(daemon: Harness) -> None:
    async with served(daemon) as (session_id, desk):
        with Raw(configured(daemon, session_id)) as raw:
            raw.say({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "hang", "arguments": {}}})
            while not desk.calls:
                await trio.sleep(0.01)
        await desk.dropped.wait()
        assert raw.process.returncode == 0


@pytest.mark.parametrize("key", ["claudecode/toolUseId", "callId"])
async def test_the_id_that_the_cli_has_for_the_call_is_passed_on(daemon: Harness, key: str) -> None:
    async with served(daemon) as (session_id, desk):
        with Raw(configured(daemon, session_id)) as raw:
            params = {"name": "add", "arguments": {}, "_meta": {key: "toolu_1", "progressToken": 4}}
            raw.say({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
            await trio.to_thread.run_sync(raw.hear)
        assert desk.calls[0].tool_use_id == "toolu_1"


@pytest.mark.parametrize("restarts", ["kill", "in place"])
async def test_a_call_goes_on_across_the_death_of_the_daemon_and_runs_once(daemon: Harness, restarts: str) -> None:
    async with served(daemon) as (session_id, desk), speaking(configured(daemon, session_id)) as mcp:
        results: list[mcp_types.CallToolResult] = []

        async def call() -> None:
            results.append(await mcp.call_tool("hang", {"a": 5}))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            while not desk.calls:
                await trio.sleep(0.01)
            if restarts == "kill":
                await trio.to_thread.run_sync(daemon.restart)
            else:
                before = daemon.identity()["instance_id"]
                daemon.call("daemon/restart")
                await trio.to_thread.run_sync(daemon.await_successor, before)
            assert not desk.dropped.is_set()
            desk.gate.set()
        assert text_of(results[0]) == "5" and len(desk.calls) == 1


async def test_a_token_that_is_no_ones_gives_errors_and_no_tools(daemon: Harness) -> None:
    env = {"CLISUP_BRIDGE_SOCKET": daemon.socket, "CLISUP_BRIDGE_TOKEN": "nobody"}
    with trio.fail_after(BOUND_S):
        async with speaking(env) as mcp:
            with pytest.raises(MCPError, match="is gone"):
                await mcp.list_tools()
            result = await mcp.call_tool("add", {})
            assert result.is_error and "belongs to no open session" in text_of(result)


async def test_more_calls_than_may_be_open_are_errors_and_a_cancellation_is_still_heard(
    serve: Callable[..., Harness],
) -> None:
    daemon = serve(daemon={"max_requests": 4})
    async with served(daemon) as (session_id, desk):
        with Raw(configured(daemon, session_id)) as raw:
            raw.ask("tools/list", id_="list")
            for number in range(5):
                raw.say({"id": number, "method": "tools/call", "params": {"name": "hang"}})
            for number in (3, 4):
                answer = raw.hear()
                assert answer["id"] == number and "3 calls are open" in answer["result"]["content"][0]["text"]
            while len(desk.calls) < 3:
                await trio.sleep(0.01)
            raw.say({"method": "notifications/cancelled", "params": {"requestId": 0}})
            await desk.dropped.wait()
            desk.gate.set()
            assert {(await trio.to_thread.run_sync(raw.hear))["id"] for _ in range(2)} == {1, 2}


@pytest.mark.parametrize("odd", ['"\\ud83d"', "NaN", "1e999", "[" * 250 + "]" * 250])
async def test_a_call_that_cannot_be_passed_on_fails_alone(daemon: Harness, odd: str) -> None:
    async with served(daemon) as (session_id, desk):
        with Raw(configured(daemon, session_id)) as raw:
            raw.say({"id": 1, "method": "tools/call", "params": {"name": "hang", "arguments": {"a": 6}}})
            while not desk.calls:
                await trio.sleep(0.01)
            raw.say(
                f'{{"id": 2, "method": "tools/call", "params": {{"name": "add", "arguments": {{"a": {odd}}}}}}}'.encode()
                + b"\n"
            )
            refused = await trio.to_thread.run_sync(raw.hear)
            assert (refused["id"], refused["result"]["isError"]) == (2, True)
            assert "mend it" in refused["result"]["content"][0]["text"]
            desk.gate.set()
            answered = await trio.to_thread.run_sync(raw.hear)
            assert (answered["id"], answered["result"]["content"][0]["text"]) == (1, "6")


# -- a model's own tool, below the keeper


async def test_what_a_cli_starts_may_speak_for_the_bridge_alone_and_by_the_right_token(daemon: Harness) -> None:
    async with served(daemon) as (session_id, _):
        token = configured(daemon, session_id)["CLISUP_BRIDGE_TOKEN"]
        script = daemon.root / "speak.py"
        script.write_text(
            textwrap.dedent(f"""
            import json, socket
            def ask(s, *calls):
                for method, params in calls:
                    s.sendall(json.dumps({{"id": 1, "method": method, "params": params}}).encode() + b"\\n")
                    print(method, s.makefile().readline().strip())
            def dial():
                s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect({daemon.socket!r}); return s
            ask(dial(), ("session/list", {{}}), ("bridge/call", {{"call_id": "c", "name": "add"}}))
            ask(dial(), ("bridge/hello", {{"token": "{session_id}.wrong"}}))
            ask(dial(), ("bridge/hello", {{"token": {token!r}}}), ("session/close", {{"session_id": "{session_id}"}}))
            ask(dial(), ("tool/serve", {{"session_id": "{session_id}"}}))
            """)
        )
        with daemon.wire() as wire:
            params = {"session_id": session_id, "prompt": f"@bash {sys.executable} -I -S {script} 2>&1", "wait": True}
            await trio.to_thread.run_sync(lambda: wire.call("session/prompt", **params))
            page = wire.call("session/events", session_id=session_id, types=["tool_result"])
        said = page["events"][0]["content"]
        lines = [line for line in said.splitlines() if line.startswith(("session/", "bridge/", "tool/"))]
        answers = [("permission_denied" in line, line.split()[0]) for line in lines]
        assert answers == [
            (True, "session/list"), (True, "bridge/call"), (True, "bridge/hello"), (False, "bridge/hello"),
            (True, "session/close"), (True, "tool/serve"),
        ], said  # fmt: skip


# -- the protocol's own edges


class Raw:
    """A CLI that speaks as it likes."""

    def __init__(self, env: dict[str, str]) -> None:
        argv = [sys.executable, "-I", "-S", BRIDGE]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)

    def say(self, frame: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(frame if isinstance(frame, bytes) else json.dumps(frame).encode() + b"\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return dict(json.loads(self.process.stdout.readline()))

    def ask(self, method: str, params: Any = None, id_: Any = 1) -> dict[str, Any]:
        self.say({"jsonrpc": "2.0", "id": id_, "method": method, **({} if params is None else {"params": params})})
        return self.hear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        with suppress(OSError):
            self.process.stdin.close()
        self.process.wait(BOUND_S)
        self.process.stdout.close()


_VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just({"name": "add"})
_WORDS = st.sampled_from(["initialize", "tools/list", "tools/call", "ping", "notifications/cancelled", "x"])
MESSAGES = st.recursive(
    st.fixed_dictionaries(
        {}, optional={"id": _VALUES, "method": _WORDS | _VALUES, "params": _VALUES, "result": _VALUES}
    ),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
ALONE = {"CLISUP_BRIDGE_SOCKET": "/nonexistent/s", "CLISUP_BRIDGE_TOKEN": "t"}


@pytest.mark.parametrize(
    ("asked", "given"),
    [*((version, version) for version in bridge.VERSIONS), ("2026-07-28", "2025-11-25"), (None, "2025-11-25")],
)
def test_it_speaks_the_version_that_is_asked_for_or_its_newest(asked: str | None, given: str) -> None:
    with Raw(ALONE) as raw:
        answer = raw.ask("initialize", {"protocolVersion": asked})
    assert answer["result"]["protocolVersion"] == given
    assert answer["result"]["capabilities"] == {"tools": {"listChanged": False}}


def test_what_is_asked_before_or_beside_the_handshake_is_answered(daemon: Harness) -> None:
    with Raw(ALONE) as raw:
        assert raw.ask("server/discover", {}, "server-discover-probe-1")["error"]["code"] == -32601
        assert raw.ask("ping", id_="p") == {"jsonrpc": "2.0", "id": "p", "result": {}}
        assert raw.ask("tools/call", {"name": 3})["error"]["code"] == -32602
        assert raw.ask("tools/call", {"name": "a", "arguments": [1]})["error"]["code"] == -32602
        raw.say(b"no json\n")
        assert raw.hear()["error"]["code"] == -32700
        raw.say(b"3\n")
        assert raw.hear()["error"]["code"] == -32600
        raw.say(
            [{"jsonrpc": "2.0", "id": 5, "method": "ping"}, {"jsonrpc": "2.0", "method": "notifications/initialized"}]
        )
        assert raw.hear()["id"] == 5
    assert raw.process.returncode == 0


def test_a_long_call_is_put_together_and_too_long_a_one_is_told(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon={"max_frame_bytes": 4 * 1024 * 1024})
    with daemon.wire() as client:
        params = {"backend": "demo", "cwd": str(daemon.cwd), "tools": [ADD]}
        session_id = client.call("session/new", **params)["session_id"]
        with Raw(configured(daemon, session_id)) as raw:
            assert raw.ask("tools/list")["result"]["tools"][0]["name"] == "add"
            raw.say({"id": 1, "method": "tools/call", "params": {"name": "add", "arguments": {"x": "y" * 3_000_000}}})
            call = client.frame()
            assert len(call["params"]["input"]["x"]) == 3_000_000
            client.send({"id": call["id"], "result": {"content": "z" * 3_000_000}})
            assert len(raw.hear()["result"]["content"][0]["text"]) == 3_000_000
            answer = raw.ask("tools/call", {"name": "add", "arguments": {"x": "y" * 5_000_000}})
            assert answer["result"]["isError"] and "larger than" in answer["result"]["content"][0]["text"]


@settings(max_examples=200)
@given(st.one_of(st.binary(max_size=60), MESSAGES.map(lambda value: json.dumps(value).encode())))
def test_no_line_of_a_cli_ends_it(line: bytes) -> None:
    said: list[dict[str, Any]] = []
    made = bridge.Bridge("/nonexistent/s", "t", said.append)
    made.handle_line(line)
    assert all(json.dumps(frame) for frame in said)


def test_without_its_variables_it_says_so_and_goes() -> None:
    ended = subprocess.run([sys.executable, "-I", "-S", BRIDGE], env={}, capture_output=True, check=False)
    assert ended.returncode == 2
    assert b"CLISUP_BRIDGE_TOKEN is not set" in ended.stderr


def test_it_is_light_to_start(tmp_path: Path) -> None:
    probe = f"import sys; exec(open({BRIDGE!r}).read(), {{'__name__': 'x'}}); print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-I", "-S", "-c", probe], capture_output=True, text=True, check=True
    ).stdout
    assert not {"asyncio", "subprocess", "inspect"} & set(loaded.split())


def test_a_signal_ends_it() -> None:
    raw = Raw(ALONE)
    raw.ask("ping")
    raw.process.send_signal(signal.SIGTERM)
    with raw:
        assert raw.process.wait(BOUND_S) == -signal.SIGTERM


# -- patience, with a clock of the test's


class Clock:
    """`time` for the bridge."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


def test_a_daemon_that_does_not_come_back_is_waited_for_and_then_told_as_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock, said = Clock(), []
    monkeypatch.setattr(bridge, "time", clock)
    made = bridge.Bridge(str(tmp_path / "s"), "t", said.append)
    made.handle_line(b'{"id": 1, "method": "tools/call", "params": {"name": "add"}}')
    made.handle_line(b'{"id": 2, "method": "tools/list"}')
    while clock.now < 1000 + bridge.PATIENCE_S:
        assert not said
        made.daemon.connect(clock.now)
        clock.now += made.daemon.deadline(clock.now) or 0
    made.daemon.connect(clock.now)
    assert not made.needs_daemon
    (call, listed) = said
    assert call["result"]["isError"] and "is gone" in call["result"]["content"][0]["text"]
    assert listed["error"]["code"] == -32603
    made.handle_line(b'{"id": 3, "method": "tools/list"}')  # for the next one patience begins anew
    clock.now += 10_000
    made.daemon.connect(clock.now)
    assert made.needs_daemon
