"""`clisup doctor` and drift with the real claude: what it says of its login, and that nothing of it is unknown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.e2e.lab import ClaudeLab
from tests.versions import VERSIONS

pytestmark = pytest.mark.e2e


def findings(lab: ClaudeLab) -> dict[str, dict[str, str]]:
    with lab.client() as client:
        found = client.call("backend/check", name="claude", cwd=str(lab.cwd))
    return {one["check"]: one for one in found}


def test_a_login_is_seen_without_a_request(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("text")
    found = findings(here)
    assert (found["login"]["status"], found["version"]["status"], found["argv"]["status"]) == ("ok", "ok", "ok")
    assert found["login"]["detail"].startswith("logged in")
    assert found["scrub lists"]["status"] == "ok"
    assert here.api.requests == []


def test_no_login_is_a_fail_with_its_way_out(lab: Callable[..., ClaudeLab]) -> None:
    found = findings(lab("text", auth="none"))["login"]
    assert found["status"] == "fail" and "log in as the daemon's user" in found["fix"]


def test_ordinary_turns_of_the_recorded_version_do_not_drift(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("thinking")
    assert here.turn()["outcome"] == "completed"
    with here.client() as client:
        assert client.call("daemon/status")["drift"] == []


def test_the_names_in_the_real_binary_are_found_and_few_of_them_are_unknown(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("text")
    argv = [sys.executable, "-m", "clisup", "doctor", "--drift", "claude", "--json"]
    env = {"PATH": os.environ["PATH"], "HOME": str(here.home), "CLISUP_SOCKET": here.socket}
    argv += ["--config", str(here.root / "config.toml")]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["read"]["complete"] and found["version"] == VERSIONS["claude"]
    assert found["counts"]["found"] > 1500 > 3 * found["counts"]["unknown"]
    assert {"API_TIMEOUT_MS", "ENABLE_TOOL_SEARCH", "no_grpc_proxy"} <= set(found["unknown"])
    assert not {"ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "API_OPAQUE"} & set(found["unknown"])
    assert (here.state / "env-names" / "claude.json").exists(), "the state directory is the running daemon's"
