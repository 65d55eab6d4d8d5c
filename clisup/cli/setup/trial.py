"""Test turn of `clisup setup`: one short prompt in an empty directory, in a session that is removed afterwards."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from clisup.cli.key_hint import dropped_keys_hint
from clisup.cli.views.events import error_words
from clisup.client.raw import JsonObject
from clisup.client.sync import Client
from clisup.errors import TURN_KINDS, ClisupError, TurnKind

__all__ = ["ask_once"]

PROMPT = "Reply with the single word: ready"

TURN_LIMIT_S = 120.0
"""Seconds until the test turn is interrupted."""


def ask_once(path: str, backend: str) -> JsonObject:
    """Run the test turn. Return `{backend, outcome, text, error, hint, cost_usd}`; a refusal is an outcome, too."""
    told: JsonObject = {
        "backend": backend,
        "outcome": "failed",
        "text": "",
        "error": None,
        "hint": "",
        "cost_usd": None,
    }
    try:
        with (
            tempfile.TemporaryDirectory(prefix="clisup-setup-") as directory,
            Client.connect(path, name="clisup-setup") as client,
        ):
            session_id = client.call("session/new", backend=backend, cwd=directory, labels={"clisup": "setup"})[
                "session_id"
            ]
            try:
                with _interrupted_after(path, session_id):
                    end = client.prompt(session_id, PROMPT)
            finally:
                for method in ("session/close", "session/delete"):
                    with suppress(ClisupError):
                        client.call(method, session_id=session_id)
    except ClisupError as error:
        return {**told, "error": error.message, "hint": error.hint}
    told |= {name: end[name] for name in ("outcome", "text", "cost_usd") if name in end}
    if end["outcome"] == "completed":
        return told
    error_of_turn = end.get("error") or {}
    kind = str(error_of_turn.get("kind", ""))
    reason = error_words(end.get("error")) or f"the turn ended as {end['outcome']}"
    hint = TURN_KINDS.get(kind, TurnKind()).hint.format(backend=backend, session_id=session_id)
    hint = dropped_keys_hint(path, backend, reason) + hint if kind == "authentication" else hint
    return {**told, "error": reason, "hint": hint}


@contextmanager
def _interrupted_after(path: str, session_id: str) -> Iterator[None]:
    """Interrupt the session's turn if the block takes longer than `TURN_LIMIT_S`."""

    def interrupt() -> None:
        with suppress(ClisupError), Client.connect(path, name="clisup-setup") as client:
            client.call("session/interrupt", session_id=session_id)

    timer = threading.Timer(TURN_LIMIT_S, interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
