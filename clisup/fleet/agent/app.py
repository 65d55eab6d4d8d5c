"""The fleet's agent: a process beside the daemon, from its lock to its parts, and back."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack

from clisup.errors import ClisupError, ConfigurationError, WorldError
from clisup.fleet.agent.beats import Beats
from clisup.fleet.agent.copying import Copying
from clisup.fleet.agent.daemon_link import DaemonLink
from clisup.fleet.agent.holding import Holding
from clisup.fleet.agent.placing import Placing
from clisup.fleet.agent.rows import Rows
from clisup.fleet.agent.settings import AgentSettings, read_settings
from clisup.fleet.agent.sockets import Sockets
from clisup.fleet.agent.table import Table
from clisup.fleet.agent.tunnels import Tunnels
from clisup.fleet.engine import Engine
from clisup.fleet.nats_engine import connect_member
from clisup.host.locks import FileLock
from clisup.host.log import LogForm, configure_logging, event_logger
from clisup.host.systemd.notifier import Notifier

__all__ = ["Agent", "run_agent"]

AGAIN_S = 1.0
"""Seconds before a part that failed begins again."""
FAILED_AGAIN_S = 10.0
"""Seconds before a part with an internal error begins again."""
STEADY_S = 60.0
"""Seconds of work after which the log names a known reason again."""
CONNECT_AGAIN_S = 5.0
STOP_S = 5.0
"""Seconds for the parts to end."""
LOOK_S = 1.0
_log = event_logger()


def run_agent(env: Mapping[str, str], log_level: str, log_form: LogForm) -> None:
    """Run the agent until SIGTERM or SIGINT. The log goes to stderr, as the daemon's.

    Raises `UsageError` for a box without a fleet, `ConfigurationError`, and `WorldError(daemon_already_running)` for a
    second agent of this box.
    """
    configure_logging(log_level, log_form, env)
    settings = read_settings(env)
    lock = FileLock(os.path.join(settings.state_dir, "fleet-agent.lock"))
    if (pid := lock.acquire()) is not None:
        message = f"an agent of this box runs already, as pid {pid}"
        raise WorldError(message, kind="daemon_already_running", pid=pid)
    try:
        lock.write(f"{os.getpid()}\n")
        asyncio.run(_serve(settings, env))
    finally:
        lock.release()


async def _serve(settings: AgentSettings, env: Mapping[str, str]) -> None:
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    agent, notifier = Agent(settings), Notifier.of(env)
    loop.add_signal_handler(signal.SIGHUP, agent.reload)
    running = asyncio.create_task(agent.run())
    _log.info("agent started", box=settings.member.name, fleet=settings.member.fleet)
    notifier.ready(f"box {settings.member.name} of fleet {settings.member.fleet}")
    waiting = asyncio.create_task(stopping.wait())
    await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    notifier.stopping()
    for task in (running, waiting):
        task.cancel()
    await asyncio.wait({running, waiting}, timeout=STOP_S)
    if running.done() and not running.cancelled() and (error := running.exception()) is not None:
        raise error
    _log.info("agent stopped", box=settings.member.name)


class Agent:
    """Parts of the agent. `engine` and `table` are None until the engine has answered for the first time."""

    def __init__(self, settings: AgentSettings) -> None:
        self.settings = settings
        self.engine: Engine | None = None
        self.table: Table | None = None
        self.copying: Copying | None = None
        self._rows: Rows | None = None
        self._beats: Beats | None = None

    def reload(self) -> None:
        """Read the table `[fleet]` again. With a bad file the old settings stay."""
        try:
            self.settings.fleet = self.settings.read_fleet()
        except ConfigurationError as error:
            _log.error("configuration not reloaded", error=error.message)
        else:
            _log.info("configuration reloaded")

    async def run(self) -> None:
        """Run until cancelled. The engine's absence is no reason to end."""
        sockets = Sockets(self.settings, lambda: self.table, lambda: self.engine)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_keep("sockets", sockets.run))
            tasks.create_task(self._connect())

    async def _connect(self) -> None:
        """Connect to the engine, which may take for ever, and run the parts that need it."""
        member = self.settings.member
        async with AsyncExitStack() as stack:
            last = ""
            while self.engine is None:
                try:
                    self.engine = await stack.enter_async_context(connect_member(member))
                except WorldError as error:
                    if error.message != last:
                        _log.warning("engine away", error=error.message)
                    last = error.message
                    await asyncio.sleep(CONNECT_AGAIN_S)
            _log.info("engine connected")
            await self._run_parts(self.engine)

    async def _run_parts(self, engine: Engine) -> None:
        self.table = table = Table(engine, self.settings.member.name, looks=self.settings.looks)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_keep("table", table.run))
            tasks.create_task(_watch(engine))
            for name, part in self._worker_parts(engine, table) if self.settings.works else ():
                tasks.create_task(_keep(name, part))

    def _worker_parts(self, engine: Engine, table: Table) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        """Return the parts of a box that shares its daemon, by name."""
        settings = self.settings
        self.copying = Copying(engine, settings.member.name, settings.daemon_socket)
        self._beats = beats = Beats(engine, settings, self.lag)
        self._rows = Rows(engine, table, settings, lambda: beats.alone)
        return [
            ("beats", beats.run),
            ("rows", self._rows.run),
            ("copy", self._copy),
            ("jobs", Placing(engine, settings, table, lambda: beats.last).run),
            ("tunnels", Tunnels(engine, settings).run),
            ("holds", lambda: self._hold(engine, table)),
        ]

    def lag(self) -> int:
        """Return the number of events that are not copied yet, as of the last look at the sessions."""
        if self._rows is None or self.copying is None or self.settings.fleet.share != "all":
            return 0
        ends = self.copying.ends
        return sum(max(0, next_seq - 1 - ends.get(id_, 0)) for id_, next_seq in self._rows.next_seqs.items())

    async def _copy(self) -> None:
        """Copy while this box shares its events. A reload may change that."""
        assert self.copying is not None
        while self.settings.fleet.share != "all":
            await asyncio.sleep(AGAIN_S)
        copying = asyncio.ensure_future(self.copying.run())
        try:
            while self.settings.fleet.share == "all" and not copying.done():
                await asyncio.wait({copying}, timeout=AGAIN_S)
            if copying.done():
                copying.result()
        finally:
            copying.cancel()
            await asyncio.gather(copying, return_exceptions=True)

    async def _hold(self, engine: Engine, table: Table) -> None:
        async with DaemonLink.open(self.settings.daemon_socket, "clisup-fleet-holds") as link:
            await Holding(engine, self.settings.member.name, link, table.runs).run()


async def _keep(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """Run a part, and again after each failure. A line of the log names a new reason."""
    last, loop, me = "", asyncio.get_running_loop(), asyncio.current_task()
    while me is not None and not me.cancelling():  # an error on the way out hides the cancellation
        began, again_s = loop.time(), AGAIN_S
        try:
            await run()
            last = ""
        except ClisupError as error:
            if error.message != last or loop.time() - began > STEADY_S:
                _log.warning("part of the agent waits", part=name, error=error.message)
            last = error.message
        except Exception:  # a fault of one part ends no other part
            _log.exception("part of the agent failed", part=name)
            again_s = FAILED_AGAIN_S
        await asyncio.sleep(again_s)


async def _watch(engine: Engine) -> None:
    """Log when the engine goes away, and when it is back. The client reconnects by itself."""
    there = True
    while True:
        if engine.connected != there:
            there = engine.connected
            if there:
                _log.info("engine connected")
            else:
                _log.warning("engine away", error="the connection ended")
        await asyncio.sleep(LOOK_S)
