"""The shipped lists: what claude must never inherit, what it must, and that every line means something."""

from __future__ import annotations

from pathlib import Path

import pytest

from clisup.errors import ConfigurationError
from clisup.host.scrub_files import load_rules
from clisup.policy.environment.scrub import RuleSet, build_environment, check_configuration
from clisup.policy.environment.scrub_list import parse_list

DIRECTORY = Path(__file__).resolve().parents[2] / "scrub_lists"
LISTS = sorted(DIRECTORY.glob("*.*"))


def _words(text: str) -> list[str]:
    return text.split()


FOUNDING = _words("""
ANTHROPIC_API_KEY CLAUDE_CODE_OAUTH_TOKEN CLAUDE_CODE_OAUTH_REFRESH_TOKEN CLAUDE_CONFIG_DIR ANTHROPIC_BASE_URL
ANTHROPIC_VERTEX_PROJECT_ID OTEL_EXPORTER_OTLP_ENDPOINT OTEL_EXPORTER_OTLP_HEADERS OTEL_METRICS_EXPORTER
OTEL_LOGS_EXPORTER OTEL_TRACES_EXPORTER
""")

OPENCLAW = _words("""
ANTHROPIC_API_KEY ANTHROPIC_API_KEY_OLD ANTHROPIC_API_TOKEN ANTHROPIC_AUTH_TOKEN ANTHROPIC_BASE_URL
ANTHROPIC_CUSTOM_HEADERS ANTHROPIC_OAUTH_TOKEN ANTHROPIC_UNIX_SOCKET CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR
CLAUDE_CODE_OAUTH_REFRESH_TOKEN CLAUDE_CODE_OAUTH_SCOPES CLAUDE_CODE_OAUTH_TOKEN CLAUDE_CODE_OAUTH_TOKEN_FILE_DESCRIPTOR
CLAUDE_CODE_USE_BEDROCK CLAUDE_CODE_USE_FOUNDRY CLAUDE_CODE_USE_VERTEX CLAUDE_CODE_AUTO_COMPACT_WINDOW
CLAUDE_CODE_DISABLE_1M_CONTEXT CLAUDE_CODE_DISABLE_ADAPTIVE_THINKING MAX_THINKING_TOKENS CLAUDE_CODE_ENTRYPOINT
CLAUDE_CODE_PLUGIN_CACHE_DIR CLAUDE_CODE_PLUGIN_SEED_DIR CLAUDE_CODE_REMOTE CLAUDE_CODE_USE_COWORK_PLUGINS
OTEL_EXPORTER_OTLP_ENDPOINT OTEL_EXPORTER_OTLP_HEADERS OTEL_EXPORTER_OTLP_PROTOCOL OTEL_EXPORTER_OTLP_LOGS_ENDPOINT
OTEL_EXPORTER_OTLP_LOGS_HEADERS OTEL_EXPORTER_OTLP_LOGS_PROTOCOL OTEL_EXPORTER_OTLP_METRICS_ENDPOINT
OTEL_EXPORTER_OTLP_METRICS_HEADERS OTEL_EXPORTER_OTLP_METRICS_PROTOCOL OTEL_EXPORTER_OTLP_TRACES_ENDPOINT
OTEL_EXPORTER_OTLP_TRACES_HEADERS OTEL_EXPORTER_OTLP_TRACES_PROTOCOL OTEL_LOGS_EXPORTER OTEL_METRICS_EXPORTER
OTEL_SDK_DISABLED OTEL_TRACES_EXPORTER
""")

CANARIES = _words("""
ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN ANTHROPIC_BASE_URL ANTHROPIC_CUSTOM_HEADERS ANTHROPIC_LOG ANTHROPIC_MODEL
CLAUDE_CODE_OAUTH_TOKEN CLAUDE_CONFIG_DIR CLAUDECODE CLAUDE_CODE_SESSION_ID CLAUDE_CODE_MESSAGING_TOKEN CLAUDE_PID
CLAUDE_CODE_USE_BEDROCK CLAUDE_CODE_EXTRA_BODY OPENAI_API_KEY CODEX_HOME GEMINI_API_KEY DASHSCOPE_API_KEY
OPENROUTER_API_KEY AWS_SECRET_ACCESS_KEY AWS_PROFILE AZURE_CLIENT_SECRET GOOGLE_APPLICATION_CREDENTIALS GITHUB_TOKEN
GH_TOKEN GITLAB_TOKEN NPM_TOKEN HF_TOKEN DATABASE_URL REDIS_URL VAULT_TOKEN SLACK_BOT_TOKEN SSH_AUTH_SOCK KUBECONFIG
OTEL_EXPORTER_OTLP_HEADERS NOTIFY_SOCKET CREDENTIALS_DIRECTORY LD_PRELOAD MY_COMPANY_SECRET CLISUP_STATE_DIR
""")

# Names of the 2.1.329 binary that are marked credential, endpoint, config directory, session identity or code loading.
MARKED = _words("""
AGENT_PROXY_AUTH_TOKEN AI_AGENT ANTHROPIC_CONFIG_DIR ANTHROPIC_FEDERATION_RULE_ID ANTHROPIC_WORK_SECRET
ANT_OTEL_EXPORTER_OTLP_HEADERS AUTOMODE_DECISION_LOG AWS_BEARER_TOKEN_BEDROCK AWS_ENDPOINT_URL_STS AZURE_TENANT_ID
BETA_TRACING_ENDPOINT BROWSER BUN_CONFIG_FILE CCR_OAUTH_TOKEN_FILE CLAUDE_API_KEY CLAUDE_BG_SESSION_CREDENTIAL
CLAUDE_BRIDGE_OAUTH_TOKEN CLAUDE_CODE_CLIENT_KEY_PASSPHRASE CLAUDE_CODE_ENABLE_TELEMETRY CLAUDE_CODE_EXECPATH
CLAUDE_CODE_MANAGED_SETTINGS_PATH CLAUDE_CODE_MESSAGING_SOCKET CLAUDE_CODE_SESSION CLAUDE_CODE_SHELL_PREFIX
CLAUDE_CODE_SSE_PORT CLAUDE_CODE_TMPDIR CLAUDE_ENV_FILE CLAUDE_SECURESTORAGE_CONFIG_DIR CLOUDSDK_AUTH_ACCESS_TOKEN
CLOUD_ML_REGION DEBUG ENVIRONMENT_SERVICE_KEY FALLBACK_FOR_ALL_PRIMARY_MODELS GCE_METADATA_HOST GIT_CONFIG_PARAMETERS
GIT_DIR GIT_SSH_COMMAND IDENTITY_HEADER IS_SANDBOX MCP_CLIENT_SECRET MSI_SECRET NODE_AUTH_TOKEN NODE_DEBUG
NODE_TLS_REJECT_UNAUTHORIZED NPM_CONFIG_USERCONFIG PIP_INDEX_URL SDK_NATIVE_BIN SELF_HOSTED_RUNNER_POOL_SECRET
SESSION_INGRESS_URL USE_STAGING_OAUTH UV_PUBLISH_TOKEN VERTEX_REGION_CLAUDE_5_OPUS XDG_RUNTIME_DIR
google_application_credentials
""")

SYSTEMD = _words("""
NOTIFY_SOCKET LISTEN_FDS LISTEN_PID LISTEN_FDNAMES WATCHDOG_USEC WATCHDOG_PID INVOCATION_ID JOURNAL_STREAM
CREDENTIALS_DIRECTORY MAINPID MANAGERPID SYSTEMD_EXEC_PID MEMORY_PRESSURE_WATCH MEMORY_PRESSURE_WRITE
""")

CODE_LOADING = _words("""
NODE_OPTIONS BUN_OPTIONS BUN_INSPECT BUN_INSPECT_PRELOAD BUN_INSPECT_CONNECT_TO LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT
DYLD_INSERT_LIBRARIES PYTHONPATH PYTHONHOME PYTHONSTARTUP BASH_ENV ENV SHELLOPTS PERL5OPT RUBYOPT JAVA_TOOL_OPTIONS
GCONV_PATH GLIBC_TUNABLES NODE_PATH SSLKEYLOGFILE ld_preload Node_Options
""")

USUAL = _words("""
PATH HOME USER LOGNAME SHELL LANG LC_ALL LC_CTYPE TZ TERM NO_COLOR TMPDIR XDG_CONFIG_HOME HTTPS_PROXY https_proxy
NO_PROXY SSL_CERT_FILE NODE_EXTRA_CA_CERTS GIT_SSL_CAINFO DISABLE_TELEMETRY CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC
""")


@pytest.fixture(params=["claude", "demo"])
def rules(request: pytest.FixtureRequest) -> RuleSet:
    return load_rules(request.param, DIRECTORY)


@pytest.mark.fault(34)
def test_no_canary_of_the_daemons_environment_reaches_a_child(rules: RuleSet) -> None:
    canary = {name: f"canary-{i}" for i, name in enumerate([*CANARIES, *MARKED, *FOUNDING, *OPENCLAW])}
    child, report = build_environment(canary | {"PATH": "/bin"}, rules)
    assert child == {"PATH": "/bin"}
    assert len(report.dropped) == len(canary)
    assert "canary-" not in repr(report)
    assert len(CANARIES) == len(set(CANARIES)) == 40


@pytest.mark.fault(34)
def test_the_founding_and_the_openclaw_list_stand_in_claudes_own_list_line_by_line() -> None:
    own = {
        rule.pattern
        for rule in load_rules("claude", DIRECTORY).rules
        if (rule.list_name, rule.kind) == ("claude", "scrub")
    }
    assert len(OPENCLAW) == 41
    assert {*FOUNDING, *OPENCLAW} <= own


@pytest.mark.parametrize("name", [*CANARIES, *MARKED])
def test_each_marked_name_is_held_back_by_a_rule_and_not_by_chance(name: str) -> None:
    rule = load_rules("claude", DIRECTORY).verdict(name)
    assert name == "MY_COMPANY_SECRET" or (rule is not None and rule.kind in ("scrub", "deny"))


@pytest.mark.fault(35)
def test_the_service_managers_variables_are_denied(rules: RuleSet) -> None:
    assert [name for name in SYSTEMD if not rules.denied(name)] == []
    assert build_environment(dict.fromkeys(SYSTEMD, "1"), rules)[0] == {}


@pytest.mark.fault(36)
def test_what_loads_code_is_denied_from_every_source(rules: RuleSet) -> None:
    assert build_environment(dict.fromkeys([*CODE_LOADING, "BASH_FUNC_ls%%", "BASH_FUNC_x"], "1"), rules)[0] == {}
    for name in CODE_LOADING:
        with pytest.raises(ConfigurationError):
            check_configuration(rules, pass_env=[], env_names=[name], request_env=[])
        with pytest.raises(ConfigurationError):
            check_configuration(rules, pass_env=[name], env_names=[], request_env=[name])


@pytest.mark.fault(77)
@pytest.mark.parametrize(
    "pattern", ["ANTHROPIC_*", "CLAUDE_CODE_*", "ANT*", "AWS_*", "GIT_*", "CLISUP_*", "OTEL_EXPORTER_*"]
)
def test_no_pattern_brings_a_held_back_name_back(rules: RuleSet, pattern: str) -> None:
    with pytest.raises(ConfigurationError, match="one by one"):
        check_configuration(rules, pass_env=[pattern], env_names=[], request_env=[])


def test_what_a_program_needs_is_inherited(rules: RuleSet) -> None:
    usual = dict.fromkeys(USUAL, "x")
    assert build_environment(usual, rules)[0] == usual


@pytest.mark.fault(37)
def test_every_endpoint_and_every_key_of_a_pair_is_held_back_by_default(rules: RuleSet) -> None:
    assert "ANTHROPIC_BASE_URL" in {pair.endpoint for pair in rules.pairs}
    for name in {name for pair in rules.pairs for name in (pair.endpoint, *pair.credentials)}:
        verdict = rules.verdict(name)
        assert verdict is not None
        assert verdict.kind == "scrub"
        assert rules.denied(name) is None


def test_no_allowed_line_is_dead(rules: RuleSet) -> None:
    for rule in rules.rules:
        if rule.kind == "allow":
            assert rules.verdict(rule.pattern.rstrip("*")) == rule, rule.id


def test_no_scrubbed_line_is_denied_at_once(rules: RuleSet) -> None:
    assert [r.id for r in rules.rules if r.kind == "scrub" and rules.denied(r.pattern.rstrip("*"))] == []


def test_an_adapter_may_set_what_claude_needs() -> None:
    sets = {"CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1"}
    inherited = {"CLAUDE_CODE_DISABLE_FILE_MENTIONS": "0"}
    assert build_environment(inherited, load_rules("claude", DIRECTORY), backend_sets=sets)[0] == sets


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.name)
def test_every_list_says_what_it_is_and_how_a_line_is_written(path: Path) -> None:
    head = path.read_text().split("\n\n")[0]
    assert head.startswith("# ")
    assert "`PATTERN | reason | source`" in head
    assert max(map(len, head.splitlines())) <= 120


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.name)
def test_a_shipped_list_says_what_it_was_checked_with_and_when(path: Path) -> None:
    name, kind = path.name.split(".")
    stamp = parse_list(name, kind, path.read_text()).checked  # type: ignore[arg-type]
    assert stamp is not None and stamp.date >= "2026-11-20"
