"""What all sessions share."""

from __future__ import annotations

from dataclasses import dataclass, field

from clisup.core.config import Config
from clisup.core.figures import Figures
from clisup.daemon.accounts import Accounts
from clisup.daemon.drift import Drift
from clisup.daemon.keeper_starts import KeeperStarts
from clisup.daemon.live import LivePool
from clisup.daemon.memory import MemoryLook
from clisup.daemon.native_guard import WriterLooks
from clisup.daemon.open_sessions import OpenSessions
from clisup.daemon.recent import Shelf
from clisup.daemon.recorder import Watcher
from clisup.daemon.slots import Slots
from clisup.daemon.storage import Storage
from clisup.host.cgroups import CgroupHome

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
    socket: str = ""  # where the bridges find us
    memory: MemoryLook = field(default_factory=MemoryLook)
    opened: OpenSessions = field(default_factory=OpenSessions)
    everywhere: set[Watcher] = field(default_factory=set)  # who follows all sessions
    at_ends: set[Watcher] = field(default_factory=set)  # who is told of ended turns, and counts as nobody's follower
    figures: Figures = field(default_factory=Figures)
    shelf: Shelf = field(default_factory=Shelf)
    own: set[int] = field(default_factory=set)  # pids of the keepers that are held, and of their CLIs

    def __post_init__(self) -> None:
        self.looks = WriterLooks(self.own)
