"""Approvals at the terminal of `clisup run`: tool calls, questions and plans, answered with a key or words and Enter.

A thread reads the answer, so that events go on meanwhile. An answer from another client ends the question. Input typed
before a question is discarded: a key meant for one question could answer the next.
"""

from __future__ import annotations

import os
import select
import sys
import termios
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from clisup.cli.options import named
from clisup.cli.views.answer import blob_reader
from clisup.cli.views.events import Event
from clisup.cli.views.form import Dialog, form_of, with_whole_input
from clisup.cli.views.progress import StatusLine
from clisup.cli.views.terminal import clip, plain
from clisup.client.raw import JsonObject
from clisup.client.sync import RepeatingClient
from clisup.errors import ClisupError

__all__ = ["ApprovalPrompt", "answer_hint", "no_echo", "open_terminal"]

_LINE_LIMIT = 4096


def open_terminal() -> int | None:
    """Open the terminal if a person can answer: stderr is a terminal, and this process is in its foreground."""
    if not sys.stderr.isatty():
        return None
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if os.tcgetpgrp(terminal) == os.getpgrp():
            return terminal
    except OSError:
        pass
    os.close(terminal)
    return None


@contextmanager
def no_echo(terminal: int | None) -> Iterator[None]:
    """Switch the echo of a terminal off while a person types a secret answer. None changes nothing."""
    if terminal is None:
        yield
        return
    before = termios.tcgetattr(terminal)
    silent = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    termios.tcsetattr(terminal, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def answer_hint(event: Event) -> str:
    """Return the command that answers an approval from another terminal."""
    name = f"{named(event['session_id'])}/{event['approval_id']}"
    if form_of(event).kind == "questions":
        return f"clisup approvals answer {name}"
    return f"clisup approvals allow|deny {name}"


class ApprovalPrompt:
    """Questions on `terminal`, one at a time. Without a terminal, `note` prints how to answer elsewhere.

    `status` is the line that must not be drawn while a person answers.
    """

    def __init__(
        self,
        path: str,
        session_id: str,
        note: Callable[[str], None],
        terminal: int | None,
        status: StatusLine | None = None,
    ) -> None:
        self._path, self._session_id, self._note = path, session_id, note
        self._terminal, self._status = terminal, status
        self._lock = threading.Lock()
        self._waiting: deque[Event] = deque()
        self._asking: Event | None = None
        self._stop_r, self._stop_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def take(self, event: Event) -> None:
        """Handle a request for an approval, or its answer."""
        if event["type"] == "approval_resolved":
            self._forget(event["approval_id"])
        elif self._terminal is None:
            what = clip(" ".join(line.strip() for line in form_of(event).head()), 200)
            self._note(f"{what}\n  answer it with: {answer_hint(event)}")
        else:
            with self._lock:
                self._waiting.append(event)
            self._next()

    def close(self) -> None:
        """Drop all questions: the turn has ended."""
        with self._lock:
            self._waiting.clear()
            self._asking = None
        self._wake()

    def _forget(self, approval_id: str) -> None:
        with self._lock:
            self._waiting = deque(event for event in self._waiting if event["approval_id"] != approval_id)
            if self._asking is None or self._asking["approval_id"] != approval_id:
                return
            self._asking = None
        self._wake()

    def _wake(self) -> None:
        try:
            os.write(self._stop_w, b"x")
        except BlockingIOError:
            pass  # the thread is awake already

    def _next(self) -> None:
        with self._lock:
            if self._asking is not None or not self._waiting:
                return
            self._asking = event = self._waiting.popleft()
        threading.Thread(target=self._ask, args=(event,), daemon=True).start()

    def _ask(self, event: Event) -> None:
        terminal = self._terminal
        assert terminal is not None
        if self._status is not None:
            self._status.hold()
        try:
            termios.tcflush(terminal, termios.TCIFLUSH)
            whole = with_whole_input(event, blob_reader(self._path, self._session_id, "clisup-run"))
            answer = self._answer(event, Dialog(form_of(whole)))
            if answer is not None:
                self._respond(event, answer)
        except (OSError, termios.error):
            pass  # the terminal is gone: another client can answer
        finally:
            if self._status is not None:
                self._status.release()
        with self._lock:
            if self._asking is event:
                self._asking = None
        self._next()

    def _answer(self, event: Event, dialog: Dialog) -> JsonObject | None:
        while self._asking is event:
            with no_echo(self._terminal if dialog.secret else None):
                self._print("".join(f"{line}\n" for line in dialog.lines) + dialog.prompt)
                line = self._line(event)
            if line is None:
                return None
            if dialog.secret:
                self._print("\n")
            if (answer := dialog.take(line)) is not None:
                return answer
        return None

    def _line(self, event: Event) -> str | None:
        """Return a line of the terminal, or None if the question was dropped, or at Ctrl-D."""
        terminal = self._terminal
        assert terminal is not None
        while True:
            ready, _, _ = select.select([terminal, self._stop_r], [], [])
            if self._stop_r in ready:
                os.read(self._stop_r, 4096)
            if self._asking is not event:
                self._print("\n")
                return None
            if terminal in ready:
                data = os.read(terminal, _LINE_LIMIT)
                if not data:
                    self._print("\n  left open: see clisup approvals\n")
                    return None
                return data.decode("utf-8", "replace")

    def _print(self, text: str) -> None:
        assert self._terminal is not None
        os.write(self._terminal, plain(text).encode("utf-8", "replace"))

    def _respond(self, event: Event, answer: JsonObject) -> None:
        try:
            with RepeatingClient(self._path, name="clisup-run") as client:
                client.call("approval/respond", session_id=self._session_id, approval_id=event["approval_id"], **answer)
        except ClisupError as error:
            if error.kind != "approval_already_resolved":  # the event names the client
                self._note(str(error))
