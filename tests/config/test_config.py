"""The configuration: every key has a default and a check, and a key that is none names its neighbour."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr, ValidationError

from clisup.config.model import (
    BUILT_IN_BACKENDS,
    BackendConfig,
    Config,
    DaemonConfig,
    LimitsConfig,
    LiveConfig,
    TimeoutsConfig,
    parse_config,
)
from clisup.config.session_spec import SessionSpec, params_digest
from clisup.errors import ConfigurationError
from clisup.policy.watchdog import TurnTimeouts

MIB = 1024 * 1024
DEFAULTS = {
    "daemon": {
        "socket": "", "state_dir": "", "scrub_lists": "", "max_sessions": 10_000,
        "max_running": 0, "max_live": 8, "max_cursors": 256, "max_queue": 100,
        "max_frame_bytes": 16 * MIB, "max_frame_values": 100_000, "max_images": 20, "max_image_bytes": 8 * MIB,
        "max_connections": 512, "max_requests": 64, "frame_deadline_s": 30,
        "request_burst": 64, "request_rate": 100, "request_wait_s": 10, "max_held_bytes": 256 * MIB,
        "tool_timeout_s": 600, "tool_wait_s": 60,
        "segment_bytes": 8 * MIB, "fsync": "turn", "on_stop": "drain", "drain_s": 60, "lease_s": 86_400, "limit_hold_s": 691_200,
        "log_level": "info", "max_log_bytes": 10 * MIB, "autostart": True, "keep_prompts": "on",
        "retention": {"days": 30, "bytes": 10_240 * MIB, "keys": 1000, "every_s": 600,
                      "idle_close": 604_800},
    },
    "backend": {
        "kind": "claude", "command": [], "mode": "auto", "permission_mode": "", "versions": "", "args": [],
        "model": "", "account": "", "base_url": "", "key_env": "", "dialect": "", "max_tokens": 0, "thinking": "", "effort": "",
        "auth_method": "",
        "pass_env": [], "request_env": [],
        "env": {}, "env_files": {}, "setting_sources": "user", "orphans": "grace",
        "approvals": {"rules": [], "unattended": "wait", "unattended_after_s": 60},
        "timeouts": {"startup": 60, "opening": 300, "model_idle": 180, "tool_idle": 1800, "hook": 1800,
                     "compaction": 900, "login": 60, "approval": 0, "background": 660, "tail": 2, "linger": 5,
                     "turn": 0, "int_grace": 3, "term_grace": 5},
        "limits": {"spool_bytes": 4096 * MIB, "line_bytes": 64 * MIB, "stderr_bytes": 8 * MIB, "inline_bytes": 256 * 1024,
                   "stderr_events": 200, "unparsed_events": 1000, "open_approvals": 256, "line_values": 100_000,
                   "memory": 0, "pids": 0, "evidence_windows": 3, "retries": 0,
                   "retry_wait_s": 0},
        "live": {"idle_s": 600, "spool_bytes": 256 * MIB},
    },
}  # fmt: skip


def config_of(toml: str) -> Config:
    return parse_config(tomllib.loads(toml))


def refusal(toml: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        config_of(toml)
    return str(caught.value)


def test_without_a_file_every_key_has_its_documented_default() -> None:
    config = parse_config({})
    assert config.daemon.model_dump() == DEFAULTS["daemon"]
    assert sorted(config.backends) == sorted(BUILT_IN_BACKENDS)
    assert config.backends["claude"].model_dump() == DEFAULTS["backend"]
    assert config.backends["demo"].kind == "demo"


def test_every_default_can_be_written_down() -> None:
    backend = {**DEFAULTS["backend"]}
    assert parse_config({"daemon": DEFAULTS["daemon"], "backends": {"claude": backend}}) == parse_config({})


def test_the_kind_of_a_backend_is_its_name_where_nothing_else_is_said() -> None:
    config = config_of('[backends.fast]\nkind = "claude"\n[backends.demo]\nargs = ["-x"]')
    assert {name: backend.kind for name, backend in config.backends.items()} == {
        "claude": "claude",
        **{name: name for name in BUILT_IN_BACKENDS},
        "fast": "claude",
    }


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        ("[backends.groq]", ("openai-api", "https://api.groq.com/openai/v1", "GROQ_API_KEY", "chat")),
        ("[backends.openrouter]\nmodel = 'x/y'", ("openai-api", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", "chat")),
        ("[backends.ollama]", ("openai-api", "http://127.0.0.1:11434/v1", "", "chat")),
        ("[backends.fast]\nkind = 'groq'\nkey_env = 'MINE'", ("openai-api", "https://api.groq.com/openai/v1", "MINE", "chat")),
        ("[backends.openai-api]\ndialect = 'chat'", ("openai-api", "", "OPENAI_API_KEY", "chat")),
        ("[backends.fast]\nkind = 'anthropic-api'", ("anthropic-api", "", "ANTHROPIC_API_KEY", "")),
    ],
)  # fmt: skip
def test_a_preset_gives_what_a_table_does_not_say(toml: str, expected: tuple[str, str, str, str]) -> None:
    backends = config_of(toml).backends
    backend = next(backend for name, backend in backends.items() if name not in BUILT_IN_BACKENDS or "." + name in toml)
    assert (backend.kind, backend.base_url, backend.key_env, backend.dialect) == expected


@pytest.mark.parametrize("kind", ["anthropic-api", "openai-api", "groq"])
def test_a_presets_key_goes_to_no_other_address(kind: str) -> None:
    backend = config_of(f"[backends.mine]\nkind = {kind!r}\nbase_url = 'http://127.0.0.1:8000/v1'").backends["mine"]
    assert (backend.base_url, backend.key_env, backend.passed) == ("http://127.0.0.1:8000/v1", "", [])
    assert backend.dialect == ("" if kind == "anthropic-api" else "chat")


@pytest.mark.parametrize(
    ("toml", "key", "nearest"),
    [
        ("[deamon]", "deamon", "daemon"),
        ("[backend]", "backend", "backends"),
        ("[daemon]\nsokcet = 'x'", "daemon.sokcet", "socket"),
        ("[daemon.retention]\nday = 1", "daemon.retention.day", "days"),
        ("[backends.claude]\ncomand = ['x']", "backends.claude.comand", "command"),
        ("[backends.mine.timeouts]\nmodelidle = 1", "backends.mine.timeouts.modelidle", "model_idle"),
        ("[backends.mine.limits]\nline_byte = 1", "backends.mine.limits.line_byte", "line_bytes"),
        ("[backends.daemon]\ncomand = ['x']", "backends.daemon.comand", "command"),
        ("[backends.backends]\ncomand = ['x']", "backends.backends.comand", "command"),
    ],
)
def test_an_unknown_key_is_refused_and_names_the_nearest(toml: str, key: str, nearest: str) -> None:
    message = refusal(toml)
    assert f"{key!r} is not a known key" in message
    assert f"the nearest known key is {nearest!r}" in message


def test_an_unknown_key_that_is_like_no_other_names_none() -> None:
    assert "nearest" not in refusal("[daemon]\nxyzzy = 1")


@pytest.mark.parametrize(
    ("toml", "key"),
    [
        ("[daemon]\nmax_sessions = 0", "daemon.max_sessions"),
        ("[daemon]\nmax_sessions = '5'", "daemon.max_sessions"),
        ("[daemon]\nmax_sessions = true", "daemon.max_sessions"),
        ("[daemon]\non_stop = 'later'", "daemon.on_stop"),
        ("[daemon]\nsocket = 'clisup.sock'", "daemon.socket"),
        ("[daemon]\nstate_dir = '~alice/state'", "daemon.state_dir"),
        ("daemon = 5", "daemon"),
        ("[backends.claude]\ncommand = 'claude'", "backends.claude.command"),
        ("[backends.Claude]", "backends.Claude"),
        ("[backends.'a/b']", "backends.a/b"),
        ("[backends.claude.timeouts]\nturn = -1", "backends.claude.timeouts.turn"),
        ("[backends.claude.timeouts]\nturn = nan", "backends.claude.timeouts.turn"),
        ("[backends.claude.timeouts]\nturn = inf", "backends.claude.timeouts.turn"),
        ("[backends.claude.env]\n'A B' = 'x'", "backends.claude.env.A B"),
        ("[backends.claude.env]\nA = 5", "backends.claude.env.A"),
        ("[backends.claude]\nrequest_env = ['A*']", "backends.claude.request_env.0"),
    ],
)
def test_a_wrong_value_is_refused_and_named(toml: str, key: str) -> None:
    assert f"{key!r} is wrong" in refusal(toml)


def test_a_place_begins_at_the_root_or_at_home() -> None:
    with pytest.raises(ConfigurationError, match="is wrong: Input should be an absolute path, or begin with ~/"):
        parse_config({"daemon": {"socket": "run/clisup.sock"}})
    assert parse_config({"daemon": {"socket": "~/run/clisup.sock"}}).daemon.socket == "~/run/clisup.sock"


@pytest.mark.parametrize(
    "toml",
    [
        "[backends.claude.env]\nKEY = ['canary-7f3a']",
        "[backends.claude]\nenv = 'canary-7f3a'",
        "[backends.claude.env]\n'KEY=canary' = {x = 'canary-7f3a'}",
        "[backends.claude]\nargs = {x = 'canary-7f3a'}",
        "[daemon]\non_stop = 'canary-7f3a'",
    ],
)
def test_a_refusal_never_quotes_a_value(toml: str) -> None:
    assert "canary-7f3a" not in refusal(toml)


def test_the_values_of_variables_have_no_string_form() -> None:
    config = config_of("[backends.claude.env]\nKEY = 'canary-7f3a'")
    assert config.backends["claude"].env["KEY"].get_secret_value() == "canary-7f3a"
    forms = [repr(config), str(config), str(config.model_dump()), config.model_dump_json(), str(config.backends)]
    assert not any("canary" in form for form in forms)
    assert isinstance(config.backends["claude"].env["KEY"], SecretStr)


@pytest.mark.parametrize("model", [Config, DaemonConfig, BackendConfig, TimeoutsConfig, LimitsConfig])
def test_a_configuration_cannot_be_changed(model: type[BaseModel]) -> None:
    table = model()
    with pytest.raises(ValidationError):
        setattr(table, next(iter(model.model_fields)), "x")


def test_two_configurations_share_no_list() -> None:
    first, second = BackendConfig(), BackendConfig()
    first.args.append("-x")
    assert second.args == []


def test_the_refusal_names_the_file_and_gives_the_next_step() -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_config({"daemon": {"x": 1}}, source="/etc/clisup.toml")
    assert caught.value.exit_code == 78
    assert "/etc/clisup.toml" in caught.value.message
    assert caught.value.hint


# -- session specs ----------------------------------------------------------------------------------------------------


def spec(**fields: Any) -> SessionSpec:
    base = {"session_id": "s", "backend": "demo", "cwd": "/", "created_at": "t", "digest": "d"}
    return SessionSpec.model_validate({**base, **fields})


def test_the_watchdogs_timeouts_are_those_of_the_configuration() -> None:
    assert set(TimeoutsConfig.model_fields) | {"resting"} == set(
        TurnTimeouts.__struct_fields__
    )  # that one is live.idle_s
    assert TurnTimeouts().resting == LiveConfig().idle_s
    assert TurnTimeouts(**TimeoutsConfig().model_dump()) == TurnTimeouts()


def test_a_sessions_own_timeouts_come_before_those_of_its_backend() -> None:
    merged = spec(timeouts={"turn": 7.0}).merged_timeouts(TimeoutsConfig(model_idle=9))
    assert (merged.turn, merged.model_idle, merged.startup) == (7.0, 9, 60)


def test_a_stored_session_is_read_by_a_version_that_knows_less() -> None:
    assert spec(something_new={"a": 1}) == spec()


def test_the_digest_tells_params_apart_and_depends_on_the_session() -> None:
    assert params_digest("s", {"a": 1, "b": 2}) == params_digest("s", {"b": 2, "a": 1})
    assert params_digest("s", {"a": 1}) != params_digest("s", {"a": 2})
    assert params_digest("s", {"a": 1}) != params_digest("t", {"a": 1})
    assert "canary" not in params_digest("s", {"env": {"KEY": "canary"}})


def test_a_backend_without_a_table_of_its_own_is_a_default() -> None:
    assert parse_config({}).untouched == {*BUILT_IN_BACKENDS}
    configured = parse_config({"backends": {"claude": {}, "mine": {"kind": "demo"}}})
    assert configured.untouched == {*BUILT_IN_BACKENDS} - {"claude"}


def test_a_rule_for_approvals_is_checked_like_any_other_key() -> None:
    table = '[[backends.codex.approvals.rules]]\ntool = "*"\ndecision = "deny"\npath = "/etc/**"\n'
    (rule,) = config_of(table).backends["codex"].approvals.rules
    assert (rule.decision, rule.path) == ("deny", "/etc/**")
    with pytest.raises(ConfigurationError, match="the nearest known key is 'command'"):
        config_of(table + 'comand = "x"\n')
    with pytest.raises(ConfigurationError, match="may not hold"):
        config_of(table.replace("/etc/**", "../**"))
    with pytest.raises(ConfigurationError, match=r"approvals\.unattended"):
        config_of('[backends.codex.approvals]\nunattended = "allow"\n')


def test_a_file_that_is_not_there_and_an_empty_one_are_all_defaults() -> None:
    assert parse_config({}).is_default
    assert not parse_config({"daemon": {"max_running": 4}}).is_default
    assert not parse_config({"backends": {"claude": {}}}).is_default


def test_defaults_that_are_made_without_a_check_would_pass_it() -> None:
    explicit = parse_config(Config.model_construct().model_dump() | {"backends": {"claude": {}}})
    assert (explicit.daemon, explicit.tracing) == (parse_config({}).daemon, parse_config({}).tracing)
    every = BackendConfig.model_construct().model_dump()
    assert parse_config({"backends": {"claude": every}}).backends["claude"] == parse_config({}).backends["claude"]
