"""`clisup wait`: until turns are over, with their outcome as the exit code."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from clisup.cli.failure import TurnEnded, usage
from clisup.cli.lookup import find_session
from clisup.cli.running.turn import exit_code_of_turn
from clisup.cli.status.columns import short_ids
from clisup.cli.views.event_lines import words
from clisup.cli.views.terminal import plain
from clisup.client.sync import Client, Follower, RepeatingClient
from clisup.errors import EXIT_OK, EXIT_TIMED_OUT, ClisupError, UsageError

__all__ = ["command"]

MAX_SESSIONS = 256
"""Each takes a connection and a thread while it is waited for."""

_PAGE = 1000
_Event = dict[str, Any]


@click.command("wait")
@click.argument("sessions", nargs=-1, required=True, metavar="SESSION...")
@click.option("--turn", metavar="T", help="This turn alone, also one that is over already; of one SESSION.")
@click.option("--any", "any_", is_flag=True, help="End with the first session whose turns are over.")
@click.option(
    "--timeout", type=click.FloatRange(0), metavar="SECONDS", help="Give up after so long, with exit code 124."
)
@click.option("--json", "as_json", is_flag=True, help="Print each end as a JSON line: the event turn_completed.")
def command(sessions: tuple[str, ...], turn: str | None, any_: bool, timeout: float | None, as_json: bool) -> int:
    """Wait until the turns of sessions are over.

    Waited for are the turns that run or are queued when the command begins; with --turn, that one. A session without any
    is over already, with its last turn's outcome. Restarts of the daemon are waited through.

    The exit code is that of clisup run: 0 completed, 1 failed, 77 a tool was denied, 124 timed out, 130 interrupted; of
    several turns, that of the first that did not end well, in the order of the sessions. 124 also means --timeout.

    \b
    Example:
      clisup wait 3f2a && clisup logs 3f2a
      clisup wait --any --timeout 600 $(clisup status -q)
    """
    if turn is not None and len(sessions) > 1:
        raise usage("cannot wait for one turn of several sessions", hint="name one session with --turn")
    if len(sessions) > MAX_SESSIONS:
        raise usage(f"cannot wait for {len(sessions)} sessions at once, because {MAX_SESSIONS} are the most")
    until = None if timeout is None else time.monotonic() + timeout
    with Client.connect(name="clisup-wait") as client:
        ids = list(dict.fromkeys(find_session(client, prefix) for prefix in sessions))
        waits = [_begin(client, id_, _turn_id(turn)) for id_ in ids]
    short, ends = short_ids(ids), {}
    for session_id, found in _ends(waits, until, timeout):
        ends[session_id] = found
        for event in found:
            print(json.dumps(event, ensure_ascii=False) if as_json else _line(short[session_id], event), flush=True)
        if any_:
            break
    codes = [exit_code_of_turn(e) for id_ in ids for e in ends.get(id_, []) if e["outcome"] is not None]
    return next((code for code in codes if code != EXIT_OK), EXIT_OK)


@dataclass
class _Wait:
    """One session: the turns that are still to end, and the place in its journal from which their ends come."""

    path: str
    session_id: str
    turns: list[str]
    after_seq: int
    found: list[_Event]

    def run(self, into: queue.Queue[tuple[str, list[_Event] | ClisupError]]) -> None:
        try:
            into.put((self.session_id, self.found if not self.turns else self._follow()))
        except ClisupError as error:
            into.put((self.session_id, error))

    def _follow(self) -> list[_Event]:
        ends: dict[str, _Event] = {}
        wanted = {"types": ["turn_completed"], "deltas": False}
        with Follower(self.path, self.session_id, self.after_seq, options=wanted) as events:
            for event in events:
                if event["type"] == "gap":
                    raise self._removed()
                if event["turn_id"] in self.turns:
                    ends[event["turn_id"]] = event
                if len(ends) == len(self.turns):
                    break
        return [ends[turn_id] for turn_id in self.turns]

    def _removed(self) -> ClisupError:
        return UsageError(
            f"cannot tell how a turn of session {self.session_id} ended, because retention removed that",
            kind="turn_not_found",
            hint="wait sooner, or raise daemon.retention",
        )


def _begin(client: Client, session_id: str, turn: str | None) -> _Wait:
    summary = client.call("session/get", session_id=session_id)
    running = [summary["turn_id"]] if summary.get("turn_id") else []
    active = [*running, *(queued["turn_id"] for queued in summary["queue"])]
    begun = _Wait(client.path, session_id, active, summary["next_seq"] - 1, [])
    if turn is not None:
        begun.turns = [turn] if turn in active else []
    if not begun.turns:
        begun.found = [_last_end(client, session_id, turn)]
    return begun


def _last_end(client: Client, session_id: str, turn: str | None) -> _Event:
    """How the named turn ended, or the last one; a session that never had one has no outcome."""
    found = None
    for event in _stored_ends(client, session_id):
        if turn is None or event["turn_id"] == turn:
            found = event
    if found is not None:
        return found
    if turn is None:
        return {"session_id": session_id, "type": "turn_completed", "turn_id": None, "outcome": None}
    raise UsageError(
        f"cannot wait for turn {turn} of session {session_id}, because there is none, or none any more",
        kind="turn_not_found",
        hint=f"see clisup status {session_id[:8]}",
    )


def _stored_ends(client: Client, session_id: str) -> Iterator[_Event]:
    after_seq = 0
    with RepeatingClient(client.path, name="clisup-wait") as own:
        while True:
            asked = {"session_id": session_id, "after_seq": after_seq, "types": ["turn_completed"], "limit": _PAGE}
            page = own.call("session/events", **asked)
            yield from page["events"]
            if page["eof"]:
                return
            after_seq = page["next_seq"] - 1


def _ends(waits: list[_Wait], until: float | None, timeout: float | None) -> Iterator[tuple[str, list[_Event]]]:
    """What became of each session, in the order of their ends. Raises `TurnEnded` (124) once `until` has passed."""
    ready: queue.Queue[tuple[str, list[_Event] | ClisupError]] = queue.Queue()
    for wait in waits:
        threading.Thread(target=wait.run, args=(ready,), daemon=True).start()
    for left in range(len(waits), 0, -1):
        try:
            session_id, found = ready.get(timeout=None if until is None else max(until - time.monotonic(), 0.001))
        except queue.Empty:
            sessions = "1 session" if left == 1 else f"{left} sessions"
            raise TurnEnded(
                f"cannot see the turns of {sessions} end, because {timeout:g} s have passed",
                code=EXIT_TIMED_OUT,
                hint="they go on; see them: clisup status",
            ) from None
        if isinstance(found, ClisupError):
            raise found
        yield session_id, found


def _turn_id(turn: str | None) -> str | None:
    """`3` and `t3` are the same."""
    if turn is None:
        return None
    if (digits := turn.lower().removeprefix("t")).isdecimal() and digits[0] != "0":
        return f"t{digits}"
    raise usage(f"cannot wait for turn {turn!r}, because that is no turn's id", hint="turns are t1, t2, ...")


def _line(short: str, event: _Event) -> str:
    if event["outcome"] is None:
        return f"{short}  -  there was no turn"
    return plain(f"{short}  {event['turn_id']}  {words(event)}")
