"""Table of every key of the configuration: when a change takes effect in a running daemon, and a short description.

The reload, the JSON Schema and docs/configuration.md read this table, and a test compares it with the model. Pure. A
`*` stands for the name of a backend or the pattern of a price, `[]` for each table of a list.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

__all__ = ["EFFECTS", "KEYS", "Effect", "Key", "key_of", "parts_of", "quoted"]

Effect = Literal["at_once", "next_turn", "next_connection", "start"]

EFFECTS: dict[Effect, str] = {
    "at_once": "at once",
    "next_turn": "next turn",
    "next_connection": "next connection",
    "start": "stop and start",
}
"""Effects in words. `next_turn` applies to turns that begin from now on. A running turn ends as it began, and a live
process that was started with another value is replaced before the next turn. `start` needs a stop and a start. A
restart in place is not enough, because it keeps the socket and the state directory."""


class Key(NamedTuple):
    """Key: when a change takes effect, and a description."""

    effect: Effect
    text: str


# fmt: off
KEYS: dict[str, Key] = {
    "daemon.socket": Key("start", "where clients connect, at most 107 bytes; empty: the default place"),
    "daemon.state_dir": Key("start", "where sessions are kept, on a local file system (POSIX locks); empty: the default place"),
    "daemon.scrub_lists": Key("next_turn", "a directory with your own scrub lists (docs/environment.md)"),
    "daemon.max_sessions": Key("at_once", "open sessions"),
    "daemon.max_running": Key("at_once", (
        "turns at once; 0: as many as memory allows at 300 MB each. The rest waits, visibly"
    )),
    "daemon.max_live": Key("at_once", (
        "processes of live sessions; over it the one that has rested longest goes. 0: none outlives its turn"
    )),
    "daemon.max_cursors": Key("at_once", "durable cursors (session/subscribe with a name)"),
    "daemon.max_queue": Key("at_once", "prompts that wait in one session"),
    "daemon.max_frame_bytes": Key("next_connection", "of a client's frame; a longer one ends that connection"),
    "daemon.max_frame_values": Key("next_connection", (
        "JSON values in it, a list or an object counted twice; one with more is refused unread: it would hold up everybody"
    )),
    "daemon.max_images": Key("at_once", "in one prompt; all of them have to fit into a frame"),
    "daemon.max_image_bytes": Key("at_once", "of one image, its file; one over it is refused (invalid_params)"),
    "daemon.max_connections": Key("at_once", "of one user; one more is refused as overloaded"),
    "daemon.max_requests": Key("next_connection", "running requests of one connection; beyond that it is not read"),
    "daemon.frame_deadline_s": Key("next_connection", "for the rest of a frame that has begun; 0: none"),
    "daemon.request_burst": Key("at_once", (
        "requests of a connection that go before those of greedier ones (docs/protocol.md, \"Fair shares\")"
    )),
    "daemon.request_rate": Key("at_once", "a second: how fast it gets them back while it asks for nothing"),
    "daemon.request_wait_s": Key("at_once", (
        "a request of a greedy connection that waits longer is refused as overloaded"
    )),
    "daemon.max_held_bytes": Key("at_once", (
        "half frames and unread answers of all clients together; over it the worst holder is disconnected"
    )),
    "daemon.tool_timeout_s": Key("at_once", (
        "for a call of a tool that a client serves and that names no time of its own; then the model gets an error"
    )),
    "daemon.tool_wait_s": Key("at_once", "so long a call waits for a client that serves the session's tools; then the same"),
    "daemon.segment_bytes": Key("at_once", "of one journal file"),
    "daemon.fsync": Key("at_once", (
        "\"turn\": accepted prompts and ended turns survive a power loss; \"none\": they survive a crash of "
        "the daemon (docs/operations.md)"
    )),
    "daemon.on_stop": Key("at_once", (
        "what SIGTERM does: \"drain\", \"detach\" (turns go on) or \"kill\"; a restart by systemd detaches"
    )),
    "daemon.drain_s": Key("at_once", "how long a drain waits for running turns"),
    "daemon.lease_s": Key("next_turn", "a CLI whose daemon does not come back for so long is ended by its keeper"),
    "daemon.limit_hold_s": Key("at_once", (
        "how long at most a turn waits for the end of its account's rate limit (8 days); 0: none waits"
    )),
    "daemon.log_level": Key("at_once", "debug, info, warning, error"),
    "daemon.retention.days": Key("at_once", (
        "journal segments whose last event is older are removed, with the spools of the runs that ended in "
        "them; a closed session goes whole. 0: never"
    )),
    "daemon.retention.bytes": Key("at_once", (
        "of all sessions together; above it the oldest go first, whatever their age. 0: no limit"
    )),
    "daemon.retention.keys": Key("at_once", "prompt keys remembered in one session"),
    "daemon.retention.every_s": Key("at_once", "how often that is looked at"),
    "backends.*.kind": Key("next_turn", (
        "which adapter (docs/backends.md); defaults to the name. Of a backend with open sessions it cannot "
        "change"
    )),
    "backends.*.command": Key("next_turn", (
        "argv prefix, found on the daemon's PATH; the kind `acp` has none of its own"
    )),
    "backends.*.mode": Key("next_turn", (
        "\"one-shot\": a process for each turn (of `codex` it makes `codex-exec`); \"live\": one for many "
        "(docs/live-sessions.md; kinds claude, demo and the API kinds, an error for others); \"auto\": live for the API kinds, else "
        "one-shot. What `session/new` says goes before it"
    )),
    "backends.*.model": Key("next_turn", "the model of sessions that name none; empty: the CLI's own default"),
    "backends.*.base_url": Key("next_turn", "address of the API (API kinds only); empty: the vendor's own"),
    "backends.*.key_env": Key("next_turn", (
        "the variable with the API's key, let through to this backend alone; a preset's own name where base_url is its own"
    )),
    "backends.*.dialect": Key("next_turn", "\"responses\" or \"chat\": which of OpenAI's two APIs the server speaks"),
    "backends.*.max_tokens": Key("next_turn", "tokens of one answer; 0: 32,000 for anthropic-api, the API's own limit for others"),
    "backends.*.thinking": Key("next_turn", "\"adaptive\", \"off\", or a number of tokens from 1000 on (anthropic-api)"),
    "backends.*.effort": Key("next_turn", "how hard the model thinks: \"low\", \"medium\", \"high\", as the API has it"),
    "backends.*.versions": Key("next_turn", (
        "a range such as \">=2.1.197,<3\"; outside of it the backend is refused. Empty: the adapter's own"
    )),
    "backends.*.args": Key("next_turn", "appended to the CLI's arguments"),
    "backends.*.pass_env": Key("next_turn", "names (or PREFIX_*) let through on purpose"),
    "backends.*.request_env": Key("next_turn", "names that a client's request may set"),
    "backends.*.env": Key("next_turn", "set on purpose, after the scrub: { ANTHROPIC_API_KEY = \"...\" }"),
    "backends.*.env_files": Key("next_turn", (
        "as env, with values from elsewhere: { NAME = \"~/file\" } (0600) or { NAME = \"credential:...\" } (docs/systemd.md)"
    )),
    "backends.*.setting_sources": Key("next_turn", (
        "a repository's own settings, hooks and MCP servers are taken only where \"project\" is named too"
    )),
    "backends.*.orphans": Key("next_turn", (
        "what outlives the CLI: \"grace\" (background work that it announced may finish within its budget, the "
        "rest is killed), \"kill\" or \"keep\""
    )),
    "backends.*.timeouts.startup": Key("next_turn", "to the first frame"),
    "backends.*.timeouts.model_idle": Key("next_turn", "without a byte while the model is to answer"),
    "backends.*.timeouts.tool_idle": Key("next_turn", "without a byte while a tool runs"),
    "backends.*.timeouts.approval": Key("next_turn", "nobody answers an approval; the turn then ends as timed_out"),
    "backends.*.timeouts.background": Key("next_turn", "silence of background work after the answer"),
    "backends.*.timeouts.linger": Key("next_turn", "between the last frame and the exit"),
    "backends.*.timeouts.turn": Key("next_turn", "the whole turn"),
    "backends.*.timeouts.int_grace": Key("next_turn", "between SIGINT and SIGTERM"),
    "backends.*.timeouts.term_grace": Key("next_turn", "between SIGTERM and SIGKILL"),
    "backends.*.approvals.unattended": Key("next_turn", (
        "where nobody follows the session: \"wait\" without limit, or \"deny\""
    )),
    "backends.*.approvals.unattended_after_s": Key("next_turn", "after so long without anybody"),
    "backends.*.approvals.rules": Key("next_turn", "[[backends.NAME.approvals.rules]] tables, at most 256"),
    "backends.*.approvals.rules[].tool": Key("next_turn", "a pattern of the tool's name"),
    "backends.*.approvals.rules[].decision": Key("next_turn", "allow, deny or ask"),
    "backends.*.approvals.rules[].path": Key("next_turn", "a pattern that the paths of the tool's input must match"),
    "backends.*.approvals.rules[].command": Key("next_turn", (
        "a pattern that the command in the tool's input must match"
    )),
    "backends.*.approvals.rules[].shell": Key("next_turn", "an allow for a command holds although it has shell syntax"),
    "backends.*.approvals.rules[].name": Key("next_turn", "what `approval_resolved` calls the rule"),
    "backends.*.live.idle_s": Key("at_once", "after so long without a turn"),
    "backends.*.live.spool_bytes": Key("at_once", (
        "after so many bytes of stdout, which lie in one spool; the next turn gets a new process"
    )),
    "backends.*.limits.spool_bytes": Key("next_turn", "of one run's stdout; over it the turn ends as output_limit"),
    "backends.*.limits.stderr_bytes": Key("next_turn", "kept of stderr: its head and its tail"),
    "backends.*.limits.stderr_events": Key("next_turn", "lines of stderr that become events in one turn"),
    "backends.*.limits.open_approvals": Key("next_turn", (
        "questions of a CLI that wait for an answer at once; over it the turn ends as resource_limit"
    )),
    "backends.*.limits.unparsed_events": Key("next_turn", (
        "lines of stdout that are no events of ours and have an `unparsed` each in one turn; beyond it those in a row share one"
    )),
    "backends.*.limits.line_values": Key("next_turn", (
        "JSON values in one line, a list or an object counted twice; one with more becomes `unparsed: oversize`, unread"
    )),
    "backends.*.limits.line_bytes": Key("next_turn", (
        "of one line; a longer one becomes `unparsed: oversize`, and stays in the spool"
    )),
    "backends.*.limits.inline_bytes": Key("next_turn", "of a payload inside an event; more goes to a blob"),
    "backends.*.limits.memory": Key("next_turn", (
        "of the CLI and its tools together; looked at every second, over it the turn ends as resource_limit"
    )),
    "backends.*.limits.pids": Key("next_turn", "processes, the same way"),
    "backends.*.limits.evidence_windows": Key("next_turn", (
        "how often a silent tool whose processes work gets a new window, in a row"
    )),
    "backends.*.limits.retries": Key("next_turn", (
        "announced retries of the CLI; one more ends the turn with its error. 0: as the CLI likes"
    )),
    "backends.*.limits.retry_wait_s": Key("next_turn", (
        "an announced wait longer than this ends the turn at once. 0: as the CLI likes"
    )),
    "tracing.enabled": Key("at_once", "send a span of each turn and of each of its tools (docs/tracing.md); needs the extra `otel`"),
    "tracing.endpoint": Key("at_once", "the collector, OTLP over HTTP; `/v1/traces` is appended"),
    "tracing.headers": Key("at_once", "sent with each request, an authorization for instance; never shown"),
    "tracing.service_name": Key("at_once", "`service.name` of the spans"),
    "tracing.content": Key("at_once", "whether spans hold prompts, answers, and the tools' input and output"),
    "tracing.max_queue": Key("at_once", "spans that wait to be sent; beyond it the oldest turns are dropped, and counted"),
    "tracing.timeout_s": Key("at_once", "for one request to the collector"),
    "prices.*.input": Key("at_once", "US dollars for a million tokens of input that is not cached (docs/budgets.md)"),
    "prices.*.output": Key("at_once", "for a million tokens of output"),
    "prices.*.cache_read": Key("at_once", "for a million tokens that came from the cache; not set: as `input`"),
    "prices.*.cache_write": Key("at_once", "for a million tokens that were written to the cache; not set: as `input`"),
}
# fmt: on


_NAMED = ("backends.*.env", "backends.*.env_files", "tracing.headers")  # tables whose keys are the user's own


_PART = re.compile(r'"([^"]*)"|([^."]+)')


def parts_of(name: str) -> tuple[str, ...]:
    """Return the names in a key: `prices."gpt-6.1-sol".input` -> prices, gpt-6.1-sol, input."""
    return tuple(quoted or bare for quoted, bare in _PART.findall(name))


def quoted(name: str) -> str:
    """Return a name as part of a TOML key, in quotes if necessary."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"'


def key_of(name: str) -> Key | None:
    """Return the row of a key as in a file (`backends.claude.env.API_KEY`), or None for a table or an unknown key."""
    parts = list(parts_of(name))
    if parts[0] in ("backends", "prices") and len(parts) > 2:
        parts[1] = "*"
    pattern = ".".join(parts)
    return KEYS.get(pattern) or next((KEYS[table] for table in _NAMED if pattern.startswith(f"{table}.")), None)
