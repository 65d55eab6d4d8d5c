"""Method table: params, result, access class and doc line of each method. The server, the docs and the tests read this table."""

from __future__ import annotations

from typing import Literal, NamedTuple

from clisup.wire import params as p
from clisup.wire import results as r
from clisup.wire.status import StatusResult

PROTOCOL_VERSION = 1
Role = Literal["observe", "drive", "admin", "bridge"]


class Method(NamedTuple):
    """Method of the protocol. `result` is None if the handler makes the JSON itself (large or free-form results).

    For each connection, the daemon makes one `large` result at a time, as fast as the client reads.
    """

    params: type[p.Params]
    result: type[r.Result] | None
    role: Role
    doc: str
    large: bool = False


# fmt: off
METHODS: dict[str, Method] = {
    "initialize": Method(p.InitializeParams, r.InitializeResult, "observe", "Introduce the client; get version, limits and backends. Optional."),
    "ping": Method(p.Empty, r.PingResult, "observe", "Check that the daemon answers. Returns its clock."),
    "rpc.discover": Method(p.Empty, None, "observe", "Return this protocol as an OpenRPC document: every method with its params, result and errors.", large=True),
    "daemon/status": Method(p.Empty, StatusResult, "observe", "Return everything that `clisup status` shows.", large=True),
    "daemon/log": Method(p.LogParams, r.LogResult, "observe", "Return the last lines of the daemon's own log: names, numbers and reasons, no text of a CLI or a client.", large=True),
    "daemon/metrics": Method(p.MetricsParams, r.MetricsResult, "observe", "Return the daemon's metrics in Prometheus' text format or OpenMetrics: docs/reference/observe.md.", large=True),
    "daemon/shutdown": Method(p.ShutdownParams, r.Done, "admin", "Stop the daemon: drain (wait for the turns), detach (turns go on without the daemon) or kill."),
    "daemon/reload": Method(p.ReloadParams, r.ReloadResult, "admin", "Reload the configuration file. The daemon applies all of it, or nothing and returns the error."),
    "daemon/restart": Method(p.Empty, r.RestartResult, "admin", "Restart in place with the installed code and the current configuration; turns go on."),
    "daemon/gc": Method(p.GcParams, r.GcResult, "admin", "Remove closed sessions and leftovers, or list them."),
    "notify/list": Method(p.Empty, r.NotifyListResult, "observe", "List the targets of [[notify]] with their state and counts."),
    "notify/test": Method(p.NotifyTestParams, r.NotifyTestResult, "drive", "Send a test message to one target of [[notify]] or to all, and return what came back."),
    "account/list": Method(p.Empty, r.AccountListResult, "observe", "List the accounts that the configuration names, with their rate limits and waiting sessions."),
    "account/report": Method(p.AccountReportParams, r.Done, "drive", "For the fleet's agent: report a rate limit that another box has learned, and who tries first after its end."),
    "backend/list": Method(p.Empty, None, "observe", "List the configured backends, their versions, and why a backend is not available."),
    "backend/env": Method(p.BackendEnvParams, r.BackendEnvResult, "observe", "Show the variables that a backend's environment keeps, drops and sets: names and rules, never values."),
    "backend/models": Method(p.BackendModelsParams, r.BackendModelsResult, "drive", "List the models that the provider of an API backend offers. Asks the provider, no model."),
    "backend/check": Method(p.BackendCheckParams, None, "drive", "Run the checks of `clisup doctor` for one backend or all, and for the machine. Runs the CLIs, asks no model."),
    "backend/sessions": Method(p.BackendSessionsParams, r.BackendSessionsResult, "observe", "List the sessions that the CLIs keep of a directory, by their own transcripts, newest first.", large=True),
    "session/new": Method(p.SessionNewParams, r.SessionNewResult, "drive", "Open a session. The same id with the same params gives the same session."),
    "session/list": Method(p.SessionListParams, r.SessionListResult, "observe", "List sessions by page, newest first."),
    "session/get": Method(p.SessionParams, r.SessionDetail, "observe", "Return one session with its timers and last events."),
    "session/prompt": Method(p.PromptParams, None, "drive", "Send a prompt. With `wait`, the result arrives at the end of the turn."),
    "session/compact": Method(p.CompactParams, None, "drive", "Let the CLI compact its context: a turn like those of `session/prompt`."),
    "session/set_model": Method(p.SetModelParams, r.SetResult, "drive", "Change the model: at once in a live process, else from the next turn on."),
    "session/set_permission_mode": Method(p.SetPermissionModeParams, r.SetResult, "drive", "Change the permission mode, with the rules of `session/set_model`."),
    "session/set_title": Method(p.SetTitleParams, r.Done, "drive", "Change the title of a session, which people see in lists."),
    "session/set_budget": Method(p.SetBudgetParams, r.SetBudgetResult, "drive", "Replace the budget of a session. What the session has used stays counted."),
    "session/context_usage": Method(p.SessionParams, r.ContextUsageResult, "drive", "Return the use of the context window, as the live process counts it."),
    "session/interrupt": Method(p.InterruptParams, r.InterruptResult, "drive", "End the running turn, or remove a queued turn from the queue."),
    "session/fork": Method(p.SessionForkParams, r.SessionForkResult, "drive", "Open a session with the history of another one, whole or up to a turn. The source does not change."),
    "session/note": Method(p.NoteParams, r.NoteResult, "drive", "Write a notice of the client into the session's journal."),
    "approval/list": Method(p.ApprovalListParams, r.ApprovalListResult, "observe", "List the pending approvals of one session or of all.", large=True),
    "approval/respond": Method(p.RespondParams, r.RespondResult, "drive", "Allow or deny a tool call that waits for approval. The first answer wins."),
    "tool/serve": Method(p.ToolServeParams, r.ToolServeResult, "drive", "Serve the session's tools on this connection: the daemon sends open calls first, then new ones."),
    "tool/result": Method(p.ToolResultParams, r.Done, "drive", "Answer a tool call by a request, from any connection. The first answer wins."),
    "session/diff": Method(p.DiffParams, r.DiffResult, "observe", "Return what a session changed in its git worktree.", large=True),
    "session/land": Method(p.LandParams, r.LandResult, "drive", "Fast-forward the branch that was checked out at the start to the commit of the session's worktree."),
    "session/discard": Method(p.SessionParams, r.DiscardResult, "drive", "Close a session, and remove its git worktree and branch with all work in them."),
    "session/close": Method(p.SessionParams, r.CloseResult, "drive", "Close a session. The daemon interrupts a running turn first."),
    "session/delete": Method(p.SessionParams, r.Done, "drive", "Remove the record of a closed session. The CLI's own transcript stays."),
    "session/subscribe": Method(p.SubscribeParams, r.SubscribeResult, "observe", "Receive events of one session or of all: stored events, then live ones, each once and in order."),
    "session/unsubscribe": Method(p.UnsubscribeParams, r.Done, "observe", "End a subscription of this connection."),
    "session/ack": Method(p.AckParams, r.AckResult, "observe", "Move a named cursor forward: the daemon does not send events up to it again."),
    "session/events": Method(p.EventsParams, None, "observe", "Return stored events by page.", large=True),
    "session/blob": Method(p.BlobParams, r.BlobResult, "observe", "Return a payload that was too large for its event, by page.", large=True),
    "bridge/hello": Method(p.BridgeHelloParams, r.BridgeHelloResult, "bridge", "For the MCP bridge of a session only: exchange its token for the session's tools."),
    "bridge/call": Method(p.BridgeCallParams, r.BridgeCallResult, "bridge", "For the MCP bridge only: let the client that serves the session run a tool. The same `call_id` is the same call."),
}
# fmt: on
