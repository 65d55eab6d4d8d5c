"""Write `clisup/backends/known_fields/<kind>.json` anew from all recordings: `python -m tests.backends.known_fields`."""

from __future__ import annotations

import json
from pathlib import Path

from clisup.ops.drift import field_names, frame_name
from tests.backends.recorded import PATHS, RECORDINGS, Recording

TARGET = Path(__file__).parents[2] / "clisup" / "backends" / "known_fields"


def kinds() -> list[str]:
    """The kinds that there are recordings of."""
    return sorted({path.relative_to(RECORDINGS).parts[0] for path in PATHS})


def known_fields(kind: str) -> dict[str, list[str]]:
    """Frame name to its fields, in all recordings of the kind."""
    found: dict[str, set[str]] = {}
    for path in PATHS:
        if path.relative_to(RECORDINGS).parts[0] != kind:
            continue
        for line in Recording(path).lines():
            try:
                frame = json.loads(line.data)
            except ValueError:
                continue
            if isinstance(frame, dict):
                found.setdefault(frame_name(frame), set()).update(field_names(frame))
    return {name: sorted(found[name]) for name in sorted(found)}


def text_of(kind: str) -> str:
    """The file: a line for each kind of frame."""
    rows = [f"  {json.dumps(name)}: {json.dumps(fields)}" for name, fields in known_fields(kind).items()]
    return "{\n" + ",\n".join(rows) + "\n}\n"


if __name__ == "__main__":
    TARGET.mkdir(exist_ok=True)
    for kind in kinds():
        (TARGET / f"{kind}.json").write_text(text_of(kind))
