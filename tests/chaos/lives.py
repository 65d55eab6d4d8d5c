"""The daemon's many lives: each is launched with one way to die, and the next one follows at once."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
from harness import Harness
from zygote import STACKS, Forked, Zygote

from clisup.host.failpoints import VARIABLE
from tests.chaos.cast import Cast
from tests.chaos.clients import Up
from tests.chaos.plan import Plan, Strike
from tests.chaos.sabotage import SABOTAGES, checkpoints
from tests.chaos.scripts import CONFIG

__all__ = ["Ground", "Killer"]

PATIENCE_S = 3.0  # for a failpoint to be met; then the life ends all the same, as at a random moment
START_LIMIT_S = 120.0  # a whole start takes 1.5 s of processor time, and others may have the processors
LOG_BYTES = 4 * 1024 * 1024
TICK_S = 0.006
COLD = 0.025  # of all lives are a whole `clisup serve`, imports and all


class Ground(Harness):
    """One state directory and its daemons."""

    def __init__(self, cast: Cast, sabotage: str = "", files: int = 0) -> None:
        """`files` is the limit of open files of every daemon, if there is to be one."""
        super().__init__(**CONFIG, raw=cast.config())
        self.cast = cast
        self._faults = ""
        functions = [checkpoints, *([SABOTAGES[sabotage]] if sabotage else [])]
        self._before = [f"tests.chaos.sabotage:{function.__name__}" for function in functions]
        self.zygote = Zygote()
        self._files = files
        if files:
            resource.prlimit(self.zygote.pid, resource.RLIMIT_NOFILE, (files, files))

    def live(self, failpoints: str = "", *, cold: bool = False) -> None:
        """Launch a daemon; it does not serve yet."""
        env = {**self.env, VARIABLE: failpoints}
        if not cold:
            self.process = self.zygote.fork(self.arguments(), env, self.log, stacks=True, before=self._before)
            return
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.argv(), env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        if self._files:
            resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (self._files, self._files))

    @property
    def life(self) -> Forked | subprocess.Popen[bytes]:
        assert self.process is not None
        return self.process

    def serves(self) -> bool:
        """Does somebody listen?"""
        with socket.socket(socket.AF_UNIX) as sock:
            return sock.connect_ex(self.socket) == 0

    def tidy(self, buried: list[Path]) -> None:
        """While no daemon lives: remove sessions that are done with, and read the log, or both would grow without end."""
        while buried:
            shutil.rmtree(buried.pop(), ignore_errors=True)
        if self.log.stat().st_size > LOG_BYTES:
            self._faults += super().faults()[:LOG_BYTES]
            self.log.write_bytes(b"")

    def faults(self) -> str:
        return self._faults + super().faults()

    def leftovers(self) -> dict[int, str]:
        """Those of removed sessions, too: all that ever ran here has this home."""
        home, ours = f"HOME={self.root}/home\0".encode(), {self.life.pid}
        found = super().leftovers()
        for pid in {int(name) for name in os.listdir("/proc") if name.isdigit()} - ours - found.keys():
            try:
                if home in Path(f"/proc/{pid}/environ").read_bytes():
                    found[pid] = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
        return found

    def close(self) -> None:
        """Stop the last daemon; raises `AssertionError` where something is left, or a daemon met a fault of its own."""
        try:
            super().close()
        finally:
            self.zygote.close()
            self.cast.close()


class Killer:
    """Kills `budget` daemons, then leaves one alive. `buried` are directories to remove while no daemon lives."""

    def __init__(self, ground: Ground, up: Up, plan: Plan, budget: int, chance: random.Random, cold: float) -> None:
        self.ground, self.up, self.plan, self.budget = ground, up, plan, budget
        self._chance, self._cold = chance, cold
        self.kills = self.by_timer = self.cold_lives = 0
        self.buried: list[Path] = []
        self.done = trio.Event()
        self.give_up: Callable[[], bool] = lambda: False

    async def rampage(self) -> None:
        """One life after the other."""
        while self.kills < self.budget and not self.give_up():
            await self._kill_one(self.plan.next())
        self.ground.live()
        await self.wait_up()
        self.done.set()

    async def _kill_one(self, strike: Strike) -> None:
        cold = self._chance.random() < self._cold
        self.cold_lives += cold
        launched = time.monotonic()
        self.ground.live(strike.spec, cold=cold)
        if strike.from_launch:
            await self._until_dead(launched + strike.delay_s)
        elif await self.wait_up():
            patience = PATIENCE_S if strike.failpoint else strike.delay_s
            await self._until_dead(time.monotonic() + patience)
        hit = self._finish(strike)
        self.plan.result(strike, hit=hit)
        self.up.clear()
        self.kills += 1
        self.by_timer += not hit
        self.ground.tidy(self.buried)

    def _finish(self, strike: Strike) -> bool:
        """Kill it, if nothing has. True where its failpoint was met; any other end is a fault of the daemon's own."""
        life = self.ground.life
        died = life.poll() is not None
        if not died:
            life.kill()
        code = life.wait()
        of_itself = code != -signal.SIGKILL or (died and strike.failpoint is None)
        assert not of_itself, f"a daemon ended by itself with {code}: {self.ground.log.read_text()[-3000:]}"
        return died

    async def wait_up(self) -> bool:
        """False where it died before."""
        end = time.monotonic() + START_LIMIT_S
        while not self.ground.serves():
            if self.ground.life.poll() is not None:
                return False
            assert time.monotonic() < end, f"a daemon does not start: {self._hanging()}"
            await trio.sleep(TICK_S)
        self.up.set()
        return True

    def _hanging(self) -> str:
        """What a daemon does that does not serve."""
        life = self.ground.life
        _, _, stat = Path(f"/proc/{life.pid}/stat").read_text().rpartition(")")
        if isinstance(life, Forked):
            life.send_signal(STACKS)
            time.sleep(1)
        return f"pid {life.pid}, /proc/PID/stat from its state on: {stat}\n{self.ground.log.read_text()[-5000:]}"

    async def _until_dead(self, end: float) -> None:
        while self.ground.life.poll() is None and time.monotonic() < end:
            if not self.up.is_set and self.ground.serves():
                self.up.set()
            await trio.sleep(TICK_S)
