"""Base classes of a backend: `Adapter` turns a request into a launch, `Decoder` turns a CLI's output into events.

Both are pure: the daemon opens files, reads the clock and the environment, and starts processes.
Methods without `@abstractmethod` and attributes with a value are optional. A backend overrides them for its features.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from clisup.backends.approvals import ApprovalAnswer
from clisup.backends.errors import ErrorRule, Taxonomy, explain_end
from clisup.backends.frames import Frame
from clisup.backends.launch import Background, Carried, LaunchRequest, LaunchSpec, RunEnd, background_of
from clisup.backends.native_sessions import NativeSessionRules
from clisup.backends.transcripts import ForkPlan, ForkRules, SeedRules, TranscriptWord
from clisup.config.model import ApiSettings
from clisup.model.events import (
    AssistantMessage,
    BackendStatus,
    ContentDelta,
    EventBase,
    MessageStart,
    MessageStop,
    ToolResult,
    ToolUse,
    TurnError,
    UsageReport,
)
from clisup.model.lines.framing import Line
from clisup.model.lines.long_line import Path
from clisup.model.lines.sequences import without_sequences
from clisup.model.verdict import Terminal
from clisup.policy.cli_files import PresenceRules, StaleLock

__all__ = [
    "END_OF_INPUT", "TOKENS", "Adapter", "ApprovalAnswer", "Background", "Capabilities", "Carried", "Chunk",
    "Control", "ControlAnswer", "Decoded", "Decoder", "ErrorRule", "ForkPlan", "ForkRules", "LaunchRequest",
    "LaunchSpec", "OpenWork", "Recovery", "Reply", "RunEnd", "StaleLock", "Terminal", "TranscriptWord", "background_of",
]  # fmt: skip

Control = Literal["model", "permission_mode", "context_usage", "compact"]
"""A request to a live CLI: set the model, set the permission mode, report the context usage, or compact the context."""


class Capabilities(Struct, frozen=True):
    """Features of a backend. `backend/list` shows them, and docs/backends/README.md has a table made from them."""

    one_shot: bool = True
    """Run one process for each turn."""
    live: bool = False
    """Run one process for many turns."""
    live_by_default: bool = False
    """Make a session live if the caller names no mode."""
    steer: bool = False
    """Take a prompt into the running turn of a live process."""
    resume: bool = True
    """Continue a session in a new process."""
    deltas: bool = True
    """Report text while the model writes it."""
    thinking: bool = True
    """Report the model's thinking."""
    usage: bool = True
    """Report the tokens of a turn."""
    cost: bool = False
    """Report the cost of a turn."""
    approvals: bool = False
    """Ask before a tool runs."""
    controls: tuple[Control, ...] = ()
    """Requests to a live process."""
    images: bool = False
    """Take images in a prompt. An ACP agent without images refuses them during the turn."""
    system_prompt: bool | None = True
    """Take a system prompt. None: only the running agent knows, and an agent without this feature fails the turn."""
    auth_method: bool = False
    """Take the name of a login method (`auth_method` of the backend)."""
    mcp: bool = True
    """Take the session's MCP servers."""
    tools: bool = False
    """Start clisup's MCP bridge, so that the session's client can run tools for the model."""
    permission_modes: tuple[str, ...] | None = ()
    """Permission modes of the CLI. None: only the running CLI knows its modes, and refuses others during the turn."""
    running_usage: bool = False
    """Report running totals of the session. The daemon then carries the totals from turn to turn."""
    fork: bool = False
    """Copy a transcript, whole or up to a turn (`Adapter.fork`)."""
    history: bool = False
    """Begin a session with messages of the caller (`Adapter.seed`)."""
    structured: bool = False
    """Answer with a JSON value that fits a schema (`LaunchRequest.output_schema`)."""
    by_prompt: tuple[Literal["output_schema", "model"], ...] = ()
    """Values that go with each prompt, so that a live process can take a prompt with another value."""
    caller_tools: bool = False
    """Take tool definitions with a prompt. The caller runs these tools and sends the results with a later prompt."""
    sampling: tuple[str, ...] = ()
    """Supported names in the `sampling` of `session/prompt`."""
    caches: bool = False
    """Take the caller's cache marks on parts of a prompt and a history."""
    cli_tools: bool = False
    """Switch off the CLI's own tools on request."""
    system_prompt_modes: tuple[str, ...] = ()
    """Ways to combine a system prompt with the CLI's own: append, replace."""
    chosen_id: bool = True
    """Let the caller choose the native session id. The daemon then uses the id of the session."""
    native_id_prefix: str = ""
    """Text before a chosen native session id."""
    ids_once: bool = False
    """Refuse to create a session with a used id. From the second run on, the run's number follows the prefix."""
    interrupt: Literal["signal", "request"] = "signal"
    """First step of a graceful interrupt: a signal, or a request in the CLI's own protocol."""
    tokens: tuple[str, ...] = ()
    """Fields of `usage` in the CLI's report of a turn."""
    events: tuple[str, ...] = ()
    """Event types of the CLI. Events of the daemon come with every backend."""
    live_only: tuple[str, ...] = ()
    """Names of features above that one-shot sessions lack."""
    one_shot_only: tuple[str, ...] = ()
    """Names of features above that live sessions lack."""

    def of(self, *, live: bool) -> Capabilities:
        """Return the features of a live or a one-shot session."""
        return replace(self, **dict.fromkeys(self.one_shot_only if live else self.live_only, False))


TOKENS = (
    "input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "reasoning_tokens",
)  # fmt: skip
"""All possible fields of `Capabilities.tokens`."""

Recovery = Literal["resume", "fresh"]
"""Way to name the native session in another run."""


class _EndOfInput:
    """Type of `END_OF_INPUT`."""


END_OF_INPUT = _EndOfInput()
"""Last reply: closes the CLI's stdin."""

Reply = str | _EndOfInput


class ControlAnswer(NamedTuple):
    """Answer of a live CLI to a request of the daemon."""

    request_id: str
    value: Mapping[str, Any]
    error: str | None
    """Reason of a refusal."""


class Decoded(Struct, frozen=True, gc=False):
    """Result of one line."""

    events: Sequence[EventBase]
    """Events in the order of the journal."""
    terminal: Terminal | None = None
    """End of the turn, if the line ended it."""
    replies: Sequence[Reply] = ()
    """Text for the CLI's stdin, in whole lines with their newline.

    The daemon sends each reply once, also across its own restart. The place of the line identifies a reply, so the same
    lines must give the same replies.
    """
    answers: Sequence[ControlAnswer] = ()
    """Answers of the CLI to requests of the daemon."""


_are_plain = frozenset({
    AssistantMessage, BackendStatus, ContentDelta, MessageStart, MessageStop, ToolResult, ToolUse, UsageReport,
}).issuperset  # fmt: skip
"""Tell whether events of these types need no decision in the middle of a turn."""


class OpenWork(NamedTuple):
    """Work of a CLI that its events do not tell."""

    background: Background
    calls: Mapping[str, str] = {}
    """Tool calls without an event yet: their names by id."""
    awaits: str | None = None
    """Request that the CLI has not answered while it opens its session."""
    ended: bool = False
    """The CLI has told the end of the turn or that it is idle, and the rest is read (`Decoder.settle`)."""
    failure: TurnError | None = None
    """Failure that the CLI has told last, without an end of the turn."""


class Chunk(NamedTuple):
    """Result of the lines of one chunk."""

    told: Sequence[tuple[Line, Sequence[EventBase]]]
    """Lines that need no decision, with the events of each."""
    line: Line | None = None
    """Next line, if the line needs a decision."""
    decoded: Decoded | None = None
    """Result of `line`."""


class Decoder(ABC):
    """Decoder of one CLI's stdout.

    A decoder is deterministic: the same lines from the same state always give the same events. A decoder never raises.
    An unknown line becomes `unparsed`. `raw_blob` in the events names no file: the daemon adds the name.
    """

    state: Struct | None = None
    """Memory of the turn, in fields that JSON can hold. Arguments of the constructor are no part: a request can hold secrets.

    A decoder without a state has no checkpoints: a new daemon decodes its turn from the start.
    """

    def restore(self, state: Any) -> None:
        """Continue where another decoder of the same turn had this state, which is of the same type.

        Fields may have any values of their types: a process of the CLI can write them.
        """
        self.state = state

    @abstractmethod
    def decode(self, line: Line) -> Decoded:
        """Decode one line. Oversize and incomplete lines come here too."""

    def decode_chunk(self, lines: Iterable[Line]) -> Chunk:
        """Decode lines up to the first line that needs a decision. Take no later line from `lines`."""
        told: list[tuple[Line, Sequence[EventBase]]] = []
        for line in lines:
            decoded = self.decode(line)
            if decoded.terminal is not None or decoded.replies or decoded.answers:
                return Chunk(told, line, decoded)
            if not _are_plain(map(type, decoded.events)):
                return Chunk(told, line, decoded)
            told.append((line, decoded.events))
        return Chunk(told)

    @staticmethod
    def passes_on(frame: Frame, path: Path) -> bool:
        """Tell whether the decoder only passes on the long string at `path`; see `PassesOn`."""
        return False

    @property
    def background(self) -> Background:
        """Background tasks that the CLI announced and did not end. The daemon keeps the process while there are any."""
        return {}

    @property
    def open_work(self) -> OpenWork:
        """Work for the phases of the watchdog."""
        return OpenWork(self.background)

    def settle(self) -> Decoded | None:
        """Return the end of a turn whose CLI has told the end, or that it is idle (`OpenWork.ended`), and says nothing more."""
        return None

    @property
    def idle(self) -> bool:
        """Tell whether a live CLI has reported that only background tasks are left."""
        return False

    @property
    def ends_when_idle(self) -> bool:
        """Tell whether the turn of a live CLI ends when the CLI is idle, and not with its terminal frame.

        True if the turn has started background tasks.
        """
        return False

    @property
    def prompts(self) -> tuple[str, ...]:
        """Ids of the prompts with which a live CLI began its turn."""
        return ()

    @property
    def given_up(self) -> frozenset[str]:
        """Ids of prompts that a live CLI cancelled. A turn may have taken such a prompt before."""
        return frozenset()

    @property
    def kept(self) -> Any:
        """Facts of a live process that the decoders of its later turns get (`Carried.kept`), as long as the daemon runs."""
        return None

    def interrupt(self) -> str | None:
        """Return text for stdin to end the running turn, or None if only signals end the turn."""
        return None

    def steer(self, later: str, request: LaunchRequest) -> str | None:
        """Return text for stdin to send a prompt into the running turn, or None if the turn has not begun yet.

        `request` is that of another turn with the prompt, and `later` the text for it, which most live CLIs take at any time.
        """
        return later

    def answer(self, approval_id: str, answer: ApprovalAnswer) -> str | None:
        """Return text for stdin to answer an open `approval_requested`, or None for an unknown id.

        The call changes nothing: the daemon repeats the call after a failure to send the text. The decoder gives
        `approval_resolved` when the CLI no longer waits. The daemon drops this event for an answered approval.

        Raises `UsageError(kind="unsupported")` if the CLI does not offer the answer.
        """
        return None

    def control(self, request_id: str, control: Control, value: str | None) -> str | None:
        """Return text for stdin to send this request to a live CLI, or None if the CLI has no such request.

        Raises `UsageError` for a value that the CLI does not have.
        """
        return None


class Adapter(ABC):
    """Rules for one kind of backend."""

    kind: ClassVar[str]
    """Name of the kind in the configuration."""
    lists: ClassVar[str]
    """Name of the scrub lists."""
    default_command: ClassVar[tuple[str, ...]]
    """Argv prefix of the CLI."""
    default_versions: ClassVar[str]
    """Range of accepted versions, such as `>=1.2`: from the oldest recorded one. Empty means any."""
    newest_checked: ClassVar[str] = ""
    """Newest version with recordings. A newer one is accepted with a warning. Empty means that there is none."""
    update_command: ClassVar[str] = ""
    """Command that updates the CLI, for the hint about a version that is too old."""
    version_args: ClassVar[tuple[str, ...]]
    """Arguments to print the CLI's version."""
    version_pattern: ClassVar[str] = ""
    """Pattern of this output. The first group is the version."""
    capabilities: ClassVar[Capabilities]
    """Features of the CLI."""
    errors: ClassVar[tuple[ErrorRule, ...]]
    """Rules to find the kind of an error. docs/reference/errors.md has a table of the rules."""
    noise: ClassVar[tuple[str, ...]] = ()
    """Patterns of whole lines on stderr that say nothing of a failure. No message quotes them as a cause."""
    program: ClassVar[str] = ""
    """Name of the CLI in messages about its end. Empty means the kind."""
    tells_work: ClassVar[bool] = True
    """The CLI reports the beginning of each tool and each hook. Without it, silence may be the work of a process below the CLI."""
    codes_tell: ClassVar[bool] = False
    """The CLI's own signal handlers exit with 128 + the number of the signal, as a shell does."""
    begins_late_prompts: ClassVar[bool] = True
    """A live CLI begins another turn with a steered prompt that its turn did not take. Otherwise the daemon queues the prompt."""
    recoveries: ClassVar[Sequence[tuple[str, Recovery]]] = ()
    """Patterns of refusals for the name of the native session only, for `recovery`."""

    packages: ClassVar[tuple[str, ...]] = ()
    """Python packages for the default command."""
    login_args: ClassVar[tuple[str, ...]] = ()
    """Arguments to print the login state of the CLI without a request to its API."""
    login_env: ClassVar[Mapping[str, str]] = {}
    """Variables to keep the command with `login_args` off the network."""
    login_elsewhere: ClassVar[str] = ""
    """Other ways to log in. The command with `login_args` does not see these logins."""
    login_keys: ClassVar[tuple[str, ...] | None] = None
    """Variables for the login of the CLI. None means any of the pairs in the scrub lists."""
    login_places: ClassVar[tuple[str, ...]] = ()
    """Patterns of variables that name another store of the login, or a provider with a login of its own."""
    fork: ClassVar[ForkRules | None] = None
    """Rules to copy a transcript, for `Capabilities.fork`."""
    seed: ClassVar[SeedRules | None] = None
    """Rules to write a history, for `Capabilities.history`."""
    presence: ClassVar[PresenceRules | None] = None
    """Rules to find CLI processes with an open native session."""
    native_sessions: ClassVar[NativeSessionRules | None] = None
    """Rules to list the native sessions of a directory."""

    @property
    def fields(self) -> str:
        """Kind of the frames: `known_fields/<kind>.json` describes their fields."""
        return self.kind

    @abstractmethod
    def launch(self, request: LaunchRequest) -> LaunchSpec:
        """Return argv, stdin and variables for one run. Raises `UsageError(kind="unsupported")` for a missing feature.

        With `request.later`, stdin has the lines that begin another turn of a live process, and nothing else counts.
        """

    @abstractmethod
    def decoder(self, carried: Carried, request: LaunchRequest) -> Decoder:
        """Return a decoder for the stdout of one turn, from its first line on.

        `request` is that of the launch; of a later turn of a live process, the one with `later`.
        """

    def lack(self, *features: str) -> str:
        """Return the reason why some sessions lack one of these features, for an error message."""
        for only, mode in ((self.capabilities.live_only, "live"), (self.capabilities.one_shot_only, "one-shot")):
            if not set(only).isdisjoint(features):
                return f"only {mode} sessions of {self.kind} have this feature"
        return f"{self.kind} has no such feature"

    def parse_version(self, output: str) -> str | None:
        """Return the version in the output of `command + version_args`, or None."""
        found = re.search(self.version_pattern, output, re.MULTILINE) if self.version_pattern else None
        return found[1] if found else None

    def run_end(self, exit_code: int | None, signal: int | None, stderr: str) -> RunEnd:
        """Return the end of a run for `explain_exit` and `recovery`, without lines of `noise` and without colours."""
        stderr = without_sequences(stderr)
        if self.noise:
            stderr = re.sub(rf"(?m)^(?:{'|'.join(self.noise)})(?:\n|\Z)", "", stderr)
        return RunEnd(exit_code, signal, stderr)

    def explain_exit(self, end: RunEnd) -> TurnError:
        """Explain the end of a run without a terminal frame by its exit code and stderr, else as `crashed`."""
        return explain_end(Taxonomy(self.errors), self.program or self.kind, end, codes_tell=self.codes_tell)

    def recovery(self, failed: TurnError | RunEnd) -> Recovery | None:
        """Return the way to name the native session in another run, if the CLI refused this run only for the name.

        `resume`: the id is in use. `fresh`: the CLI does not know the session, so another run creates the session.
        The daemon does so only if no turn has completed and no transcript exists, to lose no history.
        """
        text = failed.message if isinstance(failed, TurnError) else failed.stderr
        return next((recovery for pattern, recovery in self.recoveries if re.search(pattern, text)), None)

    def transcript_pattern(self, native_session_id: str, env: Mapping[str, str]) -> str | None:
        """Return a glob for the CLI's own transcript of a session, or None if no transcript can be found."""
        return None

    def transcript_says(self, appended: bytes, prompt: str) -> TranscriptWord:
        """Look for the prompt of a run in the bytes appended by the run to its transcript.

        The method never raises, and ignores an incomplete last line.
        """
        return "prompt_not_found"

    def strange_messages(self, tail: bytes, moment: str) -> int:
        """Return how many messages in the end of a transcript were made after `moment` (RFC 3339), the end of the last turn.

        A resting live process makes none, so another program did. 0 for a CLI whose transcript cannot show it. The method never raises.
        """
        return 0

    def workers(self, launcher: str) -> Sequence[Sequence[str]]:
        """Return argv prefixes of the real CLI behind `launcher` (a real path), best first, or nothing.

        Launchers of npm packages swallow signals or leave the CLI behind. An element with a slash is a glob of files.
        Any other element is a command on PATH. The daemon runs the first prefix with only existing elements.
        """
        return ()

    def repeated(self, end: RunEnd, appended: bytes, answered: bool) -> TurnError | None:
        """Return the failure of the request that a silent CLI repeated, or None if unknown. The watchdog has ended the CLI.
        `appended` are the bytes added to the transcript by the run. `answered`: the model had answered in this turn.
        """
        return None

    def login_store(self, env: Mapping[str, str]) -> str | None:
        """Return the file of the CLI's login, or None if the state of the login needs no look at a file."""
        return None

    def login_expired(self, stored: bytes, now: float) -> bool:
        """Tell whether the CLI would renew this login at its next start. `now` is in seconds since 1970.

        The command with `login_args` is then not asked: it may end before the new login is saved, and the old one is void.
        """
        return False

    def parse_login(self, output: str, exit_code: int) -> bool | None:
        """Tell by stdout and stderr of `command + login_args` whether the CLI is logged in. None means unknown."""
        return None

    def refused_as_root(self, env: Mapping[str, str]) -> tuple[str, ...]:
        """Return the permission modes and flags refused by the CLI as root with this environment."""
        return ()

    def models_flags(self, api: ApiSettings) -> tuple[str, ...]:
        """Return the command's flags to print the provider's models as a JSON array, or nothing."""
        return ()

    def context_usage(self, answer: Mapping[str, Any]) -> Frame:
        """Return a CLI's answer to the control `context_usage` as fields of `session/context_usage`."""
        return dict(answer)

    def compact_prompt(self, instructions: str | None) -> str | None:
        """Return the prompt to compact the CLI's context, for the control `compact`, or None."""
        return None
