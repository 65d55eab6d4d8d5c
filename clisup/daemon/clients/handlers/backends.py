"""Handlers of the `backend/...` methods."""

from __future__ import annotations

import json

from msgspec.structs import asdict

from clisup.daemon.app import Daemon
from clisup.daemon.clients.connection import Connection, Handlers
from clisup.daemon.sessions.native_sessions import native_sessions
from clisup.errors import UsageError
from clisup.policy.environment.scrub import held_back
from clisup.wire.params import (
    BackendCheckParams,
    BackendEnvParams,
    BackendModelsParams,
    BackendSessionsParams,
    Empty,
)
from clisup.wire.results import BackendEnvResult, BackendModelsResult, CheckedList, NameRule

__all__ = ["BackendHandlers"]


class BackendHandlers:
    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def table(self) -> Handlers:
        return {
            "backend/list": self.list,
            "backend/env": self.env,
            "backend/models": self.models,
            "backend/check": self.check,
            "backend/sessions": self.sessions,
        }

    async def list(self, connection: Connection, params: Empty) -> bytes:
        return json.dumps(await self._daemon.backends.describe()).encode()

    async def env(self, connection: Connection, params: BackendEnvParams) -> bytes:
        backend = self._daemon.backends.get(params.name)
        own = backend.own_launch()
        _, report = backend.environment(request_env=params.env, sets=own.env, closed=own.closed_env, markers={})
        groups = {
            name: [NameRule(name=n, rule=r) for n, r in getattr(report, name)] for name in ("kept", "dropped", "set")
        }
        held = held_back(report, backend.rules.pairs, backend.adapter.login_keys, backend.adapter.login_places)
        lists = [CheckedList(list=s.list_name, source=s.source, date=s.date) for s in backend.rules.stamps]
        keys = backend.adapter.login_keys
        if keys is None:
            keys = tuple(dict.fromkeys(key for pair in backend.rules.pairs for key in pair.credentials))
        return BackendEnvResult(**groups, lists=lists, held_back=held, keys=list(keys)).to_json()

    async def models(self, connection: Connection, params: BackendModelsParams) -> bytes:
        return BackendModelsResult(models=await self._daemon.backends.get(params.name).models()).to_json()

    async def check(self, connection: Connection, params: BackendCheckParams) -> bytes:
        found = await self._daemon.diagnose(params.name, params.cwd)
        return json.dumps([asdict(finding) for finding in found]).encode()

    async def sessions(self, connection: Connection, params: BackendSessionsParams) -> bytes:
        backends, manager = self._daemon.backends, self._daemon.manager
        asked = list(backends) if params.backend is None else [backends.get(params.backend)]
        if params.backend is not None and asked[0].adapter.native_sessions is None:
            raise UsageError(
                f"the sessions of backend {params.backend!r} cannot be listed ({asked[0].adapter.kind} has no such feature)",
                kind="unsupported",
                hint="name a backend of claude or codex, or none",
                param="backend",
            )
        owners = {session.context.native_id: session.id for session in manager}
        found = await native_sessions(manager.services, asked, params.cwd, owners, params.limit)
        return found.to_json()
