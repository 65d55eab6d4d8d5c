"""Status line of a running turn: what the turn does, for how long, and its tokens and cost so far."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from clisup.cli.views.events import Event, tool_words
from clisup.cli.views.terminal import Ink, clip, cost, count, width_of

__all__ = ["ERASE", "TICK_S", "StatusLine", "TurnProgress", "can_be_erased", "status_row"]

ERASE = "\r\033[K"
TICK_S = 0.25
"""Seconds between two drawings of the line."""

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_LEAST_WIDTH = 20
_TOKENS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
_WRITES = {"text": "writing", "thinking": "thinking", "tool_input": "calling a tool"}


class TurnProgress:
    """State of a turn in words, by its events. Pure: times are arguments."""

    def __init__(self, backend: str, now: float) -> None:
        self._begun = self._since = now
        self._what = f"starting {backend}"
        self._tools: dict[str, tuple[str, float]] = {}
        self._asked: set[str] = set()
        self._tokens = 0
        self.cost_usd: float | None = None
        """Cost of the turn so far, if it is known."""
        self._unpriced: str | None = None
        """Id of the turn, if its usage has changed since the last look at its cost."""

    def take(self, event: Event, now: float) -> None:
        """Note an event of the turn."""
        kind = event["type"]
        if kind == "tool_use":
            self._tools[event["tool_use_id"]] = clip(tool_words(event), 60), now
        elif kind == "tool_result":
            self._tools.pop(event["tool_use_id"], None)
            self._enter("waiting for the model", now)
        elif kind == "approval_requested":
            self._asked.add(event["approval_id"])
        elif kind == "approval_resolved":
            self._asked.discard(event["approval_id"])
        elif kind == "content_delta":
            self._enter(_WRITES.get(event["kind"], "writing"), now)
        elif kind in ("session_init", "message_stop"):
            self._enter("waiting for the model", now)
        elif kind == "retry":
            self._enter("waiting to try again", now)
        if event.get("usage") and kind in ("message_stop", "usage"):
            self._tokens += sum(event["usage"].get(name) or 0 for name in _TOKENS)
            self._unpriced = event.get("turn_id")

    def due(self) -> str | None:
        """Return the id of the turn if its cost has to be read again, once for each change."""
        turn_id, self._unpriced = self._unpriced, None
        return turn_id

    @property
    def wants_you(self) -> bool:
        """Tell whether the turn waits for a person."""
        return bool(self._asked)

    def words(self, now: float) -> str:
        """Return the state, as `Bash make test 12 s, 48 s in all, 31.2k tokens, ~$0.0421`. The cost is an estimate."""
        if self._asked:
            what, since = "waiting for your answer", now
        elif self._tools:
            what, since = list(self._tools.values())[-1]
        else:
            what, since = self._what, self._since
        in_it = f" {_span(now - since)}" if now - since >= 1 else ""
        total = f", {_span(now - self._begun)} in all" if since - self._begun >= 1 or self._asked else ""
        used = f", {count(self._tokens)} tokens" if self._tokens else ""
        paid = f", ~{cost(self.cost_usd)}" if self.cost_usd is not None else ""
        return f"{what}{in_it}{total}{used}{paid}"

    def _enter(self, what: str, now: float) -> None:
        if what != self._what:
            self._what, self._since = what, now


def _span(seconds: float) -> str:
    """Return a time that counts seconds, as `12 s`, `2 min 05 s` or `1 h 02 min`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60:02} s" if whole < 3600 else f"{whole // 3600} h {whole // 60 % 60:02} min"


def can_be_erased() -> bool:
    """Tell whether stderr is a real terminal that can erase a line."""
    try:
        return os.isatty(sys.stderr.fileno()) and os.environ.get("TERM") not in (None, "", "dumb")
    except (OSError, ValueError):
        return False


def status_row(progress: TurnProgress, now: float, width: int, ink: Ink) -> str:
    """Return the state of the turn on one row of a terminal with `width` columns."""
    words = _fitted(progress.words(now), max(_LEAST_WIDTH, width) - 3)
    style = "yellow" if progress.wants_you else "dim"
    return f"{ink('accent', _FRAMES[int(now / TICK_S) % len(_FRAMES)])} {ink(style, words)}"


class StatusLine:
    """Last line of the terminal of stderr, drawn by a thread from `open` to `close`. Text is printed inside `aside`.

    `read_cost` returns the cost of a turn so far, or None if it is unknown.
    """

    def __init__(self, progress: TurnProgress, read_cost: Callable[[str], float | None]) -> None:
        self._progress, self._read_cost = progress, read_cost
        self._lock = threading.RLock()
        self._ink = Ink(sys.stderr)
        self._closed = threading.Event()
        self._holds = 0
        self._shown = False
        self.at_start = True

    def open(self) -> None:
        """Begin to draw."""
        threading.Thread(target=self._draw_on, daemon=True).start()

    def take(self, event: Event) -> None:
        """Note an event of the turn."""
        with self._lock:
            self._progress.take(event, time.monotonic())

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Erase the line, and draw nothing inside the block."""
        with self._lock:
            self._erase()
            yield

    def hold(self) -> None:
        """Erase the line, and draw nothing until `release`: a person is asked."""
        with self._lock:
            self._holds += 1
            self._erase()

    def release(self) -> None:
        """End a `hold`."""
        with self._lock:
            self._holds -= 1

    def close(self) -> None:
        """Erase the line for good."""
        self._closed.set()
        with self._lock:
            self._erase()

    def _draw_on(self) -> None:
        while not self._closed.wait(TICK_S):
            self._look_at_cost()
            with self._lock:
                if not self._closed.is_set() and not self._holds and self.at_start:
                    self._draw(time.monotonic())

    def _look_at_cost(self) -> None:
        with self._lock:
            turn_id = self._progress.due()
        known = self._read_cost(turn_id) if turn_id is not None else None  # outside of the lock: the daemon may be slow
        if known is not None:
            with self._lock:
                self._progress.cost_usd = known

    def _draw(self, now: float) -> None:
        self._put(ERASE + status_row(self._progress, now, width_of(sys.stderr) or 80, self._ink))
        self._shown = True

    def _erase(self) -> None:
        if self._shown:
            self._put(ERASE)
            self._shown = False

    def _put(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):
            self._closed.set()  # the terminal is gone


def _fitted(text: str, cells: int) -> str:
    """Return the text in at most so many cells of the terminal: a line that wraps could not be erased."""
    from rich.cells import cell_len, set_cell_size  # only a terminal needs it

    return text if cell_len(text) <= cells else set_cell_size(text, cells - 1).rstrip() + "…"
