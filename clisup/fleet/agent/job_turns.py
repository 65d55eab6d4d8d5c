"""Turns of the fleet's jobs in this box's own daemon. Every step may be repeated: session and prompt have fixed names."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

from clisup.errors import ClisupError
from clisup.fleet.agent.daemon_link import DaemonLink
from clisup.fleet.jobs import JobRequest, OwnTurn, session_of

__all__ = ["JobTurn", "close", "look", "refuse", "start"]

TITLE, ERROR_CHARS = 60, 200
_WORLD = ("daemon_not_running", "overloaded", "shutting_down", "storage_failed", "rate_limited", "session_busy")


class JobTurn(NamedTuple):
    """State of a job's turn here. `outcome` and `error` are those of a turn that has ended."""

    turn: OwnTurn
    outcome: str = ""
    error: str = ""


async def look(link: DaemonLink, job: str, attempt: int) -> JobTurn:
    """Return the state of an attempt's turn, from the daemon's journal."""
    session = session_of(job, attempt)
    try:
        found = await link.call(
            "session/events", session_id=session, types=["prompt_accepted", "turn_completed"], limit=1000
        )
        events = found["events"]
        if any(event["type"] == "prompt_accepted" for event in events):
            ends = [event for event in events if event["type"] == "turn_completed"]
            return _ended(ends[0]) if ends else JobTurn("open")
        detail = await link.call("session/get", session_id=session)
        return JobTurn("refused" if detail["state"] == "closed" else "absent")
    except ClisupError as error:
        if error.kind != "session_not_found":
            raise
        return JobTurn("absent")


async def start(link: DaemonLink, request: JobRequest, attempt: int, cwd: str) -> JobTurn:
    """Open the attempt's session, send the prompt, and return its end. What the daemon refuses has failed.

    Raises `ClisupError` for a daemon that is away: the caller looks again.
    """
    session = session_of(request.job, attempt)
    try:
        await _open(link, request, session, cwd)
        turn = await link.call(
            "session/prompt",
            **request.turn,
            session_id=session,
            key=request.job,
            prompt=request.prompt,
            wait=True,
            limit_s=None,
        )
    except ClisupError as error:
        if error.kind in _WORLD:
            raise
        return JobTurn("ended", "failed", error.message[:ERROR_CHARS])
    return _ended(turn)


async def refuse(link: DaemonLink, request: JobRequest, attempt: int, cwd: str) -> None:
    """Open the attempt's session and close it, so that it refuses a prompt that is still under way."""
    session = session_of(request.job, attempt)
    await _open(link, request, session, cwd)
    await link.call("session/close", session_id=session, limit_s=None)


async def close(link: DaemonLink, job: str, attempt: int) -> None:
    """Close the session of an attempt whose turn has ended. Its events stay. A failure costs an open session only."""
    with suppress(ClisupError):
        await link.call("session/close", session_id=session_of(job, attempt), limit_s=None)


async def _open(link: DaemonLink, request: JobRequest, session: str, cwd: str) -> None:
    """Open the session of an attempt, always with the same params."""
    labels = {**request.session.get("labels", {}), "job": request.job, "submitter": request.submitter}
    title = " ".join(request.prompt.split())[:TITLE] or "job"
    own = {"title": title, **request.session, "labels": labels}
    await link.call("session/new", **own, session_id=session, backend=request.backend, cwd=cwd)


def _ended(end: dict[str, Any]) -> JobTurn:
    error = end.get("error") or {}
    return JobTurn("ended", str(end.get("outcome", "")), str(error.get("message") or "")[:ERROR_CHARS])
