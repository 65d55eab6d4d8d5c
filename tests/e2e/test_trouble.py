"""What goes wrong with the real claude, and what must come of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.fake_messages_api import FAKE_KEY
from tests.e2e.lab import QUIET, ClaudeLab, claude_binary, marked, poll, running

pytestmark = pytest.mark.e2e
BYPASS = {"permission_mode": "bypassPermissions"}


@pytest.mark.fault(64)
def test_a_401_ends_the_turn_at_the_third_retry(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("http_401")
    turn = here.turn()
    assert turn["outcome"] == "failed"
    assert turn["error"]["kind"] == "authentication" and turn["error"]["http_status"] == 401
    retries = here.events(turn["session_id"], "retry")  # the CLI itself would make ten in 177 s
    assert 3 <= len(retries) <= 4 and turn["error"]["retryable"] is False


@pytest.mark.fault(63)
@pytest.mark.parametrize(
    ("scenario", "kind"),
    [
        ("http_403", "permission"),
        ("http_404", "model_not_found"),
        ("http_429_long", "rate_limit"),
        ("billing", "quota_exceeded"),
        ("http_400_too_long", "context_overflow"),
        ("http_400_other", "invalid_request"),
    ],
)
def test_an_api_failure_that_says_success_fails_with_its_kind(
    lab: Callable[..., ClaudeLab], scenario: str, kind: str
) -> None:
    turn = lab(scenario).turn()
    assert turn["outcome"] == "failed"
    assert turn["error"]["kind"] == kind


def test_a_usage_limit_says_when_it_ends(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("http_429_oauth_limit", auth="oauth")
    turn = here.turn()
    limit = here.events(turn["session_id"], "rate_limit")[0]
    assert turn["error"]["kind"] in ("rate_limit", "quota_exceeded")
    assert limit["status"] == "rejected" and limit["resets_at"].startswith("2100-01-01T")


def test_retries_of_the_cli_are_events_and_the_turn_succeeds(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("http_500_once")
    turn = here.turn()
    retry = here.events(turn["session_id"], "retry")[0]
    assert turn["outcome"] == "completed" and turn["text"] == "Recovered."
    assert retry["error"]["kind"] == "server" and retry["error"]["http_status"] == 500


def test_nobody_logged_in_is_said_as_authentication(lab: Callable[..., ClaudeLab]) -> None:
    turn = lab("not_logged_in", auth="none").turn()
    assert turn["outcome"] == "failed" and turn["error"]["kind"] == "authentication"


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


@pytest.mark.fault(67)
def test_an_unknown_session_is_told_and_the_session_can_start_anew(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("text")
    session = here.open(resume_native_id="00000000-0000-4000-8000-000000000000")
    lost = here.turn(session=session)
    assert lost["outcome"] == "failed" and lost["error"]["kind"] == "session_not_found"
    assert here.turn(session=session)["outcome"] == "completed"


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


@pytest.mark.fault(15)
@pytest.mark.fault(73)
@pytest.mark.parametrize("scenario", ["stall_before_headers", "stall_mid_stream"])
def test_a_stalled_stream_is_ended_by_the_watchdog(lab: Callable[..., ClaudeLab], scenario: str) -> None:
    here = lab(scenario)
    turn = here.turn(timeouts={"model_idle": 2.0, "term_grace": 2.0})
    exited = here.events(turn["session_id"], "process_exited")[0]
    assert turn["outcome"] == "timed_out" and turn["error"]["kind"] == "idle_timeout"
    assert exited["ended_by"] == "watchdog:model"
    assert [e["action"] for e in here.events(turn["session_id"], "watchdog")] == ["warned", "fired"]


def test_a_silent_tool_is_not_killed_by_the_model_limit(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("slow_bash")
    turn = here.turn("Use your tools.", timeouts={"model_idle": 3.0, "tool_idle": 60.0}, **BYPASS)
    assert turn["outcome"] == "completed" and turn["text"] == "done"


def test_an_interrupt_keeps_the_partial_text_and_the_session(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("stall_mid_stream")
    session = here.open()
    here.prompt(session)
    here.wait_for(session, "content_delta")
    with here.client() as client:
        answer = client.call("session/interrupt", session_id=session)
    exited = here.events(session, "process_exited")[0]
    assert answer["outcome"] == "interrupted"
    assert exited["ended_by"] == "client"
    blocks = [b.get("text") for e in here.events(session, "message") for b in e["blocks"]]
    assert any(blocks), "SIGINT makes claude confirm what it had said"


def test_an_interrupt_in_a_tool_leaves_no_process(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("slow_bash")
    session = here.open(**BYPASS)
    here.prompt(session, "Use your tools.")
    here.wait_for(session, "tool_use")
    with here.client() as client:
        assert client.call("session/interrupt", session_id=session)["outcome"] == "interrupted"
    assert not marked(session)


@pytest.mark.fault(1)
@pytest.mark.parametrize("scenario", ["slow_bash", "parallel_tools"])
def test_a_daemon_killed_in_mid_turn_loses_nothing(lab: Callable[..., ClaudeLab], scenario: str) -> None:
    here = lab(scenario)
    session = here.open(**BYPASS)
    here.prompt(session, "Use your tools.")
    here.wait_for(session, "tool_use")
    here.kill()
    here.start()
    done = here.wait_for(session, "turn_completed")
    events = here.events(session)
    assert done["outcome"] == "completed"
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert [e["type"] for e in events].count("turn_completed") == 1
    assert len({e["tool_use_id"] for e in events if e["type"] == "tool_result"}) == len(
        [e for e in events if e["type"] == "tool_use"]
    )
    assert [e for e in events if e["type"] == "notice" and e["code"] == "adopted"]


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
