"""Handlers of the `approval/...` methods."""

from __future__ import annotations

import json
from typing import Any

from clisup.backends.base import ApprovalAnswer
from clisup.daemon.clients.connection import Connection, Handlers
from clisup.daemon.sessions.registry import Manager
from clisup.wire.params import ApprovalListParams, RespondParams
from clisup.wire.results import RespondResult

__all__ = ["ApprovalHandlers"]


class ApprovalHandlers:
    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    def table(self) -> Handlers:
        return {"approval/list": self.list, "approval/respond": self.respond}

    async def list(self, connection: Connection, params: ApprovalListParams) -> bytes:
        chosen = [self._manager.get(params.session_id)] if params.session_id else [*self._manager]
        found: list[dict[str, Any]] = []
        for session in chosen:
            if session.approvals.open:
                await connection.share.wait_for_piece()
                found += session.approvals.describe()
        found.sort(key=lambda approval: str(approval["requested_at"]))
        return json.dumps({"approvals": found}).encode()

    async def respond(self, connection: Connection, params: RespondParams) -> bytes:
        session = self._manager.with_approval(params.approval_id, params.session_id)
        answer = ApprovalAnswer(
            params.decision, params.message, params.updated_input, params.remember, option=params.option
        )
        await session.approvals.respond(params.approval_id, answer, connection.actor)
        return RespondResult(approval_id=params.approval_id, session_id=session.id, decision=params.decision).to_json()
