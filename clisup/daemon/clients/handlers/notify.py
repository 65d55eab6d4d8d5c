"""Handlers of the `notify/...` methods."""

from __future__ import annotations

from clisup.daemon.app import Daemon
from clisup.daemon.clients.connection import Connection, Handlers
from clisup.wire.params import Empty, NotifyTestParams
from clisup.wire.results import NotifyListResult, NotifyRow, NotifyTest, NotifyTestResult

__all__ = ["NotifyHandlers"]


class NotifyHandlers:
    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def table(self) -> Handlers:
        return {"notify/list": self.list, "notify/test": self.test}

    async def list(self, connection: Connection, params: Empty) -> bytes:
        rows = self._daemon.notifications.describe()
        return NotifyListResult(targets=[NotifyRow.model_validate(row) for row in rows]).to_json()

    async def test(self, connection: Connection, params: NotifyTestParams) -> bytes:
        found = await self._daemon.notifications.test(params.name)
        return NotifyTestResult(results=[NotifyTest.model_validate(row) for row in found]).to_json()
