"""Handlers of the method table, one file a resource. A handler receives the connection and checked params, and returns JSON."""

from __future__ import annotations

from clisup.daemon.app import Daemon
from clisup.daemon.clients.connection import Handlers
from clisup.daemon.clients.handlers.accounts import AccountHandlers
from clisup.daemon.clients.handlers.approvals import ApprovalHandlers
from clisup.daemon.clients.handlers.backends import BackendHandlers
from clisup.daemon.clients.handlers.daemon import DaemonHandlers
from clisup.daemon.clients.handlers.events import EventHandlers
from clisup.daemon.clients.handlers.notify import NotifyHandlers
from clisup.daemon.clients.handlers.sessions import SessionHandlers
from clisup.daemon.clients.handlers.subscriptions import SubscriptionHandlers
from clisup.daemon.clients.handlers.tools import ToolHandlers
from clisup.daemon.clients.handlers.worktrees import WorktreeHandlers
from clisup.wire.methods import METHODS

__all__ = ["make_handlers"]


def make_handlers(daemon: Daemon) -> Handlers:
    """Return the handler of every method of the table. Raises `KeyError` for a method without a handler."""
    manager = daemon.manager
    table: Handlers = {
        **DaemonHandlers(daemon).table(),
        **AccountHandlers(manager).table(),
        **BackendHandlers(daemon).table(),
        **NotifyHandlers(daemon).table(),
        **SessionHandlers(manager).table(),
        **WorktreeHandlers(manager).table(),
        **ApprovalHandlers(manager).table(),
        **ToolHandlers(daemon).table(),
        **SubscriptionHandlers(manager).table(),
        **EventHandlers(manager).table(),
    }
    return {name: table[name] for name in METHODS}
