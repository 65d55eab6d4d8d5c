"""What the lists of gemini do that those of no other CLI do: they close what a repository could set."""

from __future__ import annotations

from pathlib import Path

import pytest

from clisup.backends.base import LaunchRequest
from clisup.backends.gemini.adapter import GeminiAdapter
from clisup.host.scrub_files import load_rules
from clisup.policy.environment.scrub import RuleSet, build_environment

DIRECTORY = Path(__file__).resolve().parents[2] / "scrub_lists"


@pytest.fixture
def rules() -> RuleSet:
    return load_rules("gemini", DIRECTORY)


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
