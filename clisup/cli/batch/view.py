"""View of a batch: progress on stderr, and a table of results on stdout."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

from clisup.cli.batch.work import LineResult
from clisup.cli.turn import json_line, print_line
from clisup.cli.views.events import error_words
from clisup.cli.views.terminal import Ink, clip, cost, duration, plain, print_table, short_name, width_of

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["MAX_ROWS", "BatchView"]

MAX_ROWS = 1000
"""Rows of the table at most. A longer batch shows only lines that did not complete."""

MAX_REASONS = 20
"""Reasons under the table at most."""

_LEAST_ABOUT, _MOST_ABOUT = 16, 80
_STYLES = {"failed": "red", "refused": "red", "timed_out": "red", "interrupted": "dim"}
_DROPPED_FIRST = ("COST", "EXIT", "TIME", "SESSION")


class BatchView:
    """View of one run of the command, fed with its results. Results are kept up to `MAX_ROWS`."""

    def __init__(self, total: int, *, as_json: bool) -> None:
        self.total, self._json = total, as_json
        self.outcomes: Counter[str] = Counter()
        self.before = 0
        self._rows: list[LineResult] = []
        self._wrong: list[LineResult] = []
        self._cost: float | None = None
        self._approvals = 0
        self._ink = Ink(sys.stderr)
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    @property
    def ended(self) -> int:
        """Number of lines that have a result."""
        return self.outcomes.total()

    def begin(self) -> None:
        """Show the progress bar, if stderr is a terminal."""
        if not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.theme import Theme

        theme = Theme({"bar.complete": "cyan", "bar.finished": "cyan", "progress.elapsed": "dim"})
        console = Console(file=sys.stderr, highlight=False, theme=theme)
        columns = (BarColumn(bar_width=None), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        # Rich must not take over stdout: the lines of --json go there.
        self._progress = Progress(*columns, console=console, transient=True, redirect_stdout=False)
        self._task = self._progress.add_task("", total=self.total)
        self._progress.start()
        self._show()

    def end(self) -> None:
        """Remove the progress bar."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def tell(self, result: LineResult) -> None:
        """Take the result of a line."""
        outcome = str(result.end["outcome"])
        self.outcomes[outcome if result.ok or outcome != "completed" else "denied"] += 1
        self.before += result.before
        if result.end.get("cost_usd") is not None and not result.before:
            self._cost = (self._cost or 0.0) + result.end["cost_usd"]
        if len(self._rows) <= MAX_ROWS:
            self._rows.append(_short(result))
        if not result.ok and len(self._wrong) <= MAX_ROWS:
            self._wrong.append(_short(result))
        if self._json:
            print_line(json_line(result.to_json()))
        elif self._progress is None and not result.before:
            self.note(f"[{self.ended}/{self.total}] line {result.item.number}: {_words(result)}")
        self._show()

    def waiting(self, approvals: int) -> None:
        """Take the number of approvals that wait."""
        if approvals > self._approvals and self._progress is None:
            wait = "1 approval waits" if approvals == 1 else f"{approvals} approvals wait"
            self.note(f"{wait} for an answer: clisup approvals")
        self._approvals = approvals
        self._show()

    def note(self, text: str) -> None:
        """Print a line for people, above the bar."""
        if self._json and self._progress is None:
            return
        line = self._ink("dim", plain(text))
        if self._progress is None:
            print(line, file=sys.stderr, flush=True)
        else:
            from rich.text import Text

            self._progress.console.print(Text(plain(text), style="dim"))

    def summary(self) -> str:
        """Return one line: `12 lines: 9 completed, 2 failed, 1 not begun; 3 had ended before; $0.0120`."""
        parts = [f"{number} {outcome.replace('_', ' ')}" for outcome, number in self.outcomes.most_common()]
        if left := self.total - self.ended:
            parts.append(f"{left} without an end")
        counted = "1 line" if self.total == 1 else f"{self.total} lines"
        before = f"{self.before} had ended before" if self.before else ""
        paid = cost(self._cost) if self._cost is not None else ""
        return "; ".join(part for part in (f"{counted}: {', '.join(parts)}", before, paid) if part)

    def print_table(self) -> None:
        """Print the results in the order of their lines, and the reasons of those that did not complete."""
        rows = sorted(self._rows if self.total <= MAX_ROWS else self._wrong, key=lambda result: result.item.number)
        if self.total > MAX_ROWS:
            self.note(f"the batch has more than {MAX_ROWS} lines: the table shows those that did not complete")
        if rows:
            _print_table(rows[:MAX_ROWS], width_of(sys.stdout))
        reasons = [(result, reason) for result in rows if not result.ok and (reason := _reason(result))]
        for result, reason in reasons[:MAX_REASONS]:
            print(f"line {result.item.number}: {clip(reason, 300)}")
        if len(reasons) > MAX_REASONS:
            print(f"{len(reasons) - MAX_REASONS} more lines did not complete: --json prints the reason of each")

    def _show(self) -> None:
        if self._progress is None or self._task is None:
            return
        wrong = self.ended - self.outcomes["completed"]
        parts = [f"{self.ended}/{self.total}", f"{wrong} failed" if wrong else "", cost(self._cost).strip("-")]
        if self._approvals:
            parts.append(f"{self._approvals} wait for approval: clisup approvals")
        self._progress.update(self._task, completed=self.ended, description="  ".join(part for part in parts if part))


def _short(result: LineResult) -> LineResult:
    """Return the result without its long texts."""
    end = {name: value for name, value in result.end.items() if name not in ("text", "structured", "usage")}
    prompt = {"prompt": clip(result.item.prompt["prompt"], _MOST_ABOUT)}
    item = type(result.item)(result.item.number, result.item.key, "", "", {}, prompt)
    return type(result)(item, result.session_id, end, result.before)


def _words(result: LineResult) -> str:
    parts = [_outcome(result), duration(result.end.get("duration_s")), cost(result.end.get("cost_usd"))]
    return " ".join(part for part in (*parts, clip(_reason(result), 200)) if part not in ("", "-"))


def _outcome(result: LineResult) -> str:
    outcome = str(result.end["outcome"])
    return "denied" if outcome == "completed" and not result.ok else outcome.replace("_", " ")


def _reason(result: LineResult) -> str:
    if denied := result.end.get("denied"):
        return f"the CLI was denied: {', '.join(sorted(set(denied)))}"
    return error_words(result.end.get("error"))


def _print_table(rows: list[LineResult], width: int | None) -> None:
    """Print the table. Columns without a value, then less important ones are left out where the terminal is narrow."""
    columns = {
        "LINE": [str(result.item.number) for result in rows],
        "OUTCOME": [_outcome(result) for result in rows],
        "EXIT": [str(result.exit_code) for result in rows],
        "TIME": [duration(result.end.get("duration_s")) for result in rows],
        "COST": [cost(result.end.get("cost_usd")) for result in rows],
        "SESSION": [short_name(result.session_id) for result in rows],
        "PROMPT": [result.item.prompt["prompt"] for result in rows],
    }
    for name in [name for name, cells in columns.items() if set(cells) == {"-"}]:
        del columns[name]
    for name in _DROPPED_FIRST:
        if width is not None and _room(columns, width) < _LEAST_ABOUT:
            columns.pop(name, None)
    room = _MOST_ABOUT if width is None else max(1, min(_MOST_ABOUT, _room(columns, width)))
    columns["PROMPT"] = [clip(cell, room) for cell in columns["PROMPT"]]
    cells = [list(row) for row in zip(*columns.values(), strict=True)]
    print_table(list(columns), cells, [_STYLES.get(str(result.end["outcome"]), "") for result in rows])


def _room(columns: dict[str, list[str]], width: int) -> int:
    """Return the columns of the terminal that are left for the prompt."""
    return width - sum(2 + max(len(name), *map(len, cells)) for name, cells in columns.items() if name != "PROMPT")
