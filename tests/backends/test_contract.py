"""The same script gives the same story with every backend, in the recordings of the real CLIs. `tests/e2e/test_matrix.py` runs them."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import msgspec
import pytest

from clisup.backends.base import Decoded
from clisup.model.events import PermissionDenied
from clisup.model.verdict import ExitRecord, conclude
from tests.backends.contract import ESSENCE, essence, expected, frame_faults
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


def turn_of(recording: Recording, results: list[Decoded]) -> list[dict[str, Any]]:
    """The events of a recording that was decoded, and its end, as a client gets them."""
    terminal = next((result.terminal for result in results if result.terminal), None)
    end = recording.run_end
    record = ExitRecord(end.exit_code, end.signal, reason="exit")
    explained = recording.adapter.explain_exit(end)
    done = conclude(terminal=terminal, record=record, ending=None, explained=explained, duration_s=None)
    events = [event for result in results for event in result.events]
    return [msgspec.to_builtins(event) for event in (*events, done)]


@pytest.mark.parametrize(("kind", "case"), MATRIX)
def test_the_same_script_gives_the_same_story(kind: str, case: str) -> None:
    recording = Recording(NEWEST[kind] / f"{NAMES.get(kind, {}).get(case, case)}.jsonl")
    told = essence(turn_of(recording, recording.decode()))
    can = recording.adapter.capabilities.of(live=recording.meta.get("launch", {}).get("live", False))
    assert told == expected(case, told, thinking=can.thinking)


def test_every_backend_is_in_the_matrix_with_every_case() -> None:
    cases: dict[str, set[str]] = {}
    for param in MATRIX:
        kind, case = (str(value) for value in param.values)
        cases.setdefault(kind, set()).add(case)
    assert all(found == set(ESSENCE) for found in cases.values()), cases
    assert set(cases) >= {"claude", "codex", "codex-exec", "gemini", "qwen", "acp"}


@pytest.mark.parametrize("path", PATHS, ids=name_of)
def test_the_frame_of_a_turn_that_ended_well_is_whole(path: Any) -> None:
    recording = Recording(path)
    results = recording.decode()
    events = turn_of(recording, results)
    if events[-1]["outcome"] == "completed" and sum(bool(one.terminal) for one in results) == 1:
        assert frame_faults(events) == []


@pytest.mark.parametrize("path", PATHS, ids=name_of)
def test_a_turn_that_failed_has_no_final_answer(path: Any) -> None:
    """What there was of one is in its messages; a program that reads `text` alone would take it for the answer."""
    ends = [one.terminal for one in Recording(path).decode() if one.terminal]
    assert not any(end.text for end in ends if end.is_error)


@pytest.mark.parametrize("path", PATHS, ids=name_of)
def test_every_tool_that_an_end_names_as_denied_was_told_as_that(path: Any) -> None:
    results = Recording(path).decode()
    told = {event.name for one in results for event in one.events if isinstance(event, PermissionDenied)}
    assert {name for one in results if one.terminal for name in one.terminal.denied} == told


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
