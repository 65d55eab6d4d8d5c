"""Transcripts in claude's layout: `projects/<slug of the cwd>/<session id>.jsonl` below a CLI's home."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

__all__ = ["SessionInUse", "Transcript", "UnknownSession", "find", "new_id", "open_transcript"]

_SLUG_LIMIT = 200


class SessionInUse(Exception):
    """Id of a new session that already exists."""


class UnknownSession(Exception):
    """Id of a resumed session that has no transcript."""


class Transcript:
    """Transcript file of one session. Without `persist` nothing is written."""

    def __init__(self, session_id: str, path: str, *, persist: bool = True) -> None:
        self.session_id, self.path, self.persist = session_id, path, persist

    def entries(self) -> Iterator[dict[str, Any]]:
        """Yield the entries. Lines that do not parse are skipped, as in claude: a killed process may cut its last line."""
        with open(self.path, "rb") as file:
            for line in file:
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue
                if isinstance(entry, dict):
                    yield entry

    def append(self, entry: dict[str, Any]) -> None:
        """Append an entry. `entry` may have its own id. A torn last line of a killed process is ended first."""
        if not self.persist:
            return
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        line = json.dumps({"sessionId": self.session_id, "uuid": new_id(), **entry}, separators=(",", ":")) + "\n"
        fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(fd).st_size
            torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
            data = b"\n" * torn + line.encode()
            while data:
                data = data[os.write(fd, data) :]
        finally:
            os.close(fd)


def open_transcript(home: str, cwd: str, *, new: str | None, resume: str | None) -> Transcript:
    """Return the file of a resumed session, or of a new one, which does not exist yet.

    Raises `SessionInUse` or `UnknownSession`.
    """
    root = os.path.join(home, "projects")
    if resume is not None:
        path = find(root, resume)
        if path is None:
            raise UnknownSession(resume)
        return Transcript(resume, path)
    if new is not None and find(root, new) is not None:
        raise SessionInUse(new)
    session_id = new or new_id()
    return Transcript(session_id, os.path.join(root, _slug(cwd), f"{session_id}.jsonl"))


def find(root: str, session_id: str) -> str | None:
    """Return the path of a session's transcript in any project's folder, or None. An empty file does not count.

    As in claude, a session can be resumed from another directory.
    """
    name = f"{os.path.basename(session_id)}.jsonl"
    folders = sorted(os.listdir(root)) if os.path.isdir(root) else []
    paths = (os.path.join(root, folder, name) for folder in folders)
    return next((path for path in paths if os.path.isfile(path) and os.path.getsize(path)), None)


def new_id() -> str:
    """Return a random UUID (version 4). The uuid module takes longer to import than this file."""
    raw = bytearray(os.urandom(16))
    raw[6], raw[8] = raw[6] & 0x0F | 0x40, raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _slug(cwd: str) -> str:
    slug = "".join(c if c.isascii() and c.isalnum() else "-" for c in cwd)
    if len(slug) <= _SLUG_LIMIT:
        return slug
    checksum = 0
    for byte in cwd.encode("utf-8", "surrogateescape"):
        checksum = (checksum * 31 + byte) & 0xFFFFFFFF
    return f"{slug[:_SLUG_LIMIT]}-{checksum:08x}"
