"""Handlers of `initialize`, `ping`, `rpc.discover` and the `daemon/...` methods."""

from __future__ import annotations

from importlib import import_module

import trio

from clisup.daemon.app import Daemon
from clisup.daemon.clients.connection import Connection, Handlers
from clisup.daemon.ops.cleanup import Clearing
from clisup.errors import UsageError
from clisup.host import clock
from clisup.host.log import LOG
from clisup.host.threads import in_thread
from clisup.wire.methods import METHODS, PROTOCOL_VERSION
from clisup.wire.params import (
    Empty,
    GcParams,
    InitializeParams,
    LogParams,
    MetricsParams,
    ReloadParams,
    ShutdownParams,
)
from clisup.wire.results import (
    ChangedKey,
    Done,
    InitializeResult,
    LogResult,
    MetricsResult,
    PingResult,
    ReloadResult,
    RestartResult,
)

__all__ = ["DaemonHandlers"]

_REPORTED_LIMITS = ("max_frame_bytes", "max_frame_values", "max_requests", "max_images", "max_image_bytes")


class DaemonHandlers:
    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._openrpc: bytes | None = None

    def table(self) -> Handlers:
        return {
            "initialize": self.initialize,
            "ping": self.ping,
            "rpc.discover": self.discover,
            "daemon/status": self.status,
            "daemon/log": self.log,
            "daemon/metrics": self.metrics,
            "daemon/shutdown": self.shutdown,
            "daemon/reload": self.reload,
            "daemon/restart": self.restart,
            "daemon/gc": self.gc,
        }

    async def initialize(self, connection: Connection, params: InitializeParams) -> bytes:
        if params.protocol_version not in (None, PROTOCOL_VERSION):
            raise UsageError(
                f"unsupported protocol version {params.protocol_version}",
                kind="unsupported",
                hint=f"this daemon speaks version {PROTOCOL_VERSION}",
            )
        if params.client is not None:
            connection.name = params.client.name
        limits = self._daemon.config.daemon
        return InitializeResult(
            protocol_version=PROTOCOL_VERSION,
            server=self._daemon.identity(),
            limits={name: getattr(limits, name) for name in _REPORTED_LIMITS},
            backends=self._daemon.backends.names(),
        ).to_json()

    async def ping(self, connection: Connection, params: Empty) -> bytes:
        return PingResult(time=clock.timestamp()).to_json()

    async def discover(self, connection: Connection, params: Empty) -> bytes:
        if self._openrpc is None:
            from clisup.wire.openrpc import document, models_of  # loaded with the first request only

            for model in models_of(METHODS):
                model.model_rebuild()  # not in the thread: a request may build the same model at that moment
                await trio.lowlevel.checkpoint()
            self._openrpc = await in_thread(document, METHODS, PROTOCOL_VERSION)  # 0.2 s
        return self._openrpc

    async def status(self, connection: Connection, params: Empty) -> bytes:
        return await self._daemon.status(connection.share.wait_for_piece)

    async def log(self, connection: Connection, params: LogParams) -> bytes:
        lines = [line for line in LOG.recent() if params.session_id in (None, line.get("session"))]
        dropped = LOG.outlet.dropped if LOG.outlet is not None else 0
        return LogResult(lines=lines[-params.limit :], dropped=dropped, held_back=dict(LOG.rate.held)).to_json()

    async def metrics(self, connection: Connection, params: MetricsParams) -> bytes:
        await in_thread(import_module, "clisup.daemon.ops.exposition")  # the first import is slow
        from clisup.daemon.ops.exposition import CONTENT_TYPES, exposition_of

        await connection.share.wait_for_piece()  # the text takes ten milliseconds
        text = exposition_of(self._daemon, params.format)
        return MetricsResult(text=text, content_type=CONTENT_TYPES[params.format]).to_json()

    async def shutdown(self, connection: Connection, params: ShutdownParams) -> bytes:
        peer = connection.peer
        self._daemon.stop(params.mode, why=f"a client asked for it (uid {peer.uid}, pid {peer.pid})")
        return Done().to_json()

    async def reload(self, connection: Connection, params: ReloadParams) -> bytes:
        with trio.CancelScope(shield=True):
            found = await self._daemon.reload(dry_run=params.dry_run)
        changed = [ChangedKey.model_validate(change._asdict()) for change in found]
        return ReloadResult(file=self._daemon.config_file.path, changed=changed).to_json()

    async def restart(self, connection: Connection, params: Empty) -> bytes:
        running = sum(session.ledger.current is not None for session in self._daemon.manager)
        await self._daemon.restart()
        return RestartResult(running=running, instance_id=self._daemon.instance_id).to_json()

    async def gc(self, connection: Connection, params: GcParams) -> bytes:
        clearing = Clearing(self._daemon.manager, self._daemon.retention, self._daemon.socket_path)
        return (await clearing.run(params)).to_json()
