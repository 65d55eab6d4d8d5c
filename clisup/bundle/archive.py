"""The file itself: a bounded .tar.gz whose every member has been redacted, for its owner alone."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from collections.abc import Callable
from typing import Any, NamedTuple

from clisup.errors import UsageError, WorldError

__all__ = ["MAX_MEMBER", "MAX_TOTAL", "Archive", "Member"]

MAX_MEMBER = 4 * 1024 * 1024
"""Bytes of one member; what is longer is cut, and the list of contents says so."""
MAX_TOTAL = 24 * 1024 * 1024
"""Bytes of all members together, before they are packed."""


class Member(NamedTuple):
    name: str
    bytes: int
    cut: bool


class Archive:
    """Collects members, then writes them. Nothing gets in but by `add`, which redacts."""

    def __init__(self, redact: Callable[[str], str], *, folder: str, time: float) -> None:
        self._redact, self._folder, self._time = redact, folder, time
        self._parts: list[tuple[str, bytes]] = []
        self._left = MAX_TOTAL
        self.members: list[Member] = []

    def add(self, name: str, text: str, *, keep_end: bool = False) -> None:
        """A text file. Where it is too long its beginning is kept, or its end, in whole lines."""
        data = self._redact(text).encode("utf-8", "replace")
        limit = min(MAX_MEMBER, self._left)
        kept = data if len(data) <= limit else _whole_lines(data, limit, keep_end)
        self._left -= len(kept)
        self._parts.append((name, kept))
        self.members.append(Member(name, len(kept), len(kept) < len(data)))

    def add_json(self, name: str, value: Any) -> None:
        """A JSON file, readable by people."""
        self.add(name, json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n")

    def write(self, path: str) -> int:
        """Write it to a file that is not there yet, with mode 0600; gives its size. Raises `UsageError`, `WorldError`."""
        data = self._packed()
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise UsageError(
                f"cannot write {path}, because it is there already", kind="usage", hint="-o FILE names another"
            ) from None
        except OSError as error:
            raise _unwritten(path, error) from None
        try:
            os.fchmod(fd, 0o600)  # whatever the umask says
            with os.fdopen(fd, "wb") as file:
                file.write(data)
        except OSError as error:
            os.unlink(path)
            raise _unwritten(path, error) from None
        return len(data)

    def _packed(self) -> bytes:
        packed = io.BytesIO()
        with (
            gzip.GzipFile("", "wb", fileobj=packed, mtime=int(self._time)) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for name, data in self._parts:
                info = tarfile.TarInfo(f"{self._folder}/{name}")
                info.size, info.mode, info.mtime = len(data), 0o600, int(self._time)
                tar.addfile(info, io.BytesIO(data))
        return packed.getvalue()


def _whole_lines(data: bytes, limit: int, keep_end: bool) -> bytes:
    if keep_end:
        return data[len(data) - limit :].partition(b"\n")[2]
    return data[: data.rfind(b"\n", 0, limit) + 1]


def _unwritten(path: str, error: OSError) -> WorldError:
    return WorldError(
        f"cannot write {path}, because of: {error.strerror}", kind="storage_failed", hint="-o FILE names another place"
    )
