"""What `clisup top` knows and the lines it makes of it, without a screen."""

from __future__ import annotations

from typing import Any

import pytest

from clisup.cli.top.model import LEAST_PAUSE_S, MOST_PAUSE_S, RATES, SORTS, Board, pause_after
from clisup.cli.top.texts import BACK, Tail, event_spans, head_lines, sparkline, start_after, table, title_line
from clisup.cli.views.terminal import brief

ONE, TWO, THREE = (f"{n}aaaaaaa-0000-4000-8000-000000000000" for n in "123")


def session(session_id: str, **fields: Any) -> dict[str, Any]:
    return {
        "session_id": session_id, "backend": "demo", "model": "demo-1", "state": "running", "phase": "model", "turn_id": "t1",
        "cwd": "/srv", "labels": {}, "pid": 12, "idle_s": 3.0, "age_s": 60.0, "held": None, "approvals": 0, "queue": [],
        "tokens": {"input_tokens": 10, "output_tokens": 5, "source": "reported"}, "cost_usd": 0.5, "first_seq": 1,
        "next_seq": 11, "last_event": {"seq": 10, "type": "message", "ts": "2026-01-01T00:00:00Z"}, "next_timer": None,
    } | fields  # fmt: skip


def status(*sessions: dict[str, Any], instance: str = "i1", **more: Any) -> dict[str, Any]:
    daemon = {
        "version": "0.1.0", "state": "ready", "pid": 1, "instance_id": instance, "uptime_s": 5.0, "socket": "/run/s", "running": 1,
        "max_running": 8, "waiting": 0, "rss_bytes": 50 << 20, "storage": {"state": "ok"},
    }  # fmt: skip
    totals = {
        "turns": {"completed": 2, "failed": 1},
        "watchdog_fired": 0,
        "tokens": {"output_tokens": 7},
        "cost_usd": 1.0,
    }
    return {"daemon": daemon, "sessions": list(sessions), "totals": totals, "accounts": [], "clients": []} | more


def board(*sessions: dict[str, Any], now: float = 100.0) -> Board:
    made = Board(connected=True)
    made.take_status(status(*sessions), now)
    return made


def event(session_id: str, type_: str, seq: int = 50, **fields: Any) -> dict[str, Any]:
    return {
        "session_id": session_id,
        "seq": seq,
        "type": type_,
        "ts": "2026-01-01T00:00:00Z",
        "turn_id": "t1",
        **fields,
    }


def asked(session_id: str, id_: str = "1:0") -> dict[str, Any]:
    return event(session_id, "approval_requested", approval_id=id_, tool_name="Bash", input={"command": "ls"})


def test_the_throughput_counts_every_event_between_two_looks_new_sessions_too() -> None:
    one = board(session(ONE, next_seq=11))
    one.take_status(status(session(ONE, next_seq=31), session(TWO, next_seq=6)), 102.0)
    assert list(one.rates) == [(20 + 5) / 2]


def test_another_daemon_is_no_throughput_and_the_samples_are_bounded() -> None:
    one = board(session(ONE))
    one.take_status(status(session(ONE, next_seq=999), instance="i2"), 101.0)
    assert not one.rates
    for at in range(RATES * 2):
        one.take_status(status(session(ONE), instance="i2"), 102.0 + at)
    assert len(one.rates) == RATES


def test_idle_and_age_go_on_between_two_looks_and_an_event_ends_the_idling() -> None:
    one = board(session(ONE))
    (s,) = one.sessions
    assert (one.idle_s(s, 104.0), one.age_s(s, 104.0)) == (7.0, 64.0)
    one.take_event(event(ONE, "tool_progress", name="Bash", elapsed_s=3), 103.0)
    assert one.idle_s(s, 104.0) == 1.0
    assert one.idle_s({**s, "idle_s": None}, 104.0) is None


def test_the_last_event_is_in_words_where_it_was_heard_and_a_type_where_not() -> None:
    one = board(session(ONE))
    (s,) = one.sessions
    assert one.last_words(s) == "message"
    one.take_event(event(ONE, "tool_use", seq=11, name="Bash", input={"command": "make\x1b[2J test"}), 101.0)
    assert one.last_words(s) == "tool_use Bash make\N{REPLACEMENT CHARACTER}[2J test"
    assert one.last_words({**s, "last_event": {"seq": 90, "type": "content_delta"}}) == "writing ..."


def test_approvals_come_with_events_go_with_their_end_and_are_listed_where_the_daemon_counts_others() -> None:
    one = board(session(ONE, approvals=1))
    assert one.approvals_doubtful
    assert one.take_event(asked(ONE), 101.0), "the status is asked for at once"
    assert not one.approvals_doubtful
    one.take_event(event(ONE, "approval_resolved", approval_id="1:0", decision="allow"), 102.0)
    assert not one.approvals and one.approvals_doubtful
    one.take_approvals([asked(ONE, "1:1")])
    assert list(one.approvals) == [(ONE, "1:1")]
    one.take_status(status(), 103.0)
    assert not one.approvals, "its session is closed"


def test_the_question_on_the_screen_stays_until_it_is_answered() -> None:
    one = board(session(ONE), session(TWO))
    for id_ in (ONE, TWO):
        one.take_event(asked(id_), 101.0)
    assert one.question(None, TWO) is one.approvals[TWO, "1:0"]
    assert one.question((ONE, "1:0"), TWO) is one.approvals[ONE, "1:0"]
    del one.approvals[ONE, "1:0"]
    assert one.question((ONE, "1:0"), ONE) is one.approvals[TWO, "1:0"]


def test_what_is_kept_of_a_session_goes_with_it() -> None:
    one = board(session(ONE), session(TWO))
    for id_ in (ONE, TWO):
        one.take_event(event(id_, "notice", code="x", message="y"), 101.0)
    one.take_status(status(session(TWO)), 102.0)
    assert set(one._last) == set(one._heard_at) == {TWO}


@pytest.mark.parametrize(
    ("order", "first"),
    [
        ("attention", THREE),
        ("session", ONE),
        ("idle", TWO),
        ("age", TWO),
        ("memory", ONE),
        ("tokens", TWO),
        ("cost", THREE),
    ],
)
def test_the_orders(order: str, first: str) -> None:
    one = board(
        session(ONE, rss_bytes=9 << 20),
        session(TWO, idle_s=50.0, age_s=900.0, tokens={"input_tokens": 99}),
        session(THREE, approvals=1, cost_usd=2.0),
    )
    assert one.shown(order, "", 100.0)[0]["session_id"] == first
    assert set(SORTS) >= {order}


def test_what_wants_a_person_comes_first_and_a_failure_before_what_rests() -> None:
    rest = {"turn_id": None, "phase": None, "state": "idle"}
    failed = {"outcome": "failed", "error_kind": "network", "ended_at": "2026-01-01T00:00:00Z"}
    one = board(
        session("rests", **rest, age_s=1.0), session("failed", **rest, age_s=900.0, last_turn=failed), session("works"),
        session("queued", **rest, queue=[{}]), session("asks", approvals=1, age_s=9000.0),
    )  # fmt: skip
    order = [s["session_id"] for s in one.shown("attention", "", 100.0)]
    assert order == ["asks", "works", "queued", "failed", "rests"]


def test_the_filter_wants_all_words_and_knows_labels() -> None:
    one = board(session(ONE, labels={"ticket": "4711"}), session(TWO, backend="claude"))
    assert [s["session_id"] for s in one.shown("session", "ticket=47 DEMO", 100.0)] == [ONE]
    assert [s["session_id"] for s in one.shown("session", "claude", 100.0)] == [TWO]
    assert one.shown("session", "claude ticket", 100.0) == []


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_every_row_is_exactly_as_wide_as_the_screen_and_narrow_ones_leave_columns_out(width: int) -> None:
    timer = {"phase": "tool", "fires_in_s": 42.0}
    one = board(session(ONE, phase="tool", queue=[{}], next_timer=timer, title="Rewrite the parser"), session(TWO))
    made = table(one, one.shown("session", "", 100.0), width, 100.0)
    assert {len(text) for text in (made.head, *(line.text for line in made.lines))} == {width}
    first = made.lines[0]
    assert made.head.startswith("SESSION   STATUS") and first.text.startswith("1aaaaaaa  running: tool")
    assert first.text[slice(*first.status)].strip() == "running: tool"
    assert ("NEXT-TIMER" in made.head) == (width >= 200)
    assert ("LAST" in made.head) == (width >= 60)
    assert ("DIRECTORY" in made.head) == (width >= 80)
    assert ("Rewrite the parser" if width > 40 else "Rewrite") in first.text


def test_a_control_character_of_a_session_never_reaches_the_screen() -> None:
    one = board(session(ONE, model="m\x1b]0;x\x07"))
    assert "\x1b" not in table(one, one.sessions, 200, 100.0).lines[0].text


def test_rows_say_who_asks_who_works_who_waits_and_who_rests() -> None:
    rest = {"turn_id": None, "phase": None, "state": "idle"}
    one = board(session(ONE, approvals=1), session(TWO), session(THREE, **rest, queue=[{}], held={"for": "limit"}))
    tones = {line.session_id: (line.tone, line.text) for line in table(one, one.sessions, 120, 100.0).lines}
    assert [tone for tone, _ in tones.values()] == ["asking", "running", "waiting"]
    assert "wants you" in tones[ONE][1] and "held: rate limit" in tones[THREE][1]


@pytest.mark.parametrize(
    ("outcome", "kind", "said", "tone"),
    [
        ("completed", None, "completed", "resting"),
        ("failed", "authentication", "failed: authentication", "failed"),
        ("timed_out", "idle_timeout", "timed out", "failed"),
        ("interrupted", "cancelled", "interrupted", "resting"),
    ],
)
@pytest.mark.parametrize("width", [60, 80])
def test_a_session_that_rests_says_how_its_last_turn_ended(
    outcome: str, kind: str | None, said: str, tone: str, width: int
) -> None:
    last = {"turn_id": "t1", "outcome": outcome, "error_kind": kind, "ended_at": "2026-01-01T00:00:00Z"}
    one = board(session(ONE, turn_id=None, phase=None, state="idle", last_turn=last))
    (line,) = table(one, one.sessions, width, 100.0).lines
    assert said in line.text and line.tone == tone


def test_the_next_timer_counts_down_between_two_looks() -> None:
    one = board(
        session(ONE, next_timer={"phase": "tool", "fires_in_s": 90.0}),
        session(TWO, next_timer={"phase": "model", "fires_in_s": 42.0}),
    )
    timer = one.next_timer(102.0)
    assert timer is not None and (timer.session_id, timer.phase, timer.in_s) == (TWO, "model", 40.0)
    assert "next timer model 40s" in text_of(head_lines(one, 200, 102.0))


def test_a_dialog_names_the_title_of_what_a_key_acts_on() -> None:
    assert (
        title_line(session(ONE, title="Rewrite\x1b[2J the parser"))
        == "\nRewrite\N{REPLACEMENT CHARACTER}[2J the parser"
    )
    assert title_line(session(ONE)) == title_line(None) == ""


def text_of(lines: list[list[tuple[str, str]]]) -> str:
    return "\n".join("".join(text for text, _ in line) for line in lines)


@pytest.mark.parametrize("width", [40, 78, 198])
def test_the_head_never_runs_over_the_screen(width: int) -> None:
    one = board(session(ONE))
    one.rates.extend(range(RATES))
    assert all(len(line) <= width for line in text_of(head_lines(one, width, 101.0)).split("\n"))


def test_the_head_says_reconnecting_limits_and_trouble() -> None:
    assert "connecting" in text_of(head_lines(Board(), 80, 0.0))
    limited = {
        "account": "claude",
        "state": "limited",
        "limit_type": "five_hour",
        "utilization": 1.0,
        "until": "15:00",
        "waiting": [ONE],
    }
    one = Board()
    one.take_status(status(accounts=[limited], damaged_sessions={TWO: "torn"}), 1.0)
    said = text_of(head_lines(one, 200, 1.0))
    assert "reconnecting" in said
    assert "claude: limited five_hour 100% until 15:00, 1 held" in said
    assert "1 damaged sessions" in said


def test_the_sparkline_shows_the_last_values_by_the_largest_of_them() -> None:
    assert sparkline([9, 0, 1, 2, 4], 4) == "▁▃▅█"
    assert sparkline([0, 0], 4) == "▁▁"
    assert sparkline([], 4) == sparkline([1], 0) == ""


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(None, "-"), (8.9, "8s"), (99, "99s"), (180, "3m"), (7500, "2h05m"), (90000, "1d1h"), (1_000_000, "11d")],
)
def test_times_are_brief(seconds: float | None, said: str) -> None:
    assert brief(seconds) == said


def test_the_status_is_asked_for_once_a_second_and_less_often_where_that_is_dear() -> None:
    assert [pause_after(took) for took in (0.01, 0.3, 9.0)] == [LEAST_PAUSE_S, 3.0, MOST_PAUSE_S]


def test_following_begins_a_little_before_now_and_never_before_what_is_kept() -> None:
    assert start_after(session(ONE, next_seq=5)) == 0
    assert start_after(session(ONE, next_seq=10_001)) == 10_000 - BACK
    assert start_after(session(ONE, next_seq=10_001, first_seq=9_500)) == 9_499


def test_the_text_that_is_being_written_is_kept_until_its_message_comes() -> None:
    tail = Tail()
    assert tail.take(event(ONE, "content_delta", kind="text", text="Hello, "))
    assert tail.take(event(ONE, "content_delta", kind="text", text="world\n"))
    assert (tail.shown(80), tail.shown(6)) == ("Hello, world", "…world")
    assert not tail.take(event(ONE, "message", blocks=[{"kind": "text", "text": "Hello, world"}]))
    assert tail.shown(80) == ""


def test_a_followed_event_is_a_time_a_word_and_what_it_says() -> None:
    time, kind, said = event_spans(event(ONE, "tool_use", name="Bash", input={"command": "ls"}))
    assert time[0].strip().count(":") == 2 and kind[0].strip() == "tool_use" and said == ("Bash ls", "tool")
    assert event_spans(event(ONE, "message_stop")) == []
    assert event_spans(event(ONE, "tool_result", content="no", is_error=True))[2][1] == "bad"
