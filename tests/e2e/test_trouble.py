"""What goes wrong with the real claude, and what must come of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.fake_messages_api import FAKE_KEY
from tests.e2e.lab import QUIET, ClaudeLab, claude_binary, poll, running

pytestmark = pytest.mark.e2e
BYPASS = {"permission_mode": "bypassPermissions"}


def test_a_usage_limit_says_when_it_ends(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("http_429_oauth_limit", auth="oauth")
    turn = here.turn()
    limit = here.events(turn["session_id"], "rate_limit")[0]
    assert turn["error"]["kind"] in ("rate_limit", "quota_exceeded")
    assert limit["status"] == "rejected" and limit["resets_at"].startswith("2100-01-01T")


def test_a_key_that_was_held_back_is_named_and_the_hint_leads_to_an_answer() -> None:
    lab = ClaudeLab("text", auth="none")
    # Without its endpoint claude would look for the real one: what leaves for it ends at a port where nobody listens.
    quiet = {**QUIET, "HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}
    lab.configure(command=[str(claude_binary())], env=quiet)
    lab.daemon_env = {"ANTHROPIC_API_KEY": FAKE_KEY, "ANTHROPIC_BASE_URL": lab.api.url}
    with running(lab):
        failed = lab.command("run", "-b", "claude", "Say hello.")
        assert (failed.returncode, failed.stdout) == (69, "")
        assert failed.stderr.count("Not logged in") == 1 and "failed: authentication: Not logged in" in failed.stderr
        setting = 'pass_env = ["ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"]'
        assert f"set {setting} in [backends.claude], then clisup daemon reload" in failed.stderr
        assert FAKE_KEY not in failed.stderr
        lab.configure(command=[str(claude_binary())], env=quiet, extra=setting)
        assert lab.command("daemon", "reload").returncode == 0
        answered = lab.command("run", "-b", "claude", "Say hello.")
        assert answered.returncode == 0 and answered.stdout.startswith("Hello"), answered.stderr


def test_a_session_id_that_is_in_use_is_resumed(lab: Callable[..., ClaudeLab]) -> None:
    """clisup's record is gone, the CLI's transcript is not: the same id goes on where it was."""
    here = lab("memory")
    here.asked_by_others = True  # the turn whose record is removed
    session = "6b0f3c1e-5d0c-4a7e-9f57-1d2c3b4a5968"
    here.turn("My name is Ada.", session_id=session)
    here.kill()
    poll(lambda: not _remove(here.state / "sessions"), "the removal of clisup's own record")
    here.start()
    again = here.turn("What did I say?", session_id=session)
    assert again["outcome"] == "completed" and "My name is Ada." in again["text"]


def _remove(path: Path) -> bool:
    import shutil

    shutil.rmtree(path, ignore_errors=True)
    return path.exists()


def test_a_silent_tool_is_not_killed_by_the_model_limit(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("slow_bash")
    turn = here.turn("Use your tools.", timeouts={"model_idle": 3.0, "tool_idle": 60.0}, **BYPASS)
    assert turn["outcome"] == "completed" and turn["text"] == "done"


@pytest.mark.fault(5)
def test_a_cli_that_ends_while_the_daemon_is_away_is_told_exactly(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("slow_bash")
    session = here.open(**BYPASS)
    here.prompt(session, "Use your tools.")
    here.wait_for(session, "tool_use")
    here.kill()
    exit_file = here.state / "sessions" / session / "runs" / "1" / "exit.json"
    poll(exit_file.exists, "the CLI's exit")
    here.start()
    done = here.wait_for(session, "turn_completed")
    exited = here.events(session, "process_exited")[0]
    assert done["outcome"] == "completed" and done["text"] == "done"
    assert exited["exit_code"] == 0 and exited["ended_by"] == "cli"


@pytest.mark.fault(34)
def test_no_credential_of_the_daemon_reaches_the_cli(
    lab: Callable[..., ClaudeLab], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = lab("tool_env") if _has("tool_env") else lab("slow_bash")
    session = here.open(**BYPASS)
    here.prompt(session, "Use your tools.")
    started = here.wait_for(session, "process_started")
    names = set(started["env_names"])
    assert started["env_attested"] is True
    assert {"CLISUP_SESSION", "CLISUP_RUN", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"} <= names  # set on purpose here
    assert not {"CLAUDE_CONFIG_DIR", "CLAUDECODE", "NODE_OPTIONS", "PYTHONUNBUFFERED"} & names
    assert here.wait_for(session, "turn_completed")["outcome"] == "completed"


def _has(name: str) -> bool:
    from tests.e2e.scenarios import SCENARIOS

    return name in SCENARIOS
