"""Terminals of real commands, recorded and drawn as SVG: one screen, or a moving picture of several panes.

A recording holds each line of a screen with the times between which it was seen, so a picture of twenty seconds stays small.
The picture loads nothing: its fonts are those of the reader, and the movement is SMIL, which browsers play in an `<img>`.
"""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import NamedTuple

import pyte

__all__ = ["Film", "Pane", "Run", "moving", "still"]

FONT = "DejaVu Sans Mono, Menlo, Consolas, monospace"
WIDTH, HEIGHT, MARGIN = 8.43, 18.0, 12.0
"""Size of a character, in pixels at 14 px, and the margin around a pane."""
PAUSE_S = 0.05
"""Shortest time between two frames."""
PATIENCE_S = 60.0
PAPER, INK = "#1b1d23", "#d7dae0"
COLOURS = {
    "black": "#5c6370", "red": "#e06c75", "green": "#98c379", "brown": "#e5c07b", "blue": "#61afef", "magenta": "#c678dd",
    "cyan": "#56b6c2", "white": "#d7dae0", "brightblack": "#7f848e", "brightred": "#e06c75", "brightgreen": "#98c379",
    "brightbrown": "#e5c07b", "brightblue": "#61afef", "brightmagenta": "#c678dd", "brightcyan": "#56b6c2",
    "brightwhite": "#ffffff", "default": INK,
}  # fmt: skip
_STARTER = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"


class Span(NamedTuple):
    """Piece of a line in one colour. A `weight` of "bold" is drawn so."""

    column: int
    text: str
    colour: str
    background: str | None
    weight: str


Line = tuple[Span, ...]


class Pane:
    """Screen of one terminal. `feed` draws, `look` notes which lines are seen now."""

    def __init__(self, columns: int, lines: int, title: str) -> None:
        self.columns, self.lines, self.title = columns, lines, title
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.Stream(self.screen)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace")
        self._seen: dict[int, tuple[Line, float]] = {}
        self.spells: list[tuple[int, Line, float, float]] = []
        """Row, line, and the seconds from and to which it was seen."""

    def feed(self, data: bytes) -> None:
        self._stream.feed(self._decode.decode(data))

    def say(self, text: str) -> None:
        """Draw text that no command has printed, such as a shell's prompt."""
        self._stream.feed(text.replace("\n", "\r\n"))

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display)

    def look(self, at: float) -> None:
        for row in range(self.lines):
            line = self._line(row)
            before = self._seen.get(row)
            if before is not None and before[0] == line:
                continue
            if before is not None and before[0]:
                self.spells.append((row, before[0], before[1], at))
            self._seen[row] = line, at

    def end(self, at: float) -> None:
        """End the recording: the lines that are seen last stay to the end."""
        self.look(at)
        self.spells += [(row, line, since, at) for row, (line, since) in self._seen.items() if line]

    def _line(self, row: int) -> Line:
        cells, spans = self.screen.buffer[row], list[Span]()
        for column in range(self.columns):
            cell = cells[column]
            fore, back = _colour(cell.fg), None if cell.bg == "default" else _colour(cell.bg)
            if cell.reverse:
                fore, back = back or PAPER, fore
            style = (fore, back, "bold" if cell.bold else "normal")
            last = spans[-1] if spans else None
            if last is not None and (last.colour, last.background, last.weight) == style:
                spans[-1] = last._replace(text=last.text + cell.data)
            else:
                spans.append(Span(column, cell.data, *style))
        while spans and not spans[-1].text.strip() and spans[-1].background is None:
            spans.pop()
        if spans and spans[-1].background is None:
            spans[-1] = spans[-1]._replace(text=spans[-1].text.rstrip())
        return tuple(span for span in spans if span.text.strip() or span.background)


class Run:
    """Command in a pane: the foreground process of a terminal of the pane's size."""

    def __init__(self, pane: Pane, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> None:
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (pane.lines, pane.columns))
        self.pane, self.ours = pane, ours
        fcntl.fcntl(ours, fcntl.F_SETFL, os.O_NONBLOCK)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _STARTER, *argv], stdin=theirs, stdout=theirs, stderr=theirs,
            env={**env, "TERM": "xterm-256color", "COLORTERM": ""}, cwd=cwd, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)

    def read(self) -> bool:
        """Draw what is there. Return False at the end of the output."""
        while True:
            try:
                data = os.read(self.ours, 65536)
            except BlockingIOError:
                return True
            except OSError:  # the other end is closed
                return False
            if not data:
                return False
            self.pane.feed(data)

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.ours)


class Film:
    """Clock of a recording: `play` reads all runs and looks at all panes."""

    def __init__(self, *panes: Pane) -> None:
        self.panes, self.runs = panes, list[Run]()
        self._began = time.monotonic()

    @property
    def now(self) -> float:
        return time.monotonic() - self._began

    def play(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            select.select([run.ours for run in self.runs], [], [], PAUSE_S)
            for run in list(self.runs):
                if not run.read():
                    self.runs.remove(run)
            for pane in self.panes:
                pane.look(self.now)
            time.sleep(PAUSE_S)

    def until(self, what: Callable[[], object], why: str) -> None:
        end = self.now + PATIENCE_S
        while not what():
            assert self.now < end, f"waited in vain: {why}\n" + "\n---\n".join(pane.text for pane in self.panes)
            self.play(PAUSE_S)

    def type(self, pane: Pane, text: str) -> None:
        """Draw a command letter by letter, as somebody types it at a prompt."""
        for letter in text:
            pane.say(letter)
            self.play(PAUSE_S)
        pane.say("\n")

    def end(self) -> float:
        at = self.now
        for pane in self.panes:
            pane.end(at)
        return at


def _colour(name: str) -> str:
    return COLOURS.get(name) or f"#{name}"


def still(pane: Pane) -> str:
    """Return the screen of a pane as it is now."""
    rows = "".join(_text(row, pane._line(row)) for row in range(pane.lines))
    return _picture([pane], [rows])


def moving(panes: Sequence[Pane], seconds: float) -> str:
    """Return the recording of the panes, one below the other. It repeats for ever."""
    parts = []
    for pane in panes:
        drawn = []
        for row, line, since, to in pane.spells:
            times = (
                f"0;{since / seconds:.4f};{min(1.0, to / seconds):.4f}"
                if since > 0
                else f"0;{min(1.0, to / seconds):.4f}"
            )
            values = "0;1;0" if since > 0 else "1;0"
            if to >= seconds:
                times, values = times.rpartition(";")[0], values.rpartition(";")[0]
            motion = ""
            if ";" in times:
                motion = (
                    f'<animate attributeName="opacity" values="{values}" keyTimes="{times}" dur="{seconds:.2f}s" '
                    'calcMode="discrete" repeatCount="indefinite"/>'
                )
            drawn.append(f"<g>{motion}{_text(row, line)}</g>\n")
        parts.append("".join(drawn))
    return _picture(panes, parts)


def _text(row: int, line: Line) -> str:
    y, out = row * HEIGHT, []
    for span in line:
        x = span.column * WIDTH
        if span.background is not None:
            out.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{len(span.text) * WIDTH:.1f}" height="{HEIGHT}" fill="{span.background}"/>'
            )
        bold = ' font-weight="bold"' if span.weight == "bold" else ""
        for words in re.finditer(r"\S+(?: \S+)*", span.text):  # viewers may join several spaces
            at, text = x + words.start() * WIDTH, words.group()
            out.append(
                f'<text x="{at:.1f}" y="{y + 14:.1f}" fill="{span.colour}"{bold} textLength="{len(text) * WIDTH:.1f}">'
                f"{escape(text)}</text>"
            )
    return "".join(out)


def _picture(panes: Sequence[Pane], drawn: Sequence[str]) -> str:
    width = max(pane.columns for pane in panes) * WIDTH + 2 * MARGIN
    y, parts = 0.0, []
    for pane, inner in zip(panes, drawn, strict=True):
        height = pane.lines * HEIGHT + 2 * MARGIN + HEIGHT
        parts.append(
            f'<g transform="translate(0 {y:.1f})"><rect width="{width:.1f}" height="{height:.1f}" rx="8" fill="{PAPER}"/>'
            f'<text x="{MARGIN}" y="{MARGIN + 8:.1f}" fill="#7f848e" font-size="12">{escape(pane.title)}</text>'
            f'<g transform="translate({MARGIN} {MARGIN + HEIGHT:.1f})">\n{inner}</g></g>\n'
        )
        y += height + 6
    size = f'viewBox="0 0 {width:.1f} {y - 6:.1f}" font-family="{FONT}" font-size="14"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n{"".join(parts)}</svg>\n'
