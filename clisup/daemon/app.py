"""The composition root: from a command line to a serving daemon, and down again in the reverse order."""

from __future__ import annotations

import gc
import os
import signal
import sys
import uuid
from collections.abc import Mapping
from typing import Any, Literal, cast

import psutil
import structlog
import trio

from clisup import __version__
from clisup.core.config import Config
from clisup.daemon.backends import Backends
from clisup.daemon.handlers import make_handlers
from clisup.daemon.manager import Manager
from clisup.daemon.server import Server
from clisup.errors import EXIT_OK
from clisup.host import clock
from clisup.host.config_file import read_config
from clisup.host.failpoints import VARIABLE, arm
from clisup.host.files import make_private_dir
from clisup.host.hardening import carry_environment_over, harden, taken_environment
from clisup.host.listener import bind_listener, take_lock
from clisup.host.log import configure_logging
from clisup.host.system_check import check_system
from clisup.locations import config_file, default_socket, default_state_dir

__all__ = ["Daemon", "serve"]

STATUS_SCHEMA = 1
StopMode = Literal["drain", "detach", "kill"]
SETTLE_LIMIT_S = 1.0  # for the last answers and events to reach the clients that read
GC_THRESHOLDS = (2_000, 3, 2_000)
KILL_LIMIT_S = 30.0  # for a `kill` stop: the ladder's grace and a slow machine
_log = structlog.get_logger()


def serve(config_path: str | None, socket_path: str | None, state_dir: str | None, log_format: str) -> int:
    """Run the daemon until it is told to stop. Gives the exit code; raises `ClisupError` where it cannot start."""
    check_system()
    carry_environment_over(sys.argv[1:])
    env = taken_environment()
    path = config_path or config_file(env)
    config = read_config(os.path.abspath(path), required=config_path is not None or "CLISUP_CONFIG" in env)
    uid = os.getuid()
    state = os.path.abspath(state_dir or _expand(config.daemon.state_dir, env) or default_state_dir(env, uid))
    own = {**env, "CLISUP_STATE_DIR": state}
    sock = os.path.abspath(
        socket_path or env.get("CLISUP_SOCKET") or _expand(config.daemon.socket, env) or default_socket(own, uid)
    )
    configure_logging(config.daemon.log_level, cast("Any", log_format))
    if names := arm(env.get(VARIABLE, "")):
        _log.warning("failpoints are armed: this daemon is going to fail on purpose", names=names)
    harden()
    daemon = Daemon(config, Backends(config, env), state_dir=state, socket_path=sock)
    try:
        trio.run(daemon.run)
    except BaseExceptionGroup as group:
        raise _only_one(group) from None
    return EXIT_OK


def _calm_collector() -> None:
    """Let the search for garbage in cycles, which stops the daemon for up to 170 ms (1,200 clients), be rare and small.

    What is there by now stays. Full searches come with every 12 million new objects that are not freed otherwise.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _only_one(error: BaseException) -> BaseException:
    """What a nursery has wrapped, so that a refusal to start has its own message and exit code."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _expand(path: str, env: Mapping[str, str]) -> str:
    return path.replace("~", env.get("HOME", "~"), 1) if path.startswith("~/") else path


class Daemon:
    """One daemon: locks, sessions, the socket. `run` is its whole life."""

    def __init__(self, config: Config, backends: Backends, *, state_dir: str, socket_path: str) -> None:
        self.config = config
        self.backends = backends
        self.state_dir = state_dir
        self.socket_path = socket_path
        self.instance_id = str(uuid.uuid4())
        self.started_at = clock.timestamp()
        self._started = clock.monotonic()
        self.state: Literal["starting", "ready", "draining"] = "starting"
        self._stop_mode: StopMode | None = None
        self._stopping = trio.Event()
        self._hasten = trio.Event()
        self._process = psutil.Process()
        self.server: Server

    async def run(self) -> None:
        """Lock, load, adopt, serve; then stop as asked. Clients are accepted only after every session is known."""
        make_private_dir(self.state_dir)
        make_private_dir(os.path.dirname(self.socket_path))
        state_lock = take_lock(os.path.join(self.state_dir, "daemon.lock"), "state directory")
        socket_lock = take_lock(self.socket_path + ".lock", "socket")
        state_lock.write(f"{os.getpid()} {clock.boot_id()} {self.instance_id}\n")
        try:
            async with trio.open_nursery() as nursery:
                await self._live(nursery)
                nursery.cancel_scope.cancel()
        finally:
            socket_lock.release()
            state_lock.release()

    async def _live(self, nursery: trio.Nursery) -> None:
        async with trio.open_nursery() as sessions:
            self.manager = Manager(self.config, self.backends, self.state_dir, sessions)
            await self.manager.load()
            self.server = Server(self.config.daemon, make_handlers(self), self._keeper_pids)
            _calm_collector()
            listener = bind_listener(self.socket_path)
            nursery.start_soon(self._heed_signals)
            nursery.start_soon(self.manager.watch_suspends)
            nursery.start_soon(self.server.serve, listener)
            self.state = "ready"
            _log.info("ready", socket=self.socket_path, state_dir=self.state_dir, sessions=len(list(self.manager)),
                      adopted=self.manager.adopted)  # fmt: skip
            await self._stopping.wait()
            await self._stop()
            nursery.cancel_scope.cancel()  # before the close: nobody may wait on a descriptor whose number is free again
            listener.close()
            os.unlink(self.socket_path)
            sessions.cancel_scope.cancel()

    async def _heed_signals(self) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            async for number in signals:
                if number == signal.SIGHUP:
                    continue  # reload comes with issue F; until then a lost terminal must not end the daemon
                again = self._stop_mode is not None
                self.stop("kill" if again else self.config.daemon.on_stop)

    def stop(self, mode: StopMode) -> None:
        """Begin to stop. A later `kill` hastens a `drain`."""
        _log.info("stopping", mode=mode)
        if self._stop_mode is None or mode == "kill":
            self._stop_mode = mode
        self.state = "draining"
        self.manager.stopping = True
        self._stopping.set()
        if mode == "kill":
            self._hasten.set()

    async def _stop(self) -> None:
        """End or leave the running turns, as the mode says."""
        if self._stop_mode == "drain" and not self._hasten.is_set():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._drain, nursery)
                with trio.move_on_after(self.config.daemon.drain_s):
                    await self._hasten.wait()
                nursery.cancel_scope.cancel()
        if self._stop_mode != "detach":
            with trio.move_on_after(KILL_LIMIT_S):
                await self._end_all("kill")
        with trio.move_on_after(SETTLE_LIMIT_S):
            await self.server.settle()

    async def _drain(self, nursery: trio.Nursery) -> None:
        await self._end_all("drain")
        nursery.cancel_scope.cancel()

    async def _end_all(self, mode: str) -> None:
        async with trio.open_nursery() as nursery:
            for session in self.manager:
                nursery.start_soon(session.drain, mode)

    def _keeper_pids(self) -> set[int]:
        return {pid for session in self.manager if (pid := session.keeper_pid()) is not None}

    # -- what people look at -----------------------------------------------------------------------------------------

    def identity(self) -> dict[str, Any]:
        """Who serves, for `initialize`."""
        return {
            "name": "clisup",
            "version": __version__,
            "pid": os.getpid(),
            "instance_id": self.instance_id,
            "started_at": self.started_at,
        }

    async def status(self) -> dict[str, Any]:
        """Everything that `clisup status` shows; `schema_version` grows when a field changes its meaning."""
        sessions = [session for session in self.manager if session.state != "closed"]
        counts = {name: sum(s.spec.backend == name for s in sessions) for name in self.backends.names()}
        rows = [await backend.describe() for backend in self.backends]
        return {
            "schema_version": STATUS_SCHEMA,
            "daemon": self._daemon_status(),
            "backends": [{**row, "sessions": counts[row["name"]]} for row in rows],
            "sessions": [session.summary() for session in sessions],
            "damaged_sessions": self.manager.damaged,
            "totals": self.manager.totals(),
            "clients": [
                {
                    "uid": c.peer.uid,
                    "pid": c.peer.pid,
                    "name": c.name,
                    "role": "admin",
                    "subscriptions": len(c.subscriptions),
                }
                for c in self.server.connections
            ],
        }

    def _daemon_status(self) -> dict[str, Any]:
        disk = os.statvfs(self.state_dir)
        slots = self.manager.services.slots
        return {
            **self.identity(),
            "uptime_s": round(clock.monotonic() - self._started, 3),
            "socket": self.socket_path,
            "state_dir": self.state_dir,
            "state": self.state,
            "rss_bytes": self._process.memory_info().rss,
            "open_fds": self._process.num_fds(),
            "running": slots.used,
            "max_running": slots.total,
            "waiting": slots.waiting,
            "adopted_turns": self.manager.adopted,
            "storage": {
                "path": self.state_dir,
                "free_bytes": disk.f_bavail * disk.f_frsize,
                "writable": os.access(self.state_dir, os.W_OK),
            },
        }
