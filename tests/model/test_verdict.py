"""How a turn ended, as one table: the CLI's last word, its exit, and who had asked for the end."""

from __future__ import annotations

import errno
from typing import Any

import msgspec
import pytest

from clisup.model.events import TurnError, TurnErrorKind
from clisup.model.usage import Usage
from clisup.model.verdict import ExitRecord, Terminal, conclude, ended_by, exit_from_file, with_words

GOOD = Terminal(is_error=False, text="done", usage=Usage(output_tokens=4, source="reported"), cost_usd=0.25)
BAD = Terminal(is_error=True, error=TurnError(kind="overloaded", message="529"))
STOPPED = Terminal(is_error=True, interrupted=True, error=TurnError(kind="cancelled", message="stopped"))
LEFT = ExitRecord(exit_code=0, reason="exit")
CRASHED = TurnError(kind="crashed", message="no result")


def verdict(
    terminal: Terminal | None, record: ExitRecord = LEFT, ending: dict[str, Any] | None = None
) -> tuple[str, str | None]:
    done = conclude(terminal=terminal, record=record, ending=ending, explained=CRASHED, duration_s=1.5)
    return done.outcome, done.error.kind if done.error else None


def dog(phase: str) -> dict[str, Any]:
    return {"reason": f"watchdog:{phase}", "limit_s": 60}


STDERR = {"reason": "authentication", "error": {"kind": "authentication", "message": "401"}}
ROWS = [
    # terminal, exit, what the daemon had decided -> outcome, error kind
    (GOOD, LEFT, None, "completed", None),
    (GOOD, ExitRecord(exit_code=1, reason="exit"), None, "completed", None),
    (GOOD, ExitRecord(signal=9, reason="exit"), None, "completed", None),
    (GOOD, ExitRecord(), None, "completed", None),
    (GOOD, ExitRecord(reason="watchdog:linger"), dog("linger"), "completed", None),
    (GOOD, ExitRecord(reason="client"), {"reason": "client"}, "completed", None),
    # how far the CLI had come when the daemon decided
    (GOOD, LEFT, {**dog("linger"), "told": "end"}, "completed", None),
    (GOOD, LEFT, {"reason": "client", "told": "answer"}, "completed", None),
    (Terminal(is_error=False), LEFT, {"reason": "client", "told": "answer"}, "interrupted", "cancelled"),
    (Terminal(is_error=False, structured={}), LEFT, {"reason": "client", "told": "answer"}, "completed", None),
    (GOOD, LEFT, {"reason": "client", "told": "part"}, "interrupted", "cancelled"),
    (GOOD, LEFT, {"reason": "operator", "told": "part"}, "interrupted", "cancelled"),
    (GOOD, LEFT, {**dog("background"), "told": "part"}, "timed_out", "idle_timeout"),
    (GOOD, LEFT, {**dog("turn"), "told": "part"}, "timed_out", "turn_timeout"),
    (BAD, LEFT, None, "failed", "overloaded"),
    (BAD, ExitRecord(exit_code=1, reason="exit"), None, "failed", "overloaded"),
    (BAD, ExitRecord(reason="client"), {"reason": "client"}, "interrupted", "cancelled"),
    (STOPPED, LEFT, None, "interrupted", "cancelled"),
    (Terminal(is_error=True), LEFT, None, "failed", "protocol"),
    (None, LEFT, None, "failed", "crashed"),
    (None, ExitRecord(exit_code=143, reason="exit"), None, "failed", "crashed"),
    (None, ExitRecord(signal=9, reason="exit"), None, "failed", "crashed"),
    (None, ExitRecord(), None, "failed", "crashed"),
    (None, ExitRecord(), {"reason": "client"}, "interrupted", "cancelled"),
    (None, ExitRecord(reason="client"), None, "interrupted", "cancelled"),
    (None, ExitRecord(reason="operator"), None, "interrupted", "cancelled"),
    (None, ExitRecord(reason="lease"), None, "interrupted", "cancelled"),
    (None, ExitRecord(reason="output_limit"), None, "failed", "output_limit"),
    (None, ExitRecord(reason="authentication"), STDERR, "failed", "authentication"),
    (None, ExitRecord(reason="watchdog:turn"), None, "timed_out", "turn_timeout"),
    (None, ExitRecord(reason="exit"), dog("startup"), "timed_out", "startup_timeout"),
    *[(None, LEFT, dog(p), "timed_out", "idle_timeout") for p in ("model", "tool", "approval", "background", "linger")],
    (None, ExitRecord(reason="spawn_failed", spawn_failed={"message": "cannot run x"}), None, "failed", "spawn_failed"),
    (
        None,
        ExitRecord(reason="spawn_failed", spawn_failed={"stage": "fork", "errno": errno.EAGAIN}),
        None,
        "failed",
        "overloaded",
    ),
    (
        None,
        ExitRecord(reason="spawn_failed", spawn_failed={"stage": "exec", "errno": errno.ENOMEM}),
        None,
        "failed",
        "overloaded",
    ),
    (
        None,
        ExitRecord(reason="spawn_failed", spawn_failed={"stage": "exec", "errno": errno.ENOENT}),
        None,
        "failed",
        "spawn_failed",
    ),
]


@pytest.mark.fault(14)
@pytest.mark.parametrize(("terminal", "record", "ending", "outcome", "kind"), ROWS)
def test_the_outcome_follows_from_the_last_word_the_exit_and_the_cause(
    terminal: Terminal | None, record: ExitRecord, ending: dict[str, Any] | None, outcome: str, kind: str | None
) -> None:
    assert verdict(terminal, record, ending) == (outcome, kind)


def test_a_time_out_says_which_limit_it_was() -> None:
    done = conclude(terminal=None, record=LEFT, ending=dog("model"), explained=CRASHED, duration_s=None)
    assert done.error is not None
    assert "60 s" in done.error.message
    assert done.error.retryable


def test_a_time_out_of_a_cli_that_repeats_a_failed_request_has_that_failures_kind() -> None:
    failure = {"kind": "rate_limit", "message": "429 no", "retryable": True, "retry_after_s": 37, "http_status": 429}
    ending = {**dog("model"), "failure": failure}
    done = conclude(terminal=None, record=LEFT, ending=ending, explained=CRASHED, duration_s=None)
    assert (done.outcome, done.error and done.error.kind) == ("timed_out", "rate_limit")
    assert done.error is not None and "60 s" in done.error.message and "429 no" in done.error.message
    assert (done.error.http_status, done.error.retryable, done.error.retry_after_s) == (429, True, None)


def test_a_failure_of_no_known_kind_explains_a_time_out_and_changes_no_kind() -> None:
    ending = {**dog("model"), "failure": {"kind": "crashed", "message": "git failed"}}
    done = conclude(terminal=None, record=LEFT, ending=ending, explained=CRASHED, duration_s=None)
    assert done.error is not None and (done.error.kind, done.error.retryable) == ("idle_timeout", True)
    assert "60 s" in done.error.message and "git failed" in done.error.message


def test_a_cli_that_could_not_be_started_fails_with_the_keepers_own_words() -> None:
    record = ExitRecord(
        reason="spawn_failed", spawn_failed={"message": "cannot run /opt/x, because of: Exec format error"}
    )
    done = conclude(terminal=None, record=record, ending=None, explained=CRASHED, duration_s=None)
    assert done.error is not None
    assert "/opt/x" in done.error.message


def test_the_exit_may_say_the_kind_of_an_error_whose_words_do_not() -> None:
    limited = TurnError(kind="rate_limit", message="exit code 173", retryable=True, http_status=429)

    def error(kind: TurnErrorKind) -> TurnError | None:
        said = Terminal(is_error=True, error=TurnError(kind=kind, message="no"))
        return conclude(terminal=said, record=LEFT, ending=None, explained=limited, duration_s=None).error

    assert error("crashed") == TurnError(kind="rate_limit", message="no", retryable=True, http_status=429)
    assert error("refusal") == TurnError(kind="refusal", message="no")


@pytest.mark.fault(71)
def test_exit_0_without_a_terminal_frame_is_never_a_success() -> None:
    done = conclude(terminal=None, record=LEFT, ending=None, explained=CRASHED, duration_s=2.0)
    assert (done.outcome, done.text, done.usage, done.cost_usd) == ("failed", "", Usage(), None)


def test_what_the_cli_said_is_in_the_end_of_its_turn() -> None:
    done = conclude(terminal=GOOD, record=LEFT, ending=None, explained=CRASHED, duration_s=2.0)
    assert (done.text, done.cost_usd, done.cost_source, done.duration_s) == ("done", 0.25, "reported", 2.0)
    assert done.usage.output_tokens == 4
    unknown = conclude(terminal=Terminal(is_error=False), record=LEFT, ending=None, explained=CRASHED, duration_s=None)
    assert (unknown.cost_usd, unknown.cost_source) == (None, "unknown")


def test_a_structured_answer_is_kept_and_one_that_is_nested_very_deep_is_no_fault() -> None:
    def structured(value: object) -> object:
        said = Terminal(is_error=False, structured=value)
        done = conclude(terminal=said, record=LEFT, ending=None, explained=CRASHED, duration_s=None)
        return msgspec.to_builtins(done)["structured"]

    assert structured({"a": [1, None, {"b": "ü"}]}) == {"a": [1, None, {"b": "ü"}]}
    deep: object = "end"
    for _ in range(900):
        deep = {"a": deep}
    assert "nested too deeply" in str(structured(deep))


@pytest.mark.fault(6)
@pytest.mark.parametrize(
    ("record", "who"),
    [
        (ExitRecord(exit_code=0, reason="exit"), "cli"),
        (ExitRecord(exit_code=1, reason="exit"), "cli"),
        (ExitRecord(exit_code=128 + 9, reason="exit"), "unknown"),
        (ExitRecord(exit_code=128 + 15, reason="exit"), "unknown"),
        (ExitRecord(signal=9, reason="exit"), "unknown"),
        (ExitRecord(signal=15, reason="client"), "client"),
        (ExitRecord(signal=9, reason="watchdog:model"), "watchdog:model"),
        (ExitRecord(reason="operator"), "operator"),
        (ExitRecord(), "unknown"),
    ],
)
def test_it_says_who_ended_the_process(record: ExitRecord, who: str) -> None:
    assert ended_by(record) == who


@pytest.mark.parametrize("raw", [None, {}, {"reason": "unknown"}, {"exit_code": 0}, {"exit_code": 0, "reason": ""}])
def test_an_exit_file_that_does_not_say_why_is_an_exit_that_nobody_knows(raw: dict[str, Any] | None) -> None:
    record = exit_from_file(raw)
    assert (record.known, record.reason) == (False, "unknown")
    assert verdict(None, record) == ("failed", "crashed")


def test_an_exit_file_is_read_whole() -> None:
    survivor = {"pid": 7, "comm": "sleep"}
    raw = {"exit_code": None, "signal": 9, "reason": "client", "duration_s": 1.5, "survivors": [survivor], "left": None}
    record = exit_from_file({**raw, "max_rss_kb": 12, "something_new": 1})
    assert record == ExitRecord(signal=9, reason="client", duration_s=1.5, survivors=(survivor,), max_rss_kb=12)


def test_an_answer_of_another_session_is_no_success_however_well_it_ended() -> None:
    """The CLI may have said everything before the daemon could end it."""
    error = {"kind": "session_not_found", "message": "the CLI answered from another session"}
    done = conclude(
        terminal=Terminal(is_error=False, text="hello"),
        record=ExitRecord(exit_code=0, reason="exit"),
        ending={"reason": "wrong_session", "error": error},
        explained=TurnError(kind="crashed", message="-"),
        duration_s=1.0,
    )
    assert done.outcome == "failed" and done.error is not None and done.error.kind == "session_not_found"


def test_a_cli_that_left_because_it_was_asked_to_did_not_end_by_itself() -> None:
    left = ExitRecord(exit_code=0, reason="exit")
    assert (ended_by(left), ended_by(left, "client"), ended_by(left, "watchdog:model")) == (
        "cli",
        "client",
        "watchdog:model",
    )
    assert ended_by(ExitRecord(signal=9, reason="output_limit"), "client") == "output_limit"


def test_the_last_words_of_a_cli_are_quoted_once_behind_the_error() -> None:
    silence = TurnError(kind="idle_timeout", message="silent; npm ERR! no space")
    assert with_words(silence, stderr="", unreadable="") is silence
    assert with_words(silence, stderr="npm ERR! no space", unreadable="").message == silence.message
    told = with_words(silence, stderr="Trust this?", unreadable="Continue? [y]").message
    assert told == (
        "silent; npm ERR! no space; its last words on stderr: Trust this?; "
        "its last line on stdout that is no frame: Continue? [y]"
    )
