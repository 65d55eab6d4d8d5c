"""What is left of an event when every word is taken out; and which arguments are secret by the name before them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import fields

from clisup.model.events import EVENT_CLASSES, EVENT_TYPES
from clisup.ops.event_outline import outline
from clisup.policy.secrets.redact import secret_arguments

CANARY = "canary words"
ENVELOPE = {"session_id": "s", "seq": 3, "ts": "t", "turn_id": "t1", "source": "backend"}


@pytest.mark.parametrize("type_", EVENT_TYPES)
@pytest.mark.parametrize(
    "value", [CANARY, [CANARY], {"k": CANARY}, {CANARY: 1}, {"kind": CANARY, "usage": {"a": CANARY}}], ids=repr
)
def test_no_field_of_any_event_lets_words_through(type_: str, value: Any) -> None:
    kinds = {item.name: str(item.type) for item in fields(EVENT_CLASSES[type_])}
    event = {**ENVELOPE, "type": type_, "native": CANARY, "later": value, **dict.fromkeys(kinds, value)}
    if isinstance(value, str):  # a word of a list is one by its model; what is no such word never gets into a journal
        event |= {name: "x" for name, kind in kinds.items() if "Literal" in kind}
    found = outline(event)
    assert "canary" not in repr(found)
    assert {name: found[name] for name in ENVELOPE} == ENVELOPE and found["type"] == type_


def test_numbers_and_words_of_a_list_stay() -> None:
    end = {**ENVELOPE, "type": "turn_completed", "outcome": "failed", "cost_usd": 0.5, "text": "four", "stop_reason": "end_turn",
           "usage": {"output_tokens": 7, "source": "reported"}, "error": {"kind": "crashed", "message": "abc", "retryable": True},
           "denied": ["Bash"]}  # fmt: skip
    found = outline(end)
    assert (found["outcome"], found["cost_usd"], found["text"], found["stop_reason"]) == (
        "failed",
        0.5,
        {"chars": 4},
        "end_turn",
    )
    assert found["usage"] == {"output_tokens": 7, "source": "reported"}
    assert found["error"] == {"kind": "crashed", "message": {"chars": 3}, "retryable": True}
    assert found["denied"] == {"members": 1}
    assert outline({**ENVELOPE, "type": "notice", "code": "adopted", "message": "x"})["code"] == "adopted"


def test_of_an_unknown_event_there_is_the_envelope_alone() -> None:
    assert outline({**ENVELOPE, "type": "new_one", "text": CANARY}) == {**ENVELOPE, "type": "new_one", "unknown": True}
    assert outline({"type": CANARY})["type"] == "?"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--api-key", "v1", "--model", "m"], ["v1"]),
        (["--token=v1", "-x"], ["v1"]),
        (["--header", "Authorization: v1"], ["Authorization: v1", "v1"]),
        (["-c", "api_key=v1"], ["v1"]),
        (["https://me:v1@host/x"], ["v1"]),
        (["--password", "--verbose"], []),
        (["--model", "sonnet", "--add-dir", "/srv/keys"], []),
        (["AUTH_TOKEN=v1", "claude"], ["v1"]),
    ],
)
def test_a_value_is_secret_by_the_name_before_it(words: list[str], found: list[str]) -> None:
    assert secret_arguments(words) == found
