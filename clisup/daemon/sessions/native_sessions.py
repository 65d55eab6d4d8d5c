"""Sessions that the CLIs keep of a directory: `backend/sessions`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import partial

import trio

from clisup.daemon.backends import Backend
from clisup.daemon.services import Services
from clisup.host.log import event_logger
from clisup.host.threads import in_thread
from clisup.model.prompts.kept import title_of
from clisup.store.native_sessions import TranscriptEdges, newest_transcripts
from clisup.wire.results import BackendSessionsResult, NativeSessionInfo

__all__ = ["LOOK_LIMIT_S", "MAX_PROMPT", "native_sessions"]

LOOK_LIMIT_S = 5.0
"""Seconds to read the transcripts of one backend. A hanging file system leaves the backend out."""

MAX_PROMPT = 400
"""Characters of a first prompt at most."""

_log = event_logger()


async def native_sessions(
    services: Services, backends: Iterable[Backend], cwd: str, owners: Mapping[str, str], limit: int
) -> BackendSessionsResult:
    """Return the sessions of a directory, newest first. `owners` maps native sessions to sessions of clisup."""
    found: dict[str, NativeSessionInfo] = {}
    skipped: list[str] = []
    for backend in backends:
        look = partial(_of_backend, backend, cwd, limit)
        with trio.move_on_after(LOOK_LIMIT_S) as scope:
            for item in await in_thread(look, abandon_on_cancel=True, limiter=services.writer_checks):
                known = owners.get(item.native_session_id)
                found.setdefault(item.native_session_id, item.model_copy(update={"session_id": known}))
        if scope.cancelled_caught:
            _log.warning("look for sessions of a CLI given up", backend=backend.name, after_s=LOOK_LIMIT_S)
            skipped.append(backend.name)
    newest = sorted(found.values(), key=lambda item: item.updated_at, reverse=True)
    return BackendSessionsResult(sessions=newest[:limit], skipped=skipped)


def _of_backend(backend: Backend, cwd: str, limit: int) -> list[NativeSessionInfo]:
    rules = backend.adapter.native_sessions
    real = os.path.realpath(cwd)
    pattern = rules.pattern(real, backend.own_environment({})) if rules is not None else None
    if rules is None or pattern is None:
        return []

    def read(edges: TranscriptEdges) -> NativeSessionInfo | None:
        session = rules.read(edges.name, edges.head, edges.tail)
        if session is None or session.cwd not in (None, real):
            return None
        prompt = backend.plain(session.prompt[: 4 * MAX_PROMPT])[:MAX_PROMPT] if session.prompt else None
        title = title_of(backend.plain(session.title or session.prompt or ""))
        return NativeSessionInfo(
            backend=backend.name,
            native_session_id=session.native_session_id,
            title=title,
            prompt=prompt,
            branch=session.branch,
            started_at=session.started_at,
            updated_at=_moment(edges.changed),
        )

    return newest_transcripts(pattern, read, limit)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
