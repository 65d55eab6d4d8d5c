"""Table of every key of the configuration: when a change takes effect, and a short description. Pure.

The reload, the JSON Schema and docs/reference/configuration.md read the table, and a test compares it with the model. A `*` stands
for the name of a backend or the pattern of a price, `[]` for each table of a list. Of two configurations, only the changed
keys leave this module, never values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, SecretStr

from clisup.config.model import Config
from clisup.model.structs import JsonObject

Effect = Literal["at_once", "next_turn", "next_connection", "start", "web_start", "gateway_start"]

EFFECTS: dict[Effect, str] = {
    "at_once": "at once",
    "next_turn": "next turn",
    "next_connection": "next connection",
    "start": "stop and start",
    "web_start": "start of `clisup web`",
    "gateway_start": "start of `clisup gateway`",
}
"""Effects in words. `next_turn` applies to turns that begin from now on. A running turn ends as it began, and a live
process that was started with another value is replaced before the next turn. `start` needs a stop and a start. A
restart in place is not enough, because it keeps the socket and the state directory."""


class ConfigKey(NamedTuple):
    """ConfigKey: when a change takes effect, and a description."""

    effect: Effect
    text: str


# fmt: off
KEYS: dict[str, ConfigKey] = {
    "daemon.socket": ConfigKey("start", "path of the client socket, at most 107 bytes; empty: the default place"),
    "daemon.state_dir": ConfigKey("start", "directory of the sessions, on a local file system; empty: the default place"),
    "daemon.scrub_lists": ConfigKey("next_turn", "directory of your own scrub lists (docs/reference/environment.md)"),
    "daemon.max_sessions": ConfigKey("at_once", "limit of open sessions"),
    "daemon.max_running": ConfigKey("at_once", "limit of running turns; further turns wait. 0: as many as memory (300 MB each) and processes allow; never more than open files allow"),
    "daemon.max_live": ConfigKey("at_once", "limit of live processes; above it the one that has rested longest ends. 0: no process outlives its turn"),
    "daemon.max_cursors": ConfigKey("at_once", "limit of durable cursors (session/subscribe with a name)"),
    "daemon.max_queue": ConfigKey("at_once", "limit of waiting prompts in one session"),
    "daemon.max_frame_bytes": ConfigKey("next_connection", "limit of a client's frame; a longer one ends the connection"),
    "daemon.max_frame_values": ConfigKey("next_connection", "limit of JSON values in a frame, with a list or an object counted twice; a frame with more is refused"),
    "daemon.max_images": ConfigKey("at_once", "limit of images in one prompt"),
    "daemon.max_image_bytes": ConfigKey("at_once", "limit of one image file"),
    "daemon.max_connections": ConfigKey("at_once", "limit of connections of one user, lower with few open files; a further one is refused as overloaded"),
    "daemon.max_requests": ConfigKey("next_connection", "limit of running requests of one connection; above it the daemon stops reading from it"),
    "daemon.frame_deadline_s": ConfigKey("next_connection", "time for the rest of a frame that has begun; 0: no limit"),
    "daemon.request_burst": ConfigKey("at_once", "requests of a connection that precede those of greedier ones (docs/reference/protocol.md, \"Fair shares\")"),
    "daemon.request_rate": ConfigKey("at_once", "requests a second by which the burst recovers"),
    "daemon.request_wait_s": ConfigKey("at_once", "longest wait of a greedy connection's request; then it is refused as overloaded"),
    "daemon.max_held_bytes": ConfigKey("at_once", "limit of half frames and unread answers of all clients; above it the client with the most is disconnected"),
    "daemon.tool_timeout_s": ConfigKey("at_once", "time for a call of a client's tool without a time of its own; then the model gets an error"),
    "daemon.tool_wait_s": ConfigKey("at_once", "time that a call waits for a client that serves the tool; then the model gets an error"),
    "daemon.segment_bytes": ConfigKey("at_once", "size of one journal file"),
    "daemon.fsync": ConfigKey("at_once", "\"turn\": accepted prompts and ended turns survive a power loss; \"none\": a crash of the daemon (docs/how-to/operations.md)"),
    "daemon.on_stop": ConfigKey("at_once", "action on SIGTERM: \"drain\", \"detach\" (turns go on) or \"kill\"; a restart by systemd detaches"),
    "daemon.drain_s": ConfigKey("at_once", "time that a drain waits for running turns"),
    "daemon.lease_s": ConfigKey("next_turn", "time without a daemon after which a keeper ends its CLI"),
    "daemon.limit_hold_s": ConfigKey("at_once", "longest wait of a turn for its account's rate limit; 0: turns do not wait"),
    "daemon.log_level": ConfigKey("at_once", "log level: debug, info, warning, error"),
    "daemon.max_log_bytes": ConfigKey("at_once", "limit of the log file of a daemon in the background; a full file becomes `daemon.log.1`"),
    "daemon.autostart": ConfigKey("at_once", "whether `clisup run` starts the daemon"),
    "daemon.keep_prompts": ConfigKey("at_once", "\"on\": whole prompts stay with their events, without secrets; \"off\": their first 200 characters"),
    "daemon.retention.days": ConfigKey("at_once", "age of its last event after which a journal segment is removed, with its spools, or a closed session. 0: never"),
    "daemon.retention.bytes": ConfigKey("at_once", "limit of all sessions together; above it the oldest data is removed. 0: no limit"),
    "daemon.retention.keys": ConfigKey("at_once", "prompt keys remembered in one session"),
    "daemon.retention.idle_close": ConfigKey("at_once", "time without an event after which a resting session is closed; 0: never. `resume_native_id` continues its conversation"),
    "daemon.retention.every_s": ConfigKey("at_once", "interval of the retention pass"),
    "defaults.backend": ConfigKey("at_once", "backend of sessions that name none; empty: the only installed CLI"),
    "defaults.mode": ConfigKey("next_turn", "mode of sessions whose backend has `mode = \"auto\"` and supports it"),
    "defaults.timeout": ConfigKey("next_turn", "limit of a turn, for backends without `timeouts.turn`; 0: no limit"),
    "backends.*.kind": ConfigKey("next_turn", "adapter (docs/backends/README.md); defaults to the name"),
    "backends.*.command": ConfigKey("next_turn", "argv prefix, found on the daemon's PATH; required for the kind `acp`"),
    "backends.*.mode": ConfigKey("next_turn", "\"one-shot\": a process for each turn; \"live\": one process for many turns (docs/how-to/live-sessions.md); \"auto\": live for the API kinds, else one-shot. `session/new` takes precedence"),
    "backends.*.permission_mode": ConfigKey("next_turn", "permission mode of sessions that name none, in the CLI's words; empty: the CLI's default"),
    "backends.*.model": ConfigKey("next_turn", "model of sessions that name none; empty: the CLI's default"),
    "backends.*.account": ConfigKey("next_turn", "name of the backend's account; backends with one name share its rate limit, on every box of a fleet. Empty: told apart by its credentials, not shared"),
    "backends.*.base_url": ConfigKey("next_turn", "address of the API (API kinds); empty: the vendor's"),
    "backends.*.key_env": ConfigKey("next_turn", "variable with the API's key, passed to this backend alone; defaults to the preset's"),
    "backends.*.dialect": ConfigKey("next_turn", "API of OpenAI that the server speaks: \"responses\" or \"chat\""),
    "backends.*.max_tokens": ConfigKey("next_turn", "limit of tokens of one answer; 0: 32,000 for anthropic-api, else the API's limit"),
    "backends.*.thinking": ConfigKey("next_turn", "\"adaptive\", \"off\", or a number of tokens from 1000 on (anthropic-api)"),
    "backends.*.effort": ConfigKey("next_turn", "thinking effort of the model: \"low\", \"medium\", \"high\""),
    "backends.*.auth_method": ConfigKey("next_turn", "method by which clisup logs in at an ACP agent (the id of one of its `authMethods`); empty: no login"),
    "backends.*.versions": ConfigKey("next_turn", "accepted versions, such as \">=2.1.309,<3\"; others are refused. Empty: the adapter's range"),
    "backends.*.args": ConfigKey("next_turn", "arguments appended to the CLI's arguments"),
    "backends.*.pass_env": ConfigKey("next_turn", "names (or PREFIX_*) of the daemon's variables to pass on"),
    "backends.*.request_env": ConfigKey("next_turn", "names of variables that a client's request may set"),
    "backends.*.env": ConfigKey("next_turn", "variables to set: { ANTHROPIC_API_KEY = \"...\" }"),
    "backends.*.env_files": ConfigKey("next_turn", "as env, with values from elsewhere: { NAME = \"~/file\" } (0600) or { NAME = \"credential:...\" } (docs/how-to/systemd.md)"),
    "backends.*.setting_sources": ConfigKey("next_turn", "sources of the CLI's settings; only \"project\" admits a repository's settings, hooks and MCP servers"),
    "backends.*.orphans": ConfigKey("next_turn", "processes that outlive the CLI: \"grace\" (announced background work may finish, the rest is killed), \"kill\" or \"keep\""),
    "backends.*.timeouts.startup": ConfigKey("next_turn", "time to the first frame"),
    "backends.*.timeouts.opening": ConfigKey("next_turn", "limit of silence while an ACP agent opens its session, or codex starts MCP servers"),
    "backends.*.timeouts.model_idle": ConfigKey("next_turn", "limit of silence while the model is to answer"),
    "backends.*.timeouts.tool_idle": ConfigKey("next_turn", "limit of silence while a tool runs"),
    "backends.*.timeouts.hook": ConfigKey("next_turn", "limit of silence while a hook of the CLI's settings runs"),
    "backends.*.timeouts.compaction": ConfigKey("next_turn", "limit of silence while the CLI compacts its context"),
    "backends.*.timeouts.login": ConfigKey("next_turn", "limit of silence after a refused login, while the CLI renews it"),
    "backends.*.timeouts.approval": ConfigKey("next_turn", "limit of the wait for an approval; then the turn ends as timed_out"),
    "backends.*.timeouts.background": ConfigKey("next_turn", "limit of silence of background work after the answer"),
    "backends.*.timeouts.tail": ConfigKey("next_turn", "time for the last words behind an answer's end (codex, ACP agents)"),
    "backends.*.timeouts.linger": ConfigKey("next_turn", "time from the last frame to the exit"),
    "backends.*.timeouts.turn": ConfigKey("next_turn", "limit of the whole turn"),
    "backends.*.timeouts.int_grace": ConfigKey("next_turn", "time from SIGINT to SIGTERM"),
    "backends.*.timeouts.term_grace": ConfigKey("next_turn", "time from SIGTERM to SIGKILL"),
    "backends.*.approvals.unattended": ConfigKey("next_turn", "action for a session without followers: \"wait\" without limit, or \"deny\""),
    "backends.*.approvals.unattended_after_s": ConfigKey("next_turn", "time without followers before that action"),
    "backends.*.approvals.rules": ConfigKey("next_turn", "rules, as [[backends.NAME.approvals.rules]] tables, at most 256"),
    "backends.*.approvals.rules[].tool": ConfigKey("next_turn", "pattern of the tool's name; required"),
    "backends.*.approvals.rules[].decision": ConfigKey("next_turn", "allow, deny or ask; required"),
    "backends.*.approvals.rules[].path": ConfigKey("next_turn", "pattern of the paths in the tool's input"),
    "backends.*.approvals.rules[].command": ConfigKey("next_turn", "pattern of the command in the tool's input"),
    "backends.*.approvals.rules[].shell": ConfigKey("next_turn", "true: an allow for a command covers shell syntax"),
    "backends.*.approvals.rules[].name": ConfigKey("next_turn", "name of the rule in `approval_resolved`"),
    "backends.*.live.idle_s": ConfigKey("at_once", "time without a turn after which a live process ends"),
    "backends.*.live.spool_bytes": ConfigKey("at_once", "bytes of stdout after which a live process ends"),
    "backends.*.limits.spool_bytes": ConfigKey("next_turn", "limit of one run's stdout; above it the turn ends as output_limit"),
    "backends.*.limits.stderr_bytes": ConfigKey("next_turn", "bytes of stderr that are kept: its head and its tail"),
    "backends.*.limits.stderr_events": ConfigKey("next_turn", "lines of stderr that become events in one turn"),
    "backends.*.limits.open_approvals": ConfigKey("next_turn", "limit of a CLI's open questions; above it the turn ends as resource_limit"),
    "backends.*.limits.unparsed_events": ConfigKey("next_turn", "lines without a known event that get an `unparsed` each in one turn; further ones in a row share one"),
    "backends.*.limits.line_values": ConfigKey("next_turn", "limit of JSON values in one line, with a list or an object counted twice; a line with more becomes `unparsed: oversize`"),
    "backends.*.limits.line_bytes": ConfigKey("next_turn", "limit of one line; a longer one becomes `unparsed: oversize`"),
    "backends.*.limits.inline_bytes": ConfigKey("next_turn", "limit of a payload in an event; a larger one goes to a blob"),
    "backends.*.limits.memory": ConfigKey("next_turn", "limit of memory of the CLI and its tools, checked every second; above it the turn ends as resource_limit"),
    "backends.*.limits.pids": ConfigKey("next_turn", "limit of their processes, checked every second; above it the turn ends as resource_limit"),
    "backends.*.limits.evidence_windows": ConfigKey("next_turn", "new windows in a row for a silent tool whose processes work"),
    "backends.*.limits.retries": ConfigKey("next_turn", "limit of announced retries; a further one ends the turn with its error. 0: the CLI decides"),
    "backends.*.limits.retry_wait_s": ConfigKey("next_turn", "longest announced wait; a longer one ends the turn at once. 0: the CLI decides"),
    "tracing.enabled": ConfigKey("at_once", "true: send a span of each turn and each tool call; needs the extra `otel`"),
    "tracing.endpoint": ConfigKey("at_once", "address of the collector, OTLP over HTTP; `/v1/traces` is appended"),
    "tracing.headers": ConfigKey("at_once", "headers of each request, such as an authorization; never shown"),
    "tracing.service_name": ConfigKey("at_once", "`service.name` of the spans"),
    "tracing.content": ConfigKey("at_once", "true: spans hold prompts, answers, and the tools' input and output"),
    "tracing.max_queue": ConfigKey("at_once", "limit of spans that wait; above it the oldest turns are dropped"),
    "tracing.timeout_s": ConfigKey("at_once", "time for one request to the collector"),
    "fleet.share": ConfigKey("at_once", "\"all\": other boxes can read the sessions while this box is away; \"status\": only their rows leave it"),
    "fleet.accept": ConfigKey("at_once", "members that may drive this box and give it jobs; \"*\": all. Empty: none"),
    "fleet.labels": ConfigKey("at_once", "labels that a job can ask for, such as { gpu = \"h100\" }"),
    "fleet.workspaces": ConfigKey("at_once", "directories that a job can name, such as { app = \"~/app\" }"),
    "fleet.max_jobs": ConfigKey("at_once", "limit of the fleet's jobs that run here at once; 0: as many as `daemon.max_running`"),
    "web.bind": ConfigKey("web_start", "address to listen on; others than loopback need TLS"),
    "web.port": ConfigKey("web_start", "port"),
    "web.url": ConfigKey("web_start", "address of the pages behind a reverse proxy"),
    "web.tls_cert": ConfigKey("web_start", "file of the certificate chain (PEM)"),
    "web.tls_key": ConfigKey("web_start", "file of the certificate's key"),
    "gateway.bind": ConfigKey("gateway_start", "address to listen on; others than loopback need TLS"),
    "gateway.port": ConfigKey("gateway_start", "port"),
    "gateway.url": ConfigKey("gateway_start", "address behind a reverse proxy"),
    "gateway.tls_cert": ConfigKey("gateway_start", "file of the certificate chain (PEM)"),
    "gateway.tls_key": ConfigKey("gateway_start", "file of the certificate's key"),
    "gateway.backends": ConfigKey("gateway_start", "backends that the gateway serves; empty: none"),
    "gateway.allow_subscription": ConfigKey("gateway_start", "serve backends without an API key, too: their vendors' terms apply"),
    "gateway.cli_tools": ConfigKey("gateway_start", "\"none\": a CLI runs no tool of its own; \"default\": it may"),
    "gateway.models": ConfigKey("gateway_start", "other names for models, such as { \"gpt-5\" = \"claude/opus\" }"),
    "gateway.cwd": ConfigKey("gateway_start", "directory of the sessions; empty: an empty one in the state directory"),
    "gateway.max_requests": ConfigKey("gateway_start", "requests for answers at once; a further one is refused with 429"),
    "gateway.max_body_bytes": ConfigKey("gateway_start", "size of a request"),
    "gateway.tool_timeout_s": ConfigKey("gateway_start", "time for the results of a program's tools; then the turn ends"),
    "gateway.keep_s": ConfigKey("gateway_start", "time for which answers with an Idempotency-Key, and conversations, are kept"),
    "notify": ConfigKey("at_once", "messages about events, as [[notify]] tables, at most 32 (docs/how-to/notify.md)"),
    "notify[].name": ConfigKey("at_once", "name in `clisup notify` and in the log; empty: the program, or the host. A new name begins with new events"),
    "notify[].on": ConfigKey("at_once", "\"approval_requested\", \"turn_failed\" (also timed out), \"turn_completed\" (every end of a turn), \"limit\" (a rate limit holds turns back)"),
    "notify[].command": ConfigKey("at_once", "argv of a program that gets the event as JSON on stdin; exactly one of command and url"),
    "notify[].url": ConfigKey("at_once", "address for a POST: https://, or http:// on this machine; its path is never shown"),
    "notify[].format": ConfigKey("at_once", "body of the POST: \"json\" (the event), \"ntfy\", \"slack\" or \"gotify\""),
    "notify[].headers": ConfigKey("at_once", "headers of each request, such as an authorization; never shown"),
    "notify[].secret": ConfigKey("at_once", "key of the signature (Standard Webhooks): `whsec_` and 24 to 64 bytes in base64"),
    "notify[].secret_env": ConfigKey("at_once", "variable of the daemon with that key"),
    "notify[].secret_file": ConfigKey("at_once", "file (0600) with that key, or \"credential:NAME\" (docs/how-to/systemd.md)"),
    "notify[].labels": ConfigKey("at_once", "labels that a session must have, such as { team = \"web\" }; empty: every session"),
    "notify[].backends": ConfigKey("at_once", "backends of the sessions; empty: all"),
    "notify[].pages": ConfigKey("at_once", "address of `clisup web`, such as https://box.example.ts.net; messages then link to the approval or the session"),
    "notify[].timeout_s": ConfigKey("at_once", "time for one request, or for the program, which is then ended"),
    "notify[].retries": ConfigKey("at_once", "further tries, after 1, 2, 4 ... 300 s; then the message is given up"),
    "notify[].max_age_s": ConfigKey("at_once", "age of an event after which its message is given up"),
    "prices.*.input": ConfigKey("at_once", "price of a million tokens of input that is not cached"),
    "prices.*.output": ConfigKey("at_once", "price of a million tokens of output"),
    "prices.*.cache_read": ConfigKey("at_once", "price of a million tokens read from the cache; not set: as `input`"),
    "prices.*.cache_write": ConfigKey("at_once", "price of a million tokens written to the cache; not set: as `input`"),
}
# fmt: on


_NAMED = (
    "backends.*.env",
    "backends.*.env_files",
    "tracing.headers",
    "fleet.labels",
    "fleet.workspaces",
)  # tables whose keys are the user's own


_PART = re.compile(r'"([^"]*)"|([^."]+)')


def parts_of(name: str) -> tuple[str, ...]:
    """Return the names in a key: `prices."gpt-6.1-sol".input` -> prices, gpt-6.1-sol, input."""
    return tuple(quoted or bare for quoted, bare in _PART.findall(name))


def quoted(name: str) -> str:
    """Return a name as part of a TOML key, in quotes if necessary."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"'


def key_of(name: str) -> ConfigKey | None:
    """Return the row of a key as in a file (`backends.claude.env.API_KEY`), or None for a table or an unknown key."""
    parts = list(parts_of(name))
    if parts[0] in ("backends", "prices") and len(parts) > 2:
        parts[1] = "*"
    pattern = ".".join(parts)
    return KEYS.get(pattern) or next((KEYS[table] for table in _NAMED if pattern.startswith(f"{table}.")), None)


What = Literal["changed", "added", "removed"]
SECRET = "[set]"
"""Replacement for a secret's value."""


class Change(NamedTuple):
    """Change of a key: the kind of change, and when it takes effect."""

    key: str
    what: What
    effect: Effect


def flat(table: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every (key, value) of a configuration or a table of it, in the model's order; secrets as `SecretStr`.

    A list of rules is one value: a list of mappings without the omitted keys. An empty `env` is one value; otherwise
    each name in `env` is a key. A key without a value and without a default is left out.
    """
    for name in type(table).model_fields:
        if (value := getattr(table, name)) is not None:
            yield from _flat(value, f"{prefix}{name}")


def _flat(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, BaseModel):
        yield from flat(value, f"{key}.")
    elif isinstance(value, dict) and value:
        for name, one in value.items():
            yield from _flat(one, f"{key}.{quoted(name)}")
    elif isinstance(value, list) and value and isinstance(value[0], BaseModel):
        yield key, [rule.model_dump(exclude_none=True, exclude_defaults=True) for rule in value]
    elif key != "prices":  # without a pattern, `prices` holds no key
        yield key, value


def changes(old: Config, new: Config) -> list[Change]:
    """Return every key whose value differs, in the order of the new configuration.

    An added or removed backend is one change.
    """
    before, after = dict(flat(old)), dict(flat(new))
    come, gone = set(new.backends) - set(old.backends), set(old.backends) - set(new.backends)
    found = [Change(f"backends.{name}", "added", "at_once") for name in new.backends if name in come]
    found += [Change(f"backends.{name}", "removed", "at_once") for name in old.backends if name in gone]
    for key in [*after, *(key for key in before if key not in after)]:
        backend = key.split(".")[1] if key.startswith("backends.") else None
        row = key_of(key)
        empty = key.endswith((".env", ".env_files", ".headers", ".labels", ".workspaces")) and (
            before.get(key) == {} or after.get(key) == {}
        )
        if backend in come or backend in gone or row is None or empty:  # the names in the table are reported instead
            continue
        if key not in before or key not in after:
            found.append(Change(key, "added" if key in after else "removed", row.effect))
        elif not _same(before[key], after[key]):
            found.append(Change(key, "changed", row.effect))
    return found


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, SecretStr) and isinstance(other, SecretStr):
        return one.get_secret_value() == other.get_secret_value()
    return bool(one == other)


def kept_back(old: Config, new: Config) -> Config:
    """Return the new configuration, but with the old values of keys that cannot change while the daemon runs."""
    stay: dict[str, JsonObject] = {}
    for key, row in KEYS.items():
        if row.effect == "start":
            table, name = key.split(".")
            stay.setdefault(table, {})[name] = getattr(getattr(old, table), name)
    return new.model_copy(update={t: getattr(new, t).model_copy(update=kept) for t, kept in stay.items()})


DRAFT = "http://json-schema.org/draft-04/schema#"
_LEFT_OUT = ("title", "$defs", "format", "writeOnly")
_TABLES = {
    "daemon": "The daemon: limits, storage, stopping.",
    "daemon.retention": "Age and size of the kept events and spools.",
    "backends": "The backends by name; claude, codex, demo, gemini and qwen are there without a table.",
    "backends.*": "Backend: a CLI, its start, and the limits of its turns.",
    "backends.*.timeouts": "Seconds; 0: never. A session may override each.",
    "backends.*.approvals": "Answers to a CLI's permission requests (docs/how-to/approvals.md).",
    "backends.*.live": "Limits after which the resting process of a live session ends; 0: no limit.",
    "backends.*.limits": "Bytes, and counts; 0: none.",
    "fleet": "This box in a fleet (docs/how-to/fleet-engine.md); read by `clisup fleet agent`.",
    "web": "Options of `clisup web` (docs/how-to/web.md), which reads them at its start.",
    "gateway": "Options of `clisup gateway` (docs/how-to/gateway.md), which reads them at its start.",
    "notify[]": "Receiver of messages: a command, or an address (docs/how-to/notify.md).",
    "prices": "Prices of tokens by pattern of model names; they precede the built-in list (docs/reference/budgets.md).",
    "prices.*": "Prices of the matching models: US dollars for a million tokens.",
    "tracing": "Spans of turns and tools for a collector (docs/reference/observe.md); needs the extra `otel`.",
}


def config_schema() -> JsonObject:
    """Return the schema: every key with its description, its default, and when a change of it takes effect."""
    raw = Config.model_json_schema()
    schema = _table(raw, raw["$defs"], "")
    return {"$schema": DRAFT, "title": "The configuration of clisup", **schema}


def _table(schema: JsonObject, models: JsonObject, key: str) -> JsonObject:
    """Return a schema without references, in draft 4, with the descriptions of the table of keys."""
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    schema = {**models[name], **{k: v for k, v in schema.items() if k != "$ref"}} if name else schema
    plain = _draft_4({word: value for word, value in schema.items() if word not in _LEFT_OUT})
    if name:
        plain.pop("default", None)  # a table needs no default: each of its keys has its own
    for word in ("properties", "patternProperties"):
        if word in plain:
            plain[word] = {each: _table(one, models, _below(key, each, word)) for each, one in plain[word].items()}
    if "patternProperties" in plain:
        plain["additionalProperties"] = False
    if "items" in plain:
        plain["items"] = _table(plain["items"], models, f"{key}[]")
    plain.pop("description", None)
    return {"description": words, **plain} if (words := _words(key)) else plain


def _below(key: str, name: str, word: str) -> str:
    below = "*" if word == "patternProperties" else name
    return f"{key}.{below}" if key else below


def _words(key: str) -> str:
    if key in _TABLES:
        return _TABLES[key]
    row = KEYS.get(key)
    return f"{row.text[:1].upper()}{row.text[1:]}. A change takes effect: {EFFECTS[row.effect]}." if row else ""


def _draft_4(schema: JsonObject) -> JsonObject:
    """Return the schema in draft 4: `exclusiveMinimum` is a boolean there. Null is removed, because TOML has none."""
    if "exclusiveMinimum" in schema:
        schema = {**schema, "minimum": schema["exclusiveMinimum"], "exclusiveMinimum": True}
    if choices := [one for one in schema.pop("anyOf", ()) if one.get("type") != "null"]:
        assert len(choices) == 1, "the model has no key of two types"
        schema = {**choices[0], **schema}
    if schema.get("default", 0) is None:
        schema.pop("default")
    schema.pop("propertyNames", None)  # of a later draft; additionalProperties cannot express its rule for names
    return schema
