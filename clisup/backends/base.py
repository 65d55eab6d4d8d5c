"""What a backend adapter is: pure rules that turn a turn's request into a launch spec, and a CLI's bytes into events.

An adapter never opens a file, never reads a clock or the environment and never spawns. The daemon does all that for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from clisup.core.events import EventBase, TurnError
from clisup.core.framing import Line
from clisup.core.terminal import Terminal

TranscriptWord = Literal["answered", "prompt_found", "prompt_not_found"]

__all__ = [
    "Adapter",
    "Capabilities",
    "Carried",
    "Decoded",
    "Decoder",
    "LaunchRequest",
    "LaunchSpec",
    "RunEnd",
    "Terminal",
    "TranscriptWord",
]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do; shown by `backend/list`."""

    one_shot: bool = True
    live: bool = False
    resume: bool = True
    deltas: bool = True
    thinking: bool = True
    usage: bool = True
    cost: bool = False
    approvals: bool = False
    system_prompt: bool = True
    mcp: bool = True
    permission_modes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """All that an adapter needs to know for one run. Paths are absolute; `prompt` goes to stdin only."""

    command: tuple[str, ...]
    prompt: str
    native_session_id: str | None
    resume: bool
    cwd: str
    model: str | None = None
    permission_mode: str | None = None
    system_prompt_file: str | None = None
    mcp_config_file: str | None = None
    setting_sources: str | None = "user"
    expand: bool = False
    args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """How to start the CLI. `env` is what the adapter itself sets; `prompt_altered` says what was done to the prompt."""

    argv: tuple[str, ...]
    stdin: str
    env: Mapping[str, str] = field(default_factory=dict)
    stdin_eof: bool = True
    stdout_mode: Literal["pipe", "file"] = "pipe"
    prompt_altered: str | None = None


@dataclass(frozen=True, slots=True)
class Carried:
    """What a CLI carries from turn to turn, known at the turn's start.

    `cost_usd` is its running total, so that a turn's share can be told; `background` the ids of the background tasks that
    the process still works on.
    """

    cost_usd: float | None = None
    background: frozenset[str] = frozenset()


class Decoded(NamedTuple):
    """What one line gave: events to journal in this order, and the turn's end where the line was that."""

    events: Sequence[EventBase]
    terminal: Terminal | None = None


@dataclass(frozen=True, slots=True)
class RunEnd:
    """What is known when a run has ended without a terminal frame: for `Adapter.explain_exit`."""

    exit_code: int | None
    signal: int | None
    stderr_tail: str


class Decoder(Protocol):
    """One CLI's stdout to events. Deterministic: the same lines from the same state give the same events, on any day.

    It never raises: what it does not know becomes `unparsed`. `raw_blob` in the events names no file; the daemon fills it.
    """

    @property
    def background(self) -> frozenset[str]:
        """Background tasks announced and not ended: while there are any, the process is wanted after its last word."""

    def decode(self, line: Line) -> Decoded:
        """Decode one complete line. Oversize and incomplete lines come here too."""


class Adapter(Protocol):
    """One kind of backend."""

    kind: str
    default_command: tuple[str, ...]
    default_versions: str
    version_args: tuple[str, ...]
    capabilities: Capabilities

    def launch(self, request: LaunchRequest) -> LaunchSpec:
        """Argv, stdin and own variables for one run. Raises `UsageError(kind="unsupported")` for what the CLI cannot do."""

    def decoder(self, carried: Carried) -> Decoder:
        """A decoder for one turn's stdout, from the turn's first line on."""

    def parse_version(self, output: str) -> str | None:
        """The version in the output of `command + version_args`, or None where it holds none."""

    def explain_exit(self, end: RunEnd) -> TurnError:
        """Why a run ended without a terminal frame, as far as exit code and stderr tell."""

    def recovery(self, failed: TurnError | RunEnd) -> Literal["resume", "fresh"] | None:
        """Was the run refused only for how it named its native session? Then: how to name it in another run."""

    def transcript_pattern(self, native_session_id: str, env: Mapping[str, str]) -> str | None:
        """A glob for the CLI's own transcript of this session, or None where it keeps none that can be found."""

    def transcript_says(self, appended: bytes, prompt: str) -> TranscriptWord:
        """What the CLI appended to its transcript in a run says of the run's prompt. Never raises; a torn last line is nothing."""
