"""`clisup attach`: the events of a session on a terminal, and typed lines for the session.

The main thread owns the terminal. One thread reads the events, one sends the typed lines in order. Events go through one
bounded queue: if the terminal is slow, the daemon waits.
"""

from __future__ import annotations

import os
import queue
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from clisup.cli.failure import usage
from clisup.cli.lookup import find_session, stored
from clisup.cli.options import session_argument
from clisup.cli.status.columns import age_of
from clisup.cli.views.answer import TurnView, blob_reader, cost_reader
from clisup.cli.views.events import Event, words
from clisup.cli.views.form import Dialog, form_of, with_whole_input
from clisup.cli.views.progress import TICK_S, TurnProgress
from clisup.cli.views.prompt_line import PromptLine, PromptScreen
from clisup.cli.views.terminal import Ink, clip, plain
from clisup.client.raw import JsonObject
from clisup.client.sync import Client, Follower, RepeatingClient, prompt_surely
from clisup.errors import ClisupError

__all__ = ["AttachedSession", "attach", "last_start"]

NAME = "clisup-attach"
WAITING = 256
"""Events that are read ahead of the screen."""

UNSENT_S = 5.0
"""Seconds that the last typed line has to reach the daemon when the user leaves."""

_FIRST_SPAN = 512
_PROMPT = "> "


@click.command("attach")
@session_argument
@click.option("--since", default="turn", metavar="WHEN",
              help="turn (default: the last turn's start), all, now, or a SEQ of logs --json.")  # fmt: skip
@click.option(
    "--steer", is_flag=True, help="Send typed lines into the running turn of a live session; else they are queued."
)
def attach(session: str, since: str, steer: bool) -> int:
    """Follow SESSION on this terminal, and prompt it.

    The command shows the output since the last turn began, then new output, as `clisup run` does: Markdown drawn, and a status
    line while the turn works. A typed line is a prompt; while a turn runs, the prompt is queued. Approvals are asked here, too.
    Several terminals may be attached to one session.

    Ctrl-C interrupts the running turn, a second one leaves; Ctrl-D leaves. The session goes on.

    \b
    Example:
      clisup attach 3f2a
      clisup attach 3f2a --since all
      clisup attach 3f2a --steer
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise usage(
            "cannot attach, because stdin or stdout is not a terminal",
            hint="for pipes: clisup logs -f SESSION, clisup run --session SESSION PROMPT",
        )
    if since not in ("turn", "all", "now") and not since.isdecimal():
        raise usage(f"cannot begin at {since!r}, because WHEN is turn, all, now or a seq", hint="--since all")
    with Client.connect(name="clisup-attach") as client:
        about = client.call("session/get", session_id=find_session(client, session))
        after = _after(client, about, since)
        path = client.path
    if about["state"] == "closed":
        raise usage(f"cannot attach to session {session}, because it is closed", hint=f"read it: clisup logs {session}")
    sys.stdout.flush()
    _greet(about)
    return AttachedSession(path, about, after, steer=steer).run()


def _greet(about: JsonObject) -> None:
    text = f"[{about['session_id']} {about['backend']} in {about['cwd']}; Ctrl-C interrupts, Ctrl-D leaves]"
    os.write(1, (Ink()("dim", plain(text)) + "\n").encode("utf-8", "replace"))


def _after(client: Client, about: JsonObject, since: str) -> int:
    now = int(about["next_seq"]) - 1
    if since == "now":
        return now
    if since == "all":
        return 0
    return last_start(client, about) if since == "turn" else min(max(0, int(since) - 1), now)


def last_start(client: Client, about: JsonObject) -> int:
    """Return the seq before the last `turn_started`, searched backwards from the end; 0 without one."""
    end, span = int(about["next_seq"]) - 1, _FIRST_SPAN
    while True:
        begin = max(0, end - span)
        starts = [
            e["seq"] for e in stored(client, about["session_id"], after=begin, types=["turn_started"]) if "seq" in e
        ]
        if starts or begin == 0:
            return int(starts[-1]) - 1 if starts else 0
        span *= 8


class AttachedSession:
    """Session on a terminal. `about` is the answer of `session/get`; events begin after `after`.

    `steer`: typed lines go into the running turn.
    """

    def __init__(self, path: str, about: JsonObject, after: int, *, steer: bool) -> None:
        self._path, self._id, self._after = path, str(about["session_id"]), after
        self._when_busy = "steer" if steer else "queue"
        last = int(about["next_seq"]) - 1
        self._behind = last if after < last else 0
        self._line = PromptLine()
        self._screen = PromptScreen(self._line)
        self._coming: queue.Queue[Callable[[], None]] = queue.Queue(WAITING)
        self._wake_r, self._wake_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._jobs: queue.Queue[Callable[[], None]] = queue.Queue()
        self._turns: dict[str, TurnView] = {}
        self._running: str | None = about.get("turn_id")
        self._backend = clip(str(about["backend"]), 30)
        self._progress: TurnProgress | None = None  # of the running turn, unless it began before the first event
        self._ticks = False  # the status of the turn is on the screen
        self._asked: list[Event] = []
        self._dialog: Dialog | None = None
        self._stash = ""
        self._interrupts = 0
        self._interrupter: Client | None = None
        self._left = False
        self._failed: ClisupError | None = None

    def run(self) -> int:
        """Run until the user leaves or the session is closed. Raises the error that ends the events."""
        follower = Follower(
            self._path, self._id, self._after,
            on_lost=lambda: self._later(lambda: self._screen.note("[connection lost; trying again]")),
            on_back=lambda: self._later(self._back),
        )  # fmt: skip
        with self._screen, _signals_wake(self._wake_w):
            for work in (lambda: self._read(follower), self._send):
                threading.Thread(target=work, daemon=True).start()
            self._show_line()
            while not self._left:
                ready, _, _ = select.select([0, self._wake_r], [], [], TICK_S if self._ticks else None)
                if 0 in ready:
                    self._typed()
                if self._wake_r in ready:
                    self._take_all()
                if not ready:
                    self._show_line()
            self._screen.hide()
            self._wait_for_unsent()
        if self._failed is not None:
            raise self._failed
        return 0

    # -- input, in separate threads ------------------------------------------------------------------------------------

    def _later(self, what: Callable[[], None]) -> None:
        """Run `what` in the main thread. Wait while its queue is full."""
        self._coming.put(what)
        try:
            os.write(self._wake_w, b"x")
        except BlockingIOError:
            pass  # the main thread is awake already

    def _read(self, follower: Follower) -> None:
        try:
            for event in follower:
                self._later(lambda event=event: self._take(event))  # type: ignore[misc]
        except ClisupError as error:
            self._later(lambda error=error: self._fail(error))  # type: ignore[misc]

    def _send(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                job()
            except ClisupError as error:
                if error.kind != "approval_already_resolved":  # the event names the client
                    self._later(lambda error=error: self._screen.note(f"clisup: {error}"))  # type: ignore[misc]
            finally:
                self._jobs.task_done()

    def _take_all(self) -> None:
        os.read(self._wake_r, 4096)
        while not self._left:
            try:
                what = self._coming.get_nowait()
            except queue.Empty:
                return
            what()

    def _fail(self, error: ClisupError) -> None:
        self._failed, self._left = error, True

    def _back(self) -> None:
        self._screen.note("[connected again]")
        if self._interrupts:
            self._interrupt()

    # -- events --------------------------------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        kind, turn_id = event["type"], event.get("turn_id")
        if kind == "gap":
            self._screen.note(f"gap: {words(event)}")
        elif kind == "turn_started":
            self._begin(event)
        elif kind in ("approval_requested", "approval_resolved"):
            self._asked = [a for a in self._asked if a["approval_id"] != event["approval_id"]]
            self._asked += [event] if kind == "approval_requested" else []
        elif turn_id is None and kind == "notice":
            self._screen.note(f"notice: {words(event)}")
        if self._progress is not None and turn_id == self._running:
            self._progress.take(event, _monotonic(event))
        if turn_id is not None and kind != "approval_requested":
            self._of_turn(turn_id).take(event)
        if kind == "turn_completed":
            self._end(event)
        if kind == "notice" and event.get("code") == "closed":
            self._screen.note("[the session was closed]")
            self._left = True
        if int(event.get("seq") or event["to_seq"]) >= self._behind:
            self._behind = 0  # history is over
        self._show_line()

    def _of_turn(self, turn_id: str) -> TurnView:
        if turn_id not in self._turns:
            self._turns[turn_id] = TurnView(self._screen, blob_reader(self._path, self._id, NAME))
        return self._turns[turn_id]

    def _begin(self, event: Event) -> None:
        self._running, self._interrupts = event["turn_id"], 0
        self._progress = TurnProgress(self._backend, _monotonic(event))
        self._screen.note(
            f"-- {event['turn_id']}: {clip(event.get('prompt_preview') or event.get('origin') or '', 100)}"
        )

    def _end(self, event: Event) -> None:
        self._turns.pop(event["turn_id"], None)
        self._asked = [a for a in self._asked if a.get("turn_id") != event["turn_id"]]
        if self._running == event["turn_id"]:
            self._running, self._progress, self._interrupts = None, None, 0
        self._screen.note(f"-- {event['turn_id']} {words(event)}")

    def _read_cost(self, turn_id: str) -> None:
        """Fetch the cost of the turn so far. Runs in a thread of its own: a slow daemon must not hold up typed lines."""
        known = cost_reader(self._path, self._id, NAME)(turn_id)
        self._later(lambda: self._price(turn_id, known))

    def _price(self, turn_id: str, known: float | None) -> None:
        if self._progress is not None and known is not None and turn_id == self._running:
            self._progress.cost_usd = known

    # -- the line ------------------------------------------------------------------------------------------------------

    def _show_line(self) -> None:
        """Show the pending question, the typed line if no turn runs or text is typed, or the status of the turn.

        History is shown without them.
        """
        if self._left:
            return
        self._ticks = False
        asking = self._asked[0] if self._asked and not self._behind else None
        if self._dialog is not None and (asking is None or asking["approval_id"] != self._open_id(self._dialog)):
            self._dialog = None  # another client answered first
            self._line.text, self._stash = self._stash, ""
        if asking is not None and self._dialog is None:
            self._dialog = Dialog(form_of(with_whole_input(asking, blob_reader(self._path, self._id, NAME))))
            self._stash = self._line.take()
        self._line.secret = self._dialog is not None and self._dialog.secret
        if self._dialog is not None:
            for line in self._dialog.lines:
                self._screen.note(line)
            self._dialog.lines = []
            self._screen.show(self._dialog.prompt)
        elif self._line.text or (self._running is None and not self._behind):
            self._screen.show(_PROMPT)
        elif self._progress is not None and not self._behind:
            if (due := self._progress.due()) is not None:
                threading.Thread(target=self._read_cost, args=(due,), daemon=True).start()
            self._ticks = self._screen.show_status(self._progress)
        else:
            self._screen.hide()

    @staticmethod
    def _open_id(dialog: Dialog) -> str:
        return str(dialog.form.approval["approval_id"])

    def _typed(self) -> None:
        try:
            data = os.read(0, 4096)
        except OSError:
            data = b""
        if not data:  # the terminal is gone
            self._left = True
            return
        for key in self._line.feed(data):
            if key.kind == "line":
                self._on_line(key.text)
            elif key.kind == "interrupt":
                self._on_interrupt()
            else:
                self._left = True
        self._show_line()

    def _on_line(self, text: str) -> None:
        self._interrupts = 0
        if self._dialog is not None:
            self._screen.keep()
            self._on_answer(self._dialog, text)
        elif text.strip():
            self._screen.hide()
            self._screen.note(_PROMPT + clip(text, 400))
            self._jobs.put(lambda: self._prompt(text))

    def _on_answer(self, dialog: Dialog, text: str) -> None:
        if (answer := dialog.take(text)) is None:
            return  # the next question, or the same one again
        self._asked = self._asked[1:]
        self._jobs.put(lambda: self._respond({"approval_id": self._open_id(dialog), **answer}))

    def _on_interrupt(self) -> None:
        if self._line.text:
            self._line.take()
        elif self._interrupts:
            self._left = True
        elif self._running is None:
            self._interrupts = 1
            self._screen.note("[no turn runs; Ctrl-D leaves, and so does Ctrl-C again]")
        else:
            self._interrupts = 1
            self._screen.note("[interrupting the turn; Ctrl-C again leaves]")
            self._interrupt()

    # -- output to the daemon ------------------------------------------------------------------------------------------

    def _prompt(self, text: str) -> None:
        params = {"session_id": self._id, "prompt": text, "when_busy": self._when_busy}
        accepted = prompt_surely(self._path, params, name=NAME)
        if accepted["delivery"] == "queued":
            place = accepted.get("position")
            self._later(lambda: self._screen.note(f"[queued at {place}: another turn is running]"))

    def _respond(self, answer: JsonObject) -> None:
        with RepeatingClient(self._path, name=NAME) as client:
            client.call("approval/respond", session_id=self._id, **answer)

    def _interrupt(self) -> None:
        """Send the request without waiting, on a connection that stays open. The turn's end arrives as an event."""
        try:
            client = Client.connect(self._path, name=NAME)
            client.post("session/interrupt", session_id=self._id, turn_id=self._running, mode="graceful")
        except ClisupError:
            self._screen.note("[the daemon is away; it gets the request when it is back]")
            return
        if self._interrupter is not None:
            self._interrupter.close()
        self._interrupter = client

    def _wait_for_unsent(self) -> None:
        waiting = threading.Thread(target=self._jobs.join, daemon=True)
        waiting.start()
        waiting.join(UNSENT_S)
        if waiting.is_alive():
            self._screen.note("[the daemon has not confirmed the last line: see clisup logs before you send it again]")


def _monotonic(event: Event) -> float:
    """Return the time of the event on the monotonic clock."""
    return time.monotonic() - max(0.0, age_of(event.get("ts")) or 0.0)


@contextmanager
def _signals_wake(fd: int) -> Iterator[None]:
    """Wake `select` by a signal that arrives just before the wait."""
    before = signal.set_wakeup_fd(fd, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
