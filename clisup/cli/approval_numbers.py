"""Short numbers of approvals, as the lists of this user have shown them.

A number stays with its approval, also after the answer, for `KEEP_S` after the last list with the approval. So a typed number
never names another approval than the list did. The numbers are in a file of the user's cache directory.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from clisup.cli.views.events import Event
from clisup.errors import ClisupError
from clisup.locations import home_dir

__all__ = ["KEEP_S", "MOST", "ApprovalNumbers", "Numbered"]

KEEP_S = 24 * 3600.0
"""Seconds for which a number stays reserved after a list last showed its approval."""

MOST = 999
"""Largest number. Approvals beyond have no number, only an id."""

LOCK_S = 1.0
"""Seconds to wait for another command that writes the file."""

_PAUSE_S = 0.02


class Numbered(NamedTuple):
    """Approval behind a number. `seen` is the time of the last list that showed it, in seconds since 1970."""

    session_id: str
    approval_id: str
    seen: float


class ApprovalNumbers:
    """Numbers of the approvals of the daemon behind `socket`."""

    def __init__(self, socket: str) -> None:
        self._name = f"approvals-{hashlib.sha256(socket.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}.json"

    def of(self, pending: list[Event]) -> dict[tuple[str, str], int]:
        """Return the number of each pending approval, and remember new ones. Empty if the file cannot be written."""
        try:
            with self._locked() as path:
                kept = self._fresh(_read(path), pending)
                _write(path, kept)
        except (OSError, ClisupError):
            return {}
        return {(entry.session_id, entry.approval_id): number for number, entry in kept.items()}

    def named(self, number: int) -> Numbered | None:
        """Return the approval that a list has shown under this number, open or not."""
        try:
            return _read(os.path.join(_directory(), self._name)).get(number)
        except (OSError, ClisupError):
            return None

    def _fresh(self, known: dict[int, Numbered], pending: list[Event]) -> dict[int, Numbered]:
        now = time.time()
        wanted = [(str(a["session_id"]), str(a["approval_id"])) for a in pending]
        open_now = set(wanted)
        kept = {
            number: Numbered(*entry[:2], now if entry[:2] in open_now else entry.seen)
            for number, entry in known.items()
            if entry[:2] in open_now or entry.seen > now - KEEP_S
        }
        numbered = {entry[:2] for entry in kept.values()}
        free = (number for number in range(1, MOST + 1) if number not in kept)
        new = (name for name in wanted if name not in numbered)
        return kept | {number: Numbered(*name, now) for name, number in zip(new, list(free), strict=False)}

    @contextmanager
    def _locked(self) -> Iterator[str]:
        """Hold the file's lock inside the block, which gets the path. Raises `OSError` after `LOCK_S`."""
        directory = _directory()
        os.makedirs(directory, mode=0o700, exist_ok=True)
        path = os.path.join(directory, self._name)
        fd = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            until = time.monotonic() + LOCK_S
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= until:
                        raise
                    time.sleep(_PAUSE_S)
            yield path
        finally:
            os.close(fd)


def _directory() -> str:
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return os.path.join(cache if cache.startswith("/") else os.path.join(home_dir(os.environ), ".cache"), "clisup")


def _read(path: str) -> dict[int, Numbered]:
    """Return the entries of the file. A file of another shape counts as empty."""
    try:
        with open(path, encoding="utf-8") as file:
            entries: Any = json.load(file)
        return {int(number): Numbered(str(a), str(b), float(seen)) for number, a, b, seen in entries}
    except (FileNotFoundError, ValueError, TypeError, RecursionError):
        return {}


def _write(path: str, entries: dict[int, Numbered]) -> None:
    temporary = f"{path}.new"
    with open(temporary, "w", encoding="utf-8", opener=_private) as file:
        json.dump([[number, *entry] for number, entry in entries.items()], file)
    os.replace(temporary, path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
