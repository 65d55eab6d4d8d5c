"""Events of a CLI's stderr: redacted, cut, and a bounded number for each turn. The spool has all of it."""

from __future__ import annotations

from collections.abc import Callable

from clisup.daemon.runs.batch import Batch
from clisup.daemon.runs.pace import TimeSlice
from clisup.daemon.runs.spool_stream import Stream
from clisup.daemon.sessions.recorder import Item
from clisup.model.events import StderrLine
from clisup.model.journal import Source
from clisup.model.lines.framing import Line
from clisup.model.sessions.ledger import Turn
from clisup.policy.secrets.redact import Redactor

__all__ = ["STDERR_TEXT_LIMIT", "Stderr"]

STDERR_TEXT_LIMIT = 2000
"""Characters of one line."""


class Stderr(Stream):
    """Second spool of a run. `turn` returns the running turn. `max_events` is the limit `stderr_events`."""

    def __init__(
        self, path: str, offset: int, line_limit: int, *, run: int, max_events: int, redact: Redactor, batch: Batch,
        turn: Callable[[], Turn],
    ) -> None:  # fmt: skip
        super().__init__(path, offset, line_limit)
        self._path, self._run, self._max_events = path, run, max_events
        self._redact, self._batch, self._turn = redact, batch, turn

    def take_bytes(self, data: bytes, step: TimeSlice) -> None:
        """Cut the data and take lines until the step is over. `data` is empty while lines wait."""
        if data:
            self.cut(data)
        while self.waits:
            line = self.next()
            self.take(line)
            self.passed(1)
            if step.is_over:
                return

    def finish(self) -> None:
        """Take a last line without a newline."""
        if (line := self.framer.close()) is not None:
            self.take(line)

    def take(self, line: Line) -> None:
        """Add an event for the line if it is not journaled yet and the limit is not reached."""
        turn, limit = self._turn(), self._max_events
        known = turn.stderr_events + self._batch.stderr_lines
        if turn.has_journaled("err", line.end) or known > limit:
            return
        if known == limit:
            text = f"more than {limit} lines on stderr; the rest is in {self._path}"
        else:
            # Redacted before it is cut, or half a secret would stay at the end.
            text = self._redact(line.first(16 * STDERR_TEXT_LIMIT).decode("utf-8", "replace"))[:STDERR_TEXT_LIMIT]
        src = Source(self._run, "err", line.start, line.end, 0)
        self._batch.add(Item(StderrLine(text=text), turn.id, src=src))
