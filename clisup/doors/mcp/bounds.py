"""Bounds of an agent that starts other agents: directories, depth, number, budget and permission mode. Pure.

The user sets the bounds on the command line of `clisup mcp`. No tool can widen them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from clisup.client.raw import JsonObject
from clisup.errors import UsageError
from clisup.host.safe_paths import is_within

__all__ = [
    "CLIENT_LABEL",
    "DEPTH_LABEL",
    "MAX_WAIT_S",
    "OWN_BUDGET_LABEL",
    "PARENT_LABEL",
    "WAIT_S",
    "AgentBounds",
    "depth_of",
    "left_of",
    "wait_within",
]

CLIENT_LABEL = "mcp"
"""Label of each session that an agent has started. Its value is the name of the MCP client."""

DEPTH_LABEL, PARENT_LABEL, OWN_BUDGET_LABEL = "mcp_depth", "mcp_parent", "mcp_budget_usd"
WAIT_S = 30.0
"""Seconds for which a tool waits by default: the TypeScript SDK ends a call after 60 s."""

MAX_WAIT_S = 600.0


class AgentBounds(NamedTuple):
    """Bounds of one `clisup mcp`.

    `root` is a resolved directory. `permission_modes` maps a backend to its mode, and "" to the mode of all others.
    `depth` 1: agents start no further agents. `budget_usd` is the most that one agent may cost. `agents` is the most that
    are open at once.
    """

    root: str
    permission_modes: Mapping[str, str] = {}
    budget_usd: float | None = None
    depth: int = 1
    agents: int = 16
    may_approve: bool = False

    def directory(self, cwd: str | None) -> str:
        """Return the directory of a new session; without `cwd`, the root. Raises `UsageError(permission_denied)`."""
        asked = os.path.join(self.root, cwd or "")
        if not self.holds(asked):
            raise _denied(f"the directory {asked} is outside of {self.root}", "the user starts this server with --root")
        return os.path.realpath(asked)

    def holds(self, cwd: str) -> bool:
        """Tell whether a directory is the root or below it."""
        return is_within(cwd, self.root)

    def permission_mode(self, backend: str) -> str | None:
        """Return the permission mode of a backend's new sessions, or None for its own default."""
        return self.permission_modes.get(backend, self.permission_modes.get(""))

    def depth_below(self, labels: Mapping[str, str]) -> int:
        """Return the depth of an agent that a session with these labels starts. Raises `UsageError(limit_exceeded)`."""
        depth = depth_of(labels) + 1
        if depth > self.depth:
            raise UsageError(
                f"this agent may start no other agents: it is {depth - 1} deep, and {self.depth} is the limit",
                kind="limit_exceeded",
                hint="do the work without other agents, or ask the user for a larger --depth",
            )
        return depth

    def check_room(self, opened: int) -> None:
        """Raise `UsageError(limit_exceeded)` if no further agent may be open."""
        if opened >= self.agents:
            raise UsageError(
                f"{opened} agents are open, and {self.agents} is the limit",
                kind="limit_exceeded",
                hint="close some that are done, or ask the user for a larger --agents",
            )

    def budget(self, asked: float | None, left: float | None) -> float | None:
        """Return the budget of a new agent in US dollars, or None for no limit.

        `left` is what its parent has left. Without an asked budget, the agent gets half of that. Raises
        `UsageError(limit_exceeded)` for more than is left or allowed.
        """
        bounds = [bound for bound in (self.budget_usd, left) if bound is not None]
        most = min(bounds, default=None)
        if asked is None:
            return most if left is None else min(left / 2, most or 0.0)
        if most is not None and asked > most:
            raise UsageError(
                f"budget_usd {asked:g} is too much: this agent may have at most {most:.4g}",
                kind="limit_exceeded",
                hint="ask for less, or ask the user for a larger --budget-usd",
            )
        return asked


def depth_of(labels: Mapping[str, str]) -> int:
    """Return the depth of a session; 0 without a number, because anybody may set the label of an own session."""
    text = labels.get(DEPTH_LABEL, "")
    return int(text) if text.isascii() and text.isdecimal() else 0


def left_of(budget: JsonObject | None) -> float | None:
    """Return the US dollars that are left of a session's budget, or None without such a limit."""
    limit = ((budget or {}).get("limit") or {}).get("usd")
    if limit is None:
        return None
    used = ((budget or {}).get("used") or {}).get("usd") or 0.0
    return max(0.0, float(limit) - float(used))


def wait_within(wait_s: float) -> float:
    """Return the seconds to wait: between none and `MAX_WAIT_S`."""
    return min(max(wait_s, 0.0), MAX_WAIT_S)


def _denied(message: str, hint: str) -> UsageError:
    return UsageError(message, kind="permission_denied", hint=hint)
