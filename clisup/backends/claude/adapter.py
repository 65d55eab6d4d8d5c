"""Backend `claude`: start and exits of Claude Code (2.1.197 to 2.1.x).

Facts come from claude 2.1.329. The prompt goes to stdin only. The CLI can never read a caller's value as a flag: values are
checked, or stand in the equals form. npm and the installer provide the native binary, without a launcher.

By default a prompt is text for the model. Measured, in `-p` and in stream-json alike:

- The CLI looks for a slash command at the very beginning of a string, or of the last text block of a message. A newline before
  the slash hides the command. The CLI merges waiting messages, so any block may become the last: each block that begins with a
  slash gets a newline.
- `@agent-NAME` and `@"NAME (agent)"` make the CLI tell the model to call that agent, in every environment. A zero-width space
  behind the @ hides the mention.
- The CLI ignores `@path` under CLAUDE_CODE_DISABLE_FILE_MENTIONS, which the adapter sets.
- `!command`, `#note`, `$NAME` and `{{name}}` are text.
"""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from clisup.backends.base import Adapter, Capabilities, Carried, LaunchRequest, LaunchSpec, TranscriptWord
from clisup.backends.claude.control import context_usage
from clisup.backends.claude.decoder import ClaudeDecoder
from clisup.backends.claude.errors import ERRORS
from clisup.backends.claude.fork import ClaudeFork
from clisup.backends.claude.native_sessions import ClaudeNativeSessions
from clisup.backends.claude.transcript import ClaudePresence, ClaudeSeed, config_directory, read_message
from clisup.backends.frames import Frame, decode_any, get_dict, get_number
from clisup.backends.launch import UUID, argv_path, argv_text, check_mode, check_prompt, check_sources, check_uuid
from clisup.backends.native_sessions import NativeSessionRules
from clisup.backends.transcripts import find_prompt, messages_after
from clisup.model.prompts.content import Content, Image
from clisup.model.prompts.options import BRIDGE_SERVER, schema_text
from clisup.policy.cli_files import PresenceRules

__all__ = ["PERMISSION_MODES", "ClaudeAdapter", "as_text", "user_message"]

# Modes of 2.1.329. Its help does not list `default`, which works and is the only name for `manual` in 2.1.197.
PERMISSION_MODES = ("acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "manual", "plan")
# Without --include-hook-events only a SessionStart hook is told (2.1.309 to 2.1.332), and all others are silence.
_STREAM_FLAGS = (
    "-p", "--output-format", "stream-json", "--include-partial-messages", "--include-hook-events", "--verbose",
)  # fmt: skip
_EARLY_S = 600.0
"""Seconds before its end at which claude may renew a login."""
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
    """Launch rules of Claude Code. A one-shot process gets one prompt on stdin and then the end of stdin. A live process takes
    one prompt after the other as lines of stream-json.
    """

    kind = "claude"
    lists = "claude"
    default_command: ClassVar[tuple[str, ...]] = ("claude",)
    default_versions = ">=2.1.309"
    newest_checked = "2.1.332"
    update_command = "claude update"
    version_args = ("--version",)
    version_pattern: ClassVar[str] = r"^(\d+\.\d+\.\d+\S*) \(Claude Code\)\s*$"
    login_args: ClassVar[tuple[str, ...]] = ("auth", "status")
    login_keys: ClassVar[tuple[str, ...] | None] = (
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "CLAUDE_CODE_OAUTH_TOKEN",
    )
    login_places = (
        "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_USE_*", "AWS_PROFILE", "AWS_REGION", "CLOUD_ML_REGION", "ANTHROPIC_VERTEX_*",
        "ANTHROPIC_FOUNDRY_*", "GOOGLE_APPLICATION_CREDENTIALS",
    )  # fmt: skip
    login_env = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}  # else it looks up its API's host
    fields = "claude"
    fork = ClaudeFork()
    seed = ClaudeSeed()
    presence: ClassVar[PresenceRules | None] = ClaudePresence()
    native_sessions: ClassVar[NativeSessionRules | None] = ClaudeNativeSessions()
    capabilities = Capabilities(
        live=True,
        steer=True,
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
        live_only=("approvals",),
    )
    errors = ERRORS
    codes_tell = True  # 143 on SIGTERM, 129 on SIGHUP
    recoveries = (
        (r"Session ID \S+ is already in use", "resume"),
        (r"No conversation found", "fresh"),
    )

    def launch(self, request: LaunchRequest) -> LaunchSpec:
        """Return argv, stdin and variables for one turn.

        The adapter appends `system_prompt_file` to the CLI's own prompt (`--append-system-prompt-file`, a hidden flag), which
        holds the rules for the CLI's tools. The CLI keeps the first turn's prompt for the session, so another file on resume
        changes nothing. `system_prompt_mode = "replace"` replaces the CLI's prompt (`--system-prompt-file`), for callers who
        want a model and no coding agent. `cli_tools` become `--tools`.

        `setting_sources="user"` (the default) ignores settings, hooks and `.mcp.json` of the working directory. With the CLI's
        own default (None), the CLI starts a server named there without a question (2.1.329).

        Raises `UsageError` for a prompt or value that the CLI does not accept.
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
        """Return a decoder for the stdout of one turn. A fresh session carries a cost of 0; None means an unknown total."""
        return ClaudeDecoder(carried, request)

    def compact_prompt(self, instructions: str | None) -> str:
        """Return the command that makes the CLI compact its context (2.1.329, in one-shot and live mode)."""
        return f"/compact {instructions}" if instructions else "/compact"

    def context_usage(self, answer: Mapping[str, Any]) -> Frame:
        """Return the CLI's answer about its context as fields of `session/context_usage`."""
        return context_usage(answer)

    def parse_login(self, output: str, exit_code: int) -> bool | None:
        """Return `loggedIn` in the output of `claude auth status` (2.1.329: no request, 0.2 s, exit code 1 if false)."""
        found = _LOGGED_IN.search(output)
        return found[1] == "true" if found else None

    def login_store(self, env: Mapping[str, str]) -> str | None:
        """Return the file of a login at claude.ai."""
        home = config_directory(env)
        return f"{home}/.credentials.json" if home else None

    def login_expired(self, stored: bytes, now: float) -> bool:
        """Tell whether `expiresAt` (milliseconds) is near. `claude auth status` then asks the host of the tokens (2.1.332)."""
        try:
            login = decode_any(stored)
        except (ValueError, RecursionError):
            return False
        expires = get_number(get_dict(login, "claudeAiOauth"), "expiresAt") if isinstance(login, dict) else None
        return expires is not None and expires / 1000 < now + _EARLY_S

    def refused_as_root(self, env: Mapping[str, str]) -> tuple[str, ...]:
        """Return the mode that skips permissions: 2.1.329 refuses it as root, unless a variable declares a sandbox."""
        if env.get("IS_SANDBOX") == "1" or env.get("CLAUDE_CODE_BUBBLEWRAP"):
            return ()
        return ("bypassPermissions", "--dangerously-skip-permissions")

    def transcript_says(self, appended: bytes, prompt: str) -> TranscriptWord:
        """Tell whether the transcript holds the prompt, and an answer to it."""
        return find_prompt(appended, read_message, [prompt])

    def strange_messages(self, tail: bytes, moment: str) -> int:
        """Count the messages of other programs, such as a `claude` in a terminal."""
        return messages_after(tail, read_message, moment)

    def transcript_pattern(self, native_session_id: str, env: Mapping[str, str]) -> str | None:
        """Return a glob for the session's transcript. Any folder matches, because the folder is named after the first turn's
        directory.
        """
        config = self.seed.home(env)
        if config is None or not UUID.fullmatch(native_session_id):
            return None
        return f"{glob.escape(config)}/projects/*/{native_session_id}.jsonl"


def _flags(request: LaunchRequest) -> list[str]:
    flags: list[str] = []
    if request.setting_sources is not None:
        check_sources("claude", request.setting_sources)
        flags += ["--setting-sources", request.setting_sources]
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


def _stdin_of(request: LaunchRequest) -> tuple[str, str | None]:
    """Return the prompt for the CLI, and a description of the changes to it. Prompts with images, and all prompts for a live
    process, are lines of stream-json.
    """
    check_prompt("claude", request.prompt)
    as_it_is = request.expand or request.command_prompt
    if request.images or request.live:
        content = request.content or request.prompt
        return user_message(content, uuid=request.prompt_id, expand=as_it_is)
    return as_text(request.prompt, expand=as_it_is)


def _environment(request: LaunchRequest) -> dict[str, str]:
    env = {
        # An update in the middle of a session would change the version that the daemon has checked.
        "DISABLE_AUTOUPDATER": "1",
    }
    if not request.expand:
        # Otherwise the CLI replaces `@path` in a prompt by the text of any file, without a question and without a frame.
        env["CLAUDE_CODE_DISABLE_FILE_MENTIONS"] = "1"
    if request.live:
        env["CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"] = "1"
    return env


# The @ comes first and the lookbehind after it: such an expression is six times as fast.
_AGENT = re.compile(r'@(?=agent-|"[\w:.@-]+ \(agent\)")(?<![^\s\ufeff\u3002\u3001\uff1f\uff01]@)')
_HIDDEN = "@\u200b"
_NEWLINE_ADDED = "newline before a leading slash"
_AGENT_HIDDEN = "zero-width space in each mention of an agent"


def as_text(prompt: str, *, expand: bool = False) -> tuple[str, str | None]:
    """Return the prompt as plain text for the CLI, and a description of the changes. `expand` changes nothing."""
    if expand:
        return prompt, None
    (text,), altered = _masked([prompt])
    return text, altered


def user_message(content: str | Content, *, uuid: str | None = None, expand: bool = False) -> tuple[str, str | None]:
    """Return one line for `--input-format stream-json` with its newline, and a description of the changes to the text.

    Texts and images keep their order. The CLI names the message by `uuid` in `command_lifecycle` and in the frames of its turn.
    """
    parts = [content] if isinstance(content, str) else list(content)
    altered = None
    if not expand:
        texts, altered = _masked([part for part in parts if isinstance(part, str)])
        masked = iter(texts)
        parts = [next(masked) if isinstance(part, str) else part for part in parts]
    body = parts[0] if isinstance(content, str) else [_block(part) for part in parts]
    message = {"type": "user", "message": {"role": "user", "content": body}}
    line = message if uuid is None else message | {"uuid": uuid}
    return json.dumps(line, ensure_ascii=True) + "\n", altered


def _block(part: str | Image) -> Frame:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {"type": "image", "source": {"type": "base64", "media_type": part.media_type, "data": part.data}}


def _masked(texts: Sequence[str]) -> tuple[list[str], str | None]:
    shown = [_AGENT.sub(_HIDDEN, text) for text in texts]
    done = [_AGENT_HIDDEN] if shown != list(texts) else []
    if any(text.startswith("/") for text in shown):
        done.insert(0, _NEWLINE_ADDED)
    return ["\n" + text if text.startswith("/") else text for text in shown], " and a ".join(done) or None
