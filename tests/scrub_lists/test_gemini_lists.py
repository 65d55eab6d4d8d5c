"""The lists of the backend kind gemini: what it must never inherit, and what must come from nowhere at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from clisup.backends.base import LaunchRequest
from clisup.backends.gemini import GeminiAdapter
from clisup.core.scrub import RuleSet, build_environment, check_configuration
from clisup.errors import ConfigurationError
from clisup.host.scrub_files import load_rules

DIRECTORY = Path(__file__).resolve().parents[2] / "scrub_lists"


def _words(text: str) -> list[str]:
    return text.split()


# Every name of gemini's 0.61.0 bundle that holds a credential, an endpoint, a directory, telemetry, code or a sandbox.
HELD_BACK = _words("""
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
""")
FROM_NO_SOURCE = _words("GEMINI_CLI_INTEGRATION_TEST NODE_OPTIONS PYTHONPATH")


@pytest.fixture
def rules() -> RuleSet:
    return load_rules("gemini", DIRECTORY)


@pytest.mark.fault(34)
def test_nothing_that_steers_gemini_is_inherited(rules: RuleSet) -> None:
    inherited = {name: f"canary-{at}" for at, name in enumerate([*HELD_BACK, *FROM_NO_SOURCE])}
    child, report = build_environment(inherited | {"PATH": "/bin"}, rules)
    assert child == {"PATH": "/bin"}
    assert "canary-" not in repr(report)


@pytest.mark.parametrize("name", HELD_BACK)
def test_each_name_is_held_back_by_a_scrub_line_and_may_be_set_on_purpose(rules: RuleSet, name: str) -> None:
    rule = rules.verdict(name)
    assert rule is not None and rule.kind == "scrub" and not rules.denied(name)


@pytest.mark.fault(36)
@pytest.mark.parametrize("name", FROM_NO_SOURCE)
def test_what_loads_other_code_comes_from_no_source(rules: RuleSet, name: str) -> None:
    with pytest.raises(ConfigurationError):
        check_configuration(rules, pass_env=[], env_names=[name], request_env=[])


@pytest.mark.fault(37)
def test_every_endpoint_and_every_key_of_a_pair_is_held_back_by_default(rules: RuleSet) -> None:
    assert {"GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL"} <= {pair.endpoint for pair in rules.pairs}
    for name in {name for pair in rules.pairs for name in (pair.endpoint, *pair.credentials)}:
        verdict = rules.verdict(name)
        assert verdict is not None and verdict.kind == "scrub", name


@pytest.mark.fault(76)
def test_what_a_repository_must_not_set_is_closed_and_what_the_user_set_stands(rules: RuleSet) -> None:
    request = LaunchRequest(command=("gemini",), prompt="x", native_session_id="_a", resume=False, cwd="/")
    spec = GeminiAdapter().launch(request)
    inherited = {
        "PATH": "/bin",
        "HTTPS_PROXY": "http://proxy",
        "GEMINI_API_KEY": "key",
        "GOOGLE_GEMINI_BASE_URL": "http://a",
    }
    passed = ["GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"]
    child, _ = build_environment(inherited, rules, pass_env=passed, backend_sets=spec.env, closed=spec.closed_env)
    assert child["HTTPS_PROXY"] == "http://proxy" and child["GOOGLE_GEMINI_BASE_URL"] == "http://a"
    assert child["GOOGLE_VERTEX_BASE_URL"] == child["CODE_ASSIST_ENDPOINT"] == child["GEMINI_SYSTEM_MD"] == ""


def test_no_line_is_dead(rules: RuleSet) -> None:
    own = [rule for rule in rules.rules if rule.list_name == "gemini"]
    allowed = [rule for rule in own if rule.kind == "allow"]
    assert [rule.id for rule in allowed if rules.verdict(rule.pattern) != rule] == []
    assert [rule.id for rule in own if rule.kind == "scrub" and rules.denied(rule.pattern.rstrip("*"))] == []
