"""Backend `gemini`: Gemini CLI (0.61.x) in headless mode for one turn, and as an ACP agent for many (agent.py).

Facts come from gemini 0.61.0. The prompt goes to stdin only. Values of a caller stand in the equals form.

By default a prompt is text for the model. Measured, the prompt on stdin:

- A slash as the very first character makes the prompt a command. A newline before the slash hides the command.
- gemini replaces `@path` by the text of that file, anywhere in the prompt. A backslash before the @ prevents this.
- `!command`, `!{command}`, `#note`, `$NAME` and `{{args}}` are text.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping
from itertools import count

from msgspec.structs import replace

from clisup.backends.base import (
    Adapter,
    Capabilities,
    Carried,
    Decoder,
    LaunchRequest,
    LaunchSpec,
    RunEnd,
    StaleLock,
    TranscriptWord,
)
from clisup.backends.frames import Frame
from clisup.backends.gemini.agent import GeminiAgent
from clisup.backends.gemini.decoder import GeminiDecoder
from clisup.backends.gemini.result import ERRORS, explain_end, last_attempt
from clisup.backends.launch import argv_path, argv_text, check_mode, check_named, check_prompt
from clisup.backends.transcripts import find_prompt, messages_after, own_directory, texts_of
from clisup.errors import UsageError
from clisup.model.events import TurnError
from clisup.model.prompts.content import Image
from clisup.model.prompts.options import BRIDGE_SERVER

__all__ = ["PERMISSION_MODES", "GeminiAdapter"]

# Every gemini of a home takes this lock at its start. A killed one may leave it, and the next one waits 12 s.
_STALE_LOCKS = (StaleLock("gemini", ("GEMINI_CLI_HOME", "HOME"), ".gemini/projects.json.lock"),)
PERMISSION_MODES = ("auto_edit", "default", "plan", "yolo")
# gemini's clean-up deletes files by the first 8 letters or digits of an id, also those of living sessions. Ids that begin with
# another character are safe.
_ID_PREFIX = "_"
_SESSION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,127}")
_INDEX = re.compile(r"\d+|latest")  # these mean another session than one of that name
_EVENTS = (
    "content_delta", "message", "message_start", "message_stop", "permission_denied", "session_init", "status",
    "tool_result", "tool_use", "unparsed",
)  # fmt: skip
_AGENT_EVENTS = ("tool_progress", "approval_requested", "approval_resolved")
_TOKENS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "reasoning_tokens")
# gemini reads variables from a repository's `.gemini/.env` or `.env`, unless they are set, even to an empty text.
_CLOSED = (
    "ALL_PROXY", "CLOUD_SHELL", "CODE_ASSIST_API_VERSION", "CODE_ASSIST_ENDPOINT", "GCE_METADATA_HOST", "GCE_METADATA_IP",
    "GEMINI_API_KEY_AUTH_MECHANISM", "GEMINI_CLI_ACTIVITY_LOG_TARGET", "GEMINI_CLI_CUSTOM_HEADERS",
    "GEMINI_CLI_EXTENSION_REGISTRY_URI", "GEMINI_CLI_HOME", "GEMINI_CLI_IDE_SERVER_PORT",
    "GEMINI_CLI_IDE_SERVER_STDIO_ARGS", "GEMINI_CLI_IDE_SERVER_STDIO_COMMAND", "GEMINI_CLI_IDE_WORKSPACE_PATH",
    "GEMINI_CLI_SYSTEM_DEFAULTS_PATH", "GEMINI_CLI_SYSTEM_SETTINGS_PATH", "GEMINI_CLI_USE_COMPUTE_ADC", "GEMINI_MODEL",
    "GEMINI_RESTRICTED_MODE", "GEMINI_SANDBOX", "GEMINI_SYSTEM_MD", "GEMINI_TELEMETRY_ENABLED", "GEMINI_WRITE_SYSTEM_MD",
    "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_ACCESS_TOKEN", "GOOGLE_CLOUD_UNIVERSE_DOMAIN",
    "GOOGLE_GEMINI_BASE_URL", "GOOGLE_GENAI_API_VERSION", "GOOGLE_GENAI_USE_GCA", "GOOGLE_GENAI_USE_VERTEXAI",
    "GOOGLE_VERTEX_BASE_URL", "HTTPS_PROXY", "HTTP_PROXY", "NODE_TLS_REJECT_UNAUTHORIZED", "http_proxy", "https_proxy",
)  # fmt: skip


_AGENT = GeminiAgent()


class GeminiAdapter(Adapter):
    """Launch rules of Gemini CLI. A one-shot process gets one prompt on stdin and then the end of stdin. A live process is an ACP
    agent.
    """

    kind = "gemini"
    lists = "gemini"
    default_command = ("gemini",)
    default_versions = ">=0.60.0"
    newest_checked = "0.61.0"
    update_command = "npm install -g @google/gemini-cli@latest"
    version_args = ("--version",)
    version_pattern = r"^(\d+\.\d+\.\d+\S*)\s*$"
    login_keys = ("GEMINI_API_KEY",)
    login_places = ("GEMINI_CLI_HOME", "GOOGLE_GENAI_USE_*", "GOOGLE_CLOUD_*", "GOOGLE_APPLICATION_CREDENTIALS")
    tells_work = False  # no frame for its hooks
    noise = (
        r"Ripgrep is not available\..*",
        r"Warning: \d+-color support not detected\..*",
        r"YOLO mode is enabled\. .*",
        r"\[STARTUP\] Phase .* Skipping metrics\.",
    )
    capabilities = Capabilities(
        live=True,
        images=True,
        tools=True,
        approvals=True,
        permission_modes=PERMISSION_MODES,
        native_id_prefix=_ID_PREFIX,
        ids_once=True,  # a session whose first request failed can be neither resumed nor created again
        tokens=_TOKENS,
        events=tuple(sorted({*_EVENTS, *_AGENT_EVENTS})),
        live_only=("thinking", "mcp", "tools", "approvals"),
        one_shot_only=("chosen_id",),
    )
    errors = ERRORS
    recoveries = (
        (r"Session ID \S+ already exists", "resume"),
        (r"Invalid session identifier|No previous sessions found", "fresh"),
    )

    def launch(self, request: LaunchRequest) -> LaunchSpec:
        """Return argv, stdin and variables for one run.

        stdout of one turn goes to a file: at its exit gemini drops unread data of a pipe (0.61.0: 3 MB ended in mid-line, exit 0).
        `setting_sources="user"` (the default) ignores the settings of the working directory, as far as gemini allows
        (docs/backends/gemini.md). None leaves the trust to gemini, which then refuses unknown directories.

        Raises `UsageError` for an MCP configuration, and for a prompt or value that the CLI does not accept.
        """
        trust, trust_flags = _trust_variables(request.setting_sources)
        # Variables and flags, not a system settings file: gemini ignores such a file unless root owns it, and the variable that
        # names it switches off the machine's own policy.
        env = {"GEMINI_CLI_NO_RELAUNCH": "true", **trust}  # the launcher itself is then the worker
        if request.system_prompt_file is not None:
            env["GEMINI_SYSTEM_MD"] = argv_path("system_prompt_file", request.system_prompt_file)
        spec, flags = _live(request) if request.live else _one_shot(request)
        return replace(
            spec,
            argv=(
                *request.command,
                "--acp" if request.live else "--output-format=stream-json",
                *trust_flags,
                *flags,
                *_flags(request),
                *request.args,
            ),
            env=env,
            closed_env=_closed_variables(request.setting_sources),
            stale_locks=_STALE_LOCKS,
        )

    def decoder(self, carried: Carried, request: LaunchRequest | None = None) -> Decoder:
        """Return a decoder for the stdout of one turn. gemini counts one turn only, so no total is carried."""
        return _AGENT.decoder(carried, request) if request is not None and request.live else GeminiDecoder()

    def explain_exit(self, end: RunEnd) -> TurnError:
        """Explain a run that ended without a result: by stderr, else by the exit code, else as `crashed`."""
        return explain_end(end)

    def repeated(self, end: RunEnd, appended: bytes, answered: bool) -> TurnError | None:
        """Return the failure on stderr, before the first answer only: gemini reports each failed request, but no successful one."""
        return None if answered else last_attempt(end)

    def transcript_says(self, appended: bytes, prompt: str) -> TranscriptWord:
        """Tell whether the transcript holds the prompt (as `stdin_of` sent it), and an answer to it."""
        sent = [prompt, _MENTION.sub(r"\\@", prompt), _AGENT.as_text(prompt)]
        return find_prompt(appended, _message, sent, answerer="gemini")

    def strange_messages(self, tail: bytes, moment: str) -> int:
        """Count the messages of other programs, such as a `gemini` in a terminal."""
        return messages_after(tail, _message, moment, answerer="gemini")

    def transcript_pattern(self, native_session_id: str, env: Mapping[str, str]) -> str | None:
        """Return a glob for the session's files: gemini names them by the minute and the first 8 characters of the id."""
        home = own_directory(env, "", "GEMINI_CLI_HOME")
        if home is None or not _SESSION.fullmatch(native_session_id):
            return None
        return f"{glob.escape(home)}/.gemini/tmp/*/chats/session-*-{native_session_id[:8]}.jsonl"


def _message(entry: Frame) -> tuple[str, str]:
    """Return role and text of a transcript's entry, without the files that the CLI has put behind the text."""
    text = "".join(texts_of(entry.get("content"))).partition(_FILES_BEGIN)[0]
    return entry["type"], _IMAGE_MENTION.sub("", text)


def _one_shot(request: LaunchRequest) -> tuple[LaunchSpec, tuple[str, ...]]:
    """Return the stdin and files of a process for one turn, and its flags.

    Raises `UsageError` for an MCP configuration.
    """
    if request.mcp_servers is not None or request.mcp_config_file is not None:
        raise UsageError(
            "cannot give gemini the session's MCP servers, because in headless mode it reads them from its settings alone",
            kind="unsupported",
            hint="open the session with mode: live, or put them into ~/.gemini/settings.json",
        )
    stdin, altered = _stdin_of(request)
    files = {image.file_name(number): image.raw for number, image in enumerate(request.images, 1)}
    spec = LaunchSpec(argv=(), stdin=stdin, stdout_mode="file", prompt_altered=altered, files=files)
    return spec, (*_session_flags(request), *_image_flags(request))


def _live(request: LaunchRequest) -> tuple[LaunchSpec, tuple[str, ...]]:
    """Return the stdin of an ACP agent, and its flags. The session's own tools need no permission, except in the mode `plan`.

    A policy file would allow the tools, too, but it replaces all policies of the user.
    """
    _check_session(request)
    allowed = (f"--allowed-tools=mcp_{BRIDGE_SERVER}_*",) if request.tools else ()
    return _AGENT.launch(request), allowed


def _trust_variables(setting_sources: str | None) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the variables and flags that decide which settings of the working directory gemini reads.

    `user`: gemini reads its settings while the directory is untrusted. `--skip-trust` applies later, so permission modes and the
    user's own MCP servers work. With an empty text gemini never trusts the directory; gemini then refuses to start if its settings
    have `security.folderTrust.enabled`, the default.
    """
    if setting_sources is None:
        return {}, ()
    names = {name.strip() for name in setting_sources.split(",")}
    if names not in ({""}, {"user"}, {"user", "project"}):
        raise UsageError(
            f"cannot take the setting sources {setting_sources!r}, because gemini always reads the user's and has no others "
            "than the project's beside them",
            hint="name `user`, or `user,project`, or nothing for a directory that is not trusted at all",
        )
    if "project" in names:
        return {"GEMINI_CLI_TRUST_WORKSPACE": "true"}, ()
    return {"GEMINI_CLI_TRUST_WORKSPACE": "false"}, ("--skip-trust",) if "user" in names else ()


def _closed_variables(setting_sources: str | None) -> tuple[str, ...]:
    """Return the names that a repository's `.env` must not set, if the caller does not want the directory's settings."""
    return () if setting_sources is None or "project" in setting_sources else _CLOSED


def _flags(request: LaunchRequest) -> list[str]:
    flags: list[str] = []
    if request.model is not None:
        flags.append(f"--model={argv_text('model', request.model)}")
    if request.permission_mode is not None:
        _check_trusted(request.permission_mode, request.setting_sources)
        flags.append(f"--approval-mode={check_mode('gemini', request.permission_mode, PERMISSION_MODES)}")
    return flags


def _session_flags(request: LaunchRequest) -> list[str]:
    session = _check_session(request)
    if session is None:
        return []
    return [f"--resume={session}" if request.resume else f"--session-id={session}"]


def _check_session(request: LaunchRequest) -> str | None:
    """Return the native session id, or None. Raises `UsageError` for an id that gemini would read as something else."""
    session = check_named("a gemini", request)
    if session is None:
        return None
    if not _SESSION.fullmatch(session) or _INDEX.fullmatch(session):
        raise UsageError(
            f"cannot use {session!r} as a gemini session id, because it is a number, `latest`, or has other characters than "
            "letters, digits, _ and -"
        )
    return session


def _check_trusted(mode: str, setting_sources: str | None) -> None:
    """Raise for an unknown mode: gemini would use `default` instead, with a line on stderr only."""
    if setting_sources == "" and mode in ("auto_edit", "yolo"):
        raise UsageError(
            f"cannot use permission mode {mode!r}, because gemini has it only in directories that are trusted",
            hint="name `user` in the backend's setting_sources, or take `default` or `plan`",
        )


# The pattern of handleAtCommand (0.61.0). A backslash before the @ is gemini's own escape.
# The @ comes first and the lookbehind after it: such an expression is six times as fast.
_MENTION = re.compile(r"@(?<!\\@)(?=[^ \t\n\r,;!?()\[\]{}.]|\.(?![ \t\n\r]|\Z))")
_NEWLINE_ADDED = "newline before a leading slash"
_ESCAPED = "backslash before each @ that could name a file"
_NAMED = "mention of its file in the place of each image"
# Characters that end a path behind an @, without a backslash before them.
_PATH_END = re.compile(r"(?=[ \t\\,;!?()\[\]{}])")
_IMAGE_MENTION = re.compile(r"^ ?@(?:.*/)?image-\d+\.(?:png|jpg|gif|webp)$", re.MULTILINE)
_FILES_BEGIN = "\n--- Content from referenced files ---"
_BACKSLASH = r"\\"


def _stdin_of(request: LaunchRequest) -> tuple[str, str | None]:
    """Return the prompt for the CLI, and a description of the changes: a leading slash would be a command, `@x` a file.

    An image becomes a file that the text mentions. gemini puts the images behind the text.
    """
    check_prompt("gemini", request.prompt)
    numbers = count(1)

    def shown(part: str | Image) -> str:
        if isinstance(part, Image):
            path = f"{request.scratch}/{part.file_name(next(numbers))}"
            return "@" + _PATH_END.sub(_BACKSLASH, path)
        return part if request.expand else _MENTION.sub(r"\\@", part)

    text = "\n".join(shown(part) for part in request.content or (request.prompt,))
    hidden = not request.expand and text.startswith("/")
    sent = "\n" + text if hidden else text
    done = {
        _NEWLINE_ADDED: hidden,
        _ESCAPED: not request.expand and _MENTION.search(request.prompt) is not None,
        _NAMED: bool(request.images),
    }
    return sent, " and a ".join(what for what, on in done.items() if on) or None


def _image_flags(request: LaunchRequest) -> tuple[str, ...]:
    """Return the flag that adds the directory of the images to the workspace: gemini reads no mentioned file elsewhere."""
    if not request.images:
        return ()
    if "," in request.scratch:
        raise UsageError(
            f"cannot show gemini an image, because it would take the comma in {request.scratch} for the end of a directory",
            kind="unsupported",
            hint="take a daemon.state_dir without a comma",
        )
    return (f"--include-directories={request.scratch}",)
