"""Every way clisup says no: one table of kinds, wire codes and exit codes.

Two families, as in h11: `UsageError` is the caller's mistake (a wrong parameter, an unknown session, a bad configuration);
`WorldError` is the world's fault (a missing CLI, a full disk, a child that died). A message begins "cannot ..., because ...";
`hint` gives the next step. `kind` is the stable name that programs branch on; wire codes and exit codes follow from it.

This module imports the standard library only: the light clients load it too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["KINDS", "ClisupError", "ConfigurationError", "ErrorKind", "UsageError", "WorldError", "error_from_wire"]

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


class ErrorKind(NamedTuple):
    """What follows from a kind: the JSON-RPC code, the exit code of a command, and whether trying again can help."""

    code: int
    exit_code: int
    retryable: bool = False


# fmt: off
KINDS: dict[str, ErrorKind] = {
    "parse_error":                 ErrorKind(-32700, EXIT_USAGE),
    "invalid_request":             ErrorKind(-32600, EXIT_USAGE),
    "method_not_found":            ErrorKind(-32601, EXIT_USAGE),
    "invalid_params":              ErrorKind(-32602, EXIT_USAGE),
    "internal":                    ErrorKind(-32603, EXIT_TURN_FAILED),
    "request_cancelled":           ErrorKind(-32800, EXIT_INTERRUPTED),
    "overloaded":                  ErrorKind(-32001, EXIT_BUSY, retryable=True),
    "rate_limited":                ErrorKind(-32002, EXIT_BUSY, retryable=True),
    "session_not_found":           ErrorKind(-32010, EXIT_NO_SESSION),
    "session_busy":                ErrorKind(-32011, EXIT_BUSY, retryable=True),
    "session_closed":              ErrorKind(-32012, EXIT_USAGE),
    "turn_not_found":              ErrorKind(-32013, EXIT_USAGE),
    "session_exists":              ErrorKind(-32014, EXIT_USAGE),
    "unsupported":                 ErrorKind(-32015, EXIT_USAGE),
    "backend_not_found":           ErrorKind(-32020, EXIT_UNAVAILABLE),
    "backend_unavailable":         ErrorKind(-32021, EXIT_UNAVAILABLE),
    "backend_version_unsupported": ErrorKind(-32022, EXIT_UNAVAILABLE),
    "backend_not_logged_in":       ErrorKind(-32023, EXIT_UNAVAILABLE),
    "permission_denied":           ErrorKind(-32030, EXIT_DENIED),
    "limit_exceeded":              ErrorKind(-32031, EXIT_BUSY),
    "budget_exhausted":            ErrorKind(-32032, EXIT_TURN_FAILED),
    "approval_not_found":          ErrorKind(-32033, EXIT_USAGE),
    "approval_already_resolved":   ErrorKind(-32033, EXIT_USAGE),
    "tool_call_not_found":         ErrorKind(-32034, EXIT_USAGE),
    "storage_failed":              ErrorKind(-32040, EXIT_UNAVAILABLE, retryable=True),
    "shutting_down":               ErrorKind(-32050, EXIT_BUSY, retryable=True),
    "configuration":               ErrorKind(-32051, EXIT_CONFIGURATION),
    # Kinds that never travel over the wire: a command or the daemon's start ends with them.
    "daemon_not_running":          ErrorKind(-32603, EXIT_NOT_RUNNING, retryable=True),
    "daemon_already_running":      ErrorKind(-32603, EXIT_BUSY),
    "unsupported_system":          ErrorKind(-32603, EXIT_CONFIGURATION),
    "spawn_failed":                ErrorKind(-32603, EXIT_UNAVAILABLE),
    "service_manager":             ErrorKind(-32603, EXIT_UNAVAILABLE),
    "usage":                       ErrorKind(-32602, EXIT_USAGE),
}
# fmt: on


class ClisupError(Exception):
    """An error with a stable `kind` of `KINDS`, a message for people, a `hint`, and fields for programs.

    `data` holds JSON values only, and never a secret: it goes to clients as it is.
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
        """The JSON-RPC error code."""
        return KINDS[self.kind].code

    @property
    def exit_code(self) -> int:
        """The exit code of a command that ends with this error."""
        return KINDS[self.kind].exit_code

    def to_wire(self) -> dict[str, Any]:
        """The JSON-RPC error object: `{code, message, data: {kind, retryable, hint, ...}}`."""
        data = {"kind": self.kind, "retryable": KINDS[self.kind].retryable, "hint": self.hint, **self.data}
        return {"code": self.code, "message": self.message, "data": data}

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class UsageError(ClisupError):
    """The caller's mistake: doing the same again gives the same."""

    kind = "invalid_params"


class ConfigurationError(UsageError):
    """A configuration, scrub list or environment that the daemon refuses to start with (exit code 78)."""

    kind = "configuration"


class WorldError(ClisupError):
    """The world's fault: a child process, the operating system or a peer."""

    kind = "internal"


def error_from_wire(error: Any) -> ClisupError:
    """Rebuild the error that the daemon sent, so that a client branches on `kind` just as the daemon does.

    A kind that this version does not know becomes `internal`, with the sent kind kept in `data["kind_sent"]`. What is no
    error of ours at all becomes `internal`, too.
    """
    error = error if isinstance(error, dict) else {}
    data = dict(error["data"]) if isinstance(error.get("data"), dict) else {}
    kind = str(data.pop("kind", "internal"))
    hint = str(data.pop("hint", ""))
    data.pop("retryable", None)
    message = str(error.get("message", "the daemon sent an error without a message"))
    if kind not in KINDS:
        data["kind_sent"], kind = kind, "internal"
    return ClisupError(message, kind=kind, hint=hint, **{k: v for k, v in data.items() if k not in ("message", "self")})
