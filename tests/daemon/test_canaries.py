"""Canaries in every place where a secret or somebody's words can be: none is in the log, in status or in an error."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from harness import Harness, until
from wire import Wire

from clisup.host.systemd.journal import encode_entry, entry_of

KEY = "sk-ant-api03-CanaryCanaryCanary-{}"  # has the shape of a key: hidden wherever it stands
NAMES = ("inherited", "configured", "pass-env", "session-env", "mcp-env", "mcp-header", "system", "prompt", "tool-input", "tool-result",
         "stderr", "answer", "odd-frame", "argument")  # fmt: skip
CANARY = {name: f"canary.{name}.5f1d" for name in NAMES}
PROMPT = f"""{CANARY["prompt"]}
@text {CANARY["answer"]}
@tool Bash {{"command": "{CANARY["tool-input"]}"}} => {CANARY["tool-result"]}
@stderr {CANARY["stderr"]} {CANARY["session-env"]}
@raw {{"type": "{CANARY["odd-frame"]}"}}
"""
CONFIG = {
    "env": {"DEMO_TOKEN": CANARY["configured"]},
    "pass_env": ["MY_OWN"],
    "request_env": ["BROUGHT"],
    "args": ["--add-dir", f"/{CANARY['argument']}"],
}


@pytest.fixture(params=["json", "console"])
def daemon(request: pytest.FixtureRequest, serve: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch) -> Harness:
    env = {"MY_OWN": CANARY["pass-env"], "ANTHROPIC_API_KEY": CANARY["inherited"], "BROUGHT": "no"}
    harness = serve(env=env, daemon={"log_level": "debug"}, demo=CONFIG, start=False)
    argv = harness.argv()
    argv[argv.index("--log-format") + 1] = request.param
    monkeypatch.setattr(harness, "argv", lambda: argv)
    harness.start()
    return harness


def play(daemon: Harness) -> str:
    """Turns with canaries in them, a refused one too; gives the session's id."""
    mcp = {
        "a": {"command": "x", "env": {"T": CANARY["mcp-env"]}},
        "b": {"type": "http", "url": "http://x", "headers": {"H": CANARY["mcp-header"]}},
    }
    session = daemon.new(
        env={"BROUGHT": CANARY["session-env"]}, mcp_config={"mcpServers": mcp}, system_prompt=CANARY["system"]
    )
    assert session.ask(PROMPT)["outcome"] == "completed"
    session.ask(f"@error authentication\n{CANARY['prompt']}")
    session.ask(f"@exit 3\n{CANARY['prompt']}")
    return session.id


def test_what_the_servers_of_a_request_were_given_is_in_no_event(serve: Callable[..., Harness]) -> None:
    """A server that says its header when it fails is the common case."""
    daemon = serve()
    given = CANARY["mcp-env"], CANARY["mcp-header"]
    servers = {
        "a": {"command": "x", "env": {"T": given[0]}},
        "b": {"type": "http", "url": "http://x", "headers": {"H": given[1]}},
    }
    session = daemon.new(mcp_config={"mcpServers": servers})
    session.ask(f"Use {given[0]} and {given[1]}.\n@stderr refused: {given[0]} {given[1]}")
    (said,), (begun,) = session.events("stderr"), session.events("turn_started")
    assert said["text"].startswith("refused: ") and begun["prompt_preview"].startswith("Use ")
    assert secrets_in(json.dumps([said, begun])) == []


def refusals(daemon: Harness) -> list[Any]:
    """Errors about names that hold what nobody may see."""
    home = str(daemon.cwd / KEY.format("path"))
    asked: list[tuple[str, dict[str, Any]]] = [
        ("session/new", {"backend": "demo", "cwd": home}),
        ("session/new", {"backend": "demo", "cwd": f"/{CANARY['pass-env']}/x"}),
        ("session/new", {"backend": "demo", "cwd": "/", "env": {"OTHER": CANARY["session-env"]}}),
        ("session/new", {"backend": "demo", "cwd": "/", "model": 7, "system_prompt": [CANARY["system"]]}),
        ("backend/env", {"name": KEY.format("name")}),
        (KEY.format("method"), {}),
    ]
    found = []
    with Wire(daemon.socket) as wire:
        for number, (method, params) in enumerate(asked):
            wire.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            found.append(wire.frame())
    assert all("error" in answer for answer in found)
    return found


def secrets_in(text: str) -> list[str]:
    words = [*CANARY.values(), "CanaryCanaryCanary"]
    return [word for word in words if word in text or json.dumps(word)[1:-1] in text]


def test_no_canary_is_in_the_log_in_status_or_in_an_error(daemon: Harness) -> None:
    session = play(daemon)
    errors = refusals(daemon)
    daemon.call("session/close", session_id=session)
    until(lambda: "session closed" in daemon.log.read_text())
    log, kept = daemon.log.read_text(), daemon.call("daemon/log", limit=1000)
    assert "turn ended" in log and "authentication" in log and "request refused" in log, (
        "there was something to leak from"
    )
    assert secrets_in(log) == []
    assert secrets_in(json.dumps(kept)) == []
    assert secrets_in(json.dumps(errors)) == []
    status = daemon.call("daemon/status")
    status.pop("drift")  # the names of unknown frames are what it is for
    assert secrets_in(json.dumps(status)) == []
    entries = b"".join(encode_entry(entry_of(line)) for line in kept["lines"])
    assert secrets_in(entries.decode()) == [] and b"CLISUP_SESSION=" + session.encode() in entries


def test_what_stands_in_damaged_files_is_told_nowhere(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    daemon.faults_expected = True
    damaged = (
        {"env_names": "canary.file.5f1d"},
        {"timeouts": {"canary.file.5f1d": "canary.file.5f1d"}},
        {"version": "canary.file.5f1d"},
    )
    sessions = [daemon.new() for _ in damaged]
    daemon.kill()
    for session, wrong in zip(sessions, damaged, strict=True):
        path = session.dir / "session.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | wrong))
    daemon.start()
    told = [session.await_event("notice", code="state_refused") for session in sessions]
    status = daemon.call("daemon/status")
    assert "canary.file" not in json.dumps([status, told]) + daemon.log.read_text()
