"""Prompted turn of `clisup run`: subscribe, send the prompt, show the events, return the exit code.

The turn is followed across restarts of the daemon. Ctrl-C interrupts it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from types import FrameType
from typing import Any, Self

from clisup.cli.approval_prompt import ApprovalPrompt, open_terminal
from clisup.cli.failure import TurnEnded
from clisup.cli.key_hint import dropped_keys_hint
from clisup.cli.views.answer import Screen, TurnView, blob_reader, cost_reader
from clisup.cli.views.events import Event, error_words, evidence_words
from clisup.cli.views.progress import ERASE, StatusLine, TurnProgress, can_be_erased
from clisup.cli.views.terminal import clip, cost, duration, tokens
from clisup.client.options import given
from clisup.client.raw import JsonObject
from clisup.client.reconnect import RECONNECT_S, stays_away
from clisup.client.sync import Client, Follower, prompt_surely
from clisup.errors import (
    EXIT_DENIED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_TIMED_OUT,
    EXIT_TURN_FAILED,
    EXIT_UNAVAILABLE,
    TURN_KINDS,
    ClisupError,
    TurnKind,
    WorldError,
    doctor_hint,
)
from clisup.locations import box_of

__all__ = ["PromptedTurn", "exit_code_of_turn", "json_line", "print_line"]

_ANSWER = ("content_delta", "message", "message_stop", "retracted", "turn_completed")
_APPROVALS = ("approval_requested", "approval_resolved")
_EXIT_CODES = {"failed": EXIT_TURN_FAILED, "interrupted": EXIT_INTERRUPTED, "timed_out": EXIT_TIMED_OUT}
_SIGNAL_NOTES = {
    1: "[interrupting the turn; Ctrl-C again kills it]\n",
    2: "[killing the turn; Ctrl-C again leaves without waiting]\n",
}


def exit_code_of_turn(end: Event) -> int:
    """Return the exit code of `clisup run` for a turn's `turn_completed`."""
    if end["outcome"] == "failed" and (end.get("error") or {}).get("kind") == "authentication":
        return EXIT_UNAVAILABLE
    if end["outcome"] != "completed":
        return _EXIT_CODES.get(end["outcome"], EXIT_TURN_FAILED)
    return EXIT_DENIED if end.get("denied") else EXIT_OK


@dataclass
class PromptedTurn:
    """Turn of one prompt. `accepted` is set once the daemon has the prompt, `ended` at its end. `json`: print every event, and no text.

    `kept`: the session stays after the turn, so it can be continued.
    """

    path: str
    session_id: str
    backend: str
    prompt: str | list[dict[str, str]]
    screen: Screen
    expand: bool = False
    refuse_limited: bool = False
    json: bool = False
    output_schema: JsonObject | None = None
    thinking: bool = False
    timeout_s: float | None = None
    kept: bool = True

    def __post_init__(self) -> None:
        self.accepted = self.ended = False
        self._asked = False  # the CLI has asked for an approval
        self._view = TurnView(
            self.screen, blob_reader(self.path, self.session_id, "clisup-run"), thinking=self.thinking
        )

    def run(self, cursor: int) -> int:
        """Send the prompt, show its turn, and return the exit code. Raises `TurnEnded` and the daemon's refusals."""
        status = self._status_line()
        try:
            with InterruptHandler(self.path, self.session_id, ERASE if status else "\n") as interrupts:
                follower = Follower(
                    self.path, self.session_id, cursor, on_lost=self._lost, on_back=lambda: self._back(interrupts)
                )
                with follower:
                    interrupts.turn_id = self._send()
                    end = self._show(follower, interrupts.turn_id)
            self.ended = True
        except KeyboardInterrupt:
            self._view.flush()
            raise
        except ClisupError as error:
            self._view.flush()
            if not stays_away(error):
                raise
            if not self.accepted:
                self._tell_session()
                raise
            raise self._daemon_gone(error) from error
        finally:
            if status is not None:
                status.close()
        return self._verdict(end)

    def _status_line(self) -> StatusLine | None:
        if self.json or not can_be_erased():
            return None
        progress = TurnProgress(clip(self.backend, 30), time.monotonic())
        self.screen.status = StatusLine(progress, cost_reader(self.path, self.session_id, "clisup-run"))
        self.screen.status.open()
        return self.screen.status

    def _daemon_gone(self, error: ClisupError) -> ClisupError:
        """Return the error with the commands that show the rest: the turn goes on without the daemon."""
        rest = f"the turn goes on; clisup attach {self._named} shows the rest once a daemon runs again"
        hint = f"{error.hint}; {rest}" if error.hint else rest
        return WorldError(error.message, kind="daemon_not_running", hint=hint)

    def _back(self, interrupts: InterruptHandler) -> None:
        self._view.note("[connected again]")
        interrupts.ask_again()

    def _send(self) -> str:
        params = given(
            {
                "session_id": self.session_id,
                "prompt": self.prompt,
                "expand": self.expand or None,
                "when_limited": "refuse" if self.refuse_limited else None,
                "output_schema": self.output_schema,
                "timeout_s": self.timeout_s,
            }
        )
        accepted = prompt_surely(self.path, params, name="clisup-run", on_lost=self._lost)
        self.accepted = True
        self._tell_session()
        if accepted["delivery"] == "queued":
            self._view.note(f"[queued at {accepted.get('position')}: another turn is running]")
        return str(accepted["turn_id"])

    def _tell_session(self) -> None:
        if not self.json:
            self._view.note(f"session {self.session_id} ({clip(self.backend, 60)})")

    def _lost(self) -> None:
        self._view.note(f"[connection lost; trying again for {RECONNECT_S:g} s]")

    def _show(self, events: Follower, turn_id: str) -> Event:
        status = self.screen.status
        terminal = None if self.json else open_terminal()
        prompt = ApprovalPrompt(self.path, self.session_id, self._view.note, terminal, status)
        for event in events:
            if self.json:
                print_line(json_line(event))
            if event.get("turn_id") not in (turn_id, None):
                continue
            if status is not None:
                status.take(event)
            self._asked = self._asked or event["type"] == "approval_requested"
            if not self.json:
                if self.output_schema is None or event["type"] not in _ANSWER:
                    self._view.take(event)
                if event["type"] in _APPROVALS:
                    prompt.take(event)
            if event["type"] == "turn_completed":
                prompt.close()
                return event
        raise AssertionError("a follower never ends by itself")

    def _verdict(self, end: Event) -> int:
        if not self.json and (summary := self._summary(end)):
            self._view.note(summary)
        if end["outcome"] == "completed":
            if self.output_schema is not None and not self.json:
                self._print_value(end)
            return self._allowed(end)
        if end.get("delivery") == "uncertain":
            raise self._uncertain(end)
        error = end.get("error")
        outcome = str(end["outcome"]).replace("_", " ")
        reason = error_words(error) or f"it ended as {outcome}"
        if self._view.told_stderr:
            reason = reason.partition("; its last words on stderr:")[0]
        kind = str((error or {}).get("kind", ""))
        known = TURN_KINDS.get(kind, TurnKind())
        hint = self._usable(known.hint.format(backend=self.backend, session_id=self.session_id))
        hint = dropped_keys_hint(self.path, self.backend, reason) + hint if kind == "authentication" else hint
        raise TurnEnded(f"cannot give the whole answer, because the turn {_ENDED[end['outcome']]}: {reason}",
                        code=exit_code_of_turn(end), hint=hint,
                        doctor=doctor_hint(known.explanation, self.backend))  # fmt: skip

    @property
    def _named(self) -> str:
        """The session as a later command has to name it."""
        box = box_of(self.path)
        return f"{box}/{self.session_id}" if box else self.session_id

    def _summary(self, end: Event) -> str:
        """Return the time, tokens and cost of the turn, and how to continue."""
        estimated = " (estimated)" if end.get("cost_source") == "estimated" else ""
        used = tokens(end.get("usage"))
        parts = [
            duration(end["duration_s"]) if end.get("duration_s") is not None else "",
            f"{used} tokens" if used != "-" else "",
            cost(end["cost_usd"]) + estimated if end.get("cost_usd") is not None else "",
        ]
        known = ", ".join(part for part in parts if part)
        again = f"continue with: clisup run --session {self._named}" if self.kept else ""
        return f"{known} ({again})" if known and again else known or again

    def _print_value(self, end: Event) -> None:
        """Print the answer by the schema, alone on stdout. Raises `TurnEnded` if the model gave none."""
        if end.get("structured") is None:
            raise TurnEnded(
                f"cannot give an answer by the schema, because the model answered in words: {clip(end['text'], 300)}",
                code=EXIT_TURN_FAILED,
                hint=self._usable(
                    f"describe the value in the prompt, and continue with: clisup run --session {self._named}"
                ),
            )
        self.screen.write(json.dumps(end["structured"], ensure_ascii=False, separators=(",", ":")) + "\n")

    def _uncertain(self, end: Event) -> TurnEnded:
        """Return the error for a prompt of unknown fate. The user decides whether to send it again."""
        reason = error_words(end.get("error")) or f"it ended as {end['outcome']}"
        return TurnEnded(
            f"cannot tell whether the CLI received the prompt ({reason}); {evidence_words(end.get('evidence'))}",
            code=_EXIT_CODES.get(end["outcome"], EXIT_TURN_FAILED),
            hint=self._usable(f"see the events: clisup logs {self._named}")
            + "; send the prompt again only if a second run does no harm",
        )

    def _usable(self, hint: str) -> str:
        """Return the hint, or another one if it names a session that is deleted at the end."""
        return hint if self.kept or self.session_id not in hint else "without --rm the session stays, with its events"

    def _allowed(self, end: Event) -> int:
        if not (denied := end.get("denied")):
            return EXIT_OK
        names = ", ".join(sorted(set(denied)))
        raise TurnEnded(
            f"the turn is not complete, because the CLI was denied: {names}",
            code=EXIT_DENIED,
            hint=(_ALLOW if self._asked else _ASK) + "allow more: --permission-mode acceptEdits, or bypassPermissions",
        )


_ALLOW = "allow it when it asks (clisup approvals), write rules (docs/how-to/approvals.md), or in a new session "
_ASK = "the CLI did not ask; in a new session let claude ask you (clisup run --live), or "
_ENDED = {"failed": "failed", "interrupted": "was interrupted", "timed_out": "timed out"}


def json_line(event: Event) -> str:
    """Return an envelope as one line of JSON."""
    return json.dumps(event, ensure_ascii=False, separators=(",", ":"))


def print_line(line: str) -> None:
    """Print a line at once: its reader may be a program that waits for it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class InterruptHandler:
    """Handler of SIGINT inside its block: the first Ctrl-C interrupts the turn, the second kills it, the third leaves.

    Before `turn_id` is set, Ctrl-C ends the command. The handler uses its own connection, never the one that is being
    read; the turn's end arrives as an event. `before_notes` leaves an open line, or erases the status line.
    """

    def __init__(self, path: str, session_id: str, before_notes: str) -> None:
        self._path, self._session_id, self._before_notes = path, session_id, before_notes
        self._clients: list[Client] = []
        self._before: Any = None
        self.turn_id: str | None = None
        self.times = 0

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_exc: object) -> None:
        signal.signal(signal.SIGINT, self._before)
        for client in self._clients:
            client.close()

    def ask_again(self) -> None:
        """Repeat the request after a restart of the daemon, which may not have received it."""
        if self.times:
            self._ask()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.times += 1
        if self.turn_id is None or self.times > max(_SIGNAL_NOTES):
            raise KeyboardInterrupt
        os.write(
            2, (self._before_notes + _SIGNAL_NOTES[self.times]).encode()
        )  # the signal may have interrupted a print
        self._ask()

    def _ask(self) -> None:
        mode = "graceful" if self.times == 1 else "kill"
        try:
            client = Client.connect(self._path, name="clisup-run")
            self._clients.append(client)
            client.post("session/interrupt", session_id=self._session_id, turn_id=self.turn_id, mode=mode)
        except ClisupError:
            os.write(2, b"[the daemon is away; it gets the request when it is back]\n")
