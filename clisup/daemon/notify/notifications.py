"""All targets of `[[notify]]`: started, replaced and ended as the configuration says."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import trio

from clisup.config.model import NotifyConfig
from clisup.errors import ClisupError, UsageError
from clisup.host import clock
from clisup.host.log import LOG, event_logger
from clisup.model.structs import JsonObject
from clisup.policy.notify import sample
from clisup.policy.secrets.redact import Redactor
from clisup.store.cursor_store import CursorFile, begin_after

if TYPE_CHECKING:
    from clisup.daemon.notify.target import NotifyTarget
    from clisup.daemon.sessions.registry import Manager

__all__ = ["Notifications"]

PREFIX = "notify~"
"""Begin of the names of the targets' cursors. No client can use such a name."""
_log = event_logger()


class Notifications:
    """Targets by name. `env` is the daemon's environment; `nursery` runs the targets."""

    def __init__(self, manager: Manager, env: Mapping[str, str], socket: str, nursery: trio.Nursery) -> None:
        self._manager = manager
        self._env = env
        self._socket = socket
        self._nursery = nursery
        self._targets: dict[str, NotifyTarget] = {}

    def apply(self, tables: Sequence[NotifyConfig]) -> None:
        """Start new targets, replace changed ones, and end the others. A failure goes to the log, and turns continue."""
        LOG.hide("[[notify]]", Redactor(secret for table in tables for secret in _secrets(table)))
        wanted = {table.label: table for table in tables}
        for name, target in list(self._targets.items()):
            if wanted.get(name) != target.config:
                self._manager.services.at_notices.discard(target)
                target.end()
                del self._targets[name]
        self._forget_others(wanted)
        for name, table in wanted.items():
            if name not in self._targets:
                try:
                    self._open(table)
                except ClisupError as error:
                    _log.error("no messages", notify=name, error=error.message)

    def _forget_others(self, wanted: Mapping[str, NotifyConfig]) -> None:
        for name in self._manager.cursors.names():
            if name.startswith(PREFIX) and name.removeprefix(PREFIX) not in wanted:
                try:
                    self._manager.cursors.forget(name)
                except ClisupError as error:
                    _log.error("no messages", notify=name.removeprefix(PREFIX), error=error.message)

    def _open(self, table: NotifyConfig) -> None:
        """Begin at the stored cursor. A new target begins with the events from now on."""
        from clisup.daemon.notify.delivery import Delivery
        from clisup.daemon.notify.target import NotifyTarget

        manager = self._manager
        cursor = self._cursor(table.label)
        target = NotifyTarget(manager, table, cursor, Delivery(table, self._env, self._socket))
        self._targets[table.label] = target
        manager.services.at_notices.add(target)
        for session in manager:
            if cursor.seqs.get(session.id, 0) < session.recorder.next_seq - 1:
                target.notify(session.recorder)
        self._nursery.start_soon(target.run)

    def _cursor(self, label: str) -> CursorFile:
        """Return the durable cursor, as a subscription to all sessions has one."""
        cursors = self._manager.cursors
        cursor = cursors.get(PREFIX + label)
        ends = {session.id: session.recorder.next_seq - 1 for session in self._manager}
        stored, known = (None, False) if cursor is None else (cursor.seqs, cursor.all_known)
        begin = begin_after(ends, asked=None, stored=stored, all_known=known)
        cursor = cursor or cursors.make(PREFIX + label)
        cursor.begin({id_: seq for id_, seq in begin.items() if id_ not in cursor.seqs}, all_known=True)
        return cursor

    def describe(self) -> list[JsonObject]:
        """Return the rows of `notify/list` and `daemon/status`."""
        return [target.describe() for target in self._targets.values()]

    async def settle(self) -> None:
        """Wait until all targets are idle. The caller sets a limit."""
        for target in list(self._targets.values()):
            await target.settle()

    async def test(self, name: str | None) -> list[JsonObject]:
        """Send a test message to one target or to all, once each. Raises `UsageError` for an unknown name."""
        if name is not None and name not in self._targets:
            there = ", ".join(self._targets) or "none"
            raise UsageError(
                f"[[notify]] table {name!r} not found (there: {there})",
                hint="see clisup notify list; after a change of the file: clisup daemon reload",
                param="name",
            )
        chosen = [target for label, target in self._targets.items() if name in (None, label)]
        found: dict[str, JsonObject] = {}

        async def one(target: NotifyTarget) -> None:
            began = clock.monotonic()
            outcome = await target.delivery.attempt(sample(f"test_{uuid.uuid4()}", clock.timestamp()))
            found[target.config.label] = {
                "name": target.config.label,
                "target": target.config.target,
                "ok": outcome.ok,
                "detail": outcome.detail,
                "output": outcome.output,
                "duration_s": round(clock.monotonic() - began, 3),
            }

        async with trio.open_nursery() as nursery:
            for target in chosen:
                nursery.start_soon(one, target)
        return [found[target.config.label] for target in chosen]


def _secrets(table: NotifyConfig) -> list[str]:
    values = [table.url, table.secret, *table.headers.values()]
    return [value.get_secret_value() for value in values if value is not None]
