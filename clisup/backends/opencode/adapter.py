"""Backend `opencode`: `opencode run --format json` (1.18.x), the prompt on stdin, one process for each turn.

Facts come from opencode 1.18.34. A prompt on stdin is text: opencode reads no commands, mentions or shell marks in it. A prompt in
argv would get quotes around it.
"""

from __future__ import annotations

import re

from clisup.backends.base import TOKENS, Adapter, Capabilities, Carried, LaunchRequest, LaunchSpec, RunEnd
from clisup.backends.launch import argv_text, check_mode, check_named, check_prompt, check_sources
from clisup.backends.opencode.decoder import EVENTS, OpencodeDecoder
from clisup.backends.opencode.errors import ERRORS, explain_exit, last_attempt
from clisup.errors import UsageError
from clisup.model.events import TurnError

__all__ = ["PERMISSION_MODES", "OpencodeAdapter"]

_MODE_FLAGS = {"auto": "--auto", "default": None, "plan": "--agent=plan"}
PERMISSION_MODES = tuple(_MODE_FLAGS)
_SESSION = re.compile(r"ses_[A-Za-z0-9]{1,64}")
# opencode asks the model for a title of each new session, and reports no tokens of that request. A title prevents the request.
_TITLE = "--title=clisup"


class OpencodeAdapter(Adapter):
    """Launch rules of opencode: one process a turn, the prompt on stdin, then its end. Only signals interrupt it."""

    kind = "opencode"
    lists = "opencode"
    default_command = ("opencode",)
    default_versions = ">=1.18.25"
    newest_checked = "1.18.34"
    update_command = "opencode upgrade"
    version_args = ("--version",)
    version_pattern = r"^(\d+\.\d+\.\d+\S*)\s*$"
    capabilities = Capabilities(
        deltas=False,
        cost=True,
        system_prompt=False,
        mcp=False,
        permission_modes=PERMISSION_MODES,
        chosen_id=False,
        tokens=TOKENS,
        events=EVENTS,
    )
    tells_work = False  # `opencode run` prints a tool when it has ended
    errors = ERRORS

    def launch(self, request: LaunchRequest) -> LaunchSpec:
        """Return argv, stdin and variables for one turn.

        stdout is a file: opencode drops unread data of a pipe at its exit. Errors without words on stdout have them in the
        log on stderr, so the log is on.

        Raises `UsageError` for a prompt or value that opencode cannot take, and unless `setting_sources` has `project`.
        """
        check_prompt("opencode", request.prompt)
        _check_sources(request.setting_sources)
        return LaunchSpec(
            argv=(
                *request.command, "run", "--format=json", "--thinking", "--print-logs", "--log-level=ERROR",
                *_flags(request), *request.args,
            ),
            stdin=request.prompt,
            # opencode takes PWD for its directory, not the directory in which it runs.
            env={"OPENCODE_DISABLE_AUTOUPDATE": "true", "PWD": request.cwd},
            stdout_mode="file",
        )  # fmt: skip

    def decoder(self, carried: Carried, request: LaunchRequest) -> OpencodeDecoder:
        """Return a decoder for the stdout of one turn. opencode counts each request by itself, so no total is carried."""
        return OpencodeDecoder()

    def explain_exit(self, end: RunEnd) -> TurnError:
        """Explain a run without a terminal frame by the last error in the log on stderr, else as `crashed`."""
        return explain_exit(end)

    def repeated(self, end: RunEnd, appended: bytes, answered: bool) -> TurnError | None:
        """Return the failure of the last request in the log: opencode repeats failed requests and reports them there alone."""
        return None if answered else last_attempt(end)


def _check_sources(setting_sources: str | None) -> None:
    """Raise unless the caller lets the CLI read the directory's settings: nothing keeps opencode from running its plugins.

    1.18.34 imports the plugins that the directory names or holds, also with --pure and OPENCODE_DISABLE_PROJECT_CONFIG.
    """
    if setting_sources is not None and "project" not in check_sources("opencode", setting_sources):
        raise UsageError(
            "cannot keep the working directory's settings from opencode, because it runs the plugins of any directory",
            kind="unsupported",
            hint='for directories that you trust, say setting_sources = "user,project" in the table of the backend',
        )


def _flags(request: LaunchRequest) -> list[str]:
    session = check_named("an opencode", request)
    if session is not None and not _SESSION.fullmatch(session):
        raise UsageError(f"cannot use {session!r} as an opencode session id, because it does not look like ses_...")
    flags = [f"--session={session}" if session is not None else _TITLE]
    if request.model is not None:
        flags.append(f"--model={argv_text('model', request.model)}")
    if request.permission_mode is not None:
        flag = _MODE_FLAGS[check_mode("opencode", request.permission_mode, PERMISSION_MODES)]
        flags += [flag] if flag else []
    return flags
