"""The lists of the backend kind qwen: what it must never inherit, and what must come from nowhere at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from clisup.core.scrub import RuleSet, build_environment, check_configuration
from clisup.errors import ConfigurationError
from clisup.host.scrub_files import load_rules

DIRECTORY = Path(__file__).resolve().parents[2] / "scrub_lists"


def _words(text: str) -> list[str]:
    return text.split()


HELD_BACK = _words("""
OPENAI_API_KEY OPENAI_BASE_URL OPENAI_MODEL DASHSCOPE_API_KEY ANTHROPIC_API_KEY GEMINI_API_KEY GOOGLE_API_KEY QWEN_HOME
QWEN_RUNTIME_DIR QWEN_CODE_SYSTEM_SETTINGS_PATH QWEN_CODE_SYSTEM_DEFAULTS_PATH QWEN_CODE_TRUSTED_FOLDERS_PATH QWEN_SYSTEM_MD
QWEN_SYSTEM_IDENTITY_MD QWEN_TLS_INSECURE QWEN_SANDBOX QWEN_SANDBOX_PROXY_COMMAND SANDBOX_FLAGS QWEN_CODE_UNATTENDED_RETRY
NODE_TLS_REJECT_UNAUTHORIZED OTEL_EXPORTER_OTLP_ENDPOINT QWEN_TELEMETRY_OUTFILE WEB_SEARCH_API_KEY OSS_ACCESS_KEY_SECRET
QWEN_CODE_EXTERNAL_TOOL_GUARD_TOKEN EDITOR BROWSER CLOUD_SHELL DEBUG OPENAI_LOG
""")
FROM_NO_SOURCE = _words(
    "QWEN_CODE_RELAUNCH_ARGS QWEN_CODE_MANAGED_NPM_PIN QWEN_CODE_LAUNCHER_PATH CLI_VERSION NODE_OPTIONS"
)


@pytest.fixture
def rules() -> RuleSet:
    return load_rules("qwen", DIRECTORY)


@pytest.mark.fault(34)
def test_nothing_that_steers_qwen_is_inherited(rules: RuleSet) -> None:
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
    assert "OPENAI_BASE_URL" in {pair.endpoint for pair in rules.pairs}
    for name in {name for pair in rules.pairs for name in (pair.endpoint, *pair.credentials)}:
        verdict = rules.verdict(name)
        assert verdict is not None and verdict.kind == "scrub", name


def test_no_line_is_dead(rules: RuleSet) -> None:
    own = [rule for rule in rules.rules if rule.list_name == "qwen"]
    allowed = [rule for rule in own if rule.kind == "allow"]
    assert [rule.id for rule in allowed if rules.verdict(rule.pattern) != rule] == []
    assert [rule.id for rule in own if rule.kind == "scrub" and rules.denied(rule.pattern.rstrip("*"))] == []
