"""Parts of the screen: the head, the table of sessions, the pending approval, and the followed events."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from textwrap import wrap

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.containers import Vertical
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import RichLog, Static

from clisup.cli.top.texts import Span, Tail, TopTable, event_spans
from clisup.client.raw import JsonObject

__all__ = [
    "FOLLOWED_LINES",
    "ApprovalPane",
    "FollowPane",
    "HeadPane",
    "SessionsPane",
    "painted",
]

FOLLOWED_LINES = 1000
"""Limit of kept lines of followed events."""

_TAIL_LINES = 3
_NOBODY = "No sessions: clisup run PROMPT opens one."
_LEAST_ROOM = 40
_STYLES = {
    "plain": "", "strong": "bold", "dim": "dim", "good": "green", "warn": "bold", "bad": "bold red",
    "asking": "bold yellow", "running": "green", "waiting": "", "failed": "red", "resting": "dim",
    "text": "", "tool": "green", "alarm": "red", "turn": "bold", "note": "dim",
}  # fmt: skip


def painted(spans: Sequence[Span]) -> Text:
    """Return spans as one line. Text is never markup."""
    return Text.assemble(*((text, _STYLES[tone]) for text, tone in spans), no_wrap=True, end="")


class HeadPane(Static):
    """Head: state and load of the daemon."""

    DEFAULT_CSS = "HeadPane { height: auto; max-height: 5; padding: 0 1; background: $panel; }"

    def show(self, lines: Sequence[Sequence[Span]]) -> None:
        self.update(Text("\n").join(painted(line) for line in lines))


class SessionsPane(ScrollView, can_focus=True):
    """Table of the sessions. It draws only the rows on the screen, and the chosen row is always one of them.

    Textual's DataTable updates single cells, but the idle time changes in every row each second.
    """

    DEFAULT_CSS = """
    SessionsPane { height: 1fr; min-height: 4; padding: 0 1; overflow-x: hidden; background: $background;
                   scrollbar-size-vertical: 1; }
    SessionsPane:focus { background-tint: $foreground 0%; }
    """

    class Chosen(Message):
        """Message: the user chose another row."""

    def __init__(self) -> None:
        super().__init__()
        self.table = TopTable("", [])
        self.selected: str | None = None

    @property
    def allow_vertical_scroll(self) -> bool:
        """Return False: Textual's own keys, wheel and bar would move the view away from the chosen row."""
        return False

    @property
    def _at(self) -> int:
        return next((at for at, line in enumerate(self.table.lines) if line.session_id == self.selected), -1)

    def show(self, table: TopTable) -> None:
        """Show new rows. The choice stays with its session, or with its place if the session is gone."""
        before = max(0, self._at)
        self.table = table
        if self._at < 0:
            self.selected = table.lines[min(before, len(table.lines) - 1)].session_id if table.lines else None
        self.virtual_size = Size(len(table.head), len(table.lines) + 1)
        self._reveal()
        self.refresh()

    def move(self, by: int) -> None:
        """Choose another row, `by` rows further down."""
        if self.table.lines:
            self._choose(min(max(0, self._at + by), len(self.table.lines) - 1))

    def _choose(self, at: int) -> None:
        self.selected = self.table.lines[at].session_id
        self._reveal()
        self.refresh()
        self.post_message(self.Chosen())

    def _reveal(self) -> None:
        """Scroll to the chosen row. Rows change places, and the pane its height, without a key."""
        # The head stands on the first line of the screen, over a row: one more than the row itself has to be seen.
        self.scroll_to_region(Region(0, max(0, self._at), 1, 2), animate=False, force=True, x_axis=False)

    def on_resize(self) -> None:
        self._reveal()

    def render_line(self, y: int) -> Strip:
        pieces = self._line(y)
        # Every piece has the widget's own style: padding without one breaks Textual's filter of NO_COLOR.
        strip = Strip([Segment(text, style) for text, style in pieces if text])
        return strip.adjust_cell_length(self._width, pieces[-1][1]).apply_style(self.rich_style)

    @property
    def _width(self) -> int:
        return self.scrollable_content_region.width

    def _line(self, y: int) -> list[tuple[str, Style]]:
        if y == 0:
            return [(self.table.head, Style(bold=True))]
        at = y - 1 + self.scroll_offset.y
        if at >= len(self.table.lines):
            return [("" if at else _NOBODY, Style(dim=True))]
        line = self.table.lines[at]
        tone = Style.parse(_STYLES[line.tone] or "none")
        if line.session_id == self.selected:
            return [(line.text, tone + Style(reverse=True, dim=False))]
        start, end = line.status
        plainly = Style(dim=True) if line.tone == "resting" else Style()
        return [(line.text[:start], plainly), (line.text[start:end], tone), (line.text[end:], plainly)]

    def on_mouse_scroll_up(self) -> None:
        self.move(-1)

    def on_mouse_scroll_down(self) -> None:
        self.move(1)

    def on_click(self, event: events.Click) -> None:
        at = event.y - 1 + self.scroll_offset.y
        if event.y > 0 and at < len(self.table.lines):
            self._choose(at)


class ApprovalPane(Static):
    """Pending approval and the keys that answer it. `whole` tells whether all of its input is visible."""

    DEFAULT_CSS = """
    ApprovalPane { height: auto; border: round $warning; padding: 0 1; display: none; }
    """
    whole = True

    def show(self, lines: Sequence[str], title: str, room: int, *, is_form: bool = False) -> None:
        """Show the `lines` of a question on `room` lines of the screen. A form is answered in a dialog."""
        room = max(2, room - 2)
        self.whole = len(lines) <= room and not is_form
        more = f"... {len(lines) - room + 1} more lines: a shows them all"
        shown = [*lines] if len(lines) <= room else [*lines[: room - 1], more]
        width = max(10, self.size.width - 4)
        text = Text("\n".join(line if len(line) <= width else line[: width - 1] + "…" for line in shown))
        if any(len(line) > width for line in lines):
            self.whole = False
        text.highlight_regex(r"^(approval|plan|question.*?):.*", "bold yellow")
        self.border_title = title
        see = "a answer   d deny" if is_form else "a see all of it   d deny"
        self.border_subtitle = "a allow   A always   d deny" if self.whole else see
        self.update(text)
        self.display = True

    def hide(self) -> None:
        self.display = False


class FollowPane(Vertical):
    """Events of a session in words, and below them the text that is being written."""

    DEFAULT_CSS = """
    FollowPane { height: 1fr; border-top: solid $primary; display: none; padding: 0 1; }
    FollowPane RichLog { height: 1fr; background: transparent; scrollbar-size-vertical: 1; }
    FollowPane Static { height: auto; max-height: 3; color: $text-muted; display: none; }
    """

    def __init__(self) -> None:
        self.log_lines = RichLog(max_lines=FOLLOWED_LINES, wrap=False, markup=False, min_width=0, auto_scroll=False)
        self._writing = Static("", markup=False)
        self._tail = Tail()
        self._lines: deque[Sequence[Span]] = deque(maxlen=FOLLOWED_LINES)
        super().__init__(self.log_lines, self._writing)
        self.log_lines.can_focus = True

    def begin(self, title: str) -> None:
        """Follow another session."""
        self.log_lines.clear()
        self._lines.clear()
        self._tail = Tail()
        self.border_title = title
        self.display = True

    def take(self, event: JsonObject) -> None:
        """Show an event. A delta extends the text that is being written, any other event adds a line."""
        if not self._tail.take(event):
            self.write(event_spans(event))

    def write(self, line: Sequence[Span]) -> None:
        """Add a line for the next `paint`."""
        if line:
            self._lines.append(line)

    def scroll(self, by: int) -> None:
        """Look at other lines; the pane scrolls along again once its end is in sight."""
        self.log_lines.scroll_relative(y=by, animate=False)

    def paint(self) -> None:
        """Show what came since. Called a few times a second, not for each piece."""
        log = self.log_lines
        if not self.display or not log.size.width:
            return
        if self._lines:
            at_end = log.max_scroll_y - log.scroll_offset.y <= 1
            for line in self._lines:
                log.write(_hanging(line, log.scrollable_content_region.width), scroll_end=False)
            self._lines.clear()
            if at_end:
                log.scroll_end(animate=False)
        text = self._tail.shown(max(20, self.size.width - 4) * _TAIL_LINES)
        self._writing.display = bool(text)
        self._writing.update(Text(text))


def _hanging(line: Sequence[Span], width: int) -> Text:
    """Fold a line to `width`. Continuation lines begin below the words, if there is room."""
    *fixed, (said, tone) = line
    indent = sum(len(text) for text, _ in fixed)
    room = width - indent if width - indent >= _LEAST_ROOM else width
    first, *more = wrap(said, room, break_on_hyphens=False) or [""]
    pad = " " * (width - room and indent)
    return Text("\n").join([painted([*fixed, (first, tone)]), *(painted([(pad + rest, tone)]) for rest in more)])
