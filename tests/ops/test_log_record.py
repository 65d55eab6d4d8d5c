"""A log record is bounded and has no secret in it; an exception is told by its place and class, not by its words."""

from __future__ import annotations

import pytest

from clisup.errors import WorldError
from clisup.ops.log_events import BURST, MAX_FIELD, MAX_TRACEBACK, LogRate, cleaned, traceback_text
from clisup.policy.secrets.redact import MASK, Redactor

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
    assert "test_log_record.py" in text and "in raised" in text
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
