"""Beats of this box: every five seconds its load and its labels, also while its daemon is down."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from clisup import __version__
from clisup.errors import ClisupError, WorldError
from clisup.fleet.agent.daemon_link import DaemonLink
from clisup.fleet.agent.records import BoxBeat, read_beat
from clisup.fleet.agent.settings import AgentSettings
from clisup.fleet.engine import Bucket, Engine
from clisup.fleet.jobs import BEAT_S
from clisup.host.log import event_logger

__all__ = ["Beats"]

QUIET = 4
_log = event_logger()


class Beats:
    """Beats of this box. `lag` counts the events that are not copied; `last` is the last beat.

    Another box with this name has another incarnation. Each of the two hears the beats of the other.
    """

    def __init__(self, engine: Engine, settings: AgentSettings, lag: Callable[[], int]) -> None:
        self._bucket, self._settings, self._lag = Bucket(engine, "BOXES"), settings, lag
        self._quiet, self._reported = 0, False
        self.last: BoxBeat | None = None

    @property
    def alone(self) -> bool:
        """Tell whether the last `QUIET` beats under this name were those of this box."""
        return self._quiet >= QUIET

    async def run(self) -> None:
        """Send beats until cancelled. Without the engine the next beat tries again."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            beat = await self._beat()
            with suppress(WorldError):
                await self._look_for_another()
                await self._bucket.put(self._settings.member.name, msgspec.json.encode(beat))
                self.last = beat
            due = max(due + BEAT_S, loop.time())
            await asyncio.sleep(due - loop.time())

    async def _beat(self) -> BoxBeat:
        settings = self._settings
        fleet = settings.fleet
        beat = BoxBeat(
            __version__,
            settings.incarnation,
            time.time(),
            daemon="down",
            lag=self._lag(),
            share=fleet.share,
            roles=sorted(settings.member.roles),
            labels=fleet.labels,
            workspaces=sorted(fleet.workspaces),
            accept=list(fleet.accept),
        )
        try:
            async with DaemonLink.open(settings.daemon_socket, "clisup-fleet-beat") as link:
                status = await link.call("daemon/status")
                accounts = await link.call("account/list")
        except ClisupError:
            return beat
        shared = sorted(str(row["account"]) for row in accounts["accounts"])
        return msgspec.structs.replace(beat, daemon="up", accounts=shared, **_load(status))

    async def _look_for_another(self) -> None:
        """Report another box that beats under this name."""
        stored = await self._bucket.get(self._settings.member.name)
        if stored is None or self.last is None:
            return
        if read_beat(stored.value).incarnation == self._settings.incarnation:
            self._quiet += 1
            self._reported &= not self.alone
            return
        self._quiet = 0
        if not self._reported:
            _log.error("another box has this name", box=self._settings.member.name)
        self._reported = True


def _load(status: dict[str, Any]) -> dict[str, Any]:
    daemon = status["daemon"]
    running, waiting = int(daemon["running"]), int(daemon["waiting"])
    most = daemon["max_running"]
    backends = {row["name"]: row["version"] for row in status["backends"] if row.get("version")}
    limited = {row["kind"] for row in status["accounts"] if row["state"] == "limited" and row["until"]}
    free = max(0, int(most) - running - waiting) if most is not None else 0
    return {
        "running": running,
        "waiting": waiting,
        "free": free,
        "sessions": len(status["sessions"]),
        "backends": backends,
        "held": sorted({row["name"] for row in status["backends"] if row["kind"] in limited}),
    }
