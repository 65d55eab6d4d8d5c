"""`daemon/reload`: read the configuration file again, and apply all of it or nothing.

Everything that can fail comes first: reading, checking, loading the scrub lists, the check for open sessions of a removed
backend. The change itself awaits nothing and cannot fail. `clisup.config.keys` says when each key takes effect.
"""

from __future__ import annotations

import re

import trio

from clisup.config.keys import Change, changes, kept_back
from clisup.config.model import Config
from clisup.daemon.app import Daemon
from clisup.daemon.backends import Backends, hide_secrets
from clisup.daemon.sessions.registry import Manager
from clisup.errors import UsageError, WorldError
from clisup.host import clock
from clisup.host.config_file import with_credentials
from clisup.host.log import LOG, event_logger
from clisup.host.otlp import check_installed
from clisup.host.threads import in_thread
from clisup.model.lifecycle import SessionState

__all__ = ["check_restart", "reload"]

READ_LIMIT_S = 30.0  # for the file and the scrub lists, on a disk that may hang
NAMED = 10  # sessions in an error's data
IN_MESSAGE = 3  # sessions in its message
# Keys that decide what a CLI may do, what is run for it, and which variables it gets.
_TRUST = re.compile(
    r"backends\.[^.]+\.(?:approvals\.|command$|args|env\b|env_files|pass_env|permission_mode)|daemon\.scrub_lists$|notify$"
)
_log = event_logger()


async def reload(daemon: Daemon, dry_run: bool) -> list[Change]:
    """Read the configuration file again, apply it, and return the changes. A `dry_run` only returns them.

    Raises `ConfigurationError`, and `WorldError(shutting_down)`. Raises `UsageError(session_busy)` if open sessions use
    a backend that would be removed or become another kind. Then nothing has changed.
    """
    async with daemon.reloading:
        _check_serving(daemon)
        config, backends = await _read(daemon)
        async with daemon.manager.opening.lock:  # no session of a removed backend is opened meanwhile
            _check_serving(daemon)
            _check_in_use(daemon.manager, config, "reload")
            found = _differences(daemon, config, backends)
            if not dry_run:
                _apply(daemon, kept_back(daemon.config, config), backends)
                _log_changes(daemon.config_file.path, found)
            return found


async def check_restart(daemon: Daemon) -> None:
    """Check that a daemon with the present configuration file could continue every open session.

    Raises `ConfigurationError`. Raises `UsageError(session_busy)` if a backend in use would be removed or become another
    kind.
    """
    config, _ = await _read(daemon)
    _check_in_use(daemon.manager, config, "restart")


def _log_changes(file: str, found: list[Change]) -> None:
    waits = [change.key for change in found if change.effect == "start"]
    changed = [change.key for change in found if change.effect != "start"]
    _log.info("configuration reloaded", file=file, changed=changed, needs_stop_and_start=waits or None)
    if trusted := [key for key in changed if _TRUST.match(key)]:
        _log.warning("trust changed", file=file, changed=trusted)


def _check_serving(daemon: Daemon) -> None:
    if daemon.state == "draining":
        raise WorldError(
            "the daemon is stopping, so it does not reload",
            kind="shutting_down",
            hint="the next daemon reads the configuration anyway",
        )


async def _read(daemon: Daemon) -> tuple[Config, Backends]:
    def read() -> tuple[Config, Backends]:
        reexec = daemon.reexec
        config = with_credentials(daemon.config_file.read(), reexec.credentials, reexec.env)
        check_installed(config.tracing)
        return config, Backends(config, reexec.env, before=daemon.backends)

    with trio.move_on_after(
        READ_LIMIT_S
    ):  # with a limiter of its own: a thread that hangs must not take one from a journal
        return await in_thread(read, abandon_on_cancel=True, limiter=daemon.reading)
    raise WorldError(
        f"{daemon.config_file.path} could not be read within {READ_LIMIT_S:g} s, so nothing was reloaded",
        kind="storage_failed",
        hint="check that disk; nothing has changed",
    )


def _check_in_use(manager: Manager, config: Config, what: str) -> None:
    """Refuse a configuration without a backend that an open session uses: a session never changes its backend."""
    for backend in manager.backends:
        stays = config.backends.get(backend.name)
        if stays is not None and stays.kind == backend.config.kind:
            continue
        users = [s.id for s in manager if s.spec.backend == backend.name and s.state is not SessionState.CLOSED]
        if users:
            fate = "would be removed" if stays is None else f"would become another kind ({stays.kind})"
            raise UsageError(
                f"cannot {what}: backend {backend.name!r} {fate}, and {_users(users)}; nothing has changed",
                kind="session_busy",
                hint=f"close these sessions (clisup close), or use another name than {backend.name!r} for the new backend",
                key=f"backends.{backend.name}",
                sessions=users[:NAMED],
            )


def _users(ids: list[str]) -> str:
    count = "1 open session uses it" if len(ids) == 1 else f"{len(ids)} open sessions use it"
    return f"{count}: {', '.join(ids[:IN_MESSAGE])}{', ...' if len(ids) > IN_MESSAGE else ''}"


def _differences(daemon: Daemon, config: Config, backends: Backends) -> list[Change]:
    """Return the changes. Scrub lists in the same directory may have other rules."""
    found = changes(daemon.config, config)
    lists = "daemon.scrub_lists"
    if backends.rules_differ(daemon.backends) and not any(change.key == lists for change in found):
        found.append(Change(lists, "changed", "next_turn"))
    return found


def _apply(daemon: Daemon, config: Config, backends: Backends) -> None:
    """Apply everything at once: nothing in here awaits."""
    traces_anew = config.tracing != daemon.config.tracing
    daemon.config, daemon.configured_at = config, clock.timestamp()
    daemon.backends.replace(backends)
    hide_secrets(daemon.backends)
    LOG.set_level(config.daemon.log_level)
    LOG.set_file_limit(config.daemon.max_log_bytes)
    daemon.manager.renew(config)
    daemon.server.configure(config.daemon)
    daemon.retention.renew(config.daemon.retention)
    if traces_anew:
        daemon.trace()
    daemon.notifications.apply(config.notify)
