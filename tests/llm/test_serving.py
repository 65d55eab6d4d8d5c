"""Tools that a program serves: run once for each call, side by side, across the death of daemons and of programs. Real daemons."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from harness import Harness
from wire import Wire

from clisup.client.aio import AsyncClient, open_client
from clisup.client.aio_tools import ToolCall, ToolReply, serve_tools
from clisup.errors import ClisupError, UsageError
from clisup.llm.messages import ImageBlock, TextBlock
from clisup.llm.serving import serving, to_wire
from clisup.llm.tools import ToolOutput

BOUND_S = 40.0
GIF = ImageBlock.of(b"GIF89a" + b"\0" * 9, "image/gif")


@dataclass
class Made:
    """A tool of a test's."""

    name: str
    work: Callable[[dict[str, Any]], Awaitable[ToolOutput]]
    description: str = "A tool."
    timeout_s: float | None = None

    @property
    def input_schema(self) -> dict[str, Any]:
        return {"type": "object"}

    async def run(self, arguments: dict[str, Any]) -> ToolOutput:
        return await self.work(arguments)


class Bench:
    """A session with tools, and its bridge, which is a raw connection."""

    def __init__(self, daemon: Harness, client: AsyncClient, session_id: str) -> None:
        self.daemon, self.client, self.id = daemon, client, session_id
        self.bridge = self.new_bridge()

    def new_bridge(self) -> Wire:
        path = self.daemon.state / "sessions" / self.id / "private" / "tools.json"
        wire = self.daemon.wire()
        wire.call("bridge/hello", token=json.loads(path.read_text())["token"])
        return wire

    def ask(self, name: str, call_id: str = "c1", **arguments: Any) -> int:
        return self.bridge.post("bridge/call", call_id=call_id, name=name, input=arguments)

    async def result(self, id_: int) -> dict[str, Any]:
        return dict(await trio.to_thread.run_sync(self.bridge.answer, id_))

    async def call(self, name: str, call_id: str = "c1", **arguments: Any) -> dict[str, Any]:
        return await self.result(self.ask(name, call_id, **arguments))


@asynccontextmanager
async def bench(daemon: Harness, *tools: Made) -> AsyncIterator[Bench]:
    with trio.fail_after(BOUND_S):
        async with open_client(daemon.socket) as client:
            session = await client.open("demo", str(daemon.cwd), tools=to_wire(tools))
            made = Bench(daemon, client, session.id)
            try:
                yield made
            finally:
                made.bridge.close()


@pytest.fixture
def daemon(serve: Callable[..., Harness]) -> Harness:
    return serve()


def counting(calls: list[dict[str, Any]], gate: trio.Event | None = None) -> Made:
    async def work(arguments: dict[str, Any]) -> ToolOutput:
        calls.append(arguments)
        if gate is not None:
            await gate.wait()
        return ToolOutput(f"run {len(calls)}")

    return Made("count", work)


async def until(what: Callable[[], Any]) -> None:
    while not what():
        await trio.sleep(0.01)


# -- the plain way


async def test_a_tool_is_run_with_its_arguments_and_its_output_goes_back(daemon: Harness) -> None:
    async def add(arguments: dict[str, Any]) -> ToolOutput:
        return ToolOutput(str(arguments["a"] + arguments["b"]))

    async def draw(arguments: dict[str, Any]) -> ToolOutput:
        return ToolOutput([TextBlock(text="a dot", cache=True), GIF])

    tools = (Made("add", add), Made("draw", draw))
    async with bench(daemon, *tools) as on, serving(on.client, on.id, tools):
        assert await on.call("add", a=2, b=3) == {"content": "5", "is_error": False}
        assert (await on.call("draw", "c2"))["content"] == [
            {"type": "text", "text": "a dot"}, {"type": "image", "media_type": "image/gif", "data": GIF.data},
        ]  # fmt: skip


async def test_calls_run_side_by_side(daemon: Harness) -> None:
    together = trio.Event()
    inside = 0

    async def meet(arguments: dict[str, Any]) -> ToolOutput:
        nonlocal inside
        inside += 1
        if inside == 3:
            together.set()
        await together.wait()
        return ToolOutput(str(arguments["n"]))

    tool = Made("meet", meet)
    async with bench(daemon, tool) as on, serving(on.client, on.id, [tool]):
        ids = [on.ask("meet", f"c{n}", n=n) for n in range(3)]
        assert [(await on.result(id_))["content"] for id_ in ids] == ["0", "1", "2"]


async def test_a_tool_that_raises_is_told_to_the_model_and_the_others_go_on(daemon: Harness) -> None:
    async def bad(arguments: dict[str, Any]) -> ToolOutput:
        raise KeyError("no such thing")

    calls: list[dict[str, Any]] = []
    tools = (Made("bad", bad), counting(calls))
    async with bench(daemon, *tools) as on, serving(on.client, on.id, tools):
        assert await on.call("bad") == {"content": "The tool failed: KeyError: 'no such thing'", "is_error": True}
        assert (await on.call("count", "c2"))["content"] == "run 1"


async def test_an_output_that_is_no_json_is_an_error_for_the_model(daemon: Harness) -> None:
    async def odd(call: ToolCall) -> ToolReply:
        return ToolReply([{"type": "text", "text": object()}])

    async with bench(daemon, counting([])) as on, trio.open_nursery() as nursery:
        await nursery.start(serve_tools, on.client, on.id, odd)
        result = await on.call("count")
        assert result["is_error"] and "TypeError" in result["content"]
        nursery.cancel_scope.cancel()


async def test_the_name_of_a_file_that_is_no_utf_8_ends_nothing(daemon: Harness) -> None:
    async def names(arguments: dict[str, Any]) -> ToolOutput:
        if arguments:
            raise OSError("cannot read caf\udce9")
        return ToolOutput("caf\udce9, \ud83d\ude00")

    tools = (Made("names", names),)
    async with bench(daemon, *tools) as on, serving(on.client, on.id, tools):
        assert await on.call("names") == {"content": "caf?, \U0001f600", "is_error": False}
        told = await on.call("names", "c2", fail=True)
        assert told == {"content": "The tool failed: OSError: cannot read caf?", "is_error": True}


async def test_an_output_that_is_larger_than_the_daemon_reads_is_an_error_for_the_model(
    serve: Callable[..., Harness],
) -> None:
    async def endless(arguments: dict[str, Any]) -> ToolOutput:
        return ToolOutput("x" * 5000)

    tools = (Made("endless", endless),)
    async with bench(serve(daemon={"max_frame_bytes": 4096}), *tools) as on, serving(on.client, on.id, tools):
        result = await on.call("endless")
        assert result["is_error"] and "more than 4096 bytes" in result["content"]
        assert await on.client.ping()


async def test_a_tool_that_was_offered_and_is_not_served_is_told_to_the_model(daemon: Harness) -> None:
    async with bench(daemon, counting([])) as on, serving(on.client, on.id, []):
        assert await on.call("count") == {"content": "There is no tool 'count' here.", "is_error": True}


async def test_calls_that_come_before_the_block_are_run_in_it(daemon: Harness) -> None:
    calls: list[dict[str, Any]] = []
    tool = counting(calls)
    async with bench(daemon, tool) as on:
        id_ = on.ask("count")
        await until(lambda: on.client._tool_calls._early)
        async with serving(on.client, on.id, [tool]):
            assert (await on.result(id_))["content"] == "run 1"


async def test_what_the_block_raises_comes_out_as_it_was(daemon: Harness) -> None:
    async with bench(daemon, counting([])) as on:
        with pytest.raises(LookupError, match="mine"):
            async with serving(on.client, on.id, []):
                raise LookupError("mine")


async def test_a_session_without_tools_cannot_be_served(daemon: Harness) -> None:
    async with open_client(daemon.socket) as client:
        session = await client.open("demo", str(daemon.cwd))
        with pytest.raises(ClisupError, match="opened without any") as refused:
            async with serving(client, session.id, []):
                raise AssertionError("not reached")
        assert refused.value.kind == "unsupported"


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match="two tools have the name 'count'"):
        to_wire([counting([]), counting([])])


# -- limits


async def test_a_call_whose_time_is_over_is_cancelled_here(daemon: Harness) -> None:
    ended = trio.Event()

    async def hang(arguments: dict[str, Any]) -> ToolOutput:
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    tool = Made("hang", hang, timeout_s=0.2)
    async with bench(daemon, tool) as on, serving(on.client, on.id, [tool]):
        assert "did not answer within 0.2 s" in (await on.call("hang"))["content"]
        await ended.wait()


# -- what is not run twice


async def test_after_a_kill_of_the_daemon_a_running_call_is_waited_for_and_not_run_again(daemon: Harness) -> None:
    calls: list[dict[str, Any]] = []
    gate = trio.Event()
    tool = counting(calls, gate)
    async with bench(daemon, tool) as on, serving(on.client, on.id, [tool]):
        on.ask("count")
        await until(lambda: calls)
        await trio.to_thread.run_sync(daemon.restart)
        on.bridge.close()
        on.bridge = await trio.to_thread.run_sync(on.new_bridge)
        again = on.ask("count")
        await until(lambda: open_calls(daemon, on) == ["c1"])
        gate.set()
        assert await on.result(again) == {"content": "run 1", "is_error": False}
        assert len(calls) == 1


async def test_a_result_that_the_daemon_took_to_its_grave_is_given_again(daemon: Harness) -> None:
    calls: list[dict[str, Any]] = []
    tool = counting(calls)
    async with bench(daemon, tool) as on, serving(on.client, on.id, [tool]):
        assert (await on.call("count"))["content"] == "run 1"
        await trio.to_thread.run_sync(daemon.restart)
        on.bridge.close()
        on.bridge = await trio.to_thread.run_sync(on.new_bridge)
        assert (await on.call("count"))["content"] == "run 1"
        assert (await on.call("count", "c2"))["content"] == "run 2"
        assert len(calls) == 2


def open_calls(daemon: Harness, on: Bench) -> list[str]:
    with daemon.wire() as wire:
        return [call["call_id"] for call in wire.call("session/get", session_id=on.id)["tools"]["open"]]


async def test_of_a_result_that_was_forgotten_the_call_is_not_run_again(
    daemon: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clisup.client.aio_tools.KEPT_RESULTS", 1)
    calls: list[dict[str, Any]] = []
    tool = counting(calls)
    async with bench(daemon, tool) as on, serving(on.client, on.id, [tool]):
        for call_id in ("c1", "c2", "c1"):
            last = await on.call("count", call_id)
        assert last["is_error"] and "has run" in last["content"]
        assert len(calls) == 2


async def test_who_serves_last_gets_the_call_and_the_one_before_drops_it(daemon: Harness) -> None:
    first_ended = trio.Event()
    began = trio.Event()

    async def slow(arguments: dict[str, Any]) -> ToolOutput:
        try:
            began.set()
            await trio.sleep_forever()
        finally:
            first_ended.set()

    first = Made("count", slow)
    calls: list[dict[str, Any]] = []
    second = counting(calls)
    async with bench(daemon, first) as on, serving(on.client, on.id, [first]):
        id_ = on.ask("count")
        await began.wait()
        async with open_client(daemon.socket) as other, serving(other, on.id, [second]):
            assert (await on.result(id_))["content"] == "run 1"
            await first_ended.wait()


async def test_serving_ends_by_itself_where_the_session_was_closed_and_the_daemon_restarted(daemon: Harness) -> None:
    async with bench(daemon, counting([])) as on, trio.open_nursery() as nursery:

        async def run(call: ToolCall) -> ToolReply:
            raise AssertionError("not called")

        await nursery.start(serve_tools, on.client, on.id, run)
        with daemon.wire() as wire:
            wire.call("session/close", session_id=on.id)
        await trio.to_thread.run_sync(daemon.restart)


async def test_a_tools_own_wait_holds_while_nobody_serves(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon={"tool_wait_s": 0.05})
    schema = {"input_schema": {"type": "object"}}
    calls: list[dict[str, Any]] = []
    with trio.fail_after(BOUND_S):
        async with open_client(daemon.socket) as client:
            told = [{"name": "hasty", **schema}, {"name": "count", **schema, "wait_s": 300.0}]
            session = await client.open("demo", str(daemon.cwd), tools=told)
            daemon.kill()  # nobody serves after it
            daemon.start()
            on = Bench(daemon, client, session.id)
            patient, hasty = on.ask("count", "c1"), on.ask("hasty", "c2")
            assert "for 0.05 s there was no client" in (await on.result(hasty))["content"]
            async with serving(client, session.id, [counting(calls)]):
                assert (await on.result(patient))["content"] == "run 1"
            on.bridge.close()
