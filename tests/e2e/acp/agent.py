"""An ACP agent as the recorder runs it, and one turn with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clisup.backends.acp.adapter import AcpAdapter
from clisup.backends.base import Adapter, ApprovalAnswer
from tests.e2e.fake_messages_api import FakeMessagesAPI

DENY = ApprovalAnswer("deny")


@dataclass(frozen=True)
class Run:
    """One turn to record. `cancel_after` and `kill_after` are texts in a line, after which the turn is interrupted."""

    name: str
    scenario: str
    prompt: str = "Say hello."
    session: str | None = None  # "again": the session of the run before; else an id
    request: dict[str, Any] = field(default_factory=dict)
    cancel_after: str | None = None
    kill_after: str | None = None
    answer: ApprovalAnswer = DENY  # to every approval that the agent asks for
    answers: Mapping[str, ApprovalAnswer | None] = field(
        default_factory=dict
    )  # by tool_name, before `answer`; None: none
    key: bool = True
    url: str | None = None


@dataclass(frozen=True)
class Agent:
    """One agent: how to start it, what stands in for its API, and the sessions to record.

    `command` takes the directory of the agents that `make e2e-install` does not fetch.
    """

    name: str
    version: str
    command: Callable[[Path], list[str]]
    api: Callable[[str], FakeMessagesAPI]  # for the name of a scenario
    environment: Callable[[Run, str, Path], dict[str, str]]  # for the API's address and the home directory
    runs: tuple[tuple[Run, ...], ...]
    adapter: Adapter = field(default_factory=AcpAdapter)
    folder: str = ""  # of its recordings, below tests/recordings
