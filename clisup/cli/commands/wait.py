"""`clisup wait`: wait for the end of turns, with their outcome as the exit code."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import click

from clisup.cli.failure import TurnEnded, usage
from clisup.cli.lookup import find_session, stored
from clisup.cli.on import SESSION
from clisup.cli.options import complete_session, json_option, turn_id
from clisup.cli.status.columns import short_ids
from clisup.cli.turn import exit_code_of_turn
from clisup.cli.views.events import Event, words
from clisup.cli.views.terminal import plain
from clisup.client.sync import Client, Follower, RepeatingClient
from clisup.errors import EXIT_OK, EXIT_TIMED_OUT, ClisupError, UsageError

__all__ = ["wait"]

MAX_SESSIONS = 256
"""Each session takes a connection and a thread."""

_ENDS = ["turn_completed"]


@click.command("wait")
@click.argument(
    "sessions", nargs=-1, required=True, metavar="SESSION...", type=SESSION, shell_complete=complete_session
)
@click.option("--turn", metavar="T", callback=turn_id, help="Only this turn of one SESSION; it may have ended already.")
@click.option("--any", "any_", is_flag=True, help="Return with the first session whose turns have ended.")
@click.option(
    "--timeout", type=click.FloatRange(0), metavar="SECONDS", help="Give up after SECONDS, with exit code 124."
)
@json_option("Print each end as a JSON line: the event turn_completed.")
def wait(sessions: tuple[str, ...], turn: str | None, any_: bool, timeout: float | None, as_json: bool) -> int:
    """Wait until the turns of sessions have ended.

    The command waits for the turns that run or are queued when it starts, or for the turn of --turn. A session without such
    turns counts at once, with the outcome of its last turn. The command goes on across restarts of the daemon.

    The exit code is that of clisup run: 0 completed, 1 failed, 77 a tool was denied, 124 timed out, 130 interrupted. With
    several turns, the first one that did not end well decides, in the order of the sessions. 124 also means --timeout.

    \b
    Example:
      clisup wait 3f2a && clisup logs 3f2a
      clisup wait --timeout 600 $(clisup status -q)
    """
    if turn is not None and len(sessions) > 1:
        raise usage("--turn needs exactly one session", hint="name one session with --turn")
    if len(sessions) > MAX_SESSIONS:
        raise usage(f"cannot wait for {len(sessions)} sessions at once, because {MAX_SESSIONS} are the most")
    until = None if timeout is None else time.monotonic() + timeout
    with Client.connect(name="clisup-wait") as client:
        ids = list(dict.fromkeys(find_session(client, prefix) for prefix in sessions))
        waits = [_begin(client, id_, turn) for id_ in ids]
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
    """Wait for one session: its unfinished turns, and the place in its journal after which they end."""

    path: str
    session_id: str
    turns: list[str]
    after_seq: int
    found: list[Event]

    def run(self, into: queue.Queue[tuple[str, list[Event] | ClisupError]]) -> None:
        try:
            into.put((self.session_id, self.found if not self.turns else self._follow()))
        except ClisupError as error:
            into.put((self.session_id, error))

    def _follow(self) -> list[Event]:
        ends: dict[str, Event] = {}
        wanted = {"types": _ENDS, "deltas": False}
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
            f"cannot tell how a turn of session {self.session_id} ended, because retention removed the event",
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


def _last_end(client: Client, session_id: str, turn: str | None) -> Event:
    """Return the end of the named turn, or of the last one. A session without turns has no outcome."""
    with RepeatingClient(client.path, name="clisup-wait") as own:
        ends = [event for event in stored(own, session_id, types=_ENDS) if event["type"] in _ENDS]
    if found := [event for event in ends if turn in (None, event["turn_id"])]:
        return found[-1]
    if turn is None:
        return {"session_id": session_id, "type": "turn_completed", "turn_id": None, "outcome": None}
    raise UsageError(
        f"cannot wait for turn {turn} of session {session_id}, because it does not exist, or no longer",
        kind="turn_not_found",
        hint=f"see clisup status {session_id[:8]}",
    )


def _ends(waits: list[_Wait], until: float | None, timeout: float | None) -> Iterator[tuple[str, list[Event]]]:
    """Yield the ends of each session, in the order of their ends. Raises `TurnEnded` (124) after `until`."""
    ready: queue.Queue[tuple[str, list[Event] | ClisupError]] = queue.Queue()
    for one in waits:
        threading.Thread(target=one.run, args=(ready,), daemon=True).start()
    for left in range(len(waits), 0, -1):
        try:
            session_id, found = ready.get(timeout=None if until is None else max(until - time.monotonic(), 0.001))
        except queue.Empty:
            sessions = "1 session" if left == 1 else f"{left} sessions"
            raise TurnEnded(
                f"the turns of {sessions} have not ended after {timeout:g} s",
                code=EXIT_TIMED_OUT,
                hint="they go on; see them: clisup status",
            ) from None
        if isinstance(found, ClisupError):
            raise found
        yield session_id, found


def _line(short: str, event: Event) -> str:
    if event["outcome"] is None:
        return f"{short}  -  there was no turn"
    return plain(f"{short}  {event['turn_id']}  {words(event)}")
