"""What goes wrong with any real CLI, and what must come of it. What only one of them has is in its own folder."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.codex.lab import running_with
from tests.e2e.lab import marked, poll, text_of
from tests.e2e.labs import CLIS, WORDS_OF_A_401, Cli, each
from tests.e2e.scenarios import Body, Reply

pytestmark = pytest.mark.e2e
UNKNOWN_SESSION = {"opencode": "ses_0000000000ffe0000000000000"}
ONE_TRY = {"settings": {"general": {"maxAttempts": 1}}}
GATE = "touch begun; while ! [ -e go ]; do sleep 0.1; done; echo two"
LOOP = "while :; do sleep 0.1; done"


@pytest.mark.fault(63)
@pytest.mark.fault(64)
@each(but="gemini opencode")
def test_a_401_ends_the_turn_before_the_cli_gives_up_and_its_text_is_no_answer(cli: Cli) -> None:
    """By themselves claude would make ten retries in 177 s, and codex six requests in 7 s."""
    with cli.playing(cli.voice.unauthorised, **cli.patient) as here:
        turn = here.turn()
        events = here.events(turn["session_id"])
        retries = [event for event in events if event["type"] == "retry"]
        assert (turn["outcome"], turn["text"]) == ("failed", "")
        assert (turn["error"]["kind"], turn["error"]["http_status"]) == ("authentication", 401)
        assert cli.kind == "claude" or WORDS_OF_A_401 in turn["error"]["message"]
        assert not turn["error"].get("retryable")
        assert len(retries) in ((3, 4) if cli.kind in ("claude", "codex", "codex-exec") else (0,))
        assert not [event for event in events if event["type"] == "content_delta"]
        messages = [event for event in events if event["type"] == "message"]
        assert all(message["synthetic"] for message in messages) and (messages or cli.kind != "qwen")


FAILURES: tuple[tuple[str, str, str, int | None, dict[str, Any]], ...] = (
    ("claude", "http_403", "permission", 403, {}),
    ("claude", "http_404", "model_not_found", 404, {}),
    ("claude", "http_429_long", "rate_limit", 429, {}),
    ("claude", "billing", "quota_exceeded", 400, {}),
    ("claude", "http_400_too_long", "context_overflow", 400, {}),
    ("claude", "http_400_other", "invalid_request", 400, {}),
    ("claude", "not_logged_in", "authentication", None, {"auth": "none"}),
    ("codex", "http_404", "model_not_found", None, {}),
    ("codex", "http_429", "rate_limit", 429, {}),
    ("codex", "no_quota", "quota_exceeded", None, {}),
    ("codex", "http_500", "server", None, {}),
    ("codex", "http_503", "overloaded", None, {}),
    ("codex", "overflow", "context_overflow", None, {}),
    ("codex", "connection_refused", "network", None, {}),
    ("codex", "no_key", "authentication", None, {}),
    ("codex", "bad_setting", "invalid_request", None, {"args": ("-c", 'sandbox_mode="nonsense"')}),
    ("codex-exec", "http_429", "rate_limit", 429, {}),
    ("codex-exec", "http_500", "server", None, {}),
    ("gemini", "http_429", "rate_limit", None, ONE_TRY),
    ("gemini", "http_500", "server", 500, ONE_TRY),
    ("gemini", "http_503_plain", "overloaded", 503, ONE_TRY),
    ("opencode", "http_429", "rate_limit", 429, {}),
    ("opencode", "overflow_final", "context_overflow", None, {}),
    ("acp", "http_404", "model_not_found", 404, {}),
)


@pytest.mark.fault(63)
@pytest.mark.parametrize(("kind", "scenario", "error", "status", "options"), FAILURES)
def test_a_failure_has_its_kind(
    kind: str, scenario: str, error: str, status: int | None, options: dict[str, Any]
) -> None:
    with CLIS[kind].playing(scenario, **options) as here:
        turn = here.turn()
        assert (turn["outcome"], turn["error"]["kind"]) == ("failed", error)
        assert turn["error"].get("http_status") == status
        assert kind != "codex-exec" or here.events(turn["session_id"], "retry")


@each(["claude", "qwen"])
def test_a_500_that_passes_is_no_failure(cli: Cli) -> None:
    with cli.playing("http_500_once") as here:
        turn = here.turn()
        assert (turn["outcome"], turn["text"]) == ("completed", "Recovered.")
        if cli.kind == "claude":
            retry = here.events(turn["session_id"], "retry")[0]
            assert (retry["error"]["kind"], retry["error"]["http_status"]) == ("server", 500)


@each(["codex", "codex-exec", "opencode"])
def test_a_session_goes_on_after_a_failed_turn(cli: Cli) -> None:
    def respond(body: Body, n: int) -> Reply:
        refused = n > 0 and "What did I say?" not in str(body)
        return (cli.voice.unauthorised if refused else cli.voice.remember)(body, n)

    with cli.playing(respond) as here:
        session = here.turn("My name is Ada.")["session_id"]
        error = here.turn("And mine?", session=session)["error"]
        assert error["kind"] == "authentication" and WORDS_OF_A_401 in error["message"]
        assert cli.kind != "opencode" or error["http_status"] == 401
        assert "My name is Ada." in here.turn("What did I say?", session=session)["text"]


@pytest.mark.fault(65)
@each(["claude", "codex"])
def test_text_that_a_cut_stream_takes_back_is_retracted(cli: Cli) -> None:
    with cli.playing("cut_mid_stream") as here:
        turn = here.turn()
        events = here.events(turn["session_id"])
        (gone,) = [event["message_id"] for event in events if event["type"] == "retracted"]
        assert turn["text"] == text_of(events) == "The whole answer."
        assert gone not in [event["message_id"] for event in events if event["type"] == "message"]


@pytest.mark.fault(67)
@each()
def test_an_unknown_session_is_told_and_the_session_can_start_anew(cli: Cli) -> None:
    with cli.playing("text") as here:
        session = here.open(resume_native_id=UNKNOWN_SESSION.get(cli.kind, "00000000-0000-4000-8000-000000000000"))
        lost = here.turn(session=session)
        assert (lost["outcome"], lost["error"]["kind"]) == ("failed", "session_not_found")
        assert not here.api.main_requests
        if cli.kind not in ("acp", "opencode"):  # their starts take long
            assert here.turn(session=session)["outcome"] == "completed"


@pytest.mark.parametrize(
    ("kind", "flag", "words"),
    [
        *((kind, "--no-such-flag", "Unknown arguments: such-flag") for kind in ("qwen", "gemini")),
        *((kind, "--approval-mode=boldly", "Invalid values:") for kind in ("qwen", "gemini")),
        ("qwen", "--session-id=no-uuid", "Must be a valid UUID"),
        ("qwen", "--resume=no-uuid", "Cannot use --session-id with"),
        ("gemini", "--resume=latest", "mutually exclusive"),
    ],
)
def test_what_the_cli_refuses_at_its_start_is_told_without_the_help_behind_it(kind: str, flag: str, words: str) -> None:
    with CLIS[kind].playing("text", config=f"args = ['{flag}']") as here:
        error = here.turn()["error"]
        assert error["kind"] == "invalid_request" and words in error["message"]
        assert "--help" not in error["message"] and "the backend's args" in error["message"]


@pytest.mark.fault(15)
@pytest.mark.fault(73)
@pytest.mark.parametrize(
    ("kind", "scenario"),
    [
        ("claude", "stall_before_headers"), ("claude", "stall_mid_stream"), ("codex", "stall"), ("codex-exec", "stall"),
        ("qwen", "stall"), ("qwen", "stall_mid_stream"), ("gemini", "stall"),
    ],
)  # fmt: skip
def test_a_stalled_stream_is_ended_by_the_watchdog(kind: str, scenario: str) -> None:
    with CLIS[kind].playing(scenario) as here:
        turn = here.turn(timeouts={"model_idle": 2.0, "term_grace": 2.0})
        session = turn["session_id"]
        assert (turn["outcome"], turn["error"]["kind"]) == ("timed_out", "idle_timeout")
        assert here.events(session, "process_exited")[0]["ended_by"] == "watchdog:model"
        assert [event["action"] for event in here.events(session, "watchdog")] == ["warned", "fired"]
        assert not marked(session)


@pytest.mark.fault(15)
@pytest.mark.parametrize(
    ("kind", "words", "timeouts"),
    [
        ("qwen", "429 Rate limit reached.", {"model_idle": 4.0}),
        ("gemini", "Resource has been exhausted", {"model_idle": 6.0}),
        ("opencode", "Rate limit reached", {"startup": 30.0}),
    ],
)
def test_a_silent_wait_for_a_rate_limit_ends_as_one(kind: str, words: str, timeouts: dict[str, float]) -> None:
    """None of them prints it: qwen writes it into its transcript, gemini to stderr, opencode into its log."""
    with CLIS[kind].playing("waits_for_a_limit") as here:
        turn = here.turn(timeouts={"term_grace": 2.0, **timeouts})
        assert (turn["outcome"], turn["error"]["kind"]) == ("timed_out", "rate_limit")
        assert words in turn["error"]["message"] and turn["error"]["retryable"]


@pytest.mark.fault(15)
@pytest.mark.parametrize(("kind", "idle"), [("qwen", 4.0), ("gemini", 12.0)])
def test_a_limit_that_has_passed_is_not_the_reason_of_a_stalled_stream(kind: str, idle: float) -> None:
    """gemini waits 5 s before it asks again."""
    with CLIS[kind].playing("stalls_after_a_limit") as here:
        turn = here.turn(timeouts={"model_idle": idle, "term_grace": 2.0})
        assert (turn["outcome"], turn["error"]["kind"]) == ("timed_out", "idle_timeout")
        assert len(here.api.main_requests) == 2


@each(["claude", "codex"])
def test_an_interrupt_keeps_the_partial_text_and_the_session(cli: Cli) -> None:
    with cli.playing(cli.voice.partly) as here:
        session = here.open()
        here.prompt(session)
        here.wait_for(session, "content_delta", text="is")
        here.interrupt(session)
        (exited,) = here.events(session, "process_exited")
        assert (exited["exit_code"], exited["ended_by"]) == (0, "client")
        assert text_of(here.events(session)) == "The answer is"


@pytest.mark.fault(10)
@pytest.mark.fault(72)
@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        *((kind, None) for kind in ("claude", "qwen", "gemini", "opencode")),
        *((kind, mode) for kind in ("codex", "codex-exec") for mode in ("workspace-write", "danger-full-access")),
    ],
)
def test_an_interrupt_in_a_tool_leaves_no_process(kind: str, mode: str | None) -> None:
    """Its processes are in a session of their own, too: gemini and opencode leave those behind, whatever signal ends them."""
    cli = CLIS[kind]
    tick = f"sleep {3600 + len(kind) + len(mode or '')}"
    with cli.playing(cli.voice.shell(f"setsid {tick} & {LOOP}"), cli.voice.say("never")) as here:
        session = here.open(**({"permission_mode": mode} if mode else cli.free))
        here.prompt(session)
        poll(lambda: running_with(tick), "the start of the tool's processes")
        assert sum(name in ("node", "MainThread") for name in marked(session)) <= 1, "no launcher and worker"
        here.interrupt(session)
        assert not marked(session) and not running_with(tick)


@pytest.mark.fault(1)
@each(but="acp")
def test_a_daemon_killed_in_mid_turn_loses_nothing(cli: Cli) -> None:
    with cli.playing(cli.voice.shell("echo one", GATE), cli.voice.say("Done.")) as here:
        session = here.open(**cli.free)
        here.prompt(session, "Use your tools.")
        poll((here.cwd / "begun").exists, "the tool's start")
        here.restart()
        (here.cwd / "go").touch()
        done = here.wait_for(session, "turn_completed")
        uses, results = (here.events(session, kind) for kind in ("tool_use", "tool_result"))
        assert (done["outcome"], done["text"]) == ("completed", "Done.")
        said = {result["tool_use_id"]: result["content"] for result in results}
        assert "one" in said[uses[0]["tool_use_id"]] and "two" in said[uses[1]["tool_use_id"]]
        assert (len(uses), len(results), len(here.api.main_requests)) == (2, 2, 2) and here.is_whole(session)
        assert [event for event in here.events(session, "notice") if event["code"] == "adopted"]
