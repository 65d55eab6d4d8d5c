"""Events of a CLI's stderr: redacted, cut, and a bounded number for each turn. The spool has the whole stderr."""

from __future__ import annotations

from collections.abc import Callable

from clisup.daemon.journal.recorder import Item
from clisup.daemon.runs.batch import Batch
from clisup.model.events import StderrLine
from clisup.model.journal import Source
from clisup.model.lines.framing import Line
from clisup.model.sessions.ledger import TurnRecord
from clisup.policy.secrets.redact import Redactor
from clisup.store.session_dir import RunDir

__all__ = ["STDERR_TEXT_LIMIT", "StderrEvents"]

STDERR_TEXT_LIMIT = 2000
"""Characters of one line."""


class StderrEvents:
    """Events of the stderr lines of one run.

    `turn` returns the running turn. `limit` is the limit `stderr_events`.
    """

    def __init__(
        self, batch: Batch, turn: Callable[[], TurnRecord], redact: Redactor, run_dir: RunDir, limit: int
    ) -> None:
        self._batch, self._turn, self._redact, self._dir, self._limit = batch, turn, redact, run_dir, limit

    def take(self, line: Line) -> None:
        """Add an event for the line, unless the line is journaled or the limit is reached."""
        turn, limit = self._turn(), self._limit
        known = turn.stderr_events + self._batch.stderr_lines
        if turn.has_journaled("err", line.end) or known > limit:
            return
        if known == limit:
            text = f"more than {limit} lines on stderr; the rest is in {self._dir.err}"
        else:
            # Redacted before the cut, because half a secret would stay at the end otherwise.
            text = self._redact(line.first(16 * STDERR_TEXT_LIMIT).decode("utf-8", "replace"))[:STDERR_TEXT_LIMIT]
        src = Source(self._dir.number, "err", line.start, line.end, 0)
        self._batch.add(Item(StderrLine(text=text), turn.id, src=src))
