"""The real claude as an MCP client of `clisup mcp`: it starts another claude under the daemon, and follows it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.fake_messages_api import FAKE_KEY, FakeMessagesAPI
from tests.e2e.lab import QUIET, ClaudeLab, claude_binary, poll
from tests.e2e.scenarios import Body, Reply, Scenario, bash, in_turn, message, say, text, tool, use

pytestmark = pytest.mark.e2e
Lab = Callable[..., ClaudeLab]
ROOT = Path(__file__).resolve().parents[2]
MODE = ("--permission-mode", "claude=bypassPermissions")
START = {"backend": "claude", "prompt": "Use your tools.", "wait_s": 0}


def outer(body: Body, n: int) -> Reply:
    """Start an agent, follow it until its turn has ended, and say its last words."""
    told = json.dumps(body["messages"])
    if n == 0:
        return [*message(body, n, tool("mcp__clisup__start", "start", START))]
    session = re.findall(r"session\W+([0-9a-f-]{36})", told)[-1]
    if "Inner words." in told:
        return [*message(body, n, text("It said: Inner words."))]
    return [*message(body, n, tool("mcp__clisup__follow", f"follow{n}", {"session": session, "wait_s": 20}))]


def environment(here: ClaudeLab, home: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"], "HOME": str(home), "CLISUP_SOCKET": here.socket, "PYTHONPATH": str(ROOT),
        "ANTHROPIC_API_KEY": FAKE_KEY, **QUIET,
    }  # fmt: skip


@contextmanager
def outer_claude(here: ClaudeLab, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[dict[str, Any]]]]:
    """Run claude as a person does, outside of the daemon, with `clisup mcp` among its MCP servers."""
    server = {"command": sys.executable, "args": ["-m", "clisup", "mcp", "--root", str(here.cwd), *MODE],
              "env": {"PYTHONPATH": str(ROOT), "CLISUP_SOCKET": here.socket}}  # fmt: skip
    config = json.dumps({"mcpServers": {"clisup": server}})
    argv = [str(claude_binary()), "-p", "Start an agent.", "--output-format", "stream-json", "--verbose"]
    argv += ["--mcp-config", config, "--strict-mcp-config", "--allowedTools", "mcp__clisup"]
    with FakeMessagesAPI(Scenario("outer", outer, recorded=False)) as api:
        env = {**environment(here, tmp_path), "ANTHROPIC_BASE_URL": api.url}
        process = subprocess.Popen(
            argv, cwd=here.cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        lines: list[dict[str, Any]] = []

        def read() -> None:
            assert process.stdout is not None
            lines.extend(map(json.loads, process.stdout))

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            yield process, lines
            assert process.wait(120) == 0
            reader.join(30)
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def inner(tmp_path: Path) -> Scenario:
    """A claude that runs a command which waits for the file `go`, then says its words."""
    waits = f"until [ -e {tmp_path}/go ]; do sleep 0.1; done; echo ran >> {tmp_path}/ran"
    return Scenario("inner", in_turn(use(bash("wait", waits)), say("Inner words.")), recorded=False)


def test_claude_starts_a_claude_and_follows_it_while_the_daemon_is_killed(lab: Lab, tmp_path: Path) -> None:
    here = lab(inner(tmp_path))
    with outer_claude(here, tmp_path) as (_, lines):
        session = poll(lambda: the_session(here), "the start of an agent")
        here.wait_for(session, "tool_use")
        here.kill()
        here.start()
        (tmp_path / "go").touch()
    assert lines[-1]["result"] == "It said: Inner words."
    assert (tmp_path / "ran").read_text() == "ran\n"
    (about,) = [row for row in rows(here) if row["session_id"] == session]
    assert about["labels"]["mcp"] == "claude-code" and about["turns"] == 1


def rows(here: ClaudeLab) -> list[dict[str, Any]]:
    with here.client() as client:
        return list(client.call("session/list")["sessions"])


def the_session(here: ClaudeLab) -> str | None:
    found = rows(here)
    return str(found[0]["session_id"]) if found else None


@pytest.mark.parametrize(("cli", "file"), [
    ("claude", ".claude.json"), ("codex", ".codex/config.toml"), ("gemini", ".gemini/settings.json"), ("qwen", ".qwen/settings.json"),
])  # fmt: skip
def test_the_entry_is_added_by_the_clis_own_command(tmp_path: Path, cli: str, file: str) -> None:
    binaries, home = tmp_path / "bin", tmp_path / "home"
    binaries.mkdir()
    home.mkdir()
    found = claude_binary() if cli == "claude" else ROOT / ".e2e" / cli / "node_modules" / ".bin" / cli
    (binaries / cli).symlink_to(found)
    env = {"PATH": f"{binaries}:{os.environ['PATH']}", "HOME": str(home), "PYTHONPATH": str(ROOT), **QUIET}
    argv = [sys.executable, "-m", "clisup", "mcp", "--depth", "2", *MODE, "install", cli, "--write"]
    ran = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    text = (home / file).read_text()
    assert "clisup" in text and "bypassPermissions" in text and '"2"' in text
