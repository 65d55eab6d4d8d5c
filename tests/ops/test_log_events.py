"""The table of log events: every call is in it with its level and fields, nothing else is, and the page shows it as it is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from clisup.daemon.sessions.session_log import NOTICES, TOLD
from clisup.errors import WorldError
from clisup.model import events as ev
from clisup.ops.log_events import (
    BURST,
    COMMON_FIELDS,
    LOG_EVENTS,
    MAX_FIELD,
    MAX_TRACEBACK,
    MESSAGE_IDS,
    LogRate,
    cleaned,
    traceback_text,
)
from clisup.policy.secrets.redact import MASK, Redactor

ROOT = Path(__file__).resolve().parents[2]
LEVELS = ("debug", "info", "warning", "error", "exception")
BY_TABLE = "clisup/daemon/sessions/session_log.py"  # its one call takes level and event from a table
OPEN = {"leftover ended": {"session", "run", "pid", "comm"}, "stopping": {"why"}}  # what `**` stands for in a call
ACTOR = {"uid": 1, "pid": 2, "client": "me"}
EVENTS: list[ev.EventBase] = [
    ev.PromptAccepted(delivery="queued", actor=ev.Actor(**ACTOR)),
    ev.TurnStarted(run=1, actor=ev.Actor(**ACTOR)),
    ev.TurnCompleted(outcome="completed"),
    ev.TurnCompleted(outcome="timed_out", error=ev.TurnError(kind="idle_timeout", message="secret words")),
    ev.ProcessStarted(pid=1, argv=("secret words",)),
    ev.ProcessExited(exit_code=0, ended_by="cli"),
    ev.ProcessExited(signal=9, ended_by="unknown", survivors=({"pid": 3},)),
    *[ev.WatchdogNotice(action=action, phase="model") for action in ("warned", "fired", "credited")],
    ev.ApprovalRequested(approval_id="1:a", tool_name="Bash", input={"command": "secret words"}, reason="secret words"),
    ev.ApprovalResolved(
        approval_id="1:a", decision="deny", by="client", message="secret words", actor=ev.Actor(**ACTOR)
    ),
    ev.SessionForked(
        source_session_id="a", whole=True, source_native_session_id="a", native_session_id="b", actor=ev.Actor(**ACTOR)
    ),
    ev.SessionSeeded(messages=2, native_session_id="b", actor=ev.Actor(**ACTOR)),
    *[ev.Notice(code=code, message="secret words") for code in (*NOTICES, "storage_blocked")],
]


class Call(NamedTuple):
    at: str
    level: str
    event: str
    fields: set[str]


uses: set[tuple[str, int, str]] = set()


def _calls() -> Iterator[Call]:
    for path in sorted((ROOT / "clisup").rglob("*.py")):
        at, text = str(path.relative_to(ROOT)), path.read_text()
        if "_log" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "_log":
                uses.add((at, node.lineno, node.attr))
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            owner = node.func.value
            if not (isinstance(owner, ast.Name) and owner.id == "_log") or at == BY_TABLE:
                continue
            assert node.func.attr in LEVELS, f"{at}:{node.lineno}: _log.{node.func.attr}"
            assert isinstance(node.args[0], ast.Constant), f"{at}:{node.lineno}: the event is not a literal"
            event = str(node.args[0].value)
            fields = {word.arg for word in node.keywords if word.arg is not None}
            if any(word.arg is None for word in node.keywords):
                assert event in OPEN, f"{at}:{node.lineno}: fields by ** cannot be checked"
                fields |= OPEN[event]
            if "exc_info" in fields or node.func.attr == "exception":
                fields = fields - {"exc_info"} | {"exception"}
            level = "error" if node.func.attr == "exception" else node.func.attr
            yield Call(f"{at}:{node.lineno}", level, event, fields)


CALLS = list(_calls())


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.event)
def test_a_call_is_in_the_table_with_its_level_and_fields(call: Call) -> None:
    assert call.event in LOG_EVENTS, f"{call.at}: {call.event!r} is in no table: add it to clisup.ops.log_events"
    known = LOG_EVENTS[call.event]
    assert call.level in known.levels, call.at
    assert call.fields <= set(known.fields), call.at


def test_nobody_logs_in_another_way_than_by_such_a_call() -> None:
    assert len(CALLS) == len(uses) > 20


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: f"{event.type}:{getattr(event, 'code', '')}")
def test_what_the_journal_makes_a_line_of_is_in_the_table_and_has_no_word_of_anybody(event: ev.EventBase) -> None:
    level, name, fields = TOLD[type(event)](event)
    known = LOG_EVENTS[name]
    assert level in known.levels
    said = {key for key, value in fields.items() if value is not None}
    assert said <= set(known.fields)
    assert "secret words" not in str(fields)


@pytest.mark.parametrize(
    ("said", "logged"),
    [("end_turn", "end_turn"), ("\x1b]52;c;aGk=\x07", None), ("A prompt of mine", None), (None, None)],
)
def test_the_log_has_a_stop_reason_only_where_it_is_a_word_of_an_api(said: str | None, logged: str | None) -> None:
    event = ev.TurnCompleted(outcome="completed", stop_reason=said)
    assert TOLD[ev.TurnCompleted](event)[2]["stop_reason"] == logged


def test_every_event_of_the_table_is_logged_somewhere_and_every_kind_of_line_is_tried_here() -> None:
    told = {TOLD[type(event)](event)[1] for event in EVENTS}
    assert set(LOG_EVENTS) == {call.event for call in CALLS} | told | {"log lines dropped"}  # that one is the outlet's
    assert {type(event) for event in EVENTS} == set(TOLD)


def test_nothing_that_comes_with_each_piece_of_an_answer_is_logged() -> None:
    assert not {ev.ContentDelta, ev.AssistantMessage, ev.ToolUse, ev.ToolProgress, ev.ToolResult, ev.StderrLine} & set(
        TOLD
    )


def test_what_a_line_is_about_has_the_same_name_everywhere() -> None:
    others = {"session_id", "turn_id", "run_id", "backend_name"}
    assert not others & {field for known in LOG_EVENTS.values() for field in known.fields}
    for event, known in LOG_EVENTS.items():
        about = [field for field in known.fields if field in COMMON_FIELDS]
        assert about == [field for field in COMMON_FIELDS if field in about], f"{event}: {about}"


def test_message_ids_are_of_events_and_of_the_form_that_journald_wants() -> None:
    assert set(MESSAGE_IDS) <= set(LOG_EVENTS)
    assert len(set(MESSAGE_IDS.values())) == len(MESSAGE_IDS)
    assert all(re.fullmatch("[0-9a-f]{32}", value) for value in MESSAGE_IDS.values())


def further_fields(fields: tuple[str, ...]) -> str:
    """The fields of a row on the page: without those that the page explains above its table."""
    explained = {*COMMON_FIELDS, *({"uid", "pid", "client"} if "uid" in fields else ())}
    return ", ".join(f"`{field}`" for field in fields if field not in explained)


def test_the_page_shows_the_table_as_it_is() -> None:
    text = (ROOT / "docs" / "reference" / "observe.md").read_text().partition("\n## Metrics\n")[0]
    rows = re.findall(r"^\| `([^`]+)` \| ([a-z, ]+) \| ([^|]*) \| ([^|]+) \|$", text, re.MULTILINE)
    wanted = [
        (
            event,
            ", ".join(e.levels),
            further_fields(e.fields),
            e.says + (" (limited)" if e.limited else ""),
        )
        for event, e in LOG_EVENTS.items()
    ]
    assert rows == wanted
    ids = re.findall(r"^\| `([^`]+)` \| `([0-9a-f]{32})` \|$", text, re.MULTILINE)
    assert dict(ids) == MESSAGE_IDS


CANARY = "canary-9f1c-value"
hide = Redactor([CANARY])


def test_every_text_is_redacted_in_lists_and_mappings_and_names_too() -> None:
    record = {
        "a": f"x {CANARY}",
        "b": [CANARY, {"c": CANARY}],
        CANARY: 1,
        "n": 7,
        "yes": True,
        "none": None,
        "o": {CANARY},
    }
    assert cleaned(record, hide) == {
        "a": f"x {MASK}",
        "b": [MASK, {"c": MASK}],
        MASK: 1,
        "n": 7,
        "yes": True,
        "o": [MASK],
    }


def test_a_secret_that_would_be_cut_in_half_is_hidden_first() -> None:
    text = cleaned({"a": "x" * (MAX_FIELD - 5) + CANARY + "y" * MAX_FIELD}, hide)["a"]
    assert len(text) == MAX_FIELD and "canary" not in text


def test_fields_are_bounded_however_deep_and_many() -> None:
    deep: object = "x"
    for _ in range(100):
        deep = [deep] * 3
    found = cleaned({"a": list(range(10_000)), "b": {str(n): n for n in range(10_000)}, "c": deep}, hide)
    assert len(found["a"]) == len(found["b"]) == 50
    assert len(str(found)) < 200_000


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:
        return caught


def test_the_words_of_an_exception_are_left_out_and_its_place_is_told() -> None:
    text = traceback_text(raised(ValueError(CANARY), raised(KeyError(CANARY))))
    assert CANARY not in text and "ValueError" in text and "KeyError" in text
    assert "test_log_events.py" in text and "in raised" in text
    assert text.index("KeyError") < text.index("ValueError")


def test_the_members_of_a_group_are_told_too() -> None:
    text = traceback_text(
        raised(ExceptionGroup(CANARY, [raised(ValueError(CANARY)), ExceptionGroup(CANARY, [OSError(5, "I/O error")])]))
    )
    assert CANARY not in text and "  | ValueError" in text and "[Errno 5] I/O error" in text


def test_errors_of_our_own_and_of_the_system_say_why() -> None:
    assert traceback_text(WorldError("cannot do it", hint="x")).endswith("WorldError: cannot do it")
    assert (
        traceback_text(FileNotFoundError(2, "No such file", f"/tmp/{CANARY}"))
        == "FileNotFoundError: [Errno 2] No such file"
    )


def test_a_developer_may_ask_for_the_words() -> None:
    assert traceback_text(ValueError(CANARY), texts=True) == f"ValueError: {CANARY}"


def test_a_chain_without_end_and_a_deep_recursion_are_bounded() -> None:
    first, second = ValueError("a"), KeyError("b")
    first.__cause__, second.__cause__ = second, first
    assert len(traceback_text(first)) < 1000

    def deeper() -> None:
        deeper()

    with pytest.raises(RecursionError) as caught:
        deeper()
    assert len(cleaned({"exception": traceback_text(caught.value)}, hide)["exception"]) <= MAX_TRACEBACK


def test_a_burst_is_let_through_then_one_a_second_that_tells_what_was_held_back() -> None:
    rate = LogRate()
    assert [rate.take("x", 0.0) for _ in range(BURST + 5)] == [0] * BURST + [None] * 5
    assert rate.take("y", 0.0) == 0, "each event has its own"
    assert (rate.take("x", 1.5), rate.take("x", 1.6)) == (5, None)
    assert rate.held["x"] == 6
    assert rate.take("x", 1000.0) == 1
    assert [rate.take("x", 1000.0) for _ in range(BURST)].count(None) == 1
