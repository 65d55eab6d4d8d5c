"""`daemon/reload`: the configuration is read anew, and all of it takes effect or nothing.

What can fail comes first: reading, checking, loading the scrub lists, asking whether a backend that goes is in use. The
change itself awaits nothing and cannot fail. When each key takes effect says `clisup.config.keys`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import structlog
import trio

from clisup.config.changes import Change, changes, kept_back
from clisup.config.model import Config
from clisup.daemon.backends import Backends, hide_secrets
from clisup.daemon.sessions.registry import Manager
from clisup.errors import ClisupError, UsageError, WorldError
from clisup.host import clock
from clisup.host.credentials import with_credentials
from clisup.host.log import LOG
from clisup.host.otlp import check_installed
from clisup.model.lifecycle import SessionState

if TYPE_CHECKING:
    from clisup.daemon.app import Daemon

__all__ = ["Hangups", "check_restart", "reload"]

READ_LIMIT_S = 30.0  # for the file and the scrub lists, on a disk that may hang
NAMED = 10  # sessions in an error's data
TOLD = 3  # sessions in its message
# What a CLI may do, what is run for it, and what it gets from the daemon's environment.
_TRUST = re.compile(
    r"backends\.[^.]+\.(?:approvals\.|command$|args|env\b|env_files|pass_env|permission_mode)|daemon\.scrub_lists$"
)
_log = structlog.get_logger()


async def reload(daemon: Daemon, *, dry_run: bool) -> list[Change]:
    """Read the configuration file anew and take it up; what has changed. A `dry_run` only tells.

    Raises `ConfigurationError`; `UsageError(session_busy)` where open sessions use a backend that would go or become another
    kind; `WorldError(shutting_down)`. Then nothing has changed.
    """
    async with daemon.reloading:
        _check_serving(daemon)
        config, backends = await _read(daemon)
        async with daemon.manager.opening.lock:  # no session of a backend that goes comes to be meanwhile
            _check_serving(daemon)
            _check_in_use(daemon.manager, config, "reload")
            found = _differences(daemon, config, backends)
            if not dry_run:
                _take_up(daemon, kept_back(daemon.config, config), backends)
                _log_changes(daemon.config_file.path, found)
            return found


async def check_restart(daemon: Daemon) -> None:
    """Make sure that a daemon with the configuration file as it is now could follow every open session.

    Raises `ConfigurationError`, and `UsageError(session_busy)` where a backend in use would go or become another kind.
    """
    config, _ = await _read(daemon)
    _check_in_use(daemon.manager, config, "restart")


class Hangups:
    """SIGHUPs: each brings a reload that begins after it, with the result in the log; a flood of them brings one after the other."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._came = trio.Event()

    def came(self) -> None:
        """One more."""
        self._came.set()

    async def heed(self) -> None:
        """A task for as long as the daemon lives."""
        while True:
            await self._came.wait()
            self._came = trio.Event()
            await _heed_hangup(self._daemon)


async def _heed_hangup(daemon: Daemon) -> None:
    """A fault in here ends nothing."""
    try:
        await daemon.reload()
    except ClisupError as error:
        _log.error("configuration not reloaded", file=daemon.config_file.path, kind=error.kind, error=error.message)
    except Exception:
        _log.exception("reload failed inside the daemon")


def _log_changes(file: str, found: list[Change]) -> None:
    waits = [change.key for change in found if change.effect == "start"]
    changed = [change.key for change in found if change.effect != "start"]
    _log.info("configuration reloaded", file=file, changed=changed, needs_stop_and_start=waits or None)
    if trusted := [key for key in changed if _TRUST.match(key)]:
        _log.warning("trust changed", file=file, changed=trusted)


def _check_serving(daemon: Daemon) -> None:
    if daemon.state == "draining":
        raise WorldError(
            "cannot reload, because the daemon is stopping",
            kind="shutting_down",
            hint="the next one reads the configuration anyway",
        )


async def _read(daemon: Daemon) -> tuple[Config, Backends]:
    def read() -> tuple[Config, Backends]:
        succession = daemon.succession
        config = with_credentials(daemon.config_file.read(), succession.credentials, succession.env)
        check_installed(config.tracing)
        return config, Backends(config, succession.env, before=daemon.backends)

    with trio.move_on_after(READ_LIMIT_S):  # its own limiter: a thread that hangs there is one, and never a journal's
        return await trio.to_thread.run_sync(read, abandon_on_cancel=True, limiter=daemon.reading)
    raise WorldError(
        f"cannot reload, because {daemon.config_file.path} could not be read within {READ_LIMIT_S:g} s",
        kind="storage_failed",
        hint="see what ails that disk; nothing has changed",
    )


def _check_in_use(manager: Manager, config: Config, what: str) -> None:
    """A session goes on with the backend that it was opened with, so that one has to be there."""
    for backend in manager.backends:
        stays = config.backends.get(backend.name)
        if stays is not None and stays.kind == backend.config.kind:
            continue
        users = [s.id for s in manager if s.spec.backend == backend.name and s.state is not SessionState.CLOSED]
        if users:
            fate = "is not there any more" if stays is None else f"would be of another kind ({stays.kind})"
            raise UsageError(
                f"cannot {what}, because backend {backend.name!r} {fate} and {_users(users)}; nothing has changed",
                kind="session_busy",
                hint=f"close what uses it (clisup close), or give the new one another name than {backend.name!r}",
                key=f"backends.{backend.name}",
                sessions=users[:NAMED],
            )


def _users(ids: list[str]) -> str:
    count = "1 open session uses it" if len(ids) == 1 else f"{len(ids)} open sessions use it"
    return f"{count}: {', '.join(ids[:TOLD])}{', ...' if len(ids) > TOLD else ''}"


def _differences(daemon: Daemon, config: Config, backends: Backends) -> list[Change]:
    """As the files say it: lists of the same directory may have other rules."""
    found = changes(daemon.config, config)
    lists = "daemon.scrub_lists"
    if backends.rules_differ(daemon.backends) and not any(change.key == lists for change in found):
        found.append(Change(lists, "changed", "next_turn"))
    return found


def _take_up(daemon: Daemon, config: Config, backends: Backends) -> None:
    """All at once: nothing in here awaits."""
    traces_anew = config.tracing != daemon.config.tracing
    daemon.config, daemon.configured_at = config, clock.timestamp()
    daemon.backends.take(backends)
    hide_secrets(daemon.backends)
    LOG.set_level(config.daemon.log_level)
    daemon.manager.renew(config)
    daemon.server.renew(config.daemon)
    daemon.retention.renew(config.daemon.retention)
    if traces_anew:
        daemon.trace()
