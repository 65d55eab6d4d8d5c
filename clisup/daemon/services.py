"""Services that all sessions share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import trio

from clisup.config.model import Config
from clisup.daemon.journal.event_cache import EventCache
from clisup.daemon.journal.recorder import Watcher, Watchers
from clisup.daemon.journal.storage import Storage
from clisup.daemon.limits.accounts import Accounts
from clisup.daemon.limits.running_slots import RunningSlots
from clisup.daemon.metrics import Metrics
from clisup.daemon.ops.branches import BranchLook
from clisup.daemon.ops.drift import Drift
from clisup.daemon.ops.memory import MemoryLook
from clisup.daemon.runs.keeper_starts import KeeperStarts
from clisup.daemon.runs.orphans import Orphans
from clisup.daemon.worktrees.worktrees import Worktrees
from clisup.host.config_file import built_in_prices
from clisup.host.process.cgroups import CgroupHome
from clisup.policy.prices import PriceTable

__all__ = ["NativeSessions", "Services"]

WRITER_CHECKS = 8
"""Checks for foreign writers at once, each in a thread: on a file system that hangs, other threads stay free."""


class NativeSessions:
    """Native sessions of the open sessions. A native session has one writer at a time."""

    def __init__(self) -> None:
        self._native: dict[str, str] = {}  # by session id
        self._writers: dict[str, dict[str, None]] = {}  # session ids by native id, in order

    def __len__(self) -> int:
        return len(self._native)

    def add(self, session_id: str, native_id: str) -> None:
        """Add an open session, or its new native id."""
        if self._native.get(session_id) != native_id:
            self.remove(session_id)
            self._native[session_id] = native_id
            self._writers.setdefault(native_id, {})[session_id] = None

    def remove(self, session_id: str) -> None:
        """Remove a session that is closed."""
        if (native := self._native.pop(session_id, None)) is not None:
            del self._writers[native][session_id]
            if not self._writers[native]:
                del self._writers[native]

    def writer_of(self, native_id: str) -> str | None:
        """Return the open session that writes this native session, or None."""
        return next(iter(self._writers.get(native_id, ())), None)


@dataclass
class Services:
    """Services that all sessions share. A reload replaces `config`, so read it again each time."""

    config: Config
    slots: RunningSlots
    state_dir: str
    keepers: KeeperStarts
    cgroups: CgroupHome
    storage: Storage
    accounts: Accounts
    drift: Drift
    orphans: Orphans
    env: Mapping[str, str] = field(default_factory=dict)  # the daemon's own
    socket: str = ""  # the socket for the MCP bridges
    memory: MemoryLook = field(default_factory=MemoryLook)
    branches: BranchLook = field(default_factory=BranchLook)
    opened: NativeSessions = field(default_factory=NativeSessions)
    everywhere: Watchers = field(default_factory=dict)  # followers of all sessions
    at_ends: set[Watcher] = field(default_factory=set)  # told of ended turns, and counted as no session's followers
    at_notices: set[Watcher] = field(
        default_factory=set
    )  # told of events that [[notify]] may tell; no followers either
    metrics: Metrics = field(default_factory=Metrics)
    event_cache: EventCache = field(default_factory=EventCache)
    own: set[int] = field(default_factory=set)  # pids of the connected keepers and their CLIs
    read_turns: trio.Lock = field(default_factory=trio.Lock)  # runs with more to read take turns
    writer_checks: trio.CapacityLimiter = field(default_factory=lambda: trio.CapacityLimiter(WRITER_CHECKS))

    def __post_init__(self) -> None:
        self.worktrees = Worktrees(self.state_dir, self.env)
        self._prices: tuple[Config, PriceTable] | None = None

    @property
    def keeps_orphans(self) -> bool:
        """Tell whether a backend lets processes go that its CLI leaves behind."""
        return any(backend.orphans == "keep" for backend in self.config.backends.values())

    def prices(self) -> PriceTable:
        """Return the price list of the present configuration."""
        if self._prices is None or self._prices[0] is not self.config:
            self._prices = (self.config, PriceTable(self.config.prices, built_in_prices()))
        return self._prices[1]
