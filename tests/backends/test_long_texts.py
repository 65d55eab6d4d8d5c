"""What a decoder says that it only passes on, it does: recordings whose strings have grown give the same both ways."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from clisup.model.lines.long_line import Path
from tests.backends.long_texts import in_pieces, make_smaller, short, told
from tests.backends.recorded import PATHS, Recording, name_of

LIMIT = 400
MORE = ' and "more", é\n' * 150
CUT = {
    "claude/tool_ok": {
        ("user", "message.content.*.content"), ("user", "tool_use_result.stdout"),
        ("assistant", "message.content.*.text"), ("assistant", "message.content.*.input.command"),
        ("stream_event", "event.delta.text"), ("stream_event", "event.delta.partial_json"),
    },
    "qwen/tool_ok": {("user", "message.content.*.content")},
    "gemini/tool_ok": {("tool_result", "output")},
    "codex/tool_ok": {("item/completed", "params.item.aggregatedOutput")},
    "codex-exec/tool_ok": {("item.completed", "item.aggregated_output")},
    "acp/qwen-0.24.4/tool_ok": {("session/update", "params.update.content.*.content.text")},
}  # fmt: skip
"""What is cut at least: kinds of frames, and places in them."""


def _strings(value: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(value, str):
        yield path
    for key, child in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from _strings(child, (*path, "*" if isinstance(value, list) else key))


def _grown(value: Any, path: Path) -> Any:
    """With more of each string at this place."""
    if isinstance(value, str) and not path:
        return value + MORE
    if path and isinstance(value, dict):
        return {key: _grown(child, path[1:]) if key == path[0] else child for key, child in value.items()}
    if path and isinstance(value, list) and path[0] == "*":
        return [_grown(child, path[1:]) for child in value]
    return value


def _frames(recording: Recording) -> list[dict[str, Any]]:
    frames = [json.loads(line.data) for line in recording.lines() if line.complete and line.data.startswith(b"{")]
    return [frame for frame in frames if isinstance(frame, dict)]


def _places(recording: Recording) -> set[Path]:
    """All places of which the decoder says that it passes on what stands there, in any frame."""
    passes = recording.adapter.decoder(recording.carried, recording.request).passes_on
    return {path for frame in _frames(recording) for path in set(_strings(frame)) if passes(frame, path)}


def _both_ways(recording: Recording, place: Path) -> set[tuple[str, str]]:
    """Decode it with more at this place, line by line in both ways; the kinds of frames of which something was cut."""
    whole, other = (recording.adapter.decoder(recording.carried, recording.request) for _ in range(2))
    cut: set[tuple[str, str]] = set()
    at = 0
    for frame in _frames(recording):
        line = in_pieces(json.dumps(_grown(frame, place)).encode(), start=at)
        at = line.end
        made, joined = short(line, other, over=LIMIT), line.joined()
        assert told(other.decode(made), made, LIMIT) == told(whole.decode(joined), joined, LIMIT)
        if made.cuts is not None:
            cut.add((str(frame.get("type") or frame.get("method")), ".".join(place)))
    return cut


@pytest.mark.parametrize("path", PATHS, ids=name_of)
def test_a_recording_with_longer_strings_gives_the_same_both_ways(path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    make_smaller(monkeypatch)
    recording = Recording(path)
    cut = {found for place in sorted(_places(recording)) for found in _both_ways(recording, place)}
    assert cut >= CUT.get(name_of(path), set())
