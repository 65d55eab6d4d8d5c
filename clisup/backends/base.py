"""What a backend adapter is: pure rules that turn a turn's request into a launch spec, and a CLI's bytes into events.

An adapter never opens a file, never reads a clock or the environment and never spawns. The daemon does all that for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from msgspec import Struct, field

from clisup.backends.approvals import ApprovalAnswer
from clisup.backends.taxonomy import ErrorRule
from clisup.config.api_settings import NO_API, ApiSettings
from clisup.model.events import EventBase, TurnError
from clisup.model.lines.framing import Line
from clisup.model.lines.long_line import PassesOn
from clisup.model.prompts.content import Content, Image
from clisup.model.sessions.turn_trace import TurnTrace
from clisup.model.stretch import NO_STRETCH, Stretch
from clisup.model.terminal import Terminal
from clisup.model.usage import Usage
from clisup.policy.presence import PresenceRules
from clisup.policy.stale_lock import StaleLock

Background = Mapping[str, str | None]
"""Background tasks by id, each with its kind where that is known."""
TranscriptWord = Literal["answered", "prompt_found", "prompt_not_found"]
Recovery = Literal["resume", "fresh"]

__all__ = [
    "END_OF_INPUT",
    "Adapter",
    "ApprovalAnswer",
    "Background",
    "Capabilities",
    "Carried",
    "Control",
    "ControlAnswer",
    "Decoded",
    "Decoder",
    "ForkPlan",
    "ForkRules",
    "LaunchRequest",
    "LaunchSpec",
    "LoginQuestion",
    "Recovery",
    "Reply",
    "RunEnd",
    "StaleLock",
    "Terminal",
    "TranscriptWord",
    "background_of",
    "control_line",
    "fields_of",
    "fork_rules",
    "given_up_by",
    "is_idle",
    "login_keys",
    "login_question",
    "models_flags",
    "packages_of",
    "passes_on",
    "presence_rules",
    "prompts_of",
    "refused_as_root",
]


class _EndOfInput:
    """The type of `END_OF_INPUT`."""


END_OF_INPUT = _EndOfInput()
"""A reply that closes the CLI's stdin; nothing can be said after it."""

Reply = str | _EndOfInput

Control = Literal["model", "permission_mode", "context_usage", "compact"]
"""What a CLI lets its caller do between or in turns: set the model or the permission mode, count, sum up."""


class Capabilities(Struct, frozen=True):
    """What a backend can do; shown by `backend/list`, and the source of the table in docs/backends.md.

    `events` are the event types that its CLI can give (the daemon's own come from every backend). `tokens` are the fields
    of `usage` that it reports for a turn; `running_usage`: the CLI itself tells totals, which have to be carried.
    `chosen_id`: the caller may choose the native session id; it is then the session's own with `native_id_prefix` before it,
    and with `ids_once` (an id that was used once cannot be used for a new session) the run's number between them from the
    second run on. `interrupt`: what a graceful interrupt does first, a signal or a request
    in the CLI's own protocol. `live_versions` is the range whose live mode is known, where that is smaller than the adapter's.
    `controls` are what a live process takes while it runs, and `compact` where there is a command
    for it. `permission_modes` is None where only the running CLI knows its modes: it refuses at the turn
    what it does not have. `tools`: its CLI starts our MCP bridge, so that the session's client can run tools for the model.
    `images`: prompts may hold some (an ACP agent that takes none refuses them at the turn). `fork`: a session's transcript can be
    copied, whole or up to a turn (`ForkRules`). `history`: a session may begin with messages of the caller's
    (`clisup.backends.seeds`). `structured`: a turn may be asked for a JSON value by a schema (`LaunchRequest.output_schema`);
    with `asked_by_prompt` each prompt carries its own schema, so that a live process goes on where another one is asked for.
    `live_by_default`: sessions that say no mode are live. `caller_tools`: a prompt may bring definitions of tools that the caller
    runs itself, and a later one their results. `sampling` are the names of `session/prompt`'s `sampling` that the backend takes.
    `caches`: marks of the caller's say which parts of a prompt and a history the API is to cache.
    `cli_tools`: the CLI's own tools can be switched off. `system_prompt_modes`: whether a system prompt is appended to the CLI's
    own, or replaces it.
    """

    one_shot: bool = True
    live: bool = False
    live_by_default: bool = False
    live_versions: str = ""
    resume: bool = True
    deltas: bool = True
    thinking: bool = True
    usage: bool = True
    cost: bool = False
    approvals: bool = False
    controls: tuple[Control, ...] = ()
    images: bool = False
    system_prompt: bool = True
    mcp: bool = True
    tools: bool = False
    permission_modes: tuple[str, ...] | None = ()
    running_usage: bool = False
    fork: bool = False
    history: bool = False
    structured: bool = False
    asked_by_prompt: bool = False
    caller_tools: bool = False
    sampling: tuple[str, ...] = ()
    caches: bool = False
    cli_tools: bool = False
    system_prompt_modes: tuple[str, ...] = ()
    chosen_id: bool = True
    native_id_prefix: str = ""
    ids_once: bool = False
    interrupt: Literal["signal", "request"] = "signal"
    tokens: tuple[str, ...] = ()
    events: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)  # no Struct: pydantic reads it from a recording
class LaunchRequest:
    """All that an adapter needs to know for one run. Paths are absolute; `prompt` goes to stdin only.

    `prompt` is the text of the prompt. Where it holds images too, `content` is all of it in order, `prompt` its texts alone;
    else `content` is empty. No adapter without `Capabilities.images` gets any.

    A system prompt comes as text and as a file with the same text, an MCP configuration as the mapping of its
    `mcpServers` and as a file in claude's format: an adapter takes what its CLI can read, the file where it has the choice
    (argv is readable by everybody). `tools` names the tools that the session's client runs: the MCP server `clisup` (`BRIDGE_SERVER`)
    is in that configuration then, and they need no approval. `scratch` is the directory in which the daemon writes `LaunchSpec.files`.
    `native_session_id` is None where the CLI chooses the id of a new session. `run` is the run's number, for ids that
    have to be the session's own. A `live` run is to take further prompts on its stdin; `prompt_id` (a UUID) is then by what
    the CLI names this one again. A `command_prompt` is a command of the CLI's own and goes to it as it is. With `output_schema`
    (JSON Schema of an object) the turn's answer is to be a value of it; no adapter without `Capabilities.structured` gets one.
    `caller_tools`, `tool_results` and `sampling` are those of `session/prompt`, `cli_tools` and `system_prompt_mode` those of
    `session/new`; no adapter without the capability gets one. `cached` are the parts of `content` that end what an API is to cache
    (`Capabilities.caches`). `api` has the settings of an API backend.
    """

    command: tuple[str, ...]
    prompt: str
    native_session_id: str | None
    resume: bool
    cwd: str
    model: str | None = None
    permission_mode: str | None = None
    system_prompt: str | None = None
    system_prompt_file: str | None = None
    mcp_servers: Mapping[str, Any] | None = None
    mcp_config_file: str | None = None
    tools: tuple[str, ...] = ()
    setting_sources: str | None = "user"
    expand: bool = False
    args: tuple[str, ...] = ()
    scratch: str = "/nonexistent"
    run: int = 0
    live: bool = False
    command_prompt: bool = False
    prompt_id: str | None = None
    content: Content = ()
    output_schema: Mapping[str, Any] | None = None
    caller_tools: Sequence[Mapping[str, Any]] = ()
    tool_results: Sequence[Mapping[str, Any]] = ()
    sampling: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    cached: tuple[int, ...] = ()
    cli_tools: Literal["default", "none"] | tuple[str, ...] = "default"
    system_prompt_mode: Literal["append", "replace"] = "append"
    api: ApiSettings = NO_API

    @property
    def images(self) -> tuple[Image, ...]:
        """The images of the prompt, in order."""
        return tuple(part for part in self.content if isinstance(part, Image))


class LaunchSpec(Struct, frozen=True):
    """How to start the CLI. `env` is what the adapter itself sets; `prompt_altered` says what was done to the prompt.

    `stdin` is written at the start; with `stdin_eof` it is then closed, else the decoder's replies follow it. `files`
    (name to text or bytes) are written into the request's `scratch` before the start, 0600. `closed_env` are names that are set to
    nothing where no one else sets them: a CLI that reads variables from a repository leaves them alone then. `stale_locks`
    are removed before the start where no process can hold them.
    """

    argv: tuple[str, ...]
    stdin: str
    env: Mapping[str, str] = field(default_factory=dict)
    stdin_eof: bool = True
    stdout_mode: Literal["pipe", "file"] = "pipe"
    prompt_altered: str | None = None
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    closed_env: tuple[str, ...] = ()
    stale_locks: tuple[StaleLock, ...] = ()


def background_of(stored: Any) -> Background:
    """Return background tasks as they were stored. Older journals and recordings hold a list of ids, without kinds."""
    is_list = isinstance(stored, list) and all(isinstance(task_id, str) for task_id in stored)
    return dict.fromkeys(stored) if is_list else stored or {}


@dataclass(frozen=True, slots=True)  # as above
class Carried:
    """What a CLI carries from turn to turn, known at the turn's start.

    `cost_usd` and `usage` are its running totals, so that a turn's share can be told; None means unknown, a fresh session
    has zeros. `background` are the background tasks that the process still works on.
    """

    cost_usd: float | None = None
    usage: Usage | None = None
    background: Background = dataclasses.field(default_factory=dict)


class ControlAnswer(NamedTuple):
    """What the CLI answered to a request of ours. `error` is there where it refused."""

    request_id: str
    value: Mapping[str, Any]
    error: str | None


class Decoded(Struct, frozen=True, gc=False):
    """What one line gave: events to journal in this order, the turn's end where the line was that, and what to answer.

    `replies` go to the CLI's stdin, each exactly once, also across a restart of the daemon: they are known by the place of
    their line, so the same lines must give the same replies. A reply is whole lines of text with their newline. `answers` are
    the CLI's own, to what it was asked.
    """

    events: Sequence[EventBase]
    terminal: Terminal | None = None
    replies: Sequence[Reply] = ()
    answers: Sequence[ControlAnswer] = ()

    @property
    def plain(self) -> bool:
        """It gave events and nothing else."""
        return self.terminal is None and not self.replies and not self.answers


class RunEnd(Struct, frozen=True):
    """What is known when a run has ended without a terminal frame: for `Adapter.explain_exit`.

    `stderr` is its beginning and its end: some CLIs say first what is wrong, and then pages of help.
    """

    exit_code: int | None
    signal: int | None
    stderr: str


class Decoder(Protocol):
    """One CLI's stdout to events. Deterministic: the same lines from the same state give the same events, on any day.

    It never raises: what it does not know becomes `unparsed`. `raw_blob` in the events names no file; the daemon fills it.
    """

    @property
    def background(self) -> Background:
        """Background tasks announced and not ended: while there are any, the process is wanted after its last word."""

    def decode(self, line: Line) -> Decoded:
        """Decode one complete line. Oversize and incomplete lines come here too."""

    def interrupt(self) -> str | None:
        """What to say on stdin to have the running turn ended, or None where only signals do that."""

    def answer(self, approval_id: str, answer: ApprovalAnswer) -> str | None:
        """What to say on stdin to answer an open `approval_requested`, or None where there is none of this id.

        It changes nothing: the daemon asks once for each approval, and again where the word was not said after all. An
        `approval_resolved` of the decoder's says that the CLI does not wait any longer; the daemon drops it where the
        approval was answered. Raises `UsageError(kind="unsupported")` for a word that the CLI does not offer.
        """


class Adapter(Protocol):
    """One kind of backend.

    For `clisup doctor` an adapter may have more, each with a default (`login_question`, `refused_as_root` and `fields_of`
    read them):

    - `login_args: tuple[str, ...]`, what to call the CLI with to learn whether it is logged in, without a request to its API;
      `parse_login(output: str, exit_code: int) -> bool | None` for stdout and stderr together; and, where the command is
      only then silent on the network, `login_env: Mapping[str, str]` to set for it. `login_elsewhere: str` says what else can
      stand in for a login that the command knows nothing of. Default: cannot tell.
    - `login_keys: tuple[str, ...]`, the variables with which the CLI logs in. Default: any of its scrub lists' pairs.
    - `refused_as_root(env: Mapping[str, str]) -> tuple[str, ...]`: the permission modes and flags that the CLI refuses where
      it runs as root with this environment. Default: none.
    - `fork: ForkRules`, where its capabilities have `fork`; `seed: SeedRules`, where they have `history`;
      `presence: PresenceRules`, where processes of the CLI's own say
      which session they have open. Default: none.
    - `repeated(end: RunEnd, appended: bytes, answered: bool) -> TurnError | None`: the failure of the request that a CLI was
      repeating in silence when the watchdog ended it. `appended` is what the run added to the transcript; `answered` says
      whether the model had answered in this turn. Default: cannot tell.
    - `packages: tuple[str, ...]`, the Python packages without which the default command cannot work. Default: none.
    - `models_flags(api: ApiSettings) -> tuple[str, ...]`: with what to call the command so that it prints the names of the
      provider's models as a JSON array. Default: it cannot.
    - `fields: str`, the kind whose `known_fields/<kind>.json` holds for its frames. Default: `kind`.
    """

    kind: str
    lists: str
    default_command: tuple[str, ...]
    default_versions: str
    version_args: tuple[str, ...]
    capabilities: Capabilities
    errors: tuple[ErrorRule, ...]

    def workers(self, launcher: str) -> Sequence[Sequence[str]]:
        """Where `launcher` (a real path) is only a launcher: argv prefixes of the real worker, best first; else none.

        Launchers of npm packages swallow signals or leave the worker behind. An element with a slash is a glob of files,
        one without is a command on PATH; the first prefix that is there whole is run in the launcher's place.
        """

    def launch(self, request: LaunchRequest) -> LaunchSpec:
        """Argv, stdin and own variables for one run. Raises `UsageError(kind="unsupported")` for what the CLI cannot do."""

    def decoder(self, carried: Carried, request: LaunchRequest) -> Decoder:
        """A decoder for one turn's stdout, from the turn's first line on. `request` is what the run was launched with."""

    def parse_version(self, output: str) -> str | None:
        """The version in the output of `command + version_args`, or None where it holds none."""

    def explain_exit(self, end: RunEnd) -> TurnError:
        """Why a run ended without a terminal frame, as far as exit code and stderr tell."""

    def recovery(self, failed: TurnError | RunEnd) -> Recovery | None:
        """Was the run refused only for how it named its native session? Then: how to name it in another run."""

    def transcript_pattern(self, native_session_id: str, env: Mapping[str, str]) -> str | None:
        """A glob for the CLI's own transcript of this session, or None where it keeps none that can be found."""

    def transcript_says(self, appended: bytes, prompt: str) -> TranscriptWord:
        """What the CLI appended to its transcript in a run says of the run's prompt. Never raises; a torn last line is nothing."""


class LoginQuestion(NamedTuple):
    """How a CLI is asked whether it is logged in; no `args` where it cannot be."""

    args: tuple[str, ...]
    env: Mapping[str, str]
    elsewhere: str
    parse: Callable[[str, int], bool | None]


def login_question(adapter: Adapter) -> LoginQuestion:
    """What the adapter says of it; an adapter need not say anything."""
    args: tuple[str, ...] = getattr(adapter, "login_args", ())
    env: Mapping[str, str] = getattr(adapter, "login_env", {})
    elsewhere: str = getattr(adapter, "login_elsewhere", "")
    return LoginQuestion(args, env, elsewhere, getattr(adapter, "parse_login", lambda output, exit_code: None))


def login_keys(adapter: Adapter) -> tuple[str, ...] | None:
    """Return the variables with which the CLI logs in; None where the adapter does not say."""
    keys: tuple[str, ...] | None = getattr(adapter, "login_keys", None)
    return keys


def packages_of(adapter: Adapter) -> tuple[str, ...]:
    """Return the Python packages that the adapter's default command needs."""
    packages: tuple[str, ...] = getattr(adapter, "packages", ())
    return packages


def models_flags(adapter: Adapter, api: ApiSettings) -> tuple[str, ...]:
    """Return the flags by which the command lists its provider's models; none where it cannot."""
    flags: Callable[[ApiSettings], tuple[str, ...]] = getattr(adapter, "models_flags", lambda api: ())
    return flags(api)


def refused_as_root(adapter: Adapter, env: Mapping[str, str]) -> tuple[str, ...]:
    """What the adapter's CLI refuses as root; nothing where the adapter does not say."""
    words: Callable[[Mapping[str, str]], tuple[str, ...]] = getattr(adapter, "refused_as_root", lambda env: ())
    return words(env)


def repeated_failure(adapter: Adapter, end: RunEnd, appended: bytes, *, answered: bool) -> TurnError | None:
    """The failed request that a silent CLI was repeating; None where the adapter does not say."""
    told: Callable[[RunEnd, bytes, bool], TurnError | None] = getattr(adapter, "repeated", lambda *_: None)
    return told(end, appended, answered)


def prompts_of(decoder: Decoder) -> tuple[str, ...]:
    """The ids of the prompts with which the CLI has begun its turn, where it is a live one that tells them."""
    told: tuple[str, ...] = getattr(decoder, "prompts", ())
    return told


def is_idle(decoder: Decoder) -> bool:
    """Has a live CLI said that it has nothing left to do, background work aside?"""
    idle: bool = getattr(decoder, "idle", False)
    return idle


def ends_when_idle(decoder: Decoder) -> bool:
    """Does the turn of a live CLI end only when the CLI is idle, and not with its last word? So where it has begun background work."""
    later: bool = getattr(decoder, "ends_when_idle", False)
    return later


def stretch_of(decoder: Decoder) -> Callable[[Sequence[bytes], int, int], Stretch]:
    """The decoder's `stretch(lines, begin, limit)`, where it has a short way; else one that takes none.

    It takes the lines from `begin` on (without their newlines, at most `limit` bytes long with them) up to the first that it
    leaves to `decode`: of that one nothing has been taken note of. `decode` of each would give the same, and no more. What it
    takes may say nothing of questions, retries, heartbeats, who the CLI is, or a turn's end.
    """
    stretch: Callable[[Sequence[bytes], int, int], Stretch] = getattr(decoder, "stretch", lambda *_: NO_STRETCH)
    return stretch


def given_up_by(decoder: Decoder) -> frozenset[str]:
    """The ids of prompts that a live CLI has taken back or given up, as far as it tells: a turn may have had them before that."""
    told: frozenset[str] = getattr(decoder, "given_up", frozenset())
    return told


def passes_on(decoder: Decoder) -> PassesOn:
    """Which long strings of its frames the decoder only passes on; none where it does not say."""
    told: PassesOn = getattr(decoder, "passes_on", lambda frame, path: False)
    return told


def control_line(decoder: Decoder, request_id: str, control: Control, value: str | None) -> str | None:
    """What to say to a live CLI to have this done; None where it has no word for it."""
    word: Callable[[str, Control, str | None], str | None] = getattr(decoder, "control", lambda *_: None)
    return word(request_id, control, value)


def fields_of(adapter: Adapter) -> str:
    """The kind whose recorded fields hold for the adapter's frames."""
    return str(getattr(adapter, "fields", adapter.kind))


class ForkPlan(NamedTuple):
    """Which parts (start, end) of a transcript make a fork, in order, each a whole line.

    `complete`: the last that the journal knows of the turn stands in the transcript. A CLI may write a moment after it has said
    something, so a plan that is not complete is made again after a while.
    """

    parts: Sequence[tuple[int, int]]
    complete: bool


class ForkRules(Protocol):
    """How a CLI's transcript is copied to a new native session. Pure: the daemon reads and writes."""

    def plan(self, lines: Iterable[bytes], turns: Sequence[TurnTrace], upto: str | None, *, whole: bool) -> ForkPlan:
        """The parts for a fork at the end of turn `upto`, which is one of `turns`; with `whole`, all that there is.

        `upto` is None only where there are no turns, and then `whole`.

        Raises `UsageError`: turn_not_found, limit_exceeded.
        """

    def copy(self, line: bytes, native_session_id: str) -> bytes:
        """A line of the plan, as it has to stand in the copy."""


def fork_rules(adapter: Adapter) -> ForkRules | None:
    """How the adapter's transcripts are forked; None where they cannot be."""
    rules: ForkRules | None = getattr(adapter, "fork", None)
    return rules if adapter.capabilities.fork else None


def presence_rules(adapter: Adapter) -> PresenceRules | None:
    """Where the adapter's CLI says which sessions are open; None where it does not."""
    rules: PresenceRules | None = getattr(adapter, "presence", None)
    return rules
