"""Method table: params, result, access class and doc line of each method. The server, the docs and the tests read this table."""

from __future__ import annotations

from typing import Literal, NamedTuple

from clisup.wire import daemon_models as d
from clisup.wire import models as m
from clisup.wire import tool_models as t
from clisup.wire.budget_models import SetBudgetParams, SetBudgetResult
from clisup.wire.gc_models import GcParams, GcResult
from clisup.wire.note_models import NoteParams, NoteResult
from clisup.wire.status_models import StatusResult

__all__ = ["METHODS", "PROTOCOL_VERSION", "Method", "Role"]

PROTOCOL_VERSION = 1
Role = Literal["observe", "drive", "admin", "bridge"]


class Method(NamedTuple):
    """Method of the protocol. `result` is None if the handler makes the JSON itself (large or free-form results).

    For each connection, the daemon makes one `large` result at a time, as fast as the client reads.
    """

    params: type[m.Params]
    result: type[m.Result] | None
    role: Role
    doc: str
    large: bool = False


# fmt: off
METHODS: dict[str, Method] = {
    "initialize": Method(m.InitializeParams, m.InitializeResult, "observe", "Introduce the client; get version, limits and backends. Optional."),
    "ping": Method(m.Empty, m.PingResult, "observe", "Check that the daemon answers. Returns its clock."),
    "rpc.discover": Method(m.Empty, None, "observe", "Return this protocol as an OpenRPC document: every method with its params, result and errors.", large=True),
    "daemon/status": Method(m.Empty, StatusResult, "observe", "Return everything that `clisup status` shows.", large=True),
    "daemon/log": Method(d.LogParams, d.LogResult, "observe", "Return the last lines of the daemon's own log: names, numbers and reasons, no text of a CLI or a client.", large=True),
    "daemon/metrics": Method(d.MetricsParams, d.MetricsResult, "observe", "Return the daemon's metrics in Prometheus' text format or OpenMetrics: docs/metrics.md.", large=True),
    "daemon/shutdown": Method(d.ShutdownParams, m.Done, "admin", "Stop the daemon: drain (wait for the turns), detach (turns go on without the daemon) or kill."),
    "daemon/reload": Method(d.ReloadParams, d.ReloadResult, "admin", "Reload the configuration file. The daemon applies all of it, or nothing and returns the error."),
    "daemon/restart": Method(m.Empty, m.RestartResult, "admin", "Restart in place with the installed code and the current configuration; turns go on."),
    "daemon/gc": Method(GcParams, GcResult, "admin", "Remove closed sessions and leftovers, or list them."),
    "backend/list": Method(m.Empty, None, "observe", "List the configured backends, their versions, and why a backend is not available."),
    "backend/env": Method(m.BackendEnvParams, m.BackendEnvResult, "observe", "Show the variables that a backend's environment keeps, drops and sets: names and rules, never values."),
    "backend/models": Method(m.BackendModelsParams, m.BackendModelsResult, "drive", "List the models that the provider of an API backend offers. Asks the provider, no model."),
    "backend/check": Method(m.BackendCheckParams, None, "drive", "Run the checks of `clisup doctor` for one backend or all, and for the machine. Runs the CLIs, asks no model."),
    "session/new": Method(m.SessionNewParams, m.SessionNewResult, "drive", "Open a session. The same id with the same params gives the same session."),
    "session/list": Method(m.SessionListParams, m.SessionListResult, "observe", "List sessions by page, newest first."),
    "session/get": Method(m.SessionParams, m.SessionDetail, "observe", "Return one session with its timers and last events."),
    "session/prompt": Method(m.PromptParams, None, "drive", "Send a prompt. With `wait`, the result arrives at the end of the turn."),
    "session/compact": Method(m.CompactParams, None, "drive", "Let the CLI compact its context: a turn like those of `session/prompt`."),
    "session/set_model": Method(m.SetModelParams, m.SetResult, "drive", "Change the model: at once in a live process, else from the next turn on."),
    "session/set_permission_mode": Method(m.SetPermissionModeParams, m.SetResult, "drive", "Change the permission mode, with the rules of `session/set_model`."),
    "session/set_budget": Method(SetBudgetParams, SetBudgetResult, "drive", "Replace the budget of a session. What the session has used stays counted."),
    "session/context_usage": Method(m.SessionParams, m.ContextUsageResult, "drive", "Return the use of the context window, as the live process counts it."),
    "session/interrupt": Method(m.InterruptParams, m.InterruptResult, "drive", "End the running turn, or remove a queued turn from the queue."),
    "session/fork": Method(m.SessionForkParams, m.SessionForkResult, "drive", "Open a session with the history of another one, whole or up to a turn. The source does not change."),
    "session/note": Method(NoteParams, NoteResult, "drive", "Write a notice of the client into the session's journal."),
    "approval/list": Method(m.ApprovalListParams, m.ApprovalListResult, "observe", "List the pending approvals of one session or of all.", large=True),
    "approval/respond": Method(m.RespondParams, m.RespondResult, "drive", "Allow or deny a tool call that waits for approval. The first answer wins."),
    "tool/serve": Method(t.ToolServeParams, t.ToolServeResult, "drive", "Serve the session's tools on this connection: the daemon sends open calls first, then new ones."),
    "tool/result": Method(t.ToolResultParams, m.Done, "drive", "Answer a tool call by a request, from any connection. The first answer wins."),
    "session/close": Method(m.SessionParams, m.Done, "drive", "Close a session. The daemon interrupts a running turn first."),
    "session/delete": Method(m.SessionParams, m.Done, "drive", "Remove the record of a closed session. The CLI's own transcript stays."),
    "session/subscribe": Method(m.SubscribeParams, m.SubscribeResult, "observe", "Receive events of one session or of all: stored events, then live ones, each once and in order."),
    "session/unsubscribe": Method(m.UnsubscribeParams, m.Done, "observe", "End a subscription of this connection."),
    "session/ack": Method(m.AckParams, m.AckResult, "observe", "Move a named cursor forward: the daemon does not send events up to it again."),
    "session/events": Method(m.EventsParams, None, "observe", "Return stored events by page.", large=True),
    "session/blob": Method(m.BlobParams, m.BlobResult, "observe", "Return a payload that was too large for its event, by page.", large=True),
    "bridge/hello": Method(t.BridgeHelloParams, t.BridgeHelloResult, "bridge", "For the MCP bridge of a session only: exchange its token for the session's tools."),
    "bridge/call": Method(t.BridgeCallParams, t.BridgeCallResult, "bridge", "For the MCP bridge only: let the client that serves the session run a tool. The same `call_id` is the same call."),
}
# fmt: on
