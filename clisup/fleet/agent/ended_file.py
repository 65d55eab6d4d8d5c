"""File with the jobs that this box ended, so that neither a message nor a lost end of the engine makes it run one again."""

from __future__ import annotations

import asyncio
import os
import time

from clisup.errors import WorldError
from clisup.fleet.engine import DAY_S, JOB_KEEP_S
from clisup.fleet.job_log import EndedJobs
from clisup.host.files import read_json, write_json
from clisup.host.log import event_logger

__all__ = ["EndedFile"]

KEEP_S = JOB_KEEP_S + DAY_S
_log = event_logger()


class EndedFile:
    """Ended jobs of this box, in its state directory. A damaged file counts as empty, and the log says so."""

    def __init__(self, state_dir: str) -> None:
        self._path = os.path.join(state_dir, "fleet-jobs-ended.json")
        rows = None
        try:
            rows = read_json(self._path)
        except WorldError as error:
            _log.warning("ended jobs not read", error=error.message)
        self._jobs = EndedJobs(rows)
        self._writing = asyncio.Lock()

    def ended(self, job: str) -> int:
        """Return the last attempt that this box ended of a job, or 0."""
        return self._jobs.ended(job)

    async def add(self, job: str, attempt: int) -> None:
        """Store the end of an attempt. A disk that refuses it costs this memory only."""
        self._jobs.add(job, attempt, time.time(), KEEP_S)
        try:
            async with self._writing:
                await asyncio.to_thread(write_json, self._path, self._jobs.rows, sync=False)
        except WorldError as error:
            _log.warning("ended jobs not stored", error=error.message)
