"""What all sessions share."""

from __future__ import annotations

from dataclasses import dataclass, field

from clisup.config.model import Config
from clisup.daemon.clients.event_cache import Shelf
from clisup.daemon.limits.accounts import Accounts
from clisup.daemon.limits.running_slots import Slots
from clisup.daemon.ops.drift import Drift
from clisup.daemon.ops.memory import MemoryLook
from clisup.daemon.ops.metrics import Metrics
from clisup.daemon.runs.keeper_starts import KeeperStarts
from clisup.daemon.runs.orphans import Orphans
from clisup.daemon.runs.pace import Pace
from clisup.daemon.sessions.concurrent_writers import WriterLooks
from clisup.daemon.sessions.live import LivePool
from clisup.daemon.sessions.open_sessions import OpenSessions
from clisup.daemon.sessions.recorder import Watcher, Watchers
from clisup.daemon.storage import Storage
from clisup.host.config_file import built_in_prices
from clisup.host.process.cgroups import CgroupHome
from clisup.policy.prices import PriceTable

__all__ = ["Services"]


@dataclass
class Services:
    """What all sessions share. `config` is another one after a reload: who reads it reads it anew each time."""

    config: Config
    slots: Slots
    state_dir: str
    keepers: KeeperStarts
    cgroups: CgroupHome
    storage: Storage
    accounts: Accounts
    drift: Drift
    live: LivePool
    orphans: Orphans
    socket: str = ""  # where the bridges find us
    memory: MemoryLook = field(default_factory=MemoryLook)
    opened: OpenSessions = field(default_factory=OpenSessions)
    everywhere: Watchers = field(default_factory=dict)  # who follows all sessions
    at_ends: set[Watcher] = field(default_factory=set)  # who is told of ended turns, and counts as nobody's follower
    metrics: Metrics = field(default_factory=Metrics)
    shelf: Shelf = field(default_factory=Shelf)
    own: set[int] = field(default_factory=set)  # pids of the keepers that are held, and of their CLIs
    pace: Pace = field(default_factory=Pace)

    def __post_init__(self) -> None:
        self.looks = WriterLooks(self.own)
        self._prices: tuple[Config, PriceTable] | None = None

    @property
    def keeps_orphans(self) -> bool:
        """Tell whether a backend lets processes go that its CLI leaves behind."""
        return any(backend.orphans == "keep" for backend in self.config.backends.values())

    def prices(self) -> PriceTable:
        """What tokens cost, by the configuration as it is now."""
        if self._prices is None or self._prices[0] is not self.config:
            self._prices = (self.config, PriceTable(self.config.prices, built_in_prices()))
        return self._prices[1]
