"""Backend `codex`: `codex app-server` on stdio, for one turn or for many (facts from codex-cli 0.169.0).

The base class also serves `codex exec` (exec.py): the flags that keep codex quiet and credentials away from its tools, the worker
behind npm's launcher, and the place of the transcripts.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from clisup.backends.base import TOKENS, Adapter, Capabilities, Carried, LaunchRequest, LaunchSpec, TranscriptWord
from clisup.backends.codex.decoder import CodexDecoder
from clisup.backends.codex.errors import ERRORS
from clisup.backends.codex.fork import CodexFork
from clisup.backends.codex.history import CodexSeed
from clisup.backends.codex.native_sessions import CodexNativeSessions, CodexPresence, codex_home
from clisup.backends.codex.protocol import GREETING, config_of, said, start_turn
from clisup.backends.frames import Frame
from clisup.backends.launch import UUID, argv_text, check_mode, check_prompt, check_uuid
from clisup.backends.native_sessions import NativeSessionRules
from clisup.backends.transcripts import ForkRules, SeedRules, find_prompt, texts_of
from clisup.errors import UsageError
from clisup.policy.cli_files import PresenceRules

__all__ = ["OWN_ENVIRONMENT", "PERMISSION_MODES", "QUIET", "CodexAdapter", "CodexBase", "check"]

PERMISSION_MODES = ("danger-full-access", "read-only", "workspace-write")
# fmt: off
QUIET = (
    "-c", "analytics.enabled=false", "-c", "check_for_update_on_startup=false",
    # plugins and apps ask hosts of their own at the start
    "-c", "features.plugins=false", "-c", "features.apps=false",
    # a snapshot is a script with every variable of the environment, keys included, that a killed codex leaves behind
    "-c", "features.shell_snapshot=false",
    # tools do not inherit variables whose names say that they hold a key, a secret or a token
    "-c", "shell_environment_policy.ignore_default_excludes=false",
    # else codex asks a provider that it cannot reach for ever
    "-c", "features.unbounded_connection_retries=false",
)
# fmt: on
# stderr without colours: its end is shown to people
OWN_ENVIRONMENT = {"NO_COLOR": "1"}
_EVENTS = (
    "session_init", "message_start", "content_delta", "message", "message_stop", "tool_use", "tool_progress", "tool_result",
    "approval_requested", "approval_resolved", "permission_denied", "retracted",
    "usage", "rate_limit", "retry", "task", "status", "unparsed",
)  # fmt: skip
_LOGGED_IN = re.compile(r"^(?:Logged in |API key configured)", re.MULTILINE)
_LAUNCHER = "/@openai/codex/bin/codex.js"
_IMAGE_TAG = re.compile(r'<image name=\[Image #\d+\] path="[^"]*">|</image>')  # around an image that came as a file


class CodexBase(Adapter):
    """Rules that both ways to run codex share."""

    lists = "codex"
    default_command = ("codex",)
    default_versions = ">=0.169.0"
    newest_checked = "0.171.0"
    update_command = "npm install -g @openai/codex@latest"
    version_args = ("--version",)
    version_pattern = r"^codex-cli (\d+\.\d+\.\d+\S*)\s*$"
    noise = (
        r"Reading (?:additional input|prompt) from stdin\.\.\.",
        r".*\bcodex_\w+: Codex could not find bubblewrap on PATH\..*",
    )
    login_args = ("login", "status")
    login_places = ("CODEX_HOME",)
    login_keys: ClassVar[tuple[str, ...] | None] = ()  # measured 0.169.0: the app-server takes no key from a variable
    login_elsewhere = "a model provider of its own in config.toml, or CODEX_API_KEY for `codex exec`"
    errors = ERRORS
    program = "codex"
    native_sessions: ClassVar[NativeSessionRules | None] = CodexNativeSessions()
    presence: ClassVar[PresenceRules | None] = CodexPresence()
    recoveries = (("no rollout found", "fresh"),)  # codex chooses the ids, so an id is never in use

    def workers(self, launcher: str) -> Sequence[Sequence[str]]:
        """Return the native binary that npm's `codex.js` starts.

        Before node 22.15 the launcher stays as the parent of codex. A killed launcher leaves codex and its tools running. The
        platform's package lies beside the launcher's package or inside it.
        """
        if not launcher.endswith(_LAUNCHER):
            return ()
        package = glob.escape(launcher.removesuffix("/bin/codex.js"))
        binary = "vendor/*/bin/codex"
        return (
            (f"{package}-linux-*/{binary}",),
            (f"{package}/node_modules/@openai/codex-linux-*/{binary}",),
            (f"{package}/{binary}",),
        )

    def parse_login(self, output: str, exit_code: int) -> bool | None:
        """Read the output of `codex login status` (0.169.0: on stderr, no connection, exit code 1 without a login)."""
        if _LOGGED_IN.search(output):
            return True
        return False if "Not logged in" in output else None

    def transcript_says(self, appended: bytes, prompt: str) -> TranscriptWord:
        """Tell whether the transcript holds the prompt, and an answer to it."""
        return find_prompt(appended, _message, [prompt])

    def transcript_pattern(self, native_session_id: str, env: Mapping[str, str]) -> str | None:
        """Return a glob for the session's rollout file. Its folder is the day of its first turn."""
        home = codex_home(env)
        if home is None or not UUID.fullmatch(native_session_id):
            return None
        return f"{glob.escape(home)}/sessions/*/*/*/rollout-*-{native_session_id}.jsonl"


class CodexAdapter(CodexBase):
    """Launch rules of `codex app-server`: deltas, usage of each model call, rate limits, and an interrupt by request."""

    kind = "codex"
    begins_late_prompts = False
    fork: ClassVar[ForkRules | None] = CodexFork()
    seed: ClassVar[SeedRules | None] = CodexSeed()
    capabilities = Capabilities(
        live=True,
        steer=True,
        controls=("model", "compact"),
        by_prompt=("output_schema", "model"),
        fork=True,
        history=True,
        images=True,
        tools=True,
        permission_modes=PERMISSION_MODES,
        chosen_id=False,
        interrupt="request",
        approvals=True,
        structured=True,
        running_usage=True,
        tokens=TOKENS,
        events=tuple(sorted(_EVENTS)),
    )

    def launch(self, request: LaunchRequest) -> LaunchSpec:
        """Return argv and the first request on stdin. The decoder sends the rest of the dialogue, including the prompt.
        Of a later turn, stdin is turn/start.

        `permission_mode` is codex's sandbox; the default is read-only. codex gets the system prompt as developer instructions,
        and a resumed session keeps those of its first turn. `setting_sources="user"` (the default) ignores settings, hooks, MCP
        servers and AGENTS.md of the working directory. codex still offers skills of the repository to the model: no switch
        turns off these alone. A skill that the prompt names is off for the run, unless `expand` is set.

        Raises `UsageError` for a prompt or value that codex does not accept.
        """
        check(request)
        config_of(request)  # refuse an unsupported request before the start
        return LaunchSpec(
            argv=(*request.command, "app-server", *QUIET, *request.args),
            stdin=start_turn(str(request.native_session_id), request) if request.later else GREETING,
            env=OWN_ENVIRONMENT,
            stdin_eof=False,
            prompt_altered=said(request).altered,
        )

    def compact_prompt(self, instructions: str | None) -> str:
        """Return the words for a turn that compacts the context. codex gets a request instead (protocol.start_turn).

        Raises `UsageError(unsupported)` for instructions.
        """
        if instructions:
            raise UsageError(
                "codex compacts its context by its own instructions alone",
                kind="unsupported",
                hint="leave the instructions out",
                param="instructions",
            )
        return "/compact"

    def decoder(self, carried: Carried, request: LaunchRequest) -> CodexDecoder:
        """Return a decoder for one turn. `carried.usage` is the thread's total before the turn; None means unknown."""
        return CodexDecoder(carried, request)


def check(request: LaunchRequest) -> None:
    """Raise `UsageError` for a request that codex does not support.

    A session id must be a UUID: codex treats other ids as names, and begins a new thread for an unknown name.
    """
    check_uuid("codex", request)
    if request.permission_mode is not None:
        check_mode("codex", request.permission_mode, PERMISSION_MODES)
    if request.model is not None:
        argv_text("model", request.model)
    check_prompt("codex", request.prompt)


def _message(entry: Frame) -> tuple[str, str]:
    """Return role and text of an entry of a rollout file (0.169.0). Raise LookupError for other entries."""
    message = entry["payload"]
    if entry["type"] != "response_item" or message["type"] != "message":
        raise LookupError("no message")
    return message["role"], "\n".join(
        text for text in texts_of(message.get("content")) if not _IMAGE_TAG.fullmatch(text)
    )
