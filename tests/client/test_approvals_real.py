"""Approvals through both clients and the example programs: a real daemon, and an agent that asks before it uses a tool."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from harness import Harness, until
from test_examples_real import PROGRAMS, end, launch, restart

from clisup.client.aio import open_client
from clisup.client.answers import Answer, Approval, Decision
from clisup.client.events import ApprovalResolved
from clisup.client.sync import Client
from clisup.errors import ClisupError
from clisup.wire.methods import METHODS

pytestmark = pytest.mark.skipif("approval/list" not in METHODS, reason="this daemon knows no approvals")
AGENT = Path(__file__).resolve().parents[1] / "daemon" / "dialogue_agent.py"
ASK = 'ask Bash {"command": "git status"}\nsay done'
BOUND_S = 90.0


@pytest.fixture
def asking(serve: Callable[..., Harness], tmp_path: Path) -> Harness:
    """A daemon with the agent as its backend `agent`."""
    command = json.dumps([sys.executable, str(AGENT), str(tmp_path / "told")])
    return serve(raw=f'[backends.agent]\nkind = "acp"\ncommand = {command}')


def test_a_blocking_turn_asks_its_handler_and_goes_on_with_its_word(asking: Harness) -> None:
    asked: list[Approval] = []

    def decide(approval: Approval) -> Decision:
        asked.append(approval)
        return Answer("deny", message="not today")

    with Client.connect(asking.socket) as client, client.open("agent", str(asking.cwd)) as session:
        turn = session.run(ASK, on_approval=decide)
        resolved = [envelope.event for envelope in turn if isinstance(envelope.event, ApprovalResolved)]
        assert turn.result is not None
        assert (turn.result.text, turn.result.denied) == ("[reject_once]done", ("Bash",))
        assert [event.decision for event in resolved] == ["deny"]
        assert (asked[0].tool_name, asked[0].input, asked[0].turn_id) == ("Bash", {"command": "git status"}, turn.id)
        assert client.open_approvals() == []
        with pytest.raises(ClisupError) as caught:
            client.respond(asked[0], "allow")
        assert caught.value.kind == "approval_already_resolved"
        client.settle(asked[0], "allow")


async def test_who_answers_for_all_sessions_goes_on_after_a_restart(asking: Harness) -> None:
    """One approval waits while the daemon is restarted; it is answered by the next one."""
    held: list[Approval] = []

    async def decide(approval: Approval) -> Decision:
        held.append(approval)
        if len(held) == 1:
            await trio.to_thread.run_sync(restart, asking)
        return "allow"

    with trio.fail_after(BOUND_S):
        async with open_client(asking.socket) as client, trio.open_nursery() as nursery:
            nursery.start_soon(client.answer_approvals, decide)
            for _ in range(2):
                async with client.session("agent", str(asking.cwd)) as session:
                    assert (await session.prompt(ASK)).text == "[allow_once]done"
            nursery.cancel_scope.cancel()
    assert len({approval.session_id for approval in held}) == len(held) == 2


def test_approvals_of_all_sessions_are_iterated_by_a_thread_with_a_client_of_its_own(asking: Harness) -> None:
    seen: list[str] = []

    def watch() -> None:
        with Client.connect(asking.socket) as watcher:
            for approval in watcher.approvals():
                watcher.respond(approval, "allow")
                seen.append(approval.session_id)
                if len(seen) == 2:
                    return

    thread = threading.Thread(target=watch)
    thread.start()
    with Client.connect(asking.socket) as client:
        for _ in range(2):
            with client.open("agent", str(asking.cwd)) as session:
                assert session.prompt(ASK).text == "[allow_once]done"
    thread.join(BOUND_S)
    assert len(set(seen)) == 2


@pytest.mark.parametrize("name", ["trio_agent.py", "node_client.mjs", "shell_client.sh"])
def test_an_example_answers_after_a_restart_while_its_approval_waits(asking: Harness, name: str) -> None:
    PROGRAMS[name]()
    program = launch(asking.socket, asking.cwd, name, "agent", f"say first\n{ASK}")
    if name != "node_client.mjs":  # which answers by itself, at once
        until(lambda: asking.call("approval/list")["approvals"], "nothing asks")
        restart(asking)
    code, out, _ = end(program, "y\n")
    assert (code, "[allow_once]" in out, "completed" in out) == (0, True, True)
