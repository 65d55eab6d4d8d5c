"""The words for params that are wrong."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from clisup.errors import UsageError
from clisup.model.structs import PLACE_CHARS, wrong_field
from clisup.wire.jsonrpc import encode_error
from clisup.wire.methods import METHODS

SESSION = "3f2a77be-1c1d-4d8b-9a3e-0d6c5b0f9a11"


def _wrong(method: str, params: dict[str, Any]) -> tuple[str, str]:
    with pytest.raises(ValidationError) as caught:
        METHODS[method].params.model_validate(params)
    return wrong_field(caught.value)


@pytest.mark.parametrize("letter", ["x", "\u00e9", "\U0001f600", "\0", "\\", '"'])
@pytest.mark.parametrize(
    "params",
    [
        lambda long: {"session_id": SESSION, "prompt": [{"type": long}]},
        lambda long: {"session_id": SESSION, "prompt": "p", long: 1},
        lambda long: {"session_id": SESSION, "prompt": "p", "key": {long: long}},
    ],
    ids=["a block's type", "a name", "a value of another kind"],
)
def test_a_refusal_is_small_however_long_what_was_sent_is(params: Any, letter: str) -> None:
    where, reason = _wrong("session/prompt", params(letter * 100_000))
    assert len(encode_error(1, UsageError(f"{where!r} is wrong: {reason}", param=where))) < 4096
    assert len(where) <= PLACE_CHARS and reason


def test_what_would_have_been_right_is_said_beside_a_value_that_is_cut() -> None:
    where, reason = _wrong("session/prompt", {"session_id": SESSION, "prompt": [{"type": "x" * 1000}]})
    assert where.startswith("prompt") and " ... " in reason and reason.startswith("Input tag 'xxx")
    assert reason.endswith("'text', 'image', 'tool_result'")


def test_a_short_reason_stands_as_it_is() -> None:
    where, reason = _wrong("session/prompt", {"session_id": SESSION, "prompt": "p", "colour": 1})
    assert (where, reason) == ("colour", "Extra inputs are not permitted")
