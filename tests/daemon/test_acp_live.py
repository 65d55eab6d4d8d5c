"""A live ACP agent through the whole daemon: its settings between turns and in a turn, and its session after a kill."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Harness
from session_probe import SessionProbe

from clisup.errors import ClisupError

AGENT = [sys.executable, str(Path(__file__).with_name("acp_agent.py"))]
FLAGS = {"modes": [], "options": ["--options"], "resumes": ["--options", "--resume"]}


def tables() -> str:
    text = ""
    for name, flags in FLAGS.items():
        text += f'[backends.{name}]\nkind = "acp"\nmode = "live"\ncommand = {json.dumps([*AGENT, *flags])}\n'
    return text


@pytest.fixture(scope="module")
def daemon() -> Iterator[Harness]:
    daemon = Harness(raw=tables())
    daemon.start()
    yield daemon
    daemon.close()


def processes(session: SessionProbe) -> list[int]:
    return [event["pid"] for event in session.events("process_started")]


def settings(session: SessionProbe) -> str:
    """Model and mode, in the agent's words."""
    return str(session.ask("settings")["text"]).rpartition(" ")[0]


@pytest.mark.parametrize(("backend", "model"), [("modes", None), ("options", "Large")])
def test_a_model_and_a_mode_are_set_between_two_turns_of_one_process(
    daemon: Harness, backend: str, model: str | None
) -> None:
    session = daemon.new(backend=backend)
    assert settings(session) == "small ask"
    if model:
        assert session.call("set_model", model=model) == {"applied": "now", "value": model}
    assert session.call("set_permission_mode", permission_mode="allow") == {"applied": "now", "value": "allow"}
    assert settings(session) == f"{'large' if model else 'small'} allow"
    assert len(processes(session)) == 1 and not session.events("unparsed")


def test_a_mode_is_set_while_a_turn_runs(daemon: Harness) -> None:
    session = daemon.new(backend="modes")
    turn = session.prompt("say Half\nhang")
    session.await_event("content_delta")
    assert session.call("set_permission_mode", permission_mode="allow")["applied"] == "now"
    session.call("interrupt")
    assert session.end_of(turn)["outcome"] == "interrupted"
    assert settings(session) == "small allow"
    assert len(processes(session)) == 1 and not session.events("unparsed")


@pytest.mark.parametrize(
    ("method", "value", "why"),
    [
        ("set_permission_mode", {"permission_mode": "yolo"}, "it has: ask, allow, plan-only"),
        ("set_permission_mode", {"permission_mode": "plan-only"}, "There is nothing to plan"),
        ("set_model", {"model": "large"}, "the agent lets no model be chosen"),
    ],
)
def test_a_setting_that_the_agent_lacks_or_refuses_changes_nothing(
    daemon: Harness, method: str, value: dict[str, Any], why: str
) -> None:
    session = daemon.new(backend="modes")
    session.ask("say hello")
    with pytest.raises(ClisupError, match=why) as refused:
        session.call(method, **value)
    assert refused.value.kind == "invalid_params"
    assert settings(session) == "small ask" and len(processes(session)) == 1


@pytest.mark.parametrize("backend", ["options", "resumes"])
def test_a_killed_agent_goes_on_with_its_session_and_the_settings_in_force(daemon: Harness, backend: str) -> None:
    session = daemon.new(backend=backend)
    session.ask("say the first")
    session.call("set_permission_mode", permission_mode="allow")
    session.call("set_model", model="large")
    os.kill(processes(session)[0], signal.SIGKILL)
    session.await_event("process_exited")
    assert session.ask("remember")["text"] == "say the first"
    assert settings(session) == "large allow"
    assert "an old answer" not in json.dumps(session.events())
    assert len(processes(session)) == 2 and not session.events("unparsed")
    one, two = session.events("session_init")
    assert one["native_session_id"] == two["native_session_id"]


def test_an_agent_killed_in_a_turn_fails_the_turn_and_the_next_turn_has_its_session(daemon: Harness) -> None:
    session = daemon.new(backend="modes")
    session.ask("say the first")
    turn = session.prompt("say Half\nhang")
    session.await_event("content_delta", turn_id=turn)
    os.kill(processes(session)[0], signal.SIGKILL)
    assert session.end_of(turn)["outcome"] == "failed"
    assert session.ask("remember")["text"] == "say the first"


def test_after_a_restart_of_the_daemon_a_mode_is_set_by_a_new_process_that_loads_the_session(
    serve: Callable[..., Harness],
) -> None:
    daemon = serve(raw=tables())
    session = daemon.new(backend="modes")
    session.ask("say the first")
    daemon.restart()
    assert session.call("set_permission_mode", permission_mode="allow") == {"applied": "next_turn", "value": "allow"}
    assert settings(session) == "small allow"
    assert session.ask("remember")["text"] == "say the first"
    assert len(processes(session)) == 2
