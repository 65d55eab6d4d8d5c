"""Answers about the fleet at the agent's own socket: `fleet/boxes`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from clisup.errors import ClisupError, UsageError
from clisup.fleet.agent.json_server import JsonServer, introduction
from clisup.fleet.agent.settings import AgentSettings
from clisup.fleet.agent.table import Table
from clisup.fleet.engine import Engine

__all__ = ["FleetServer", "box_rows"]


class FleetServer:
    """Server at the agent's socket."""

    def __init__(
        self, settings: AgentSettings, table: Callable[[], Table | None], engine: Callable[[], Engine | None]
    ) -> None:
        self._settings, self._table, self._engine = settings, table, engine

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client."""
        await JsonServer({"initialize": self._initialize, "fleet/boxes": self._boxes}, _unknown).serve(reader, writer)

    async def _initialize(self, _params: dict[str, Any]) -> bytes:
        return introduction(self._settings.incarnation)

    async def _boxes(self, _params: dict[str, Any]) -> bytes:
        table, engine, member = self._table(), self._engine(), self._settings.member
        return json.dumps(
            {
                "fleet": member.fleet,
                "member": member.name,
                "engine": "connected" if engine is not None and engine.connected else "away",
                "boxes": box_rows(table) if table is not None else [],
            }
        ).encode()


def box_rows(table: Table) -> list[dict[str, Any]]:
    """Return a row for each member: its state, the age of its last beat in seconds, and what the beat said."""
    rows = []
    for member in table.members:
        heard, silence = table.box(member), table.silence_s(member)
        sessions = table.rows(member).values()
        row: dict[str, Any] = {
            "box": member,
            "state": table.state(member),
            "beat_s": None if silence is None else round(silence, 1),
            "sessions": sum(row.get("state") != "closed" for row in sessions),
            "copied": len(sessions),
            "approvals": sum(int(row.get("approvals") or 0) for row in sessions),
        }
        if heard is not None:
            beat = heard.beat
            row |= {
                "version": beat.version,
                "running": beat.running,
                "waiting": beat.waiting,
                "free": beat.free,
                "lag": beat.lag,
                "share": beat.share,
                "roles": beat.roles,
                "labels": beat.labels,
                "backends": beat.backends,
            }
        rows.append(row)
    return rows


def _unknown(method: str) -> ClisupError:
    return UsageError(f"the agent has no method {method[:64]!r}", kind="method_not_found", hint="ask a daemon's socket")
