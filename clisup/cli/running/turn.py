"""One turn from the prompt to the exit code: subscribe, prompt, show, and follow across a restart of the daemon."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Any

from clisup.cli.failure import TurnEnded
from clisup.cli.running.asking import Asker, terminal_of_own
from clisup.cli.running.interrupting import Interrupting
from clisup.cli.views.event_lines import error_words, evidence_words
from clisup.cli.views.terminal import clip
from clisup.cli.views.turn_view import Screen, Showing
from clisup.client.reconnect import RECONNECT_S
from clisup.client.sync import Client, Follower, prompt_surely
from clisup.errors import (
    EXIT_DENIED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_TIMED_OUT,
    EXIT_TURN_FAILED,
    EXIT_UNAVAILABLE,
    ClisupError,
)
from clisup.explained import TURN_ERRORS, doctor_hint

__all__ = ["Turn", "exit_code_of_turn"]

_Event = dict[str, Any]
_ANSWER = ("content_delta", "message", "message_stop", "retracted", "turn_completed")
_APPROVALS = ("approval_requested", "approval_resolved")
_EXIT_CODES = {"failed": EXIT_TURN_FAILED, "interrupted": EXIT_INTERRUPTED, "timed_out": EXIT_TIMED_OUT}
_NAME = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]+")
_HINTS = {
    "authentication": "log in with the CLI itself ({command}), or set its key in [backends.{backend}] env; then try again",
    "permission": "the account may not use this model: choose another with --model",
    "rate_limit": "wait, then send the prompt again",
    "quota_exceeded": "wait for the quota to reset, or use another account",
    "model_not_found": "choose another with --model",
    "context_overflow": "open a new session, or send less",
    "spawn_failed": "see why: clisup backends",
    "crashed": "see what it said: clisup logs {session_id}",
}


def exit_code_of_turn(end: _Event) -> int:
    """What `clisup run` ends with, from a turn's `turn_completed`."""
    if end["outcome"] == "failed" and (end.get("error") or {}).get("kind") == "authentication":
        return EXIT_UNAVAILABLE
    if end["outcome"] != "completed":
        return _EXIT_CODES.get(end["outcome"], EXIT_TURN_FAILED)
    return EXIT_DENIED if end.get("denied") else EXIT_OK


@dataclass
class Turn:
    """A prompt on its way; `accepted` once the daemon has taken it. `json`: every event is printed, and nothing for people."""

    path: str
    session_id: str
    backend: str
    prompt: str | list[dict[str, str]]
    screen: Screen
    expand: bool = False
    refuse_limited: bool = False
    json: bool = False
    output_schema: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.accepted = False
        self._showing = Showing(self.path, self.session_id, self.screen, name="clisup-run")

    def run(self, cursor: int) -> int:
        """Send the prompt and show its turn; the exit code. Raises `TurnEnded` and what the daemon refuses."""
        with Interrupting(self.path, self.session_id) as interrupting:
            follower = Follower(
                self.path,
                self.session_id,
                cursor,
                on_lost=self._lost,
                on_back=lambda: self._back(interrupting),
            )
            with follower:
                interrupting.turn_id = self._send()
                end = self._show(follower, interrupting.turn_id)
        return self._verdict(end)

    def _back(self, interrupting: Interrupting) -> None:
        self._showing.note("[connected again]")
        interrupting.ask_again()

    def _send(self) -> str:
        """The turn's id."""
        params: _Event = {"session_id": self.session_id, "prompt": self.prompt} | (
            {"expand": True} if self.expand else {}
        )
        params |= {"when_limited": "refuse"} if self.refuse_limited else {}
        params |= {"output_schema": self.output_schema} if self.output_schema is not None else {}
        accepted = prompt_surely(self.path, params, name="clisup-run", on_lost=self._lost)
        self.accepted = True
        if accepted["delivery"] == "queued":
            self._showing.note(f"[queued at {accepted.get('position')}: another turn is running]")
        return str(accepted["turn_id"])

    def _lost(self) -> None:
        self._showing.note(f"[connection lost; trying again for {RECONNECT_S:g} s]")

    def _show(self, events: Follower, turn_id: str) -> _Event:
        asker = Asker(self.path, self.session_id, self._showing.note, None if self.json else terminal_of_own())
        for event in events:
            if self.json:
                print_line(json_line(event))
            if event.get("turn_id") not in (turn_id, None):
                continue
            if not self.json:
                if self.output_schema is None or event["type"] not in _ANSWER:
                    self._showing.take(event)
                if event["type"] in _APPROVALS:
                    asker.take(event)
            if event["type"] == "turn_completed":
                asker.close()
                return event
        raise AssertionError("a follower never ends by itself")

    def _verdict(self, end: _Event) -> int:
        if not self.json:
            self._showing.note(f"session {self.session_id} (go on with: clisup run --session {self.session_id})")
        if end["outcome"] == "completed":
            if self.output_schema is not None and not self.json:
                self._print_value(end)
            return self._allowed(end)
        if end.get("delivery") == "uncertain":
            raise self._uncertain(end)
        error = end.get("error")
        outcome = str(end["outcome"]).replace("_", " ")
        reason = error_words(error) or f"it ended as {outcome}"
        kind = str((error or {}).get("kind", ""))
        hint = _HINTS.get(kind, "")
        hint = hint.format(backend=self.backend, command=self.backend, session_id=self.session_id)
        hint = self._held_back(reason) + hint if kind == "authentication" else hint
        raise TurnEnded(f"cannot give the whole answer, because the turn {_DID[end['outcome']]}: {reason}",
                        code=exit_code_of_turn(end), hint=hint,
                        doctor=doctor_hint(TURN_ERRORS.get(kind), self.backend))  # fmt: skip

    def _held_back(self, reason: str) -> str:
        """The beginning of a hint that names the keys which the daemon has and the CLI did not get; empty without one."""
        try:
            with Client.connect(self.path, name="clisup-run") as client:
                report = client.call("backend/env", name=self.backend)
        except ClisupError:
            return ""
        names = list(report.get("held_back") or [])
        dropped = {item["name"] for item in report.get("dropped") or [] if ".deny:" not in item["rule"]}
        # The CLI may itself name the variable that it misses, as codex does with that of a provider of one's own.
        names += [name for name in dict.fromkeys(_NAME.findall(reason)) if name in dropped and name not in names]
        if not names:
            return ""
        listed, it = ", ".join(f'"{name}"' for name in names), "it" if len(names) == 1 else "them"
        return (
            f"the daemon has {' and '.join(names)} and holds {it} back: to pass {it} on, set pass_env = [{listed}] in "
            f"[backends.{self.backend}], then clisup daemon reload; or "
        )

    def _print_value(self, end: _Event) -> None:
        """The answer by the schema, alone on stdout. Raises `TurnEnded` where the model gave none."""
        import json

        if end.get("structured") is None:
            raise TurnEnded(
                f"cannot give an answer by the schema, because the model answered in words: {clip(end['text'], 300)}",
                code=EXIT_TURN_FAILED,
                hint=f"say in the prompt what is wanted, and go on with: clisup run --session {self.session_id}",
            )
        self.screen.write(json.dumps(end["structured"], ensure_ascii=False, separators=(",", ":")) + "\n")

    def _uncertain(self, end: _Event) -> TurnEnded:
        """Neither sent again nor called done: whether it may be sent again is the reader's to say."""
        reason = error_words(end.get("error")) or f"it ended as {end['outcome']}"
        return TurnEnded(
            f"cannot tell whether the CLI took the prompt, because nobody saw it ({reason}); "
            f"{evidence_words(end.get('evidence'))}",
            code=_EXIT_CODES.get(end["outcome"], EXIT_TURN_FAILED),
            hint=f"see what there is: clisup logs {self.session_id}; it was not sent again: do so only if twice does no harm",
        )

    def _allowed(self, end: _Event) -> int:
        if not (denied := end.get("denied")):
            return EXIT_OK
        names = ", ".join(sorted(set(denied)))
        raise TurnEnded(
            f"cannot call this turn done, because the CLI was not allowed to use: {names}",
            code=EXIT_DENIED,
            hint="answer its approvals (clisup approvals --watch), write rules for them (docs/approvals.md), or allow it in a "
            "new session: clisup run --permission-mode acceptEdits (or bypassPermissions) ...",
        )


_DID = {"failed": "failed", "interrupted": "was interrupted", "timed_out": "timed out"}


def json_line(event: _Event) -> str:
    """An envelope as one line of JSON."""
    import json

    return json.dumps(event, ensure_ascii=False, separators=(",", ":"))


def print_line(line: str) -> None:
    """At once: who reads it may be a program that waits for it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
