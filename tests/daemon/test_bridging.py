"""How a session's CLI is told of its bridge: beside the client's servers, from what the session's desk knows of its tools."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio

from clisup.config.model import parse_config
from clisup.daemon.backends import Backends
from clisup.daemon.sessions.registry import Manager
from clisup.daemon.sessions.session import Session
from clisup.daemon.tools.calls import SLACK_S
from clisup.errors import UsageError
from clisup.model.events import Actor
from clisup.model.lifecycle import SessionState
from clisup.store import private_files
from clisup.wire.params import SessionNewParams

CONFIG = {"daemon": {"tool_timeout_s": 30, "tool_wait_s": 5}, "backends": {"demo": {}}}
OWN = {"command": "own-server", "env": {"KEY": "canary-7f3a"}}
ADD = {"name": "add", "input_schema": {"type": "object"}}
SLOW = {**ADD, "name": "slow", "timeout_s": 1000.0}


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file of a session was read and parsed, by its name."""
    counted: Counter[str] = Counter()
    read_optional = private_files.read_optional

    def counting(path: str) -> bytes | None:
        counted[Path(path).name] += 1
        return read_optional(path)

    monkeypatch.setattr(private_files, "read_optional", counting)
    return counted


def manager_of(tmp_path: Path, nursery: trio.Nursery) -> Manager:
    (tmp_path / "state").mkdir()
    config = parse_config(CONFIG)
    return Manager(config, Backends(config, {"HOME": str(tmp_path)}), str(tmp_path / "state"), nursery)


async def opened(manager: Manager, cwd: Path, *tools: dict[str, Any]) -> Session:
    asked = {
        "backend": "demo",
        "cwd": str(cwd),
        "tools": list(tools),
        "mcp_config": {"mcpServers": {"own": OWN}, "x": 1},
    }
    return await manager.open(SessionNewParams.model_validate(asked))


def stored(session: Session, name: str) -> dict[str, Any]:
    return dict(json.loads(Path(session.dir.path, "private", name).read_bytes()))


async def test_the_tools_are_read_once_however_many_processes_are_started(
    tmp_path: Path, nursery: trio.Nursery, reads: Counter[str]
) -> None:
    manager = manager_of(tmp_path, nursery)
    session = await opened(manager, tmp_path, ADD)
    token = stored(session, "tools.json")["token"]
    for number in range(3):
        await session.launcher.prepare(f"t{number}", {"text": "hello"}, None)
        await session.launcher.steering({"text": "and this"}, "p1", 1)
        assert manager.tools_of_token(token) == (session, session.tools)
    assert reads["tools.json"] == 1


async def test_a_process_finds_the_bridge_beside_the_servers_of_the_client(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    session = await opened(manager_of(tmp_path, nursery), tmp_path, ADD, SLOW)
    launch = await session.launcher.prepare("t1", {"text": "hello"}, None)
    told = stored(session, "bridge.json")
    assert told == {"x": 1, "mcpServers": launch.draft.request.mcp_servers}
    assert told["mcpServers"]["own"] == OWN
    bridge = told["mcpServers"]["clisup"]
    assert session.tools is not None and bridge["env"]["CLISUP_BRIDGE_TOKEN"] == session.tools.token
    assert bridge["timeout"] == (1000 + 5 + SLACK_S) * 1000  # the longest time of a tool's own


async def test_the_longest_time_is_the_configurations_where_no_tool_has_a_longer_one(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    session = await opened(manager_of(tmp_path, nursery), tmp_path, ADD, {**SLOW, "timeout_s": 2.0})
    launch = await session.launcher.prepare("t1", {"text": "hello"}, None)
    assert (launch.draft.request.mcp_servers or {})["clisup"]["timeout"] == (30 + 5 + SLACK_S) * 1000


async def test_the_token_is_hidden_while_it_counts_and_forgotten_at_the_close(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    manager = manager_of(tmp_path, nursery)
    session = await opened(manager, tmp_path, ADD)
    assert session.tools is not None
    token = session.tools.token or ""
    assert session.context.redact(f"it is {token}") == "it is [redacted]"
    await session.close(Actor(uid=0, pid=1))
    assert session.state is SessionState.CLOSED and session.tools.token is None
    with pytest.raises(UsageError):
        manager.tools_of_token(token)
