"""The claude backend: how Claude Code (2.1.197 to 2.1.x) is started, and what its exits mean.

Facts come from claude 2.1.329. The prompt goes to stdin alone; a value that a caller chooses never stands where the CLI
could read it as a flag (equals form, or checked).
"""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping

from clisup.backends.base import Capabilities, Carried, LaunchRequest, LaunchSpec, RunEnd, TranscriptWord
from clisup.backends.claude_decoder import ClaudeDecoder
from clisup.backends.claude_errors import Recovery, explain_end, recovery_of
from clisup.backends.claude_transcript import transcript_says
from clisup.core.events import TurnError
from clisup.errors import UsageError

__all__ = ["PERMISSION_MODES", "ClaudeAdapter"]

# What 2.1.329 takes; `default` is not in its help but is taken, and is the one name that 2.1.197 has for `manual`.
PERMISSION_MODES = ("acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "manual", "plan")
_SETTING_SOURCES = frozenset({"user", "project", "local"})
_STREAM_FLAGS = ("-p", "--output-format", "stream-json", "--include-partial-messages", "--verbose")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_VERSION = re.compile(r"^(\d+\.\d+\.\d+\S*) \(Claude Code\)\s*$", re.MULTILINE)
_UNSENDABLE = re.compile("[\x00\ud800-\udfff]")
_NEWLINE_ADDED = "newline before a leading slash"


class ClaudeAdapter:
    """Launch rules of Claude Code in one-shot mode: one process a turn, the prompt on stdin, then its end."""

    kind = "claude"
    default_command: tuple[str, ...] = ("claude",)
    default_versions = ">=2.1.197,<3"
    version_args: tuple[str, ...] = ("--version",)
    capabilities = Capabilities(cost=True, permission_modes=PERMISSION_MODES)

    def launch(self, request: LaunchRequest) -> LaunchSpec:
        """Argv, stdin and own variables for one turn.

        `system_prompt_file` is appended to the CLI's own prompt (`--append-system-prompt-file`, a hidden flag): that
        prompt holds the rules for its tools, which a caller's text is not meant to take away. The CLI keeps the first
        turn's prompt for the session, so another file on resume changes nothing.

        `setting_sources="user"` (the default) leaves out what the working directory brings: its settings, hooks and
        `.mcp.json`. With the CLI's own default (None) a server named there is started unasked (2.1.329).

        Raises UsageError for a prompt or value that the CLI cannot take.
        """
        stdin, altered = _stdin_of(request)
        return LaunchSpec(
            argv=(*request.command, *_STREAM_FLAGS, *_flags(request), *request.args),
            stdin=stdin,
            env=_environment(request),
            prompt_altered=altered,
        )

    def decoder(self, carried: Carried) -> ClaudeDecoder:
        """A decoder for one turn's stdout. A fresh session carries a cost of 0; None means an unknown total."""
        return ClaudeDecoder(carried)

    def parse_version(self, output: str) -> str | None:
        """`2.1.329 (Claude Code)` gives `2.1.329`."""
        found = _VERSION.search(output)
        return found[1] if found else None

    def explain_exit(self, end: RunEnd) -> TurnError:
        """Why a run ended without a result: a known refusal to start, with its way out, else `crashed`.

        The message ends with the last 2 KB of stderr at most; whoever shows it redacts what is secret.
        """
        return explain_end(end)

    def recovery(self, failed: TurnError | RunEnd) -> Recovery | None:
        """What makes the same prompt work where the session flag alone was wrong.

        `"resume"`: the id is already in use, so resume it. `"fresh"`: the CLI knows no such conversation, so create it
        under the same id; only right where no turn of it has completed and no transcript exists, or its history would
        be lost.
        """
        return recovery_of(failed.message if isinstance(failed, TurnError) else failed.stderr_tail)

    def transcript_says(self, appended: bytes, prompt: str) -> TranscriptWord:
        """Whether the transcript holds the prompt, and an answer to it."""
        return transcript_says(appended, prompt)

    def transcript_pattern(self, native_session_id: str, env: Mapping[str, str]) -> str | None:
        """A glob for the session's transcript. The folder is made from the first turn's directory, so any folder
        matches.
        """
        home = env.get("HOME")
        config = env.get("CLAUDE_CONFIG_DIR") or (f"{home}/.claude" if home else None)
        if config is None or not _UUID.fullmatch(native_session_id):
            return None
        return f"{glob.escape(config.rstrip('/'))}/projects/*/{native_session_id}.jsonl"


def _flags(request: LaunchRequest) -> list[str]:
    flags: list[str] = []
    if request.setting_sources is not None:
        flags += ["--setting-sources", _setting_sources(request.setting_sources)]
    flags += _session_flags(request)
    if request.model is not None:
        flags.append(f"--model={_text('model', request.model)}")
    if request.system_prompt_file is not None:
        flags += ["--append-system-prompt-file", _path("system_prompt_file", request.system_prompt_file)]
    if request.mcp_config_file is not None:
        # --mcp-config takes any number of values: the flag after it ends the list.
        flags += ["--mcp-config", _path("mcp_config_file", request.mcp_config_file), "--strict-mcp-config"]
    if request.permission_mode is not None:
        flags += ["--permission-mode", _permission_mode(request.permission_mode)]
    return flags


def _session_flags(request: LaunchRequest) -> list[str]:
    session = request.native_session_id
    if session is None:
        if request.resume:
            raise UsageError("cannot resume a claude session without its id", hint="give its native session id")
        return []
    if not _UUID.fullmatch(session):
        raise UsageError(f"cannot use {session!r} as a claude session id, because it is not a UUID")
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


def _permission_mode(mode: str) -> str:
    if mode not in PERMISSION_MODES:
        raise UsageError(
            f"cannot use permission mode {mode!r}, because claude has no such mode",
            hint=f"take one of {', '.join(PERMISSION_MODES)}",
        )
    return mode


def _text(name: str, value: str) -> str:
    if not value.strip() or _UNSENDABLE.search(value):
        raise UsageError(f"cannot use {value!r} as {name}, because it is empty or holds what argv cannot")
    return value


def _path(name: str, value: str) -> str:
    if not value.startswith("/"):
        raise UsageError(f"cannot use {value!r} as {name}, because it is not an absolute path")
    return _text(name, value)


def _stdin_of(request: LaunchRequest) -> tuple[str, str | None]:
    """The prompt as the CLI gets it, and what was done to it.

    Only a slash as the very first character makes it a command (2.1.329: not after a space, tab, newline or BOM).
    """
    prompt = request.prompt
    if not prompt.strip():
        raise UsageError("cannot prompt claude with an empty text, because it exits without asking the model")
    odd = _UNSENDABLE.search(prompt)
    if odd:
        raise UsageError(
            f"cannot send the prompt, because its character {odd.start()} is no text (NUL or half of a surrogate pair)"
        )
    if request.expand or not prompt.startswith("/"):
        return prompt, None
    return "\n" + prompt, _NEWLINE_ADDED


def _environment(request: LaunchRequest) -> dict[str, str]:
    env = {
        # An update in the middle of a session would change the version that was checked at the start.
        "DISABLE_AUTOUPDATER": "1",
    }
    if not request.expand:
        # `@path` in a prompt is else replaced by the file's text: any file, no permission asked, no frame told.
        env["CLAUDE_CODE_DISABLE_FILE_MENTIONS"] = "1"
    return env
