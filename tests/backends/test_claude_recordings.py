"""Every recording of the real CLI decodes to the events that are written down beside it.

`expected/<version>/<name>.txt` holds a line for each line of the recording: the frame, and what it became. After a new recording
or a wanted change, run these tests with CLISUP_UPDATE_EXPECTED=1 and review the difference.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from clisup.backends.base import Carried, Decoded, Terminal
from clisup.backends.claude_decoder import ClaudeDecoder
from clisup.core.envelope import encode_event
from clisup.core.events import EventBase, Retracted
from clisup.core.framing import Line, LineFramer

RECORDINGS = Path(__file__).parents[1] / "recordings" / "claude"
EXPECTED = Path(__file__).parent / "expected"
PATHS = sorted(RECORDINGS.glob("*/*.jsonl"))
IDS = [f"{path.parent.name}/{path.stem}" for path in PATHS]
UPDATE = "CLISUP_UPDATE_EXPECTED" in os.environ

pytestmark = pytest.mark.skipif(not PATHS, reason="no recordings in this checkout")


def lines_of(path: Path) -> list[Line]:
    framer = LineFramer()
    lines = framer.feed(path.read_bytes())
    last = framer.close()
    return [*lines, last] if last else lines


def decode(path: Path, carried: float | None = 0.0) -> list[Decoded]:
    decoder = ClaudeDecoder(Carried(carried))
    return [decoder.decode(line) for line in lines_of(path)]


def terminals(name: str, carried: float | None = 0.0) -> list[Terminal]:
    results = decode(RECORDINGS / "2.1.329" / f"{name}.jsonl", carried)
    return [result.terminal for result in results if result.terminal]


def events(name: str) -> list[Any]:
    return [event for result in decode(RECORDINGS / "2.1.329" / f"{name}.jsonl") for event in result.events]


def frame_name(line: Line) -> str:
    frame = json.loads(line.data)
    event = frame.get("event", {})
    parts = (frame["type"], frame.get("subtype"), event.get("type"), event.get("delta", {}).get("type"))
    return "/".join(part for part in parts if part)


def event_name(event: EventBase) -> str:
    """The type, and the one field that tells what kind of it."""
    detail = next((value for name in ("state", "status", "kind") if (value := getattr(event, name, None))), None)
    if event.type == "message":
        detail = "+".join(block.kind for block in getattr(event, "blocks", ()))
    return f"{event.type}({detail})" if detail else event.type


def terminal_name(terminal: Terminal) -> str:
    kind = terminal.error.kind if terminal.error else "good"
    marks = [mark for mark, on in (("interrupted", terminal.interrupted), ("follow_up", terminal.follow_up)) if on]
    return "TERMINAL(" + ", ".join([kind, *marks]) + ")"


def story(path: Path) -> str:
    told: list[list[str | int]] = []
    for line, result in zip(lines_of(path), decode(path), strict=True):
        names = [event_name(event) for event in result.events]
        if result.terminal:
            names.append(terminal_name(result.terminal))
        text = f"{frame_name(line)} -> {', '.join(names) or '-'}"
        if told and told[-1][0] == text:
            told[-1][1] = int(told[-1][1]) + 1
        else:
            told.append([text, 1])
    return "".join(f"{text}{f'  x{count}' if count != 1 else ''}\n" for text, count in told)


@pytest.mark.parametrize("path", PATHS, ids=IDS)
def test_a_recording_gives_the_events_that_are_written_down(path: Path) -> None:
    expected = EXPECTED / path.parent.name / f"{path.stem}.txt"
    if UPDATE:
        expected.parent.mkdir(parents=True, exist_ok=True)
        expected.write_text(story(path))
    assert expected.exists(), "a new recording: run with CLISUP_UPDATE_EXPECTED=1 and review what it writes"
    assert story(path) == expected.read_text()


@pytest.mark.parametrize("path", PATHS, ids=IDS)
def test_no_frame_of_the_real_cli_is_unparsed_and_every_event_can_be_written(path: Path) -> None:
    for result in decode(path):
        for event in result.events:
            assert event.type != "unparsed", event
            encode_event(event, session_id="s", seq=1, ts="t", turn_id=None, source="backend")


@pytest.mark.parametrize("path", PATHS, ids=IDS)
def test_deltas_and_messages_tell_the_same_text(path: Path) -> None:
    """What was shown and neither confirmed nor retracted would be a lie to whoever reads deltas."""
    results = decode(path)
    if not any(result.terminal for result in results):
        return  # killed in the middle: nothing more could be said
    shown: dict[str | None, str] = {}
    whole: dict[str | None, str] = {}
    told: list[Any] = [event for result in results for event in result.events]
    for event in told:
        if event.type == "content_delta" and event.kind == "text":
            shown[event.message_id] = shown.get(event.message_id, "") + event.text
        elif event.type == "message":
            text = "".join(block.text or "" for block in event.blocks if block.kind == "text")
            whole[event.message_id] = whole.get(event.message_id, "") + text
        elif isinstance(event, Retracted):
            shown.pop(event.message_id, None)
    assert {key: text for key, text in shown.items() if text != whole.get(key)} == {}


@pytest.mark.fault(63)
@pytest.mark.parametrize(
    ("name", "kind", "status", "retryable"),
    [
        ("http_401_final", "authentication", 401, False),
        ("http_401_oauth", "authentication", 401, False),
        ("not_logged_in", "authentication", None, False),
        ("http_403", "permission", 403, False),
        ("http_404", "model_not_found", 404, False),
        ("http_413", "context_overflow", 413, False),
        ("http_400_too_long", "context_overflow", 400, False),
        ("http_400_other", "invalid_request", 400, False),
        ("http_429_final", "rate_limit", 429, True),
        ("http_429_long", "rate_limit", 429, True),
        ("http_429_oauth_limit", "quota_exceeded", 429, True),
        ("billing", "quota_exceeded", 400, False),
        ("http_500_final", "server", 500, True),
        ("http_502_html", "server", 502, True),
        ("http_529", "overloaded", 529, True),
        ("connection_refused", "network", None, True),
        ("max_turns", "max_turns", None, False),
        ("max_budget", "budget", None, False),
        ("refusal_final", "refusal", None, False),
        ("unknown_session", "session_not_found", None, False),
        ("stall_mid_stream_sigint", "cancelled", None, False),
        ("tool_killed_sigint", "cancelled", None, False),
    ],
)
def test_a_failure_has_its_kind_whatever_the_subtype_says(
    name: str, kind: str, status: int | None, retryable: bool
) -> None:
    (terminal,) = terminals(name)
    assert terminal.is_error
    assert terminal.text == ""
    assert terminal.error is not None
    assert (terminal.error.kind, terminal.error.http_status, terminal.error.retryable) == (kind, status, retryable)
    assert terminal.error.message
    assert "ede_diagnostic" not in terminal.error.message


@pytest.mark.fault(64)
def test_the_first_retry_after_a_401_already_says_authentication() -> None:
    retry = next(event for event in events("http_401_final") if event.type == "retry")
    assert retry.error.kind == "authentication"
    assert retry.error.http_status == 401


@pytest.mark.fault(65)
@pytest.mark.parametrize("name", ["cut_mid_stream", "sse_error_event"])
def test_text_of_a_cut_stream_is_retracted_and_the_final_text_is_right(name: str) -> None:
    (retracted,) = [event for event in events(name) if isinstance(event, Retracted)]
    assert (retracted.message_id, retracted.from_index) == ("msg_fake_0000", 0)
    assert terminals(name)[0].text == "The whole answer."


@pytest.mark.fault(65)
def test_a_tool_that_ran_before_the_cut_is_not_retracted() -> None:
    assert not [event for event in events("cut_after_tool") if isinstance(event, Retracted)]
    (terminal,) = terminals("cut_after_tool")
    assert (terminal.is_error, terminal.text) == (False, "Went on.")


@pytest.mark.fault(66)
def test_a_background_task_gives_a_second_turn_that_says_it_is_a_follow_up() -> None:
    assert [terminal.follow_up for terminal in terminals("background_bash")] == [False, True]


@pytest.mark.fault(20)
def test_background_work_is_known_from_its_announcement_to_its_end() -> None:
    decoder = ClaudeDecoder(Carried(0.0))
    lines = lines_of(RECORDINGS / "2.1.329" / "background_bash.jsonl")
    assert [len(decoder.background) for line in lines if decoder.decode(line).terminal] == [1, 0]


@pytest.mark.fault(67)
def test_an_unknown_session_is_one_result_without_init() -> None:
    assert events("unknown_session") == []
    (terminal,) = terminals("unknown_session", carried=0.5)
    assert terminal.error is not None
    assert terminal.error.kind == "session_not_found"
    assert terminal.cost_total_usd == 0.5, "a start that failed has not reset the session's cost"


@pytest.mark.fault(75)
def test_cost_and_usage_are_of_the_turn_alone_across_resumes_and_forks() -> None:
    total = 0.0
    for name in ("memory", "memory_resume", "memory_resume_again", "memory_fork"):
        (terminal,) = terminals(name, carried=total)
        assert terminal.cost_usd == pytest.approx(0.0118, abs=0.0002)
        assert terminal.usage.output_tokens in (40, 41, 42, 43)
        total = terminal.cost_total_usd or 0.0
    assert total == pytest.approx(0.0474, abs=0.0002)


def test_usage_counts_subagents_and_a_turn_that_the_budget_ended() -> None:
    assert terminals("subagent")[0].usage.output_tokens == 166
    assert terminals("max_budget")[0].usage.output_tokens == 40


@pytest.mark.fault(25)
@pytest.mark.parametrize("name", ["text", "surrogate"])
def test_a_character_cut_between_two_deltas_comes_out_whole(name: str) -> None:
    text = "".join(event.text for event in events(name) if event.type == "content_delta" and event.kind == "text")
    assert "\U0001f600" in text
    assert "\ufffd" not in text


def test_a_limit_that_resets_says_when_and_a_warning_is_no_failure() -> None:
    (terminal,) = terminals("http_429_oauth_limit")
    assert terminal.error is not None
    assert terminal.error.resets_at == "2100-01-01T00:00:00Z"
    (warned,) = terminals("rate_limit_warning_oauth")
    (limit,) = [event for event in events("rate_limit_warning_oauth") if event.type == "rate_limit"]
    assert not warned.is_error
    assert (limit.status, limit.utilization) == ("allowed_warning", 0.93)


def test_refused_tools_are_told_once_when_they_are_refused_and_again_at_the_end() -> None:
    assert [event.name for event in events("tool_denied") if event.type == "permission_denied"] == ["Write"]
    assert terminals("tool_denied")[0].denied == ("Write",)


def test_the_heartbeat_of_a_tool_names_the_call_itself() -> None:
    (progress,) = [event for event in events("tool_heartbeat") if event.type == "tool_progress"]
    assert (progress.tool_use_id, progress.elapsed_s) == ("toolu_hb", 30)


@pytest.mark.fault(38)
def test_session_init_tells_where_the_credential_came_from() -> None:
    init = events("text")[0]
    assert init.credential_source == "ANTHROPIC_API_KEY"


def test_structured_output_comes_with_the_terminal() -> None:
    assert terminals("json_schema")[0].structured == {"answer": 42}
