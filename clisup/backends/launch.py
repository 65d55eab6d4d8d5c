"""Input and result of `Adapter.launch`, and facts about the runs before and after it. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from msgspec import Struct, field

from clisup.config.model import NO_API, ApiSettings
from clisup.errors import UsageError
from clisup.model.prompts.content import Content, Image
from clisup.model.usage import Usage
from clisup.policy.cli_files import StaleLock

__all__ = [
    "UUID", "Background", "Carried", "LaunchRequest", "LaunchSpec", "RunEnd", "argv_path", "argv_text",
    "background_of", "check_mode", "check_prompt", "check_sources", "check_uuid",
]  # fmt: skip

Background = Mapping[str, str | None]
"""Background tasks by id. The value is the kind, if the CLI tells it."""


@dataclass(frozen=True, slots=True)  # no Struct: pydantic reads it from a recording
class LaunchRequest:
    """Facts for one run. Paths are absolute. An adapter gets no value for a feature that its `capabilities` do not name."""

    command: tuple[str, ...]
    """Argv prefix of the CLI."""
    prompt: str
    """Text of the prompt. It goes to stdin, never to argv."""
    native_session_id: str | None
    """Session id of the CLI. None if the CLI chooses the id of a new session."""
    resume: bool
    """Continue the native session."""
    cwd: str
    model: str | None = None
    permission_mode: str | None = None
    system_prompt: str | None = None
    system_prompt_file: str | None = None
    """File with the text of `system_prompt`. Prefer the file: every user of the machine can read argv."""
    mcp_servers: Mapping[str, Any] | None = None
    """Servers in claude's `mcpServers` form."""
    mcp_config_file: str | None = None
    """File with `mcp_servers` in claude's format. Prefer the file, as above."""
    tools: tuple[str, ...] = ()
    """Tools that the session's client runs. `mcp_servers` then has the server `BRIDGE_SERVER`. The tools need no approval."""
    setting_sources: str | None = "user"
    expand: bool = False
    """Let the CLI read commands and mentions in the prompt."""
    args: tuple[str, ...] = ()
    """Flags of the configuration."""
    scratch: str = "/nonexistent"
    """Directory for `LaunchSpec.files`."""
    run: int = 0
    """Number of the run in its session, for ids that are unique in a session."""
    live: bool = False
    """Keep stdin open for more prompts."""
    later: bool = False
    """The turn is not the first of its live process. `native_session_id` names the session, and `resume` tells how the process
    began.
    """
    command_prompt: bool = False
    """Send the prompt unchanged: it is a command of the CLI."""
    prompt_id: str | None = None
    """UUID of the prompt. A live CLI names the prompt by it."""
    content: Content = ()
    """Texts and images of the prompt in order. Empty without images. `prompt` has the texts alone."""
    output_schema: Mapping[str, Any] | None = None
    """JSON Schema of the object that the turn answers with."""
    caller_tools: Sequence[Mapping[str, Any]] = ()
    """`tools` of `session/prompt`."""
    tool_results: Sequence[Mapping[str, Any]] = ()
    """`tool_results` of `session/prompt`."""
    sampling: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """`sampling` of `session/prompt`."""
    cached: tuple[int, ...] = ()
    """Indexes in `content` of the parts that end a section for the API's cache."""
    cli_tools: Literal["default", "none"] | tuple[str, ...] = "default"
    """`cli_tools` of `session/new`."""
    system_prompt_mode: Literal["append", "replace"] = "append"
    """`system_prompt_mode` of `session/new`."""
    api: ApiSettings = NO_API
    """Settings of an API backend."""
    auth_method: str = ""
    """Method to log in at the agent. Empty: the agent needs no login, or is logged in."""

    @property
    def images(self) -> tuple[Image, ...]:
        """Return the images of the prompt, in order."""
        return tuple(part for part in self.content if isinstance(part, Image))


class LaunchSpec(Struct, frozen=True):
    """Instructions to start the CLI."""

    argv: tuple[str, ...]
    stdin: str
    """Text that the daemon writes at the start."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that the adapter sets."""
    stdin_eof: bool = True
    """Close stdin after `stdin`. If False, the decoder's replies follow."""
    stdout_mode: Literal["pipe", "file"] = "pipe"
    prompt_altered: str | None = None
    """Description of a change to the prompt."""
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    """Files by name. The daemon writes them into `LaunchRequest.scratch` with mode 0600."""
    closed_env: tuple[str, ...] = ()
    """Variables that the daemon sets to an empty text if they have no value. A CLI then ignores a repository's values."""
    stale_locks: tuple[StaleLock, ...] = ()
    """Lock files that the daemon removes before the start if no process can hold them."""


class RunEnd(Struct, frozen=True):
    """End of a run without a terminal frame, for `Adapter.explain_exit`."""

    exit_code: int | None
    signal: int | None
    stderr: str
    """Beginning and end of stderr. Some CLIs print the error first, and pages of help after it."""


@dataclass(frozen=True, slots=True)  # no Struct: pydantic reads it from a recording
class Carried:
    """State of a CLI at the start of a turn."""

    cost_usd: float | None = None
    """Running total of the session's cost. None means unknown. A fresh session has 0."""
    usage: Usage | None = None
    """Running total of the session's tokens. None means unknown. A fresh session has zeros."""
    background: Background = dataclasses.field(default_factory=dict)
    """Background tasks that the process still works on."""
    agent: str | None = None
    """Name of the ACP agent, as it has introduced itself."""
    kept: Any = None
    """`Decoder.kept` of the process's last turn. None after a restart of the daemon."""


def background_of(stored: Any) -> Background:
    """Return stored background tasks. Older journals and recordings hold a list of ids without kinds."""
    is_list = isinstance(stored, list) and all(isinstance(task_id, str) for task_id in stored)
    return dict.fromkeys(stored) if is_list else stored or {}


_UNSENDABLE = re.compile("[\x00\ud800-\udfff]")
UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def check_prompt(cli: str, prompt: str) -> None:
    """Raise `UsageError` for a prompt that is empty or no text."""
    if not prompt.strip():
        raise UsageError(f"cannot prompt {cli} with an empty text, because it does not ask the model then")
    if (odd := _unsendable(prompt)) is not None:
        raise UsageError(
            f"cannot send the prompt, because its character {odd} is no text (NUL or half of a surrogate pair)"
        )


def _unsendable(text: str) -> int | None:
    """Return the place of the first such character. Two quick tests come first: the expression takes 75 ms for 16 MiB."""
    try:
        if b"\x00" not in text.encode():
            return None
    except UnicodeEncodeError:
        pass
    odd = _UNSENDABLE.search(text)
    return odd.start() if odd else None


def argv_text(name: str, value: str) -> str:
    """Return the value if it fits into argv, else raise `UsageError`."""
    if not value.strip() or _unsendable(value) is not None:
        raise UsageError(f"cannot use {value!r} as {name}, because it is empty or holds what argv cannot")
    return value


def argv_path(name: str, value: str) -> str:
    """Return the absolute path if it fits into argv, else raise `UsageError`."""
    if not value.startswith("/"):
        raise UsageError(f"cannot use {value!r} as {name}, because it is not an absolute path")
    return argv_text(name, value)


def check_mode(cli: str, mode: str, modes: Sequence[str]) -> str:
    """Return the permission mode if the CLI has it, else raise `UsageError`."""
    if mode not in modes:
        raise UsageError(
            f"cannot use permission mode {mode!r}, because {cli} has no such mode",
            hint=f"take one of {', '.join(modes)}",
        )
    return mode


def check_sources(cli: str, value: str) -> set[str]:
    """Return the names in a list of setting sources. Raises `UsageError` for a name other than user, project and local."""
    names = [name.strip() for name in value.split(",") if name.strip()]
    unknown = [name for name in names if name not in ("user", "project", "local")]
    if unknown:
        raise UsageError(
            f"cannot take the setting sources {value!r}, because {cli} has no source {unknown[0]!r}",
            hint="name some of user, project, local, or none with an empty text",
        )
    return set(names)


def check_named(whose: str, request: LaunchRequest) -> str | None:
    """Return the native session id, or None for a new session. Raises `UsageError` for a session to resume without an id."""
    if request.resume and not request.native_session_id:
        raise UsageError(f"cannot resume {whose} session without its id", hint="give its native session id")
    return request.native_session_id


def check_uuid(cli: str, request: LaunchRequest) -> str | None:
    """Return the native session id, or None. Raises `UsageError` for an id that is no UUID, or without an id to resume."""
    session = check_named(f"a {cli}", request)
    if session is not None and not UUID.fullmatch(session):
        raise UsageError(f"cannot use {session!r} as a {cli} session id, because it is not a UUID")
    return session
