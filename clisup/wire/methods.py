"""THE method table: each method's params, result, access class and doc line. The server, the docs and the tests read it."""

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
    """One method. `result` is None where the handler makes the JSON itself (large or free-form answers).

    Answers that are `large` are made one at a time for each connection, as the client takes them.
    """

    params: type[m.Params]
    result: type[m.Result] | None
    role: Role
    doc: str
    large: bool = False


# fmt: off
METHODS: dict[str, Method] = {
    "initialize": Method(m.InitializeParams, m.InitializeResult, "observe", "Say who you are; learn version, limits and backends. Optional."),
    "ping": Method(m.Empty, m.PingResult, "observe", "Is the daemon there? Answers with its time."),
    "rpc.discover": Method(m.Empty, None, "observe", "This protocol as an OpenRPC document: every method with its params, result and errors.", large=True),
    "daemon/status": Method(m.Empty, StatusResult, "observe", "Everything that `clisup status` shows.", large=True),
    "daemon/log": Method(d.LogParams, d.LogResult, "observe", "The last lines of the daemon's own log: names, numbers and reasons, no text of a CLI or a client.", large=True),
    "daemon/metrics": Method(d.MetricsParams, d.MetricsResult, "observe", "What the daemon counts, as Prometheus' text format or OpenMetrics: docs/metrics.md.", large=True),
    "daemon/shutdown": Method(d.ShutdownParams, m.Done, "admin", "Stop: drain (turns may end), detach (turns go on without the daemon) or kill."),
    "daemon/reload": Method(d.ReloadParams, d.ReloadResult, "admin", "Read the configuration file anew: all of it is taken up, or nothing and the error says why."),
    "daemon/restart": Method(m.Empty, m.RestartResult, "admin", "Start anew in place, with the code and configuration that are there now; turns go on."),
    "daemon/gc": Method(GcParams, GcResult, "admin", "Remove what is of no use any more, or say what that is: closed sessions, leftovers."),
    "backend/list": Method(m.Empty, None, "observe", "The configured backends, their versions, and why one is not available."),
    "backend/env": Method(m.BackendEnvParams, m.BackendEnvResult, "observe", "What a backend's environment keeps, drops and sets: names and rules, never values."),
    "backend/models": Method(m.BackendModelsParams, m.BackendModelsResult, "drive", "The models that an API backend's provider offers: asks the provider, no model."),
    "backend/check": Method(m.BackendCheckParams, None, "drive", "What `clisup doctor` finds: one backend or all, and the machine. Runs the CLIs, asks no model."),
    "session/new": Method(m.SessionNewParams, m.SessionNewResult, "drive", "Open a session. The same id with the same params gives the same session."),
    "session/list": Method(m.SessionListParams, m.SessionListResult, "observe", "Sessions by page, newest first."),
    "session/get": Method(m.SessionParams, m.SessionDetail, "observe", "One session with its timers and last events."),
    "session/prompt": Method(m.PromptParams, None, "drive", "Send a prompt. With `wait`, the answer comes at the end of the turn."),
    "session/compact": Method(m.CompactParams, None, "drive", "Have the CLI sum up its context: a turn like one of `session/prompt`."),
    "session/set_model": Method(m.SetModelParams, m.SetResult, "drive", "Change the model: of the live process at once, else from the next turn on."),
    "session/set_permission_mode": Method(m.SetPermissionModeParams, m.SetResult, "drive", "Change the permission mode, as `session/set_model` does the model."),
    "session/set_budget": Method(SetBudgetParams, SetBudgetResult, "drive", "Give the session another budget; what was used stays used."),
    "session/context_usage": Method(m.SessionParams, m.ContextUsageResult, "drive", "How full the context is, as the live process itself counts."),
    "session/interrupt": Method(m.InterruptParams, m.InterruptResult, "drive", "End the running turn, or take a queued one out of the queue."),
    "session/fork": Method(m.SessionForkParams, m.SessionForkResult, "drive", "Open a session with the history of another one, whole or up to a turn. The source is not touched."),
    "session/note": Method(NoteParams, NoteResult, "drive", "Write a notice of the client's own into the session's journal."),
    "approval/list": Method(m.ApprovalListParams, m.ApprovalListResult, "observe", "The tool calls that wait for a word, of one session or of all.", large=True),
    "approval/respond": Method(m.RespondParams, m.RespondResult, "drive", "Allow or deny a tool call that waits. The first answer wins."),
    "tool/serve": Method(t.ToolServeParams, t.ToolServeResult, "drive", "From now on this connection gets the calls of the session's tools, those that are open first."),
    "tool/result": Method(t.ToolResultParams, m.Done, "drive", "Answer a tool's call by a request, from any connection. The first answer wins."),
    "session/close": Method(m.SessionParams, m.Done, "drive", "Close a session; a running turn is interrupted first."),
    "session/delete": Method(m.SessionParams, m.Done, "drive", "Remove a closed session's record; the CLI's own transcript is not touched."),
    "session/subscribe": Method(m.SubscribeParams, m.SubscribeResult, "observe", "Receive events of a session or of all: stored ones, then live, each once and in order."),
    "session/unsubscribe": Method(m.UnsubscribeParams, m.Done, "observe", "End a subscription of this connection."),
    "session/ack": Method(m.AckParams, m.AckResult, "observe", "Move a named cursor on: what comes up to it is not given again."),
    "session/events": Method(m.EventsParams, None, "observe", "History by page.", large=True),
    "session/blob": Method(m.BlobParams, m.BlobResult, "observe", "A payload that was too large for its event, by page.", large=True),
    "bridge/hello": Method(t.BridgeHelloParams, t.BridgeHelloResult, "bridge", "For the MCP bridge of a session alone: its token for the session's tools."),
    "bridge/call": Method(t.BridgeCallParams, t.BridgeCallResult, "bridge", "For the MCP bridge alone: have a tool run by the client that serves the session. The same `call_id` is the same call."),
}
# fmt: on
