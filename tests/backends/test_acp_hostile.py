"""Whatever an ACP agent sends: the decoder raises nothing, every event can be written, every reply is a line of JSON-RPC."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest

from clisup.backends.acp.adapter import AcpAdapter
from clisup.backends.base import Carried, LaunchRequest
from clisup.model.lines.framing import LineFramer
from clisup.model.usage import NO_USAGE
from tests.backends.recorded import RECORDINGS
from tests.journals import encode_event

TALKS = sorted(RECORDINGS.glob("acp/*/*.jsonl"))
ROUNDS = 40
_DEEP: Any = 7
for _ in range(230):
    _DEEP = {"d": _DEEP}
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 10**30, -(2**53) - 1, 1.5, "", "session/cancel", "\ud83d", "\x00", [], {}, [[]], {"": 0}, [None], _DEEP,
)  # fmt: skip


def mutated(value: Any, chance: random.Random) -> Any:
    """The same value with one of its parts replaced by something odd, or left out."""
    if chance.random() < 0.15 or not isinstance(value, dict | list) or not value:
        return chance.choice(ODD)
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    copy, key = value.copy(), chance.choice(keys)
    if chance.random() < 0.15:
        del copy[key]
    else:
        copy[key] = mutated(value[key], chance)
    return copy


def broken(raw: bytes, chance: random.Random) -> bytes:
    if chance.random() < 0.2:  # bytes instead of values
        at = chance.randrange(len(raw))
        return (
            raw[:at] + chance.choice((b"", b"\xff", b"\x00", b'"', b"{", b"\\ud83d")) + raw[at + chance.randrange(3) :]
        )
    return json.dumps(mutated(json.loads(raw), chance)).encode()


@pytest.mark.fault(25)
@pytest.mark.parametrize("path", TALKS, ids=lambda path: path.stem)
def test_no_line_can_break_the_decoder(path: Any) -> None:
    chance = random.Random(path.stem)
    lines = path.read_bytes().splitlines()
    for round_ in range(ROUNDS):
        resumed = round_ % 2 == 1
        request = LaunchRequest(("a",), "hi", "s" if resumed else None, resumed, "/w", model=chance.choice((None, "m")))
        decoder = AcpAdapter().decoder(Carried(0.0, NO_USAGE), request)
        spoilt = [broken(raw, chance) if chance.random() < 0.3 else raw for raw in lines]
        for line in LineFramer().feed(b"\n".join(spoilt) + b"\n"):
            decoded = decoder.decode(line)
            for event in decoded.events:
                encode_event(event, session_id="s", seq=1, ts="t", turn_id=None, source="backend")
            for reply in decoded.replies:
                assert not isinstance(reply, str) or (reply.endswith("\n") and json.loads(reply)["jsonrpc"] == "2.0")
            if decoded.terminal is not None and decoded.terminal.error is not None:
                msgspec.json.encode(decoded.terminal.error)
        words = decoder.interrupt()
        assert words is None or json.loads(words)["method"] == "session/cancel"
