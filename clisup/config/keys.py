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


class ConfigKey(NamedTuple):
    """ConfigKey: when a change takes effect, and a description."""

    effect: Effect
    text: str


# fmt: off
KEYS: dict[str, ConfigKey] = {
    "daemon.socket": ConfigKey("start", "path of the client socket, at most 107 bytes; empty: the default place"),
    "daemon.state_dir": ConfigKey("start", "directory of the sessions, on a local file system (POSIX locks); empty: the default place"),
    "daemon.scrub_lists": ConfigKey("next_turn", "directory with your own scrub lists (docs/reference/environment.md)"),
    "daemon.max_sessions": ConfigKey("at_once", "limit of open sessions"),
    "daemon.max_running": ConfigKey("at_once", "limit of turns that run at once; 0: as many as memory allows at 300 MB each. Further turns wait, and status shows them"),
    "daemon.max_live": ConfigKey("at_once", "limit of live processes; above it the process that has rested longest ends. 0: no process outlives its turn"),
    "daemon.max_cursors": ConfigKey("at_once", "limit of durable cursors (session/subscribe with a name)"),
    "daemon.max_queue": ConfigKey("at_once", "limit of waiting prompts in one session"),
    "daemon.max_frame_bytes": ConfigKey("next_connection", "limit of a client's frame; a longer frame ends the connection"),
    "daemon.max_frame_values": ConfigKey("next_connection", "limit of JSON values in a frame, with a list or an object counted twice; the daemon refuses a frame with more values unread, because it would delay all clients"),
    "daemon.max_images": ConfigKey("at_once", "limit of images in one prompt; all of them have to fit into a frame"),
    "daemon.max_image_bytes": ConfigKey("at_once", "limit of one image file; a larger image is refused (invalid_params)"),
    "daemon.max_connections": ConfigKey("at_once", "limit of connections of one user; a further connection is refused as overloaded"),
    "daemon.max_requests": ConfigKey("next_connection", "limit of running requests of one connection; above it the daemon stops reading the connection"),
    "daemon.frame_deadline_s": ConfigKey("next_connection", "time for the rest of a frame that has begun; 0: no limit"),
    "daemon.request_burst": ConfigKey("at_once", "requests of a connection that go before those of greedier connections (docs/reference/protocol.md, \"Fair shares\")"),
    "daemon.request_rate": ConfigKey("at_once", "requests a second that an idle connection regains of its burst"),
    "daemon.request_wait_s": ConfigKey("at_once", "longest wait of a greedy connection's request; then it is refused as overloaded"),
    "daemon.max_held_bytes": ConfigKey("at_once", "limit of half frames and unread answers of all clients together; above it the daemon disconnects the client with the most"),
    "daemon.tool_timeout_s": ConfigKey("at_once", "time for a call of a client's tool without a time of its own; then the model gets an error"),
    "daemon.tool_wait_s": ConfigKey("at_once", "time that a call waits for a client that serves the session's tools; then the model gets an error"),
    "daemon.segment_bytes": ConfigKey("at_once", "size of one journal file"),
    "daemon.fsync": ConfigKey("at_once", "\"turn\": accepted prompts and ended turns survive a power loss; \"none\": they survive a crash of the daemon (docs/how-to/operations.md)"),
    "daemon.on_stop": ConfigKey("at_once", "action on SIGTERM: \"drain\", \"detach\" (turns go on) or \"kill\"; a restart by systemd detaches"),
    "daemon.drain_s": ConfigKey("at_once", "time that a drain waits for running turns"),
    "daemon.lease_s": ConfigKey("next_turn", "time without a daemon after which a keeper ends its CLI"),
    "daemon.limit_hold_s": ConfigKey("at_once", "longest time that a turn waits for the end of its account's rate limit (8 days); 0: turns do not wait"),
    "daemon.log_level": ConfigKey("at_once", "log level: debug, info, warning, error"),
    "daemon.max_log_bytes": ConfigKey("at_once", "limit of the log file of a daemon in the background; a full file is renamed to `daemon.log.1`, in place of the one before"),
    "daemon.autostart": ConfigKey("at_once", "whether `clisup run` starts the daemon if none runs; the command reads the key, not the daemon"),
    "daemon.keep_prompts": ConfigKey("at_once", "\"on\": whole prompts stay with their events, without secrets, for logs and exports; \"off\": only the first 200 characters stay, and the title"),
    "daemon.retention.days": ConfigKey("at_once", "age of a segment's last event after which the journal segment is removed, with the spools of the runs that ended in it; a closed session is removed as a whole. 0: never"),
    "daemon.retention.bytes": ConfigKey("at_once", "limit of all sessions together; above it the oldest data is removed first, whatever its age. 0: no limit"),
    "daemon.retention.keys": ConfigKey("at_once", "prompt keys remembered in one session"),
    "daemon.retention.idle_close": ConfigKey("at_once", "time without an event after which a session at rest is closed (7 days); 0: never. `resume_native_id` goes on with its conversation"),
    "daemon.retention.every_s": ConfigKey("at_once", "interval of the retention pass"),
    "defaults.backend": ConfigKey("at_once", "backend of sessions that name none; empty: the only installed CLI"),
    "defaults.mode": ConfigKey("next_turn", "mode of sessions whose backend has `mode = \"auto\"` and supports this mode"),
    "defaults.timeout": ConfigKey("next_turn", "limit of a turn, for backends without `timeouts.turn`; 0: no limit"),
    "backends.*.kind": ConfigKey("next_turn", "adapter (docs/backends/README.md); defaults to the name. A backend with open sessions cannot change it"),
    "backends.*.command": ConfigKey("next_turn", "argv prefix, found on the daemon's PATH; the kind `acp` has no default"),
    "backends.*.mode": ConfigKey("next_turn", "\"one-shot\": a process for each turn (`codex` becomes `codex-exec`); \"live\": one process for many turns (docs/how-to/live-sessions.md; kinds claude, demo and the API kinds, an error for others); \"auto\": live for the API kinds, else one-shot. The mode of `session/new` takes precedence"),
    "backends.*.permission_mode": ConfigKey("next_turn", "permission mode of sessions that name none, in the CLI's own words; empty: the CLI's own default"),
    "backends.*.model": ConfigKey("next_turn", "model of sessions that name none; empty: the CLI's own default"),
    "backends.*.base_url": ConfigKey("next_turn", "address of the API (API kinds only); empty: the vendor's own"),
    "backends.*.key_env": ConfigKey("next_turn", "variable with the API's key, passed to this backend alone; defaults to the preset's name if base_url is the preset's"),
    "backends.*.dialect": ConfigKey("next_turn", "API of OpenAI that the server speaks: \"responses\" or \"chat\""),
    "backends.*.max_tokens": ConfigKey("next_turn", "limit of tokens of one answer; 0: 32,000 for anthropic-api, the API's own limit for others"),
    "backends.*.thinking": ConfigKey("next_turn", "\"adaptive\", \"off\", or a number of tokens from 1000 on (anthropic-api)"),
    "backends.*.effort": ConfigKey("next_turn", "thinking effort of the model: \"low\", \"medium\", \"high\", as the API defines it"),
    "backends.*.versions": ConfigKey("next_turn", "range of versions such as \">=2.1.197,<3\"; the daemon refuses the backend outside of it. Empty: the adapter's own range"),
    "backends.*.args": ConfigKey("next_turn", "arguments appended to the CLI's arguments"),
    "backends.*.pass_env": ConfigKey("next_turn", "names (or PREFIX_*) of the daemon's variables to pass on purpose"),
    "backends.*.request_env": ConfigKey("next_turn", "names of variables that a client's request may set"),
    "backends.*.env": ConfigKey("next_turn", "variables set on purpose, after the scrub: { ANTHROPIC_API_KEY = \"...\" }"),
    "backends.*.env_files": ConfigKey("next_turn", "as env, with values from elsewhere: { NAME = \"~/file\" } (0600) or { NAME = \"credential:...\" } (docs/how-to/systemd.md)"),
    "backends.*.setting_sources": ConfigKey("next_turn", "sources of the CLI's settings; a repository's own settings, hooks and MCP servers apply only if \"project\" is named too"),
    "backends.*.orphans": ConfigKey("next_turn", "handling of processes that outlive the CLI: \"grace\" (background work that the CLI announced may finish within its budget, the rest is killed), \"kill\" or \"keep\""),
    "backends.*.timeouts.startup": ConfigKey("next_turn", "time to the first frame"),
    "backends.*.timeouts.model_idle": ConfigKey("next_turn", "time without a byte while the model is to answer"),
    "backends.*.timeouts.tool_idle": ConfigKey("next_turn", "time without a byte while a tool runs"),
    "backends.*.timeouts.approval": ConfigKey("next_turn", "time without an answer to an approval; the turn then ends as timed_out"),
    "backends.*.timeouts.background": ConfigKey("next_turn", "silence of background work after the answer"),
    "backends.*.timeouts.linger": ConfigKey("next_turn", "time between the last frame and the exit"),
    "backends.*.timeouts.turn": ConfigKey("next_turn", "time for the whole turn"),
    "backends.*.timeouts.int_grace": ConfigKey("next_turn", "time between SIGINT and SIGTERM"),
    "backends.*.timeouts.term_grace": ConfigKey("next_turn", "time between SIGTERM and SIGKILL"),
    "backends.*.approvals.unattended": ConfigKey("next_turn", "action for a session without followers: \"wait\" without limit, or \"deny\""),
    "backends.*.approvals.unattended_after_s": ConfigKey("next_turn", "time without followers before that action"),
    "backends.*.approvals.rules": ConfigKey("next_turn", "rules, as [[backends.NAME.approvals.rules]] tables, at most 256"),
    "backends.*.approvals.rules[].tool": ConfigKey("next_turn", "pattern of the tool's name"),
    "backends.*.approvals.rules[].decision": ConfigKey("next_turn", "decision: allow, deny or ask"),
    "backends.*.approvals.rules[].path": ConfigKey("next_turn", "pattern that the paths of the tool's input must match"),
    "backends.*.approvals.rules[].command": ConfigKey("next_turn", "pattern that the command in the tool's input must match"),
    "backends.*.approvals.rules[].shell": ConfigKey("next_turn", "true: an allow for a command holds although the command has shell syntax"),
    "backends.*.approvals.rules[].name": ConfigKey("next_turn", "name of the rule in `approval_resolved`"),
    "backends.*.live.idle_s": ConfigKey("at_once", "time without a turn after which a live process ends"),
    "backends.*.live.spool_bytes": ConfigKey("at_once", "bytes of stdout in one spool after which a live process ends; the next turn gets a new process"),
    "backends.*.limits.spool_bytes": ConfigKey("next_turn", "limit of one run's stdout; above it the turn ends as output_limit"),
    "backends.*.limits.stderr_bytes": ConfigKey("next_turn", "bytes of stderr that are kept: its head and its tail"),
    "backends.*.limits.stderr_events": ConfigKey("next_turn", "lines of stderr that become events in one turn"),
    "backends.*.limits.open_approvals": ConfigKey("next_turn", "limit of a CLI's open questions; above it the turn ends as resource_limit"),
    "backends.*.limits.unparsed_events": ConfigKey("next_turn", "lines of stdout without a known event that get an `unparsed` each in one turn; further lines in a row share one"),
    "backends.*.limits.line_values": ConfigKey("next_turn", "limit of JSON values in one line, with a list or an object counted twice; a line with more becomes `unparsed: oversize`, unread"),
    "backends.*.limits.line_bytes": ConfigKey("next_turn", "limit of one line; a longer line becomes `unparsed: oversize`, and stays in the spool"),
    "backends.*.limits.inline_bytes": ConfigKey("next_turn", "limit of a payload inside an event; a larger payload goes to a blob"),
    "backends.*.limits.memory": ConfigKey("next_turn", "limit of memory of the CLI and its tools together, checked every second; above it the turn ends as resource_limit"),
    "backends.*.limits.pids": ConfigKey("next_turn", "limit of processes of the CLI and its tools, checked every second; above it the turn ends as resource_limit"),
    "backends.*.limits.evidence_windows": ConfigKey("next_turn", "number of new windows in a row for a silent tool whose processes work"),
    "backends.*.limits.retries": ConfigKey("next_turn", "limit of announced retries of the CLI; a further one ends the turn with its error. 0: the CLI decides"),
    "backends.*.limits.retry_wait_s": ConfigKey("next_turn", "longest announced wait; a longer one ends the turn at once. 0: the CLI decides"),
    "tracing.enabled": ConfigKey("at_once", "true: send a span of each turn and of each of its tools (docs/reference/observe.md); needs the extra `otel`"),
    "tracing.endpoint": ConfigKey("at_once", "address of the collector, OTLP over HTTP; `/v1/traces` is appended"),
    "tracing.headers": ConfigKey("at_once", "headers of each request, for instance an authorization; never shown"),
    "tracing.service_name": ConfigKey("at_once", "`service.name` of the spans"),
    "tracing.content": ConfigKey("at_once", "true: spans hold prompts, answers, and the tools' input and output"),
    "tracing.max_queue": ConfigKey("at_once", "limit of spans that wait to be sent; above it the oldest turns are dropped, and counted"),
    "tracing.timeout_s": ConfigKey("at_once", "time for one request to the collector"),
    "notify": ConfigKey("at_once", "messages about events, as [[notify]] tables, at most 32 (docs/how-to/notify.md)"),
    "notify[].name": ConfigKey("at_once", "name in `clisup notify` and in the log; empty: the program, or the host of the address. A new name begins with the events from then on"),
    "notify[].on": ConfigKey("at_once", "events to tell: \"approval_requested\", \"turn_failed\" (also timed out), \"turn_completed\" (every end of a turn), \"limit\" (a rate limit holds turns back)"),
    "notify[].command": ConfigKey("at_once", "argv of a program that gets the event as JSON on stdin; exactly one of command and url"),
    "notify[].url": ConfigKey("at_once", "address for a POST: https://, or http:// on this machine; shown without its path, which may be a secret"),
    "notify[].format": ConfigKey("at_once", "body of the POST: \"json\" (the event), \"ntfy\", \"slack\" or \"gotify\""),
    "notify[].headers": ConfigKey("at_once", "headers of each request, for instance an authorization; never shown"),
    "notify[].secret": ConfigKey("at_once", "key of the signature (Standard Webhooks): `whsec_` and 24 to 64 bytes in base64"),
    "notify[].secret_env": ConfigKey("at_once", "variable of the daemon with that key"),
    "notify[].secret_file": ConfigKey("at_once", "file (0600) with that key, or \"credential:NAME\" (docs/how-to/systemd.md)"),
    "notify[].labels": ConfigKey("at_once", "labels that a session must have, for instance { team = \"web\" }; empty: every session"),
    "notify[].backends": ConfigKey("at_once", "backends whose sessions are told; empty: all"),
    "notify[].timeout_s": ConfigKey("at_once", "time for one request, or for the program; then it is ended with all that it has started"),
    "notify[].retries": ConfigKey("at_once", "further tries after a failure, after 1, 2, 4 ... 300 s; then the message is given up, logged and counted"),
    "notify[].max_age_s": ConfigKey("at_once", "age of an event after which its message is given up without a further try"),
    "prices.*.input": ConfigKey("at_once", "US dollars for a million tokens of input that is not cached (docs/reference/budgets.md)"),
    "prices.*.output": ConfigKey("at_once", "US dollars for a million tokens of output"),
    "prices.*.cache_read": ConfigKey("at_once", "US dollars for a million tokens read from the cache; not set: as `input`"),
    "prices.*.cache_write": ConfigKey("at_once", "US dollars for a million tokens written to the cache; not set: as `input`"),
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
        empty = key.endswith((".env", ".env_files", ".headers")) and (before.get(key) == {} or after.get(key) == {})
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
    "daemon.retention": "What is kept of events and spools, by age and in all.",
    "backends": "The backends by name; claude, codex, demo, gemini and qwen are there without a table.",
    "backends.*": "One backend: a CLI, how it is started, and when its turns are ended.",
    "backends.*.timeouts": "Seconds; 0: never. A session may override each.",
    "backends.*.approvals": "What becomes of a CLI's questions (docs/how-to/approvals.md).",
    "backends.*.live": "When the process of a live session is let go between two turns; 0: never for that reason.",
    "backends.*.limits": "Bytes, and counts; 0: none.",
    "notify[]": "One receiver of messages: a command, or an address (docs/how-to/notify.md).",
    "prices": "What tokens cost, by patterns of model names: before the built-in list (docs/reference/budgets.md).",
    "prices.*": "One pattern: US dollars for a million tokens.",
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
