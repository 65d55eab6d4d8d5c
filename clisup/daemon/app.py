"""The daemon: from its locks to serving clients, and back in the reverse order."""

from __future__ import annotations

import os
import signal
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal

import trio

from clisup import __version__
from clisup.config.keys import Change
from clisup.config.model import Config
from clisup.daemon.backends import Backends, hide_secrets
from clisup.daemon.clients.connection import Handlers
from clisup.daemon.clients.server import Server
from clisup.daemon.garbage_collector import collect_garbage
from clisup.daemon.metrics import watch_lag
from clisup.daemon.notify.notifications import Notifications
from clisup.daemon.ops.retention import Retention
from clisup.daemon.ops.status import summaries_of
from clisup.daemon.reexec import Reexec
from clisup.daemon.service_status import ServiceStatus, VitalTasks, status_line
from clisup.daemon.sessions.context import Notification
from clisup.daemon.sessions.registry import Manager
from clisup.errors import ClisupError, WorldError
from clisup.host import clock
from clisup.host.capacity import file_size_limit
from clisup.host.config_file import ConfigFile
from clisup.host.locks import StateLock
from clisup.host.log import LOG, event_logger
from clisup.host.process.own_process import let_hangups_in, open_descriptors, resident_bytes
from clisup.host.safe_paths import check_safe_dir, make_safe_dir
from clisup.host.sockets import ACTIVATED, bind_listener, check_unlocked, claim_socket
from clisup.host.systemd.notifier import Notifier
from clisup.model.envelope import encoded
from clisup.ops.doctor import Finding
from clisup.store.clock_store import look_at_clock
from clisup.wire.status import STATUS_SCHEMA

if TYPE_CHECKING:
    from clisup.daemon.ops.tracing import Tracing

__all__ = ["Daemon", "run_daemon"]

StopMode = Literal["drain", "detach", "kill"]
SETTLE_LIMIT_S = 1.0  # for the last answers and events to reach clients
NAMED_KEYS = 5  # changed keys that a message names
LOCK_CHECK_S = 5.0  # between two checks of the state directory's lock
KILL_LIMIT_S = 30.0  # for a `kill` stop: the ladder's grace and a slow machine
_log = event_logger()


def run_daemon(daemon: Daemon) -> None:
    """Run the daemon to its end. Raises the `ClisupError` of a failed start, without the nursery's wrapping.

    An internal error goes to the log, which redacts it, and not to stderr.
    """
    try:
        trio.run(daemon.run)
    except (Exception, BaseExceptionGroup) as error:
        cause = _only_one(error)
        if isinstance(cause, Exception) and not isinstance(cause, ClisupError):
            _log.error("daemon failed", exc_info=error)
            cause = WorldError("internal error of the daemon", hint="see its log, and report the error")
        raise cause from None
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # Python removes its handlers before it exits


def _only_one(error: BaseException) -> BaseException:
    """Return the single cause that nurseries have wrapped, so a failed start has its own message and exit code."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


class Daemon:
    """Daemon with its locks, sessions and socket. `run` is its whole life.

    `make_handlers` makes the handlers of the method table. `apply_reload` reads and applies the configuration file.
    `check_restart` refuses a restart with which open sessions could not continue.
    """

    def __init__(
        self,
        config: Config,
        backends: Backends,
        reexec: Reexec,
        *,
        state_dir: str,
        socket_path: str,
        config_file: ConfigFile,
        make_handlers: Callable[[Daemon], Handlers],
        apply_reload: Callable[[Daemon, bool], Awaitable[list[Change]]],
        check_restart: Callable[[Daemon], Awaitable[None]],
    ) -> None:
        self._make_handlers = make_handlers
        self._apply_reload = apply_reload
        self._check_restart = check_restart
        self.config = config
        self.config_file = config_file
        self.reexec = reexec
        self.backends = backends
        hide_secrets(backends)
        self.state_dir = state_dir
        self.socket_path = socket_path
        self.instance_id = str(uuid.uuid4())
        self.started_at = self.configured_at = clock.timestamp()
        self._started = clock.monotonic()
        self.state: Literal["starting", "ready", "draining"] = "starting"
        self._stop_mode: StopMode | None = None
        self._stopping = trio.Event()
        self._hasten = trio.Event()
        self._deciding = trio.Lock()  # held while systemd is asked about a signal
        self._hangups = Notification()
        self.reloading = trio.Lock()
        self.reading = trio.CapacityLimiter(
            1
        )  # for a thread that reads the configuration, which may hang on a bad disk
        self.activated = ACTIVATED in reexec.inherited
        self.notifier = Notifier.of(reexec.env)
        self._vitals = VitalTasks()
        self._service_status = ServiceStatus(self.notifier, self._vitals, self._look)
        self.manager: Manager
        self._tracing: Tracing | None = None
        self.notifications: Notifications
        self.server: Server
        self.retention: Retention

    async def run(self) -> None:
        """Lock, load, adopt, serve, then stop as requested. Clients are accepted once every session is loaded."""
        make_safe_dir(self.state_dir, "keep state in")  # before any use of a file in it
        check_safe_dir(self.state_dir, "keep state in", entries=True)
        old = self.reexec.inherited
        self._state_lock = StateLock(self.state_dir, old)
        self._sign_lock(self._state_lock.acquire())
        self._socket_lock = claim_socket(self.socket_path, old.get("socket"))
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._service_status.run)
                await self._live(nursery)
                nursery.cancel_scope.cancel()
            _log.info("stopped", uptime_s=round(clock.monotonic() - self._started, 3), restarts=self.reexec.due)
        finally:
            if not self.reexec.due:
                self._socket_lock.release()
                self._state_lock.release()

    def _sign_lock(self, holder: int | None) -> None:
        """Write this daemon into `daemon.lock`. Raises `WorldError(daemon_already_running)` for another holder."""
        check_unlocked(holder, "state directory", self._state_lock.path)
        self._state_lock.write(f"{os.getpid()} {clock.boot_id()} {self.instance_id}\n")

    async def _keep_lock(self) -> None:
        """Lock `daemon.lock` again if the file was removed, or stop if another process has locked it meanwhile.

        A cleaner of /tmp removes the file after some days. Other commands then do not find the daemon, and where a
        directory cannot be locked a second daemon could serve the same sessions.
        """
        storage = self.manager.services.storage
        while True:
            await trio.sleep(LOCK_CHECK_S)
            try:
                with storage.watched():
                    if self._state_lock.is_in_place():
                        continue
                    self._sign_lock(self._state_lock.renew())
            except WorldError as error:
                if error.kind == "daemon_already_running":
                    self.stop(
                        "detach",
                        why=f"daemon.lock was removed, and pid {error.data['pid']} serves the state directory now",
                    )
                    await trio.sleep_forever()
                continue
            _log.warning("lock taken again", why="daemon.lock was removed", state_dir=self.state_dir)

    def descriptors(self) -> dict[str, int]:
        """Return the descriptors for a successor in this process."""
        return {
            **self._state_lock.descriptors(),
            "socket": self._socket_lock.fileno(),
            ACTIVATED if self.activated else "listener": self._listener.fileno(),
        }

    async def _live(self, nursery: trio.Nursery) -> None:
        async with trio.open_nursery() as sessions:
            self.manager = Manager(self.config, self.backends, self.state_dir, sessions)
            self.manager.services.socket = self.socket_path
            nursery.start_soon(self.manager.services.keepers.run)  # nothing waits for it
            nursery.start_soon(self._vitals.keep, "zombies", self.manager.services.orphans.reap)
            await self.manager.load()
            self.server = Server(self.config.daemon, self._make_handlers(self), self._keeper_pids,
                                 self.manager.services.metrics, bridged=self.manager.has_tools, reaper=os.getpid())  # fmt: skip
            held = self.reexec.inherited
            listener = self._listener = bind_listener(self.socket_path, held.get("listener", held.get(ACTIVATED)))
            look_at_clock(self.state_dir)  # before any session gets a stamp of this daemon
            self.retention = Retention(self.manager, self.config.daemon.retention)
            nursery.start_soon(self._vitals.keep, "signals", self._handle_signals)
            nursery.start_soon(self._reload_on_hangups)
            nursery.start_soon(self._vitals.keep, "suspends", self.manager.watch_suspends)
            nursery.start_soon(watch_lag, self.manager.services.metrics)
            nursery.start_soon(self._vitals.keep, "garbage", collect_garbage)
            nursery.start_soon(self._vitals.keep, "lock", self._keep_lock)
            nursery.start_soon(self._vitals.keep, "storage", self.manager.services.storage.probe)
            nursery.start_soon(self._vitals.keep, "serve", self.server.serve, listener)
            self._nursery = nursery
            self.trace()
            self.notifications = Notifications(self.manager, self.reexec.env, self.socket_path, nursery)
            self.notifications.apply(self.config.notify)
            nursery.start_soon(self._vitals.keep, "retention", self.retention.run)
            self.state = "ready"
            nursery.start_soon(self._service_status.ready)  # a service manager that does not listen must delay nothing
            self._log_ready()
            if (largest := file_size_limit()) is not None:
                _log.warning("file size limited", bytes=largest)
            import clisup.host.systemd.service  # noqa: F401  # for the stop: the package may be gone by then

            await self._stopping.wait()
            while (mode := self._stop_mode) is not None:  # a signal may change the mode
                await self._stop(mode)
                async with self._deciding:
                    if mode == self._stop_mode:
                        break
            nursery.cancel_scope.cancel()  # before the close: no task may wait on a descriptor whose number is free again
            if not self.reexec.due:
                listener.close()
                if not self.activated:  # systemd's socket stays, with the clients that wait in it
                    os.unlink(self.socket_path)
            sessions.cancel_scope.cancel()

    def _log_ready(self) -> None:
        _log.info("ready", version=__version__, pid=os.getpid(), instance=self.instance_id, socket=self.socket_path,
                  state_dir=self.state_dir, sessions=len(list(self.manager)), adopted=self.manager.adopted)  # fmt: skip
        LOG.leave_caller()

    @property
    def spans_queued(self) -> int:
        """Return the number of spans that wait to be sent."""
        return 0 if self._tracing is None else self._tracing.spans_queued

    def trace(self) -> None:
        """Start or stop tracing as the configuration says. A failure goes to the log, and turns continue."""
        if self._tracing is not None:
            self._tracing.end()
            self._tracing = None
        if not self.config.tracing.enabled:
            return
        from clisup.daemon.ops.tracing import open_tracing

        try:
            self._tracing = open_tracing(self.manager, self.config.tracing, instance_id=self.instance_id)
        except WorldError as error:
            _log.error("no traces", error=error.message)
        else:
            self._nursery.start_soon(self._tracing.run)

    async def _handle_signals(self) -> None:
        ignored = signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM
        numbers = signal.SIGTERM, signal.SIGINT, signal.SIGHUP, *ignored
        with trio.open_signal_receiver(*numbers) as signals:
            let_hangups_in()
            async for number in signals:
                if number == signal.SIGHUP:
                    self._hangups.notify()  # a slow disk must not delay the next signal
                    continue
                if number in ignored:
                    _log.warning("signal ignored", signal=signal.Signals(number).name)
                    continue
                async with self._deciding:
                    await self._handle_signal(number)

    async def _handle_signal(self, number: int) -> None:
        from clisup.host.systemd.service import restart_job  # not needed for the start

        first = self._stop_mode is None or self.reexec.due
        back = first and number == signal.SIGTERM and await restart_job(self.reexec.env)
        if self.reexec.due:  # cancel the restart, or leave it to systemd
            self.reexec.due, self._stop_mode = False, None
        if self._stop_mode is not None:
            self.stop("kill", why=f"{signal.Signals(number).name} again")
        elif back:
            self.stop("detach", why="systemd restarts this unit")
        else:
            self.stop(self.config.daemon.on_stop, why=signal.Signals(number).name)

    async def _reload_on_hangups(self) -> None:
        """Reload after each SIGHUP, with the result in the log. A flood of signals gives one reload after the other."""
        while True:
            await self._hangups.wait()
            self._hangups.clear()
            try:
                await self.reload()
            except ClisupError as error:
                path = self.config_file.path
                _log.error("configuration not reloaded", file=path, kind=error.kind, error=error.message)
            except Exception:  # a fault of the reload must not end the daemon
                _log.exception("reload failed inside the daemon")

    async def reload(self, *, dry_run: bool = False) -> list[Change]:
        """Apply the configuration file, and return the changes. With `dry_run` only return them.

        Raises as `clisup.daemon.reload.reload`.
        """
        if dry_run or self.state != "ready":
            return await self._apply_reload(self, dry_run)
        self.notifier.reloading()
        try:
            return await self._apply_reload(self, False)
        finally:
            if self.state == "ready":  # a stop or restart meanwhile reports its own state
                self._nursery.start_soon(self._service_status.ready)

    async def restart(self) -> None:
        """Begin a restart in place, if a successor would start and have the backend of every open session.

        Raises `UsageError`: unsupported, session_busy; `ConfigurationError`; `WorldError(shutting_down)`.
        """
        if self._stop_mode is not None:
            raise WorldError(
                "the daemon is stopping, so it does not restart", kind="shutting_down", hint="start it again"
            )
        await self.reexec.prepare()
        await self._check_restart(self)
        if self._stop_mode is None:
            self.reexec.due = True
            self.notifier.reloading()  # a restart counts as a reload: the successor reports its end
            self.stop("detach", why="a client asked for a restart")

    def stop(self, mode: StopMode, **why: Any) -> None:
        """Begin to stop. `why` goes to the log. A later `kill` shortens a `drain`."""
        _log.info("stopping", mode="restart" if self.reexec.due else mode, **why)
        if self._stop_mode is None or mode == "kill":
            self._stop_mode = mode
        self.state = "draining"
        self.manager.services.storage.stopping = True
        if not self.reexec.due:
            self.notifier.stopping()
            self._service_status.report()
        self._stopping.set()
        if mode == "kill":
            self._hasten.set()

    async def _stop(self, mode: StopMode) -> None:
        """End or detach the running turns, as the mode says."""
        if mode == "drain" and not self._hasten.is_set():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._drain, nursery)
                with trio.move_on_after(self.config.daemon.drain_s):
                    await self._hasten.wait()
                nursery.cancel_scope.cancel()
        if mode != "detach":
            with trio.move_on_after(KILL_LIMIT_S):
                await self._end_all("kill")
                await self.manager.end_homeless()
        for session in self.manager:
            session.detach()
        with trio.move_on_after(SETTLE_LIMIT_S):
            await self.server.deliver_all()
            await self.notifications.settle()
            if self._tracing is not None:
                await self._tracing.settle()

    async def _drain(self, nursery: trio.Nursery) -> None:
        await self._end_all("drain")
        nursery.cancel_scope.cancel()

    async def _end_all(self, mode: str) -> None:
        async with trio.open_nursery() as nursery:
            for session in self.manager:
                nursery.start_soon(session.drain, mode)

    def _keeper_pids(self) -> set[int]:
        return {pid for session in self.manager if (pid := session.context.keeper_pid()) is not None}

    def _look(self) -> tuple[str, str]:
        """Return the state, and the line of `systemctl status`."""
        if self.state == "starting":
            return self.state, status_line(state=self.state, sessions=0, running=0)
        services, sessions = self.manager.services, [s for s in self.manager if s.state != "closed"]
        line = status_line(
            state=self.state,
            sessions=len(sessions),
            running=sum(session.ledger.current is not None for session in sessions),
            waiting=services.slots.waiting,
            storage=services.storage.state,
        )
        return self.state, line

    # -- reports -----------------------------------------------------------------------------------------------------

    def identity(self) -> dict[str, Any]:
        """Return the identity of the daemon, for `initialize`."""
        return {
            "name": "clisup",
            "version": __version__,
            "pid": os.getpid(),
            "instance_id": self.instance_id,
            "started_at": self.started_at,
            "activated": self.activated,
            "log_file": LOG.path,
            "search_path": self.reexec.env.get("PATH", os.defpath),
        }

    async def status(self, turn: Callable[[], Awaitable[None]]) -> bytes:
        """Return everything that `clisup status` shows, as JSON. `schema_version` grows when a field changes its meaning.

        `turn` is awaited before work that blocks all other clients.
        """
        rows = await self.backends.describe()
        sessions = [session for session in self.manager if session.state != "closed"]
        await self.manager.look(sessions)
        sessions.sort(key=lambda session: (session.spec.created_at, session.id), reverse=True)
        summaries = await summaries_of(sessions, turn)
        counts = Counter(session.spec.backend for session in sessions)
        rest = {
            "schema_version": STATUS_SCHEMA,
            "daemon": self._daemon_status(),
            "backends": [{**row, "sessions": counts[row["name"]]} for row in rows],
            "accounts": self.manager.services.accounts.describe(),
            "damaged_sessions": self.manager.damaged,
            "totals": self.manager.totals(),
            "drift": self.manager.services.drift.describe(),
            "notify": self.notifications.describe(),
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
        return b'%b,"sessions":%b}' % (encoded(rest)[:-1], summaries)

    async def diagnose(self, name: str | None, cwd: str | None) -> list[Finding]:
        """Return the findings of `clisup doctor`. Raises `UsageError(backend_not_found)`."""
        from clisup.daemon.ops.doctor import Surroundings, diagnose  # loaded at the first request only

        services = self.manager.services
        storage = services.storage.describe()
        configuration, problem = await self._configuration()
        around = Surroundings(
            state_dir=self.state_dir,
            socket=self.socket_path,
            env=self.reexec.env,
            configuration=configuration,
            configuration_problem=problem,
            cgroup=services.cgroups.path,
            cwd=cwd,
            daemon={**self.identity(), "state": self.state},
            storage=(storage["state"], storage["error"]),
            drift=tuple(services.drift),
            notify=tuple(self.notifications.describe()),
            gateway=self.config.gateway,
            log=(LOG.form, LOG.outlet.dropped) if LOG.outlet is not None else None,
        )
        named = list(self.backends) if name is None else [self.backends.get(name)]
        return await diagnose(around, named, optional=self.config.untouched if name is None else frozenset())

    async def _configuration(self) -> tuple[str, tuple[str, str] | None]:
        """Describe the configuration in force and the changes of its file. Also return why the file cannot be applied, and a hint."""
        all_defaults = "; no such file, or nothing in it: all defaults" if self.config.is_default else ""
        words = f"{self.config_file.path}, as the daemon read it at {self.configured_at}{all_defaults}"
        try:
            found = await self.reload(dry_run=True)
        except ClisupError as error:
            if error.kind == "shutting_down":
                return words, None
            return words, (
                f"the file cannot be taken up as it is now: {error.message}",
                error.hint or "clisup config check",
            )
        if found:
            words += f"; by now it says otherwise of {', '.join(change.key for change in found[:NAMED_KEYS])}: clisup daemon reload"
        return words, None

    def _daemon_status(self) -> dict[str, Any]:
        slots = self.manager.services.slots
        return {
            **self.identity(),
            "uptime_s": round(clock.monotonic() - self._started, 3),
            "socket": self.socket_path,
            "state_dir": self.state_dir,
            "config_file": self.config_file.path,
            "state": self.state,
            "rss_bytes": resident_bytes(),
            "open_fds": open_descriptors(),
            "running": slots.used,
            "max_running": slots.total,
            "waiting": slots.waiting,
            "adopted_turns": self.manager.adopted,
            "storage": self.manager.services.storage.describe(),
        }
