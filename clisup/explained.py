"""Which failures `clisup doctor` can explain: a table from each kind of error, and of a turn's end, to the checks that would tell.

Standard library only, as `clisup.errors`: a command that fails loads it, and nothing is asked or looked at.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ERRORS", "TURN_ERRORS", "Explained", "doctor_hint"]


class Explained(NamedTuple):
    """The checks of `clisup doctor` that look at the cause; `backend`: they are of one backend, not of the machine."""

    checks: tuple[str, ...]
    backend: bool = False


def _machine(*checks: str) -> Explained:
    return Explained(checks)


def _backend(*checks: str) -> Explained:
    return Explained(checks, backend=True)


NOTHING = None
"""The doctor knows nothing of it: the caller's own mistake, or something that no check can see."""

ERRORS: dict[str, Explained | None] = {
    "parse_error": NOTHING,
    "invalid_request": NOTHING,
    "method_not_found": _machine("daemon"),  # a daemon of another version
    "invalid_params": NOTHING,
    "internal": NOTHING,
    "request_cancelled": NOTHING,
    "overloaded": _machine("daemon"),
    "rate_limited": NOTHING,
    "session_not_found": NOTHING,
    "session_busy": NOTHING,
    "session_closed": NOTHING,
    "turn_not_found": NOTHING,
    "session_exists": NOTHING,
    "unsupported": NOTHING,
    "backend_not_found": _machine("configuration"),
    "backend_unavailable": _backend("executable", "version"),
    "backend_version_unsupported": _backend("version"),
    "backend_not_logged_in": _backend("login", "environment"),
    "permission_denied": _machine("socket"),
    "limit_exceeded": NOTHING,
    "budget_exhausted": NOTHING,
    "approval_not_found": NOTHING,
    "approval_already_resolved": NOTHING,
    "tool_call_not_found": NOTHING,
    "storage_failed": _machine("state directory"),
    "shutting_down": NOTHING,
    "configuration": _machine("configuration"),
    "daemon_not_running": _machine("daemon", "socket", "systemd"),
    "daemon_already_running": _machine("daemon"),
    "unsupported_system": _machine("kernel"),
    "spawn_failed": _backend("executable", "argv", "environment"),
    "service_manager": _machine("systemd"),
    "usage": NOTHING,
}
"""By the kinds of `clisup.errors`. An error whose `data` names a `check` is explained by that one."""

TURN_ERRORS: dict[str, Explained | None] = {
    "authentication": _backend("login", "environment"),
    "permission": _backend("login", "root"),
    "rate_limit": NOTHING,
    "quota_exceeded": _backend("login", "environment"),  # a key in the environment has another quota than the login
    "overloaded": NOTHING,
    "server": NOTHING,
    "network": Explained(
        ("environment", "clock"), backend=True
    ),  # an endpoint of somebody's; a certificate not yet valid
    "model_not_found": NOTHING,
    "invalid_request": _backend("version", "argv"),
    "context_overflow": NOTHING,
    "max_turns": NOTHING,
    "budget": NOTHING,
    "refusal": NOTHING,
    "session_not_found": NOTHING,
    "startup_timeout": _backend("version", "login", "environment"),
    "idle_timeout": NOTHING,
    "turn_timeout": NOTHING,
    "cancelled": NOTHING,
    "spawn_failed": _backend("executable", "argv", "environment"),
    "output_limit": NOTHING,
    "protocol": _backend("version", "drift"),
    "crashed": _backend("version", "argv", "root"),
    "storage_failed": _machine("state directory"),
    "resource_limit": _machine("cgroup"),
    "session_busy": NOTHING,
}
"""By the kinds of a turn's error (docs/events.md)."""


def doctor_hint(explained: Explained | None, backend: str | None = None) -> str:
    """The command that explains it, and by which checks; empty where there is none. It names no backend that is not known."""
    if explained is None:
        return ""
    name = f" {backend}" if explained.backend and backend else ""
    return f"clisup doctor{name} ({', '.join(explained.checks)})"
