"""Dialogs over the view: interrupt a turn, message for a denied call, the whole input of a tool, and the help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

__all__ = ["Ask", "Confirm", "Help", "Whole"]

HELP = """\
up down k j g G   choose a session; PgUp, PgDn: ten further
Enter f           follow its events, or stop that
Tab               to the events and back, to scroll them
Esc               close the events, then drop the filter

i                 interrupt its turn (asks first)
a                 allow the shown tool call; a cut one is
                  shown whole first
A                 allow it, and ask the CLI not to ask again
d                 deny it, with a message for the model or none

s                 sort by the next: attention, session, idle,
                  age, memory, tokens, cost
/                 filter: id, backend, phase, model, directory,
                  labels (ticket=4711)
q Ctrl-C          leave; sessions go on

yellow: needs approval   green: works   cyan: waits for a slot
red: its last turn failed
"""


class _Dialog(ModalScreen[str | None]):
    """Dialog with a word as its result, or None if the user left it."""

    DEFAULT_CSS = """
    _Dialog { align: center middle; }
    _Dialog > Vertical { width: auto; max-width: 96%; height: auto; max-height: 96%; border: round $primary;
                         padding: 0 2; min-width: 46; background: $surface; }
    _Dialog Static { width: auto; max-width: 100%; }
    _Dialog Input { width: 64; max-width: 100%; }
    _Dialog VerticalScroll { height: auto; max-height: 100%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", show=False)]
    title_text = ""

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_answer(self, word: str) -> None:
        self.dismiss(word)

    def _box(self, title: str, keys: str, *parts: Static | Input | VerticalScroll) -> Vertical:
        box = Vertical(*parts)
        box.border_title, box.border_subtitle = title, keys
        return box


class Confirm(_Dialog):
    """Dialog with `graceful`, `kill` or None as its result."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer('graceful')", show=False),
        Binding("K", "answer('kill')", show=False),
        Binding("n,q", "leave", show=False),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        yield self._box("interrupt", "y yes   K kill its processes   n no", Static(self._question, markup=False))


class Ask(_Dialog):
    """Dialog with one line of text as its result (it may be empty), or None."""

    def __init__(self, title: str, question: str, value: str = "") -> None:
        super().__init__()
        self._title, self._question, self._value = title, question, value

    def compose(self) -> ComposeResult:
        field = Input(self._value, compact=True)
        yield self._box(self._title, "Enter   Esc leaves", Static(self._question, markup=False), field)

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)


class Whole(_Dialog):
    """Whole input of a tool, to scroll. The result is `allow`, `always`, `deny` or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "answer('allow')", show=False),
        Binding("A", "answer('always')", show=False),
        Binding("d", "answer('deny')", show=False),
        Binding("q", "leave", show=False),
    ]

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__()
        self._lines = lines

    def compose(self) -> ComposeResult:
        text = Static(Text("\n".join(self._lines)))
        yield self._box("approval needed", "a allow   A always   d deny   Esc leaves", VerticalScroll(text))

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()


class Help(_Dialog):
    """List of the keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("q,question_mark,enter", "leave", show=False)]

    def compose(self) -> ComposeResult:
        yield self._box("clisup top", "Esc", VerticalScroll(Static(HELP, markup=False)))
