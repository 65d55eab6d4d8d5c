"""The claude backend: how Claude Code (2.1.197 to 2.1.x) is started, and what its exits mean.

Facts come from claude 2.1.329. The prompt goes to stdin alone; a value that a caller chooses never stands where the CLI
could read it as a flag (equals form, or checked).
"""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from clisup.backends.base import (
    Adapter,
    Capabilities,
    Carried,
    LaunchRequest,
    LaunchSpec,
    Recovery,
    RunEnd,
    TranscriptWord,
)
from clisup.backends.checks import UUID, argv_path, argv_text, check_mode, check_prompt, check_uuid
from clisup.backends.claude.decoder import ClaudeDecoder
from clisup.backends.claude.errors import ERRORS, explain_end, recovery_of
from clisup.backends.claude.fork import ClaudeFork
from clisup.backends.claude.history import ClaudeSeed
from clisup.backends.claude.input import as_text, user_message
from clisup.backends.claude.live import context_usage
from clisup.backends.claude.presence import ClaudePresence
from clisup.backends.claude.transcript import transcript_says
from clisup.errors import UsageError
from clisup.model.events import TurnError
from clisup.model.prompts.structured import schema_text
from clisup.model.prompts.tool_spec import BRIDGE_SERVER
from clisup.policy.cli_files import PresenceRules

__all__ = ["PERMISSION_MODES", "ClaudeAdapter"]

# What 2.1.329 takes; `default` is not in its help but is taken, and is the one name that 2.1.197 has for `manual`.
PERMISSION_MODES = ("acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "manual", "plan")
_SETTING_SOURCES = frozenset({"user", "project", "local"})
_STREAM_FLAGS = ("-p", "--output-format", "stream-json", "--include-partial-messages", "--verbose")
_VERSION = re.compile(r"^(\d+\.\d+\.\d+\S*) \(Claude Code\)\s*$", re.MULTILINE)
_LOGGED_IN = re.compile(r'"loggedIn":\s*(true|false)')
_TOKENS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_EVENTS = (
    "session_init", "message_start", "content_delta", "message", "message_stop", "tool_use", "tool_progress", "tool_result",
    "permission_denied", "retracted", "rate_limit", "retry", "task", "status", "unparsed", "approval_requested",
    "approval_resolved",
)  # fmt: skip
_LIVE = ("--permission-prompt-tool", "stdio")  # it asks on stdout, and waits for the answer on stdin
_STREAM_INPUT = ("--input-format", "stream-json")  # each line a message, and the end of stdin the end of the session


class ClaudeAdapter(Adapter):
    """Launch rules of Claude Code: one process a turn, the prompt on stdin and then its end; or a live process, which takes
    one prompt after the other as lines of stream-json.
    """

    kind = "claude"
    lists = "claude"
    default_command: ClassVar[tuple[str, ...]] = ("claude",)
    default_versions = ">=2.1.197,<3"
    version_args = ("--version",)
    login_args: ClassVar[tuple[str, ...]] = ("auth", "status")
    login_keys: ClassVar[tuple[str, ...] | None] = (
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "CLAUDE_CODE_OAUTH_TOKEN",
    )
    login_env = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}  # else it looks up its API's host
    fields = "claude"
    fork = ClaudeFork()
    seed = ClaudeSeed()
    presence: ClassVar[PresenceRules | None] = ClaudePresence()
    capabilities = Capabilities(
        live=True,
        live_versions=">=2.1.329,<3",
        controls=("model", "permission_mode", "context_usage", "compact"),
        fork=True,
        history=True,
        structured=True,
        cli_tools=True,
        system_prompt_modes=("append", "replace"),
        cost=True,
        images=True,
        tools=True,
        approvals=True,
        permission_modes=PERMISSION_MODES,
        tokens=_TOKENS,
        events=tuple(sorted(_EVENTS)),
    )
    errors = ERRORS

    def workers(self, launcher: str) -> Sequence[Sequence[str]]:
        """None: the command that npm and the installer leave is the native binary (2.1.197 and later)."""
        return ()

    def launch(self, request: LaunchRequest) -> LaunchSpec:
        """Argv, stdin and own variables for one turn.

        `system_prompt_file` is appended to the CLI's own prompt (`--append-system-prompt-file`, a hidden flag): that
        prompt holds the rules for its tools, which a caller's text is not meant to take away. The CLI keeps the first
        turn's prompt for the session, so another file on resume changes nothing. `system_prompt_mode = "replace"` takes that
        prompt away (`--system-prompt-file`), for callers who want a model and no coding agent; `cli_tools` are `--tools`.

        `setting_sources="user"` (the default) leaves out what the working directory brings: its settings, hooks and
        `.mcp.json`. With the CLI's own default (None) a server named there is started unasked (2.1.329).

        Raises UsageError for a prompt or value that the CLI cannot take.
        """
        stdin, altered = _stdin_of(request)
        return LaunchSpec(
            argv=(
                *request.command,
                *_STREAM_FLAGS,
                *(_STREAM_INPUT if request.images or request.live else ()),
                *(_LIVE if request.live else ()),
                *_flags(request),
                *request.args,
            ),
            stdin=stdin,
            stdin_eof=not request.live,
            env=_environment(request),
            prompt_altered=altered,
        )

    def decoder(self, carried: Carried, request: LaunchRequest | None = None) -> ClaudeDecoder:
        """A decoder for one turn's stdout. A fresh session carries a cost of 0; None means an unknown total."""
        return ClaudeDecoder(carried, request)

    def compact_prompt(self, instructions: str | None) -> str:
        """The command that has the CLI sum up its context (2.1.329, in one-shot and in live mode)."""
        return f"/compact {instructions}" if instructions else "/compact"

    def context_usage(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request for the context's usage, in our words."""
        return context_usage(answer)

    def parse_version(self, output: str) -> str | None:
        """`2.1.329 (Claude Code)` gives `2.1.329`."""
        found = _VERSION.search(output)
        return found[1] if found else None

    def parse_login(self, output: str, exit_code: int) -> bool | None:
        """`"loggedIn": true` of `claude auth status` (2.1.329: no request, 0.2 s, exit code 1 where it is false)."""
        found = _LOGGED_IN.search(output)
        return found[1] == "true" if found else None

    def refused_as_root(self, env: Mapping[str, str]) -> tuple[str, ...]:
        """2.1.329 refuses to skip permissions as root, except where it is told that it runs in a sandbox."""
        if env.get("IS_SANDBOX") == "1" or env.get("CLAUDE_CODE_BUBBLEWRAP"):
            return ()
        return ("bypassPermissions", "--dangerously-skip-permissions")

    def explain_exit(self, end: RunEnd) -> TurnError:
        """Why a run ended without a result: a known refusal to start, with its way out, else `crashed`.

        The message ends with the last 2 KB of stderr at most; whoever shows it redacts what is secret.
        """
        return explain_end(end, self.kind)

    def recovery(self, failed: TurnError | RunEnd) -> Recovery | None:
        """What makes the same prompt work where the session flag alone was wrong.

        `"resume"`: the id is already in use, so resume it. `"fresh"`: the CLI knows no such conversation, so create it
        under the same id; only right where no turn of it has completed and no transcript exists, or its history would
        be lost.
        """
        return recovery_of(failed.message if isinstance(failed, TurnError) else failed.stderr)

    def transcript_says(self, appended: bytes, prompt: str) -> TranscriptWord:
        """Whether the transcript holds the prompt, and an answer to it."""
        return transcript_says(appended, prompt)

    def transcript_pattern(self, native_session_id: str, env: Mapping[str, str]) -> str | None:
        """A glob for the session's transcript. The folder is made from the first turn's directory, so any folder
        matches.
        """
        config = self.seed.home(env)
        if config is None or not UUID.fullmatch(native_session_id):
            return None
        return f"{glob.escape(config)}/projects/*/{native_session_id}.jsonl"


def _flags(request: LaunchRequest) -> list[str]:
    flags: list[str] = []
    if request.setting_sources is not None:
        flags += ["--setting-sources", _setting_sources(request.setting_sources)]
    flags += _session_flags(request)
    if request.model is not None:
        flags.append(f"--model={argv_text('model', request.model)}")
    if request.system_prompt_file is not None:
        flag = "--system-prompt-file" if request.system_prompt_mode == "replace" else "--append-system-prompt-file"
        flags += [flag, argv_path("system_prompt_file", request.system_prompt_file)]
    if request.cli_tools != "default":
        flags.append(f"--tools={'' if request.cli_tools == 'none' else ','.join(request.cli_tools)}")
    if request.mcp_config_file is not None:
        # --mcp-config takes any number of values: the flag after it ends the list.
        flags += ["--mcp-config", argv_path("mcp_config_file", request.mcp_config_file), "--strict-mcp-config"]
    if request.output_schema is not None:
        flags += ["--json-schema", schema_text(request.output_schema)]
    if request.tools:
        # A rule for the whole server: it serves this session's tools and nothing else. It holds in every permission mode (in plan
        # mode only for tools that are marked as read-only, as the bridge marks them) and in a live process, too.
        flags.append(f"--allowedTools=mcp__{BRIDGE_SERVER}")
    if request.permission_mode is not None:
        flags += ["--permission-mode", check_mode("claude", request.permission_mode, PERMISSION_MODES)]
    return flags


def _session_flags(request: LaunchRequest) -> list[str]:
    session = check_uuid("claude", request)
    if session is None:
        return []
    # --resume takes an optional value, so only the equals form binds the id to it.
    return [f"--resume={session}"] if request.resume else ["--session-id", session]


def _setting_sources(value: str) -> str:
    """A comma-separated list; empty means none at all."""
    unknown = [name for name in value.split(",") if value and name.strip() not in _SETTING_SOURCES]
    if unknown:
        raise UsageError(
            f"cannot take the setting sources {value!r}, because claude has no source {unknown[0]!r}",
            hint="name some of user, project, local, or none with an empty text",
        )
    return value


def _stdin_of(request: LaunchRequest) -> tuple[str, str | None]:
    """The prompt as the CLI gets it, and what was done to it. Images go as one line of stream-json: text has no place for
    them; and so does all that a live process is told.
    """
    check_prompt("claude", request.prompt)
    as_it_is = request.expand or request.command_prompt
    if request.images or request.live:
        content = request.content or request.prompt
        return user_message(content, uuid=request.prompt_id, expand=as_it_is)
    return as_text(request.prompt, expand=as_it_is)


def _environment(request: LaunchRequest) -> dict[str, str]:
    env = {
        # An update in the middle of a session would change the version that was checked at the start.
        "DISABLE_AUTOUPDATER": "1",
    }
    if not request.expand:
        # `@path` in a prompt is else replaced by the file's text: any file, no permission asked, no frame told.
        env["CLAUDE_CODE_DISABLE_FILE_MENTIONS"] = "1"
    if request.live:
        env["CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"] = "1"
    return env
