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

from clisup.backends import contract, recording
from clisup.backends.base import Adapter, Carried, Decoded, LaunchRequest, RunEnd, Terminal
from clisup.backends.registry import get_adapter
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
        return self.file.run_end(self.adapter)

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
        return contract.decode(self.file, self.adapter)

    def events(self, *types: str) -> list[Any]:
        return [event for one in self.decode() for event in one.events if not types or event.type in types]

    def terminal(self) -> Terminal:
        """The one terminal frame."""
        (terminal,) = [one.terminal for one in self.decode() if one.terminal]
        return terminal
