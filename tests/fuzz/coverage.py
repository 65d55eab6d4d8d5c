"""Which lines of the fuzzed modules the inputs reach, by the interpreter's own tracing: about ten times slower than a plain run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self

__all__ = ["Coverage"]

PACKAGE = Path(__file__).resolve().parents[2] / "clisup"
MODULES = (
    "model/lines/framing.py", "model/journal.py", "model/events.py", "policy/spill.py", "backends/claude/decoder.py",
    "backends/frames.py",
    "backends/claude/frames.py", "backends/claude/messages.py", "backends/claude/rare_frames.py", "backends/claude/result.py",
    "backends/claude/errors.py", "wire/jsonrpc.py",
)  # fmt: skip


class Coverage:
    """`with Coverage() as seen:` around some inputs; then `report()`."""

    def __init__(self) -> None:
        self._files = {str(PACKAGE / name): name for name in MODULES}
        self._seen: dict[str, set[int]] = {path: set() for path in self._files}

    def __enter__(self) -> Self:
        sys.settrace(self._enter)
        return self

    def __exit__(self, *_exc: object) -> None:
        sys.settrace(None)

    def _enter(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        lines = self._seen.get(frame.f_code.co_filename)
        if lines is None:
            return None

        def note(frame: FrameType, event: str, _arg: Any) -> Any:
            if event == "line":
                lines.add(frame.f_lineno)
            return note

        lines.add(frame.f_lineno)
        return note

    def report(self) -> list[tuple[str, int, int, list[int]]]:
        """(module, lines inside functions, lines reached, those not reached) for each module."""
        rows = []
        for path, name in self._files.items():
            lines = set(_lines(compile(Path(path).read_text(), path, "exec"), inside=False))
            rows.append((name, len(lines), len(lines & self._seen[path]), sorted(lines - self._seen[path])))
        return rows


def _lines(code: CodeType, *, inside: bool) -> Iterator[int]:
    """The lines of functions: what stands in a module or a class body runs at import."""
    function = inside or bool(code.co_flags & 0x2)  # CO_NEWLOCALS: a class body has none of its own
    if function:
        yield from (line for _, _, line in code.co_lines() if line is not None and line > code.co_firstlineno)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _lines(constant, inside=function)
