"""Every error of clisup: one table of kinds, wire codes, exit codes, and the checks of `clisup doctor` that explain them.

Two families, as in h11: `UsageError` is the caller's mistake, such as a wrong parameter or an unknown session. `WorldError`
is a fault outside the program, such as a missing CLI or a full disk. A message says what is wrong and why; `hint` says what
to do next. Programs branch on `kind`, which is stable; wire codes and exit codes follow from it.

`clisup status` loads this module, so the module imports nothing, not even `typing`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "EXIT_CODES",
    "KINDS",
    "TURN_KINDS",
    "ClisupError",
    "ConfigurationError",
    "ErrorKind",
    "Explanation",
    "UsageError",
    "WorldError",
    "box_away",
    "doctor_hint",
    "error_from_wire",
]

EXIT_OK = 0
EXIT_TURN_FAILED = 1
EXIT_USAGE = 2
EXIT_NOT_RUNNING = 3
EXIT_NO_SESSION = 4
EXIT_UNAVAILABLE = 69
EXIT_UNWRITABLE = 74
EXIT_BUSY = 75
EXIT_DENIED = 77
EXIT_CONFIGURATION = 78
EXIT_TIMED_OUT = 124
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141  # a shell reports SIGPIPE with this code

EXIT_CODES = {
    EXIT_OK: "success; of a turn: it completed",
    EXIT_TURN_FAILED: "a turn failed, or the command did not do what it was asked for",
    EXIT_USAGE: "wrong options, arguments or state",
    EXIT_NOT_RUNNING: "no daemon runs, or the box does not answer",
    EXIT_NO_SESSION: "no session matches",
    EXIT_UNAVAILABLE: "the CLI or a service is missing, unsupported or not logged in; the disk fails",
    EXIT_UNWRITABLE: "stdout cannot be written, for example on a full disk; a turn goes on",
    EXIT_BUSY: "busy or limited: try again later",
    EXIT_DENIED: "a tool was denied, or the daemon refused this user",
    EXIT_CONFIGURATION: "the configuration is wrong, or the system is not supported",
    EXIT_TIMED_OUT: "the turn timed out, or the wait did",
    EXIT_INTERRUPTED: "the turn was interrupted, or the command by Ctrl-C",
    EXIT_BROKEN_PIPE: "the reader of stdout has left; a turn goes on",
}
"""Exit codes of all commands, with their meanings."""

INTERNAL_CODE = -32603
"""Wire code of kinds that never travel over the wire: a command or the daemon's start ends with them."""


class Explanation:
    """Checks of `clisup doctor` that find the cause of an error. Checks of a backend need the backend's name."""

    __slots__ = ("checks", "of_backend")

    def __init__(self, *checks: str, of_backend: bool = False) -> None:
        self.checks, self.of_backend = checks, of_backend


class ErrorKind:
    """JSON-RPC code, exit code and explanation of a kind. `retryable`: the same request may succeed later."""

    __slots__ = ("code", "exit_code", "explanation", "retryable")

    def __init__(
        self, code: int, exit_code: int, explanation: Explanation | None = None, *, retryable: bool = False
    ) -> None:
        self.code, self.exit_code, self.explanation, self.retryable = code, exit_code, explanation, retryable


class TurnKind:
    """Hint and explanation for a turn that ended with a kind of error. The hint may hold `{backend}` and `{session_id}`."""

    __slots__ = ("explanation", "hint")

    def __init__(self, explanation: Explanation | None = None, hint: str = "") -> None:
        self.explanation, self.hint = explanation, hint


def _machine(*checks: str) -> Explanation:
    return Explanation(*checks)


def _backend(*checks: str) -> Explanation:
    return Explanation(*checks, of_backend=True)


# fmt: off
KINDS: dict[str, ErrorKind] = {
    "parse_error":                 ErrorKind(-32700, EXIT_USAGE),
    "invalid_request":             ErrorKind(-32600, EXIT_USAGE),
    "method_not_found":            ErrorKind(-32601, EXIT_USAGE, _machine("daemon")),  # a daemon of another version
    "invalid_params":              ErrorKind(-32602, EXIT_USAGE),
    "internal":                    ErrorKind(INTERNAL_CODE, EXIT_TURN_FAILED),
    "request_cancelled":           ErrorKind(-32800, EXIT_INTERRUPTED),
    "overloaded":                  ErrorKind(-32001, EXIT_BUSY, _machine("daemon"), retryable=True),
    "rate_limited":                ErrorKind(-32002, EXIT_BUSY, retryable=True),
    "session_not_found":           ErrorKind(-32010, EXIT_NO_SESSION),
    "session_busy":                ErrorKind(-32011, EXIT_BUSY, retryable=True),
    "session_closed":              ErrorKind(-32012, EXIT_USAGE),
    "turn_not_found":              ErrorKind(-32013, EXIT_USAGE),
    "session_exists":              ErrorKind(-32014, EXIT_USAGE),
    "unsupported":                 ErrorKind(-32015, EXIT_USAGE),
    "backend_not_found":           ErrorKind(-32020, EXIT_UNAVAILABLE, _machine("configuration")),
    "backend_unavailable":         ErrorKind(-32021, EXIT_UNAVAILABLE, _backend("executable", "version")),
    "backend_version_unsupported": ErrorKind(-32022, EXIT_UNAVAILABLE, _backend("version")),
    "backend_not_logged_in":       ErrorKind(-32023, EXIT_UNAVAILABLE, _backend("login", "environment")),
    "permission_denied":           ErrorKind(-32030, EXIT_DENIED, _machine("socket")),
    "limit_exceeded":              ErrorKind(-32031, EXIT_BUSY),
    "budget_exhausted":            ErrorKind(-32032, EXIT_TURN_FAILED),
    "approval_not_found":          ErrorKind(-32033, EXIT_USAGE),
    "approval_already_resolved":   ErrorKind(-32033, EXIT_USAGE),
    "option_needed":               ErrorKind(-32033, EXIT_USAGE),
    "tool_call_not_found":         ErrorKind(-32034, EXIT_USAGE),
    "worktree_refused":            ErrorKind(-32035, EXIT_TURN_FAILED),
    "git_failed":                  ErrorKind(-32036, EXIT_UNAVAILABLE, retryable=True),  # no check sees a repository
    "storage_failed":              ErrorKind(-32040, EXIT_UNAVAILABLE, _machine("state directory"), retryable=True),
    "shutting_down":               ErrorKind(-32050, EXIT_BUSY, retryable=True),
    "configuration":               ErrorKind(-32051, EXIT_CONFIGURATION, _machine("configuration")),
    "box_away":                    ErrorKind(-32052, EXIT_NOT_RUNNING, retryable=True),
    "fleet_away":                  ErrorKind(-32053, EXIT_UNAVAILABLE, retryable=True),
    "daemon_not_running":          ErrorKind(INTERNAL_CODE, EXIT_NOT_RUNNING, _machine("daemon", "socket", "systemd"), retryable=True),
    "box_unknown":                 ErrorKind(INTERNAL_CODE, EXIT_USAGE),
    "daemon_already_running":      ErrorKind(INTERNAL_CODE, EXIT_BUSY, _machine("daemon")),
    "unsupported_system":          ErrorKind(INTERNAL_CODE, EXIT_CONFIGURATION, _machine("kernel")),
    "spawn_failed":                ErrorKind(INTERNAL_CODE, EXIT_UNAVAILABLE, _backend("executable", "argv", "environment")),
    "service_manager":             ErrorKind(INTERNAL_CODE, EXIT_UNAVAILABLE, _machine("systemd")),
    "usage":                       ErrorKind(-32602, EXIT_USAGE),
}
"""Kinds of errors. No explanation: the caller made a mistake, or no check can see the cause."""

TURN_KINDS: dict[str, TurnKind] = {
    "authentication":    TurnKind(_backend("login", "environment"),
                                  "log in with the CLI itself ({backend}), or set its key in [backends.{backend}] env; then try again"),
    "permission":        TurnKind(_backend("login", "root"),
                                  "the account may not use this model: choose another (clisup set {session_id} --model MODEL)"),
    "rate_limit":        TurnKind(hint="wait, then send the prompt again"),
    # A key in the environment has another quota than the login.
    "quota_exceeded":    TurnKind(_backend("login", "environment"), "wait for the quota to reset, or use another account"),
    "overloaded":        TurnKind(),
    "server":            TurnKind(),
    # The environment may name another endpoint, or a certificate is not valid yet.
    "network":           TurnKind(_backend("environment", "clock")),
    "model_not_found":   TurnKind(hint="choose another: clisup set {session_id} --model MODEL"),
    "invalid_request":   TurnKind(_backend("version", "argv")),
    "context_overflow":  TurnKind(hint="open a new session, or send less"),
    "max_turns":         TurnKind(),
    "budget":            TurnKind(),
    "refusal":           TurnKind(),
    "session_not_found": TurnKind(),
    "startup_timeout":   TurnKind(_backend("version", "login", "environment")),
    "idle_timeout":      TurnKind(),
    "turn_timeout":      TurnKind(),
    "cancelled":         TurnKind(),
    "spawn_failed":      TurnKind(_backend("executable", "argv", "environment"), "see why: clisup backends"),
    "output_limit":      TurnKind(),
    "protocol":          TurnKind(_backend("version", "drift")),
    "crashed":           TurnKind(_backend("version", "argv", "root"), "see its output: clisup logs {session_id}"),
    "storage_failed":    TurnKind(_machine("state directory")),
    "resource_limit":    TurnKind(_machine("cgroup")),
    "session_busy":      TurnKind(),
}
"""Kinds of a turn's error (docs/reference/events.md)."""
# fmt: on


def doctor_hint(explanation: Explanation | None, backend: str | None = None) -> str:
    """Return the `clisup doctor` command and its checks for an explanation, or "" without one."""
    if explanation is None:
        return ""
    name = f" {backend}" if explanation.of_backend and backend else ""
    return f"clisup doctor{name} ({', '.join(explanation.checks)})"


class ClisupError(Exception):
    """Error with a stable `kind` of `KINDS`, a message for people, a `hint`, and fields for programs.

    `data` holds JSON values and never a secret: clients receive it unchanged.
    """

    kind = "internal"

    def __init__(self, message: str, *, kind: str | None = None, hint: str = "", **data: Any) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind or self.kind
        self.hint = hint
        self.data = data
        if self.kind not in KINDS:
            raise ValueError(f"unknown error kind {self.kind!r}: add it to clisup.errors.KINDS")

    @property
    def code(self) -> int:
        """Return the JSON-RPC error code."""
        return KINDS[self.kind].code

    @property
    def exit_code(self) -> int:
        """Return the exit code of a command that ends with this error."""
        return KINDS[self.kind].exit_code

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON-RPC error object: `{code, message, data: {kind, retryable, hint, ...}}`."""
        data = {"kind": self.kind, "retryable": KINDS[self.kind].retryable, "hint": self.hint, **self.data}
        return {"code": self.code, "message": self.message, "data": data}

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class UsageError(ClisupError):
    """Mistake of the caller: the same request fails again."""

    kind = "invalid_params"


class ConfigurationError(UsageError):
    """Configuration, scrub list or environment with which the daemon refuses to start (exit code 78)."""

    kind = "configuration"


class WorldError(ClisupError):
    """Fault of a child process, the operating system or a peer."""

    kind = "internal"


def box_away(box: str, reason: str, hint: str = "") -> WorldError:
    """Return the error for a box that cannot be reached. This machine's daemon never stands in for a box."""
    message = f"cannot reach box {box}, because {reason}"
    return WorldError(message, kind="box_away", hint=hint, box=box, reason=reason)


_OF_THE_CLIENT = ("daemon_not_running", "box_unknown")
"""Kinds that only a client may say: a daemon that sent one could make a command read local files instead."""


def error_from_wire(error: Any) -> ClisupError:
    """Rebuild the error that the daemon sent, so that clients branch on `kind` as the daemon does.

    A kind unknown to this version becomes `internal`, with the sent kind in `data["kind_sent"]`. Anything that is not an
    error of clisup becomes `internal`, too.
    """
    error = error if isinstance(error, dict) else {}
    data = dict(error["data"]) if isinstance(error.get("data"), dict) else {}
    kind = str(data.pop("kind", "internal"))
    hint = str(data.pop("hint", ""))
    data.pop("retryable", None)
    message = str(error.get("message", "the daemon sent an error without a message"))
    if kind not in KINDS or kind in _OF_THE_CLIENT:
        data["kind_sent"], kind = kind, "internal"
    return ClisupError(message, kind=kind, hint=hint, **{k: v for k, v in data.items() if k not in ("message", "self")})
