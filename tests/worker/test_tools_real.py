"""Tools of MCP servers and of the caller, called by the models of the three APIs."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from clisup.model.events import PermissionDenied, SessionInit, ToolResult, ToolUse
from tests.e2e.tool_server import PNG
from tests.worker.driver import KEY, KEY_ENV, TOOL_SERVER, Worker, mcp_config, worker
from tests.worker.fake_api import APIS, FakeApi, answer, call, say

each_api = pytest.mark.parametrize("api", APIS)
ALLOWED = ("--allowedTools", "mcp__clisup")
DONE = answer(say("Done."))


def results(process: Worker) -> list[tuple[str, bool]]:
    return [(result.content, result.is_error) for result in process.events(ToolResult)]


def sent_results(api: str, body: dict[str, Any]) -> list[str]:
    """The results in a request, in order."""
    if api == "anthropic":
        blocks = [b for m in body["messages"] for b in m["content"] if b["type"] == "tool_result"]
        return [
            b["content"] if isinstance(b["content"], str) else "".join(p.get("text", "") for p in b["content"])
            for b in blocks
        ]
    if api == "chat":
        return [message["content"] for message in body["messages"] if message["role"] == "tool"]
    return [item["output"] for item in body["input"] if item["type"] == "function_call_output"]


@each_api
def test_parallel_calls_run_side_by_side_and_their_results_go_back_in_order(api: str, tmp_path: Path) -> None:
    calls = answer(
        say("I look."),
        call("mcp__clisup__rendezvous"),
        call("mcp__clisup__rendezvous"),
        call("mcp__clisup__add", a=1, b=2),
    )
    with FakeApi(api, calls, DONE) as fake, worker(fake, tmp_path, *mcp_config(tmp_path), *ALLOWED) as process:
        terminal = process.ask("Use tools.")
        assert process.ended() == 0
    assert (terminal.text, terminal.is_error) == ("Done.", False)
    assert [use.name for use in process.events(ToolUse)] == ["mcp__clisup__rendezvous"] * 2 + ["mcp__clisup__add"]
    assert sorted(content for content, _ in results(process)) == ["3", "met", "met"]
    assert {use.tool_use_id for use in process.events(ToolUse)} == {r.tool_use_id for r in process.events(ToolResult)}
    assert sent_results(api, fake.bodies[1]) == ["met", "met", "3"]
    assert process.events(SessionInit)[0].mcp_servers[0]["status"] == "connected"
    assert terminal.usage.output_tokens == 40 + 41
    noted = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    assert {note["meta"]["claudecode/toolUseId"] for note in noted if "call" in note} == {
        use.tool_use_id for use in process.events(ToolUse)
    }


@each_api
def test_a_tool_that_fails_is_a_result_that_the_model_reads(api: str, tmp_path: Path) -> None:
    with (
        FakeApi(api, answer(call("mcp__clisup__fail")), DONE) as fake,
        worker(fake, tmp_path, *mcp_config(tmp_path), *ALLOWED) as process,
    ):
        assert process.ask().text == "Done."
    assert results(process) == [("it went wrong", True)]
    assert sent_results(api, fake.bodies[1])[0].endswith("it went wrong")


@each_api
def test_images_of_a_tool_reach_the_model(api: str, tmp_path: Path) -> None:
    with (
        FakeApi(api, answer(call("mcp__clisup__picture")), DONE) as fake,
        worker(fake, tmp_path, *mcp_config(tmp_path), *ALLOWED) as process,
    ):
        process.ask()
    assert PNG in json.dumps(fake.bodies[1])
    assert sent_results(api, fake.bodies[1]) == ["see"]


@pytest.mark.parametrize(("name", "message"), [("mcp__clisup__nothing", "No such tool"), ("Bash", "No such tool")])
def test_an_unknown_tool_is_a_result_that_says_so(name: str, message: str, tmp_path: Path) -> None:
    with FakeApi("chat", answer(call(name)), DONE) as fake, worker(fake, tmp_path, *mcp_config(tmp_path)) as process:
        assert process.ask().text == "Done."
    [(content, is_error)] = results(process)
    assert message in content and is_error


def test_a_server_that_dies_while_its_tool_runs_is_a_result_and_the_turn_goes_on(tmp_path: Path) -> None:
    with (
        FakeApi("chat", answer(call("mcp__clisup__bye")), DONE) as fake,
        worker(fake, tmp_path, *mcp_config(tmp_path), *ALLOWED) as process,
    ):
        assert process.ask().text == "Done."
    assert [is_error for _, is_error in results(process)] == [True]


def test_a_server_that_does_not_start_takes_no_other_with_it(tmp_path: Path) -> None:
    good = {"command": sys.executable, "args": [str(TOOL_SERVER)]}
    config = mcp_config(
        tmp_path, clisup=good, bad={"command": str(tmp_path / "missing"), "args": []}, odd={"type": "sse"}
    )
    with (
        FakeApi("chat", answer(call("mcp__clisup__add", a=1, b=1)), DONE) as fake,
        worker(fake, tmp_path, *config, *ALLOWED) as process,
    ):
        assert process.ask().text == "Done."
    servers = process.events(SessionInit)[0].mcp_servers
    assert {server["name"]: server["status"] for server in servers} == {
        "clisup": "connected",
        "bad": "failed",
        "odd": "failed",
    }
    assert b"'bad' failed" in process.stderr and b"'odd' failed" in process.stderr
    assert results(process) == [("2", False)]


def test_a_server_over_http_that_redirects_gets_no_headers_to_another_host(tmp_path: Path) -> None:
    asked: dict[int, list[str]] = {}

    class Server(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            here = self.server.server_address[1]  # type: ignore[index]
            asked.setdefault(int(here), []).append(str(self.headers.get("X-Secret")))
            self.send_response(307)
            self.send_header("Location", f"http://localhost:{other.server_address[1]}/mcp?token=QUERYSECRET")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as first, ThreadingHTTPServer(("127.0.0.1", 0), Server) as other:
        for server in (first, other):
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        url = f"http://127.0.0.1:{first.server_address[1]}/mcp"
        config = mcp_config(tmp_path, away={"type": "http", "url": url, "headers": {"X-Secret": "s"}})
        with FakeApi("chat", DONE) as fake, worker(fake, tmp_path, *config) as process:
            assert process.ask().text == "Done."
        first.shutdown()
        other.shutdown()
    assert set(asked) == {first.server_address[1]}
    assert b"'away' failed" in process.stderr and b"QUERYSECRET" not in process.stderr, process.stderr


def test_no_server_gets_the_key(tmp_path: Path) -> None:
    server = tmp_path / "server.py"
    source = TOOL_SERVER.read_text().replace(
        'return text(str(given["a"] + given["b"]))', "return text(str(dict(__import__('os').environ)))"
    )
    server.write_text(source)
    config = mcp_config(tmp_path, clisup={"command": sys.executable, "args": [str(server)], "env": {"MINE": "1"}})
    with (
        FakeApi("chat", answer(call("mcp__clisup__add")), DONE) as fake,
        worker(fake, tmp_path, *config, *ALLOWED, env={"SHARED": "2"}) as process,
    ):
        process.ask()
    [(content, _)] = results(process)
    assert "'MINE': '1'" in content and "'SHARED': '2'" in content
    assert KEY not in content and KEY_ENV not in content


def test_the_api_gets_short_names_of_tools_and_events_have_the_full_ones(tmp_path: Path) -> None:
    name = "clisup.with a name of more than thirty characters " + "x" * 20
    config = mcp_config(tmp_path, **{name: {"command": sys.executable, "args": [str(TOOL_SERVER)]}})
    with FakeApi("chat", DONE) as fake, worker(fake, tmp_path, *config) as process:
        process.ask()
    short = fake.bodies[0]["tools"][0]["function"]["name"]
    assert len(short) <= 64
    with (
        FakeApi("chat", answer(call(short, a=1, b=2)), DONE) as fake,
        worker(fake, tmp_path, *config, "--permission-mode", "bypassPermissions") as process,
    ):
        process.ask()
    assert process.events(ToolUse)[0].name.startswith(f"mcp__{name}__")
    assert results(process) == [("3", False)]
    assert fake.bodies[1]["messages"][1]["tool_calls"][0]["function"]["name"] == short


@each_api
def test_a_call_with_broken_arguments_is_told_to_the_model_which_may_call_again(api: str, tmp_path: Path) -> None:
    replies = (answer(call("mcp__clisup__add", '{"a": 1, ')), answer(call("mcp__clisup__add", a=1, b=2)), DONE)
    with FakeApi(api, *replies) as fake, worker(fake, tmp_path, *mcp_config(tmp_path), *ALLOWED) as process:
        assert process.ask().text == "Done."
    first, second = results(process)
    assert "no JSON object" in first[0] and first[1]
    assert second == ("3", False)


def test_a_model_that_only_makes_broken_calls_ends_its_turn(tmp_path: Path) -> None:
    with (
        FakeApi("chat", answer(call("mcp__clisup__add", "[1]"))) as fake,
        worker(fake, tmp_path, *mcp_config(tmp_path)) as process,
    ):
        terminal = process.ask()
        assert process.ended() == 1
    assert terminal.error is not None and terminal.error.kind == "server"
    assert len(fake.bodies) == 4


@each_api
def test_a_turn_ends_at_its_limit_of_answers(api: str, tmp_path: Path) -> None:
    args = (*mcp_config(tmp_path), *ALLOWED, "--max-turns", "2")
    with FakeApi(api, answer(call("mcp__clisup__add", a=1, b=1))) as fake, worker(fake, tmp_path, *args) as process:
        terminal = process.ask()
        assert process.ended() == 1
    assert terminal.error is not None and terminal.error.kind == "max_turns"
    assert len(fake.bodies) == 2


def test_a_tool_that_needs_a_permission_is_refused_where_nobody_can_be_asked(tmp_path: Path) -> None:
    with (
        FakeApi("chat", answer(call("mcp__clisup__add", a=1, b=1)), DONE) as fake,
        worker(fake, tmp_path, *mcp_config(tmp_path)) as process,
    ):
        terminal = process.ask()
    assert (terminal.is_error, terminal.denied) == (False, ("mcp__clisup__add",))
    assert [denied.name for denied in process.events(PermissionDenied)] == ["mcp__clisup__add"]
    assert "haven't granted" in sent_results("chat", fake.bodies[1])[0]


def test_plan_mode_runs_only_tools_that_read(tmp_path: Path) -> None:
    calls = answer(call("mcp__clisup__add", a=1, b=1), call("mcp__clisup__writes"))
    args = (*mcp_config(tmp_path), *ALLOWED, "--permission-mode", "plan")
    with FakeApi("chat", calls, DONE) as fake, worker(fake, tmp_path, *args) as process:
        process.ask()
    assert sorted(content for content, _ in results(process)) == [
        "2",
        "Cannot call mcp__clisup__writes while in plan mode.",
    ]


def test_a_result_of_structured_content_alone_is_its_json(tmp_path: Path) -> None:
    config = mcp_config(
        tmp_path, good={"command": sys.executable, "args": [str(TOOL_SERVER.with_name("mcp_server.py"))]}
    )
    calls = answer(call("mcp__good__count"), call("mcp__good__count", words="some"))
    with (
        FakeApi("chat", calls, DONE) as fake,
        worker(fake, tmp_path, *config, "--allowedTools", "mcp__good") as process,
    ):
        process.ask()
    assert sorted(content for content, _ in results(process)) == ["some", '{"counts": [1, 2], "unit": "\u00e9"}']


# Tools of the caller

OWN = [{"name": "weather", "description": "Tell the weather.", "input_schema": {"type": "object", "properties": {}}}]


@each_api
def test_a_call_of_the_callers_own_tool_ends_the_turn_and_its_result_comes_with_the_next_message(
    api: str, tmp_path: Path
) -> None:
    asked = {"tools": OWN}
    with FakeApi(api, answer(say("I ask."), call("weather", city="Rome")), DONE) as fake:
        with worker(fake, tmp_path) as first:
            terminal = first.ask(asked=asked)
            assert first.ended() == 0
        [use] = first.events(ToolUse)
        with worker(fake, tmp_path, resume=first.session) as second:
            back = {
                "type": "tool_result",
                "tool_use_id": use.tool_use_id,
                "content": [{"type": "text", "text": "sunny"}],
            }
            assert second.ask([{"type": "text", "text": "Thanks."}, back], asked=asked).text == "Done."
    assert (terminal.stop_reason, terminal.is_error, terminal.text) == ("tool_use", False, "I ask.")
    assert (use.name, use.input) == ("weather", {"city": "Rome"})
    assert not first.events(ToolResult)
    assert sent_results(api, fake.bodies[1]) == ["sunny"]
    if api == "anthropic":
        assert [block["type"] for block in fake.bodies[1]["messages"][2]["content"]] == ["tool_result", "text"]


@each_api
def test_of_mixed_calls_the_worker_runs_those_of_servers_and_keeps_their_results_for_the_next_message(
    api: str, tmp_path: Path
) -> None:
    calls = answer(call("weather", city="Rome"), call("mcp__clisup__add", a=1, b=2))
    args = (*mcp_config(tmp_path), *ALLOWED)
    with FakeApi(api, calls, DONE) as fake:
        with worker(fake, tmp_path, *args) as first:
            assert first.ask(asked={"tools": OWN}).stop_reason == "tool_use"
        own, _ = first.events(ToolUse)
        assert results(first) == [("3", False)]
        with worker(fake, tmp_path, *args, resume=first.session) as second:
            back = {"type": "tool_result", "tool_use_id": own.tool_use_id, "content": "sunny"}
            assert second.ask([back], asked={"tools": OWN}).text == "Done."
    assert sorted(sent_results(api, fake.bodies[1])) == ["3", "sunny"]


def test_a_call_of_the_callers_that_got_no_result_is_told_as_lost(tmp_path: Path) -> None:
    with FakeApi("anthropic", answer(call("weather")), DONE) as fake, worker(fake, tmp_path) as process:
        process.say(asked={"tools": OWN})
        process.result()
        process.say("Never mind.")
        process.end()
    assert "No result" in sent_results("anthropic", fake.bodies[1])[0]


# Servers over HTTP


class _HttpTools(BaseHTTPRequestHandler):
    """A server over streamable HTTP with one tool; it answers with plain JSON."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, params = asked.get("method"), asked.get("params") or {}
        info = {"name": "http", "version": "1"}
        result: dict[str, Any] = {}
        if method == "initialize":
            result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
        elif method == "tools/list":
            result = {"tools": [{"name": "who", "inputSchema": {"type": "object"}}]}
        elif method == "tools/call":
            result = {"content": [{"type": "text", "text": str(self.headers.get("x-mine"))}]}
        known = method in ("initialize", "tools/list", "tools/call")
        body = {
            "jsonrpc": "2.0",
            "id": asked.get("id"),
            **({"result": result} if known else {"error": {"code": -32601, "message": "no"}}),
        }
        payload = json.dumps(body).encode() if "id" in asked else b""
        self.send_response(200 if payload else 202)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def do_GET(self) -> None:
        self.send_response(405)
        self.send_header("content-length", "0")
        self.end_headers()

    do_DELETE = do_GET

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def http_tools() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _HttpTools)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_server_over_http_is_called_with_its_headers(tmp_path: Path) -> None:
    with http_tools() as url, FakeApi("chat", answer(call("mcp__web__who")), DONE) as fake:
        config = mcp_config(tmp_path, web={"type": "http", "url": url, "headers": {"X-Mine": "yes"}})
        with worker(fake, tmp_path, *config, "--allowedTools", "mcp__web") as process:
            assert process.ask().text == "Done."
    assert results(process) == [("yes", False)]


def test_a_configuration_of_servers_that_cannot_be_read_ends_the_worker(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text("{")
    with worker("chat", tmp_path, "--mcp-config", str(tmp_path / "mcp.json"), url="http://127.0.0.1:9") as process:
        assert process.end() == 1
    assert b"Invalid MCP configuration" in process.stderr and not process.lines
