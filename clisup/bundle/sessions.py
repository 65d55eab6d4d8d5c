"""One session in a bundle: its events without words (or, where that was asked for, with them), and the records of its runs."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from typing import Any

from clisup.bundle.archive import MAX_MEMBER, Archive
from clisup.errors import ClisupError
from clisup.ops.event_outline import outline
from clisup.store.offline import stored_records
from clisup.store.session_dir import RunDir, SessionDir
from clisup.store.spool import tail_text

__all__ = ["add_session"]

MAX_RUNS = 50
"""The last runs that are looked at."""
STDERR_TAIL = 16 * 1024
_SPEC = ("version", "session_id", "backend", "created_at", "mode", "model", "permission_mode", "has_system_prompt", "has_mcp_config",
         "env_names", "timeouts", "forked_from")  # fmt: skip


def add_session(archive: Archive, state_dir: str, session_id: str, *, content: bool) -> None:
    """Add what is known of it. What cannot be read is said in place of it."""
    directory = SessionDir(state_dir, session_id)
    place = f"sessions/{session_id}"
    archive.add_json(f"{place}/session.json", _spec(directory))
    archive.add(f"{place}/events.jsonl", "".join(_events(directory, content)), keep_end=True)
    for number in directory.run_numbers()[-MAX_RUNS:]:
        archive.add_json(f"{place}/runs/{number}.json", _run(directory.run(number), content))


def _spec(directory: SessionDir) -> dict[str, Any]:
    try:
        spec = directory.load_spec()
    except ClisupError as error:
        return {"cannot": error.message}
    except ValueError as error:
        return {"cannot": f"it makes no sense ({type(error).__name__})"}
    if spec is None:
        return {"cannot": "there is no session.json"}
    known = spec.model_dump(mode="json")
    return {name: known[name] for name in _SPEC if name in known}


def _events(directory: SessionDir, content: bool) -> Iterable[str]:
    """The last of them, somewhat more than a member holds: a journal may be larger than the memory."""
    lines: deque[str] = deque()
    size = 0
    try:
        for record in stored_records(directory.journal):
            if record.event is not None:
                event = record.event if content else outline(record.event)
                lines.append(json.dumps(event, ensure_ascii=False) + "\n")
                size += len(lines[-1])
            while size > 2 * MAX_MEMBER and len(lines) > 1:
                size -= len(lines.popleft())
    except ClisupError as error:
        lines.append(json.dumps({"cannot": error.message}) + "\n")
    return lines


def _run(run: RunDir, content: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, read in (("start.json", run.start_record), ("exit.json", run.exit_record)):
        try:
            found[name] = read()
        except ClisupError as error:
            found[name] = {"cannot": error.message}
    if content:
        try:
            found["intent.json"] = run.intent()
            found["stderr"] = tail_text(run.err, STDERR_TAIL)
        except (ClisupError, OSError) as error:
            found["intent.json"] = {"cannot": str(error)}
    return found
