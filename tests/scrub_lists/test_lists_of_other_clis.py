"""The lists of the backend kinds beside claude: what each must never inherit, and what must come from nowhere at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from clisup.errors import ConfigurationError
from clisup.host.scrub_files import load_rules
from clisup.policy.environment.scrub import RuleSet, build_environment, check_configuration

DIRECTORY = Path(__file__).resolve().parents[2] / "scrub_lists"

# Of gemini every name of its 0.61.0 bundle that holds a credential, an endpoint, a directory, telemetry, code or a sandbox.
HELD_BACK = {
    "gemini": """
AWS_ACCESS_KEY_ID AWS_REGION AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN BROWSER BUILD_SANDBOX CHROME_CONFIG_HOME
CHROME_DEVTOOLS_MCP_NO_USAGE_STATISTICS CLOUDSDK_CONFIG CLOUD_SHELL CODE_ASSIST_ENDPOINT CRUX_API_KEY CURSOR_TRACE_ID DEBUG
DEBUG_AUTH DEBUG_MODE DEBUG_PORT EDITOR FUNCTION_REGION GCE_METADATA_HOST GCE_METADATA_IP GEMINI_API_KEY
GEMINI_API_KEY_AUTH_MECHANISM GEMINI_CLI_ACTIVITY_LOG_TARGET GEMINI_CLI_CUSTOM_HEADERS GEMINI_CLI_EXTENSION_REGISTRY_URI
GEMINI_CLI_HOME GEMINI_CLI_IDE_AUTH_TOKEN GEMINI_CLI_IDE_SERVER_PORT GEMINI_CLI_IDE_SERVER_STDIO_COMMAND
GEMINI_CLI_SYSTEM_DEFAULTS_PATH GEMINI_CLI_SYSTEM_SETTINGS_PATH GEMINI_CLI_TRUSTED_FOLDERS_PATH GEMINI_CLI_TRUST_WORKSPACE
GEMINI_DEBUG_LOG_FILE GEMINI_DEFAULT_AUTH_TYPE GEMINI_MODEL GEMINI_SANDBOX GEMINI_SANDBOX_PROXY_COMMAND GEMINI_SYSTEM_MD
GEMINI_TELEMETRY_ENABLED GEMINI_TELEMETRY_OTLP_ENDPOINT GEMINI_WRITE_SYSTEM_MD GITHUB_TOKEN GOOGLE_API_KEY
GOOGLE_APPLICATION_CREDENTIALS GOOGLE_CLOUD_ACCESS_TOKEN GOOGLE_CLOUD_PROJECT GOOGLE_GEMINI_BASE_URL GOOGLE_GENAI_USE_VERTEXAI
GOOGLE_VERTEX_BASE_URL GRPC_DEFAULT_SSL_ROOTS_FILE_PATH HTTP2_DEBUG LOG_STREAM LOG_TOKENS NODE_DEBUG OAUTH_CALLBACK_HOST
OAUTH_CALLBACK_PORT OTEL_EXPORTER_OTLP_ENDPOINT OTLP_GOOGLE_CLOUD_PROJECT QTS_DEBUG SANDBOX SANDBOX_ENV SANDBOX_FLAGS
SANDBOX_MOUNTS SEATBELT_PROFILE VISUAL VITEST NODE_TLS_REJECT_UNAUTHORIZED
""",
    "qwen": """
OPENAI_API_KEY OPENAI_BASE_URL OPENAI_MODEL DASHSCOPE_API_KEY ANTHROPIC_API_KEY GEMINI_API_KEY GOOGLE_API_KEY QWEN_HOME
QWEN_RUNTIME_DIR QWEN_CODE_SYSTEM_SETTINGS_PATH QWEN_CODE_SYSTEM_DEFAULTS_PATH QWEN_CODE_TRUSTED_FOLDERS_PATH QWEN_SYSTEM_MD
QWEN_SYSTEM_IDENTITY_MD QWEN_TLS_INSECURE QWEN_SANDBOX QWEN_SANDBOX_PROXY_COMMAND SANDBOX_FLAGS QWEN_CODE_UNATTENDED_RETRY
NODE_TLS_REJECT_UNAUTHORIZED OTEL_EXPORTER_OTLP_ENDPOINT QWEN_TELEMETRY_OUTFILE WEB_SEARCH_API_KEY OSS_ACCESS_KEY_SECRET
QWEN_CODE_EXTERNAL_TOOL_GUARD_TOKEN EDITOR BROWSER CLOUD_SHELL DEBUG OPENAI_LOG
""",
    "opencode": """
ANTHROPIC_API_KEY AWS_SECRET_ACCESS_KEY BROWSER BUN_CONFIG_REGISTRY DATABRICKS_TOKEN EDITOR GITHUB_TOKEN LMSTUDIO_API_KEY
OPENAI_API_KEY OPENAI_BASE_URL OPENCODE_API_KEY OPENCODE_AUTH_CONTENT OPENCODE_CONFIG OPENCODE_CONFIG_CONTENT OPENCODE_CONFIG_DIR
OPENCODE_CONSOLE_TOKEN OPENCODE_DB OPENCODE_DISABLE_PROJECT_CONFIG OPENCODE_MODELS_URL OPENCODE_PERMISSION
OPENCODE_SERVER_PASSWORD OTEL_EXPORTER_OTLP_ENDPOINT VISUAL
""",
}
FROM_NO_SOURCE = {
    "gemini": "GEMINI_CLI_INTEGRATION_TEST NODE_OPTIONS PYTHONPATH",
    "qwen": "QWEN_CODE_RELAUNCH_ARGS QWEN_CODE_MANAGED_NPM_PIN QWEN_CODE_LAUNCHER_PATH CLI_VERSION NODE_OPTIONS",
    "opencode": "BUN_BE_BUN BUN_OPTIONS OPENCODE_TEST_HOME OPENCODE_TEST_MANAGED_CONFIG_DIR",
}
ENDPOINTS = {
    "gemini": {"GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL"},
    "qwen": {"OPENAI_BASE_URL"},
    "opencode": {"ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"},
}
KINDS = tuple(HELD_BACK)


def each(names: dict[str, str]) -> list[tuple[str, str]]:
    """(kind, name) of all of them."""
    return [(kind, name) for kind in KINDS for name in names[kind].split()]


def rules_of(kind: str) -> RuleSet:
    return load_rules(kind, DIRECTORY)


@pytest.mark.fault(34)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_that_steers_the_cli_is_inherited(kind: str) -> None:
    names = [*HELD_BACK[kind].split(), *FROM_NO_SOURCE[kind].split()]
    inherited = {name: f"canary-{at}" for at, name in enumerate(names)}
    child, report = build_environment(inherited | {"PATH": "/bin"}, rules_of(kind))
    assert child == {"PATH": "/bin"}
    assert "canary-" not in repr(report)


@pytest.mark.parametrize(("kind", "name"), each(HELD_BACK))
def test_each_name_is_held_back_by_a_scrub_line_and_may_be_set_on_purpose(kind: str, name: str) -> None:
    rules = rules_of(kind)
    rule = rules.verdict(name)
    assert rule is not None and rule.kind == "scrub" and not rules.denied(name)


@pytest.mark.fault(36)
@pytest.mark.parametrize(("kind", "name"), each(FROM_NO_SOURCE))
def test_what_loads_other_code_comes_from_no_source(kind: str, name: str) -> None:
    with pytest.raises(ConfigurationError):
        check_configuration(rules_of(kind), pass_env=[], env_names=[name], request_env=[])


@pytest.mark.fault(37)
@pytest.mark.parametrize("kind", KINDS)
def test_every_endpoint_and_every_key_of_a_pair_is_held_back_by_default(kind: str) -> None:
    rules = rules_of(kind)
    assert ENDPOINTS[kind] <= {pair.endpoint for pair in rules.pairs}
    for name in {name for pair in rules.pairs for name in (pair.endpoint, *pair.credentials)}:
        verdict = rules.verdict(name)
        assert verdict is not None and verdict.kind == "scrub", name


@pytest.mark.parametrize("kind", KINDS)
def test_no_line_is_dead(kind: str) -> None:
    rules = rules_of(kind)
    own = [rule for rule in rules.rules if rule.list_name == kind]
    allowed = [rule for rule in own if rule.kind == "allow"]
    assert [rule.id for rule in allowed if rules.verdict(rule.pattern) != rule] == []
    assert [rule.id for rule in own if rule.kind == "scrub" and rules.denied(rule.pattern.rstrip("*"))] == []
