"""Recordings of real CLIs, and what our decoders make of them.

A recording is `tests/recordings/<kind>/<cli version>/<name>.jsonl`, the CLI's stdout as it came, and beside it `<name>.meta.json`,
which docs/how-to/recordings.md describes; the package reads both.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from clisup.backends import recording
from clisup.backends.base import Adapter, Carried, Decoded, LaunchRequest, RunEnd, Terminal
from clisup.backends.registry import get_adapter
from clisup.model.events import EventBase
from clisup.model.lines.framing import Line
from clisup.recordings.files import read_recording
from tests.versions import RECORDED

RECORDINGS = Path(__file__).parents[1] / "recordings"
PATHS = sorted(RECORDINGS.glob("*/*/*.jsonl"))


def path_of(name: str) -> Path:
    """Return the path of a recording: `claude/text` of the pinned version, or with the version as the second part."""
    kind, *rest = name.split("/")
    folder = RECORDINGS / kind if len(rest) > 1 else RECORDINGS / kind / RECORDED[kind]
    return folder.joinpath(*rest[:-1], f"{rest[-1]}.jsonl")


def name_of(path: Path) -> str:
    """Return the name of a recording; the inverse of `path_of`."""
    kind, version = path.parents[1].name, path.parent.name
    return f"{kind}/{path.stem}" if RECORDED.get(kind) == version else f"{kind}/{version}/{path.stem}"


@dataclass
class Recording:
    """One recording, decoded. `Recording.of("claude/text")` is one of the pinned version."""

    path: Path

    @classmethod
    def of(cls, name: str) -> Recording:
        return cls(path_of(name))

    @cached_property
    def file(self) -> recording.TurnRecording:
        return read_recording(self.path)

    @property
    def adapter(self) -> Adapter:
        return get_adapter(self.file.kind)

    @property
    def meta(self) -> dict[str, Any]:
        """All that the recorder wrote, also what the package does not read."""
        return dict(json.loads(self.path.with_suffix(".meta.json").read_text()))

    @property
    def request(self) -> LaunchRequest:
        return self.file.request

    @property
    def carried(self) -> Carried:
        return self.file.carried

    @property
    def run_end(self) -> RunEnd:
        return self.file.run_end

    def lines(self) -> list[Line]:
        return self.file.lines()

    def dialogue(self) -> list[tuple[str, dict[str, Any]]]:
        """Both directions in their order: ("said", a frame of stdin) and ("heard", a frame of stdout). stdin's end is left out."""
        told, heard = list(self.file.meta.stdin), self.lines()
        frames: list[tuple[str, dict[str, Any]]] = []
        start = 0
        for line in [*heard, None]:
            while told and (line is None or told[0][0] <= start):
                _, said = told.pop(0)
                frames += [("said", json.loads(said))] if said and said.startswith("{") else []
            if line is not None:
                frames.append(("heard", json.loads(line.data)))
                start = line.end
        return frames

    def decode(self) -> list[Decoded]:
        """One decoder for all lines, also where the CLI began another turn by itself: the story of a process."""
        decoder = self.adapter.decoder(self.file.carried, self.file.request)
        return [decoder.decode(line) for line in self.lines()]

    def events(self, *types: str) -> list[Any]:
        return [event for one in self.decode() for event in one.events if not types or event.type in types]

    def terminal(self) -> Terminal:
        """The one terminal frame."""
        (terminal,) = [one.terminal for one in self.decode() if one.terminal]
        return terminal


def frame_name(line: Line) -> str:
    """What kind of frame this is, in the words of whichever CLI said it."""
    try:
        frame = json.loads(line.data)
    except ValueError:
        return "no JSON"
    places = (frame, frame.get("item"), frame.get("event"), frame.get("params"), frame.get("message"))
    parts = [_word(place) for place in places if isinstance(place, dict)]
    delta = (frame.get("event") or {}).get("delta") if isinstance(frame.get("event"), dict) else None
    name = "/".join(part for part in [*parts, _word(delta)] if part)
    return name or ("error answer" if "error" in frame else "answer" if "result" in frame else "?")


def _word(place: Any) -> str:
    if not isinstance(place, dict):
        return ""
    words = [place[key] for key in ("method", "type", "subtype", "sessionUpdate") if isinstance(place.get(key), str)]
    inner = [_word(place.get(key)) for key in ("item", "update")]
    return "/".join(word for word in [*words, *inner] if word and word != "message")


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


def story(recording: Recording) -> str:
    """A line for each line of the recording: the frame, and what it became; like ones in a row are counted."""
    told: list[list[Any]] = []
    for line, result in zip(recording.lines(), recording.decode(), strict=True):
        names = [event_name(event) for event in result.events]
        names += [terminal_name(result.terminal)] if result.terminal else []
        names += ["SAYS " + (_said(reply) if isinstance(reply, str) else "the end") for reply in result.replies]
        text = f"{frame_name(line)} -> {', '.join(names) or '-'}"
        if told and told[-1][0] == text:
            told[-1][1] += 1
        else:
            told.append([text, 1])
    return "".join(f"{text}{f'  x{count}' if count != 1 else ''}\n" for text, count in told)


def _said(reply: str) -> str:
    frames = [json.loads(line) for line in reply.splitlines()]
    return "+".join(str(frame.get("method") or ("error" if "error" in frame else "result")) for frame in frames)
