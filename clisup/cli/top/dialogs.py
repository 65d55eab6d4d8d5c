"""Dialogs over the view: questions before a key acts, the form of an approval, and the help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from clisup.cli.views.form import Dialog, Form

__all__ = ["AnswerForm", "Ask", "Confirm", "Help", "Whole"]

HELP = """\
up down k j g G   choose a session; PgUp, PgDn: ten further
Enter f           follow its events, or stop that
Tab               to the events and back, to scroll them
Esc               close the events, then drop the filter

i                 interrupt its turn (asks first)
a                 allow the shown tool call; a cut one is
                  shown whole first; answer a question or a
                  form, or approve a plan
A                 allow it, and ask the CLI not to ask again
d                 deny it, with a message for the model or none

s                 sort by the next: attention, session, idle,
                  age, memory, tokens, cost
/                 filter: id, title, status, backend, model,
                  directory, branch, labels (ticket=4711)
q Ctrl-C          leave; sessions go on

yellow: wants you   green: works   red: its last turn failed
"""


class _Dialog(ModalScreen[Any]):
    """Dialog with a word or an answer as its result, or None if the user left it."""

    DEFAULT_CSS = """
    _Dialog { align: center middle; }
    _Dialog > Vertical { width: auto; max-width: 96%; height: auto; max-height: 96%; border: round $primary;
                         padding: 0 2; min-width: 46; background: $surface; }
    _Dialog Static { width: auto; max-width: 100%; }
    _Dialog Input { width: 64; max-width: 100%; }
    _Dialog VerticalScroll { height: auto; max-height: 100%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", show=False)]

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


class AnswerForm(_Dialog):
    """Dialog over the form of an approval. The result is the answer for `approval/respond`, or None."""

    DEFAULT_CSS = "AnswerForm VerticalScroll { max-height: 60vh; } AnswerForm .wrong { color: $text-error; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("pageup", "turn(-1)", show=False),
        Binding("pagedown", "turn(1)", show=False),
    ]

    def __init__(self, form: Form, title: str) -> None:
        super().__init__()
        self._dialog, self._title = Dialog(form), title
        self._text = Static(Text("\n".join(self._dialog.lines)))
        self._wrong = Static("", markup=False, classes="wrong")
        self._prompt = Static(self._dialog.prompt.strip(), markup=False)

    def compose(self) -> ComposeResult:
        field = Input("", compact=True, password=self._dialog.secret)
        yield self._box(
            self._title, "Enter   PgUp PgDn   Esc leaves", VerticalScroll(self._text), self._wrong, self._prompt, field
        )

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def action_turn(self, pages: int) -> None:
        box = self.query_one(VerticalScroll)
        box.scroll_relative(y=pages * max(1, box.size.height - 1), animate=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        answer = self._dialog.take(event.value)
        if answer is not None:
            self.dismiss(answer)
            return
        event.input.clear()
        event.input.password = self._dialog.secret
        lines = self._dialog.lines
        if len(lines) > 1:  # the next question
            self._text.update(Text("\n".join(lines)))
            self.query_one(VerticalScroll).scroll_home(animate=False)
            lines = []
        self._wrong.update("".join(lines).strip())
        self._prompt.update(self._dialog.prompt.strip())


class Help(_Dialog):
    """List of the keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("q,question_mark,enter", "leave", show=False)]

    def compose(self) -> ComposeResult:
        yield self._box("clisup top", "Esc", VerticalScroll(Static(HELP, markup=False)))
