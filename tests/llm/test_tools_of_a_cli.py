"""A CLI, its bridge, the daemon and a program, all real: what a model calls is run here, once, whatever dies on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from harness import Harness, until

from clisup.client.aio import open_client
from clisup.client.aio_session import AsyncSession
from clisup.client.aio_tools import ToolCall, ToolReply, serve_tools

BOUND_S = 60.0
NAMES = ("add", "slow")


class Desk:
    """What a program was asked, and a tool that ends when the test says so."""

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []
        self.gate = trio.Event()
        self.cancelled = trio.Event()

    async def run(self, call: ToolCall) -> ToolReply:
        self.calls.append(call)
        if call.name == "slow":
            try:
                await self.gate.wait()
            except trio.Cancelled:
                self.cancelled.set()
                raise
        return ToolReply(str(sum(call.input.values())))

    async def asked(self) -> None:
        while not self.calls:
            await trio.sleep(0.01)


def tools(**slow: Any) -> list[dict[str, Any]]:
    extra = {"slow": slow}
    return [{"name": name, "input_schema": {"type": "object"}, **extra.get(name, {})} for name in NAMES]


@asynccontextmanager
async def working(
    daemon: Harness, options: dict[str, Any] | None = None, **slow: Any
) -> AsyncIterator[tuple[AsyncSession, Desk]]:
    with trio.fail_after(BOUND_S):
        async with open_client(daemon.socket) as client, trio.open_nursery() as nursery:
            async with client.session("demo", str(daemon.cwd), tools=tools(**slow), **(options or {})) as session:
                desk = Desk()
                await nursery.start(serve_tools, client, session.id, desk.run)
                yield session, desk
            nursery.cancel_scope.cancel()


async def results(session: AsyncSession) -> list[tuple[str, bool]]:
    found = [envelope.event async for envelope in session.history(types=["tool_result"])]
    return [(event.content, event.is_error) for event in found]  # type: ignore[union-attr]


async def during(work: Callable[[], Awaitable[Any]], then: Callable[[], Awaitable[None]]) -> Any:
    """What `work` gives; meanwhile `then`."""
    given: list[Any] = []

    async def keep() -> None:
        given.append(await work())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep)
        await then()
    return given[0]


@pytest.mark.parametrize("mode", ["one-shot", "live"])
async def test_the_model_calls_a_tool_and_the_turn_goes_on_with_its_result(
    serve: Callable[..., Harness], mode: str
) -> None:
    async with working(serve(), {"mode": mode}) as (session, desk):
        for turn in (1, 2):
            done = await session.prompt(f'@mcp add {{"a": 2, "b": {turn}}}')
            assert done.outcome == "completed"
        assert await results(session) == [("3", False), ("4", False)]
        uses = [e.event async for e in session.history(types=["tool_use"])]
        assert [use.name for use in uses] == ["mcp__clisup__add"] * 2  # type: ignore[union-attr]
        assert [call.tool_use_id for call in desk.calls] == [use.tool_use_id for use in uses]  # type: ignore[union-attr]
        assert [call.turn_id for call in desk.calls] == ["t1", "t2"]


async def test_tools_stand_beside_the_servers_that_the_client_brought(serve: Callable[..., Harness]) -> None:
    server = Path(__file__).parents[1] / "e2e" / "tool_server.py"
    mine = {"mcpServers": {"mine": {"command": sys.executable, "args": [str(server)]}}}
    async with working(serve(), {"mcp_config": mine}) as (session, _):
        await session.prompt('@mcp add {"a": 1}')
        inits = [e.event async for e in session.history(types=["session_init"])]
        names = [found["name"] for found in inits[0].mcp_servers]  # type: ignore[union-attr]
        assert names == ["mine", "clisup"]


async def test_parallel_calls_of_a_model_are_open_side_by_side(serve: Callable[..., Harness]) -> None:
    async with working(serve()) as (session, desk):

        async def both() -> None:
            while len(desk.calls) < 2:
                await trio.sleep(0.01)
            desk.gate.set()

        prompt = '@parallel\n@mcp slow {"n": 1}\n@mcp slow {"n": 2}\n@end'
        done = await during(lambda: session.prompt(prompt), both)
        assert done.outcome == "completed", done
        assert sorted(await results(session)) == [("1", False), ("2", False)]


@pytest.mark.parametrize("mode", ["one-shot", "live"])
async def test_a_kill_of_the_daemon_in_the_middle_of_a_call_loses_and_repeats_nothing(
    serve: Callable[..., Harness], mode: str
) -> None:
    daemon = serve()
    async with working(daemon, {"mode": mode}) as (session, desk):

        async def kill() -> None:
            await desk.asked()
            await trio.to_thread.run_sync(daemon.restart)
            await trio.to_thread.run_sync(daemon.restart)
            desk.gate.set()

        done = await during(lambda: session.prompt('@mcp slow {"n": 7}', key="k"), kill)
        assert done.outcome == "completed"
        assert await results(session) == [("7", False)]
        assert len(desk.calls) == 1


def start(argv: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv, stdout=subprocess.PIPE)


async def test_a_program_that_is_killed_in_the_middle_is_followed_by_another(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = serve()
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
        import sys, trio
        from clisup.client.aio import open_client
        from clisup.client.aio_tools import serve_tools

        async def run(call):
            print(call.call_id, flush=True)
            await trio.sleep_forever()

        async def main():
            async with open_client(sys.argv[1]) as client:
                await serve_tools(client, sys.argv[2], run)

        trio.run(main)
        """)
    )
    async with open_client(daemon.socket) as client, trio.open_nursery() as nursery:
        session = await client.open("demo", str(daemon.cwd), tools=tools())
        argv = [sys.executable, str(program), daemon.socket, session.id]
        process = start(argv)
        desk = Desk()
        desk.gate.set()
        heard: list[str] = []

        async def follow() -> None:
            assert process.stdout is not None
            heard.append((await trio.to_thread.run_sync(process.stdout.readline)).decode().strip())
            process.send_signal(signal.SIGKILL)
            await trio.to_thread.run_sync(process.wait)
            process.stdout.close()
            await nursery.start(serve_tools, client, session.id, desk.run)

        with daemon.wire() as wire:
            # Until the program serves, calls come here and wait for it.
            until(lambda: wire.call("session/get", session_id=session.id)["tools"]["served"])
        with trio.fail_after(BOUND_S):
            done = await during(lambda: session.prompt('@mcp slow {"n": 9}'), follow)
        assert done.outcome == "completed"
        assert await results(session) == [("9", False)]
        assert [call.call_id for call in desk.calls] == heard
        await session.close()
        nursery.cancel_scope.cancel()


async def test_an_interrupt_ends_the_call_at_the_program(serve: Callable[..., Harness]) -> None:
    async with working(serve()) as (session, desk):

        async def stop() -> None:
            await desk.asked()
            await session.interrupt()

        done = await during(lambda: session.prompt('@mcp slow {"n": 1}'), stop)
        assert done.outcome == "interrupted"
        await desk.cancelled.wait()


async def test_a_tool_that_takes_too_long_is_an_error_for_the_model_and_the_turn_goes_on(
    serve: Callable[..., Harness],
) -> None:
    async with working(serve(), timeout_s=0.2) as (session, desk):
        done = await session.prompt('@mcp slow {"n": 1}')
        assert done.outcome == "completed"
        ((text, is_error),) = await results(session)
        assert is_error and "did not answer within 0.2 s" in text
        await desk.cancelled.wait()


async def test_the_watchdog_lets_a_turn_be_that_waits_for_a_tool_of_ours(serve: Callable[..., Harness]) -> None:
    daemon = serve(timeouts={"tool_idle": 5, "model_idle": 5})
    async with working(daemon) as (session, desk):

        async def patient() -> None:
            await desk.asked()
            watch = (await session.info()).watch
            while watch is None or watch["phase"] != "tool":
                watch = (await session.info()).watch
            assert watch["timers"] == []  # so nothing can end it, however long the tool takes
            assert watch["next"] == "a tool that the client runs is waited for: its own limit ends the call"
            desk.gate.set()

        done = await during(lambda: session.prompt('@mcp slow {"n": 3}'), patient)
        assert done.outcome == "completed", done
        assert await results(session) == [("3", False)]


def holders(session_id: str) -> dict[str, bool]:
    """The processes of a session's CLI by their words, and whether the token is in their environment."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            environ, argv = (Path(f"/proc/{name}/{file}").read_bytes() for file in ("environ", "cmdline"))
        except OSError:
            continue
        if f"CLISUP_SESSION={session_id}\0".encode() in environ:
            assert b"TOKEN" not in argv
            found[argv.decode().replace("\0", " ")] = b"CLISUP_BRIDGE_TOKEN=" in environ
    return found


async def test_nobody_but_the_bridge_has_the_token_in_its_environment(serve: Callable[..., Harness]) -> None:
    async with working(serve()) as (session, desk):
        found: dict[str, bool] = {}

        async def look() -> None:
            await desk.asked()
            found.update(await trio.to_thread.run_sync(holders, session.id))
            desk.gate.set()

        await during(lambda: session.prompt('@parallel\n@mcp slow {"n": 1}\n@bash env\n@end'), look)
        assert [("bridge.py" in argv, holds) for argv, holds in found.items() if "bridge.py" in argv or holds] == [
            (True, True)
        ]
        assert not any("CLISUP_BRIDGE" in text for text, _ in await results(session))
