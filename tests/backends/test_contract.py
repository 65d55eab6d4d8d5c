"""The same script gives the same story with every backend, in the recordings of the real CLIs, and the contract finds what breaks it.

`tests/e2e/test_matrix.py` runs the scripts, `test_recordings.py` holds each recording to the contract.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from clisup.backends.base import Decoded, Decoder
from clisup.backends.claude.adapter import ClaudeAdapter
from clisup.backends.contract import ESSENCE, essence, expected, faults, spoilt_faults, turn_of
from clisup.model.events import AssistantMessage, Block, ContentDelta, MessageStart, Notice, PermissionDenied, ToolUse
from clisup.model.lines.framing import Line
from clisup.model.verdict import Terminal
from tests.backends.recorded import PATHS, Recording, name_of

NAMES = {"claude": {"reasoning": "thinking", "resume": "memory_resume", "http_401": "http_401_final"},
         "qwen": {"resume": "memory_resume"}, "gemini": {"reasoning": "thinking", "resume": "memory_resume"},
         "acp": {"resume": "memory_resume"}}  # fmt: skip
"""Where a recording has another name than the case."""
NEWEST = {path.parents[1].name: path.parent for path in PATHS}
MATRIX = [
    pytest.param(kind, case, id=f"{kind}-{case}")
    for kind, folder in NEWEST.items()
    for case in ESSENCE
    if (folder / f"{NAMES.get(kind, {}).get(case, case)}.jsonl").exists()
]


@pytest.mark.parametrize(("kind", "case"), MATRIX)
def test_the_same_script_gives_the_same_story(kind: str, case: str) -> None:
    recording = Recording(NEWEST[kind] / f"{NAMES.get(kind, {}).get(case, case)}.jsonl")
    told = essence(turn_of(recording.file, recording.adapter))
    can = recording.adapter.capabilities.of(live=recording.request.live)
    assert told == expected(case, told, thinking=can.thinking)


def test_every_backend_with_recordings_is_in_the_matrix_with_every_case() -> None:
    cases: dict[str, set[str]] = {}
    for param in MATRIX:
        kind, case = (str(value) for value in param.values)
        cases.setdefault(kind, set()).add(case)
    assert all(found == set(ESSENCE) for found in cases.values()), cases
    assert set(cases) == set(NEWEST)


@pytest.mark.parametrize("path", PATHS, ids=name_of)
def test_a_decoder_is_gone_with_its_last_user_and_waits_for_no_search_for_garbage(path: Any) -> None:
    """A daemon makes one for each turn, and searches for garbage in cycles as good as never."""
    recording = Recording(path)
    decoder: Any = recording.adapter.decoder(recording.carried, recording.request)
    for line in recording.lines():
        decoder.decode(line)
    left = weakref.ref(decoder)
    gc.disable()
    try:
        del decoder
        assert left() is None
    finally:
        gc.enable()


Decode = Callable[[Line], Decoded]
TEXT = AssistantMessage(message_id="m", blocks=(Block(kind="text", text="hi"),))
DELTA = ContentDelta(kind="text", text="ho", message_id="m")


def broken(decode: Decode) -> ClaudeAdapter:
    """An adapter whose decoder makes this of each line."""

    class Broken(Decoder):
        def decode(self, line: Line) -> Decoded:
            return decode(line)

    class Adapter(ClaudeAdapter):
        def decoder(self, *args: Any, **options: Any) -> Any:
            return Broken()

    return Adapter()


def last(*events: Any, **end: Any) -> Decode:
    """These events and the end of the turn for the last line."""
    return lambda line: (
        Decoded(events, Terminal(**{"is_error": False, **end})) if b'"result"' in line.data else Decoded(())
    )


def restless() -> Decode:
    """Another event for each line that any decoder reads."""
    seen: list[Line] = []

    def decode(line: Line) -> Decoded:
        seen.append(line)
        return Decoded((MessageStart(message_id=str(len(seen))),))

    return decode


@pytest.mark.parametrize(
    ("decode", "words"),
    [
        (last(Notice(code="x", message="m")), "an event notice, which capabilities.events does not name"),
        (last(ToolUse("t", "n", {"a": object()})), "a ToolUse cannot be written"),
        (last(is_error=True, text="hi"), "a failed turn has a text"),
        (last(PermissionDenied(name="Write")), "permission_denied events name ['Write'], and the ends of turns []"),
        (last(MessageStart("m"), DELTA, TEXT), "the deltas of message m say 'ho', the message says 'hi'"),
        (last(MessageStart(message_id="m")), "message m never stops"),
        (last(ToolUse("t", "n"), ToolUse("t", "n")), "tool t is used twice"),
        (restless(), "the same lines give other events to a second decoder"),
    ],
)  # fmt: skip
def test_the_contract_finds_what_breaks_it(decode: Decode, words: str) -> None:
    found = faults(Recording.of("claude/text").file, broken(decode))
    assert any(words in fault for fault in found), found


def test_the_contract_names_an_unparsed_line() -> None:
    file = Recording.of("claude/text").file
    found = faults(replace(file, data=file.data + b'{"type":"from_the_future"}\n'), ClaudeAdapter())
    assert found == ['a line is unparsed (unknown_type): {"type":"from_the_future"}']


def test_the_contract_finds_a_chunk_that_differs_from_its_lines() -> None:
    adapter = broken(last(MessageStart(message_id="m")))
    decoder: Any = type(adapter.decoder())
    decoder.decode_chunk = lambda self, lines: super(decoder, self).decode_chunk(())
    adapter.decoder = lambda *args, **options: decoder()  # type: ignore[method-assign]
    assert "decode_chunk gives other events than decode" in faults(Recording.of("claude/text").file, adapter)


def fragile(line: Line) -> Decoded:
    """A decoder that trusts its CLI."""
    line.data.decode().index('"type"')
    return Decoded((), replies=("no newline",) if b"assistant" in line.data else ())


def test_spoilt_lines_find_a_decoder_that_raises_and_a_reply_that_is_no_line() -> None:
    found = spoilt_faults(Recording.of("claude/text").file, broken(fragile))
    assert any("decode raises ValueError" in fault for fault in found)
    assert any("a reply without a newline" in fault for fault in found)
