"""Values by key in one file. Threads, tasks and processes may share it: each sees what the others wrote.

Each change is on the disk when its call returns, whole or not at all.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clisup.errors import UsageError
from clisup.llm.durable import open_lock, read_bounded, write_durably

__all__ = ["MAX_BYTES", "MAX_ENTRIES", "MAX_KEY_CHARS", "MAX_VALUE_BYTES", "KeptValues", "Where"]

MAX_ENTRIES = 1000
MAX_KEY_CHARS = 200
MAX_VALUE_BYTES = 64 * 1024
MAX_BYTES = 4 * 1024 * 1024
"""Of the whole file."""

Where = Mapping[str, Any] | Callable[[Any], bool]
_FORMAT, _VERSION = "clisup.memory", 1
_MISSING = object()


class KeptValues:
    """The values of one file; without a `path`, in this process alone.

    Keys are 1 to `MAX_KEY_CHARS` printable characters; `/` between their parts is a custom that `query` by prefix goes well with.
    Values are JSON. The limits are as given; what would pass one is refused with `UsageError` (`limit_exceeded`), and nothing
    is changed. Raises `WorldError` (`storage_failed`) where the file cannot be read or written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        max_entries: int = MAX_ENTRIES,
        max_value_bytes: int = MAX_VALUE_BYTES,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.path = None if path is None else Path(path)
        self._max_entries, self._max_value_bytes, self._max_bytes = max_entries, max_value_bytes, max_bytes
        self._values: dict[str, str] = {}  # as JSON: what is given out is a copy
        self._read_as: tuple[int, int, int] | None = None
        self._lock = threading.RLock()
        with self._lock:
            self._refresh()

    def get(self, key: str, default: Any = None) -> Any:
        """The value, a copy of its own; `default` where there is none."""
        with self._lock:
            self._refresh()
            return json.loads(self._values[key]) if key in self._values else default

    def set(self, key: str, value: Any) -> None:
        """Put a value in place of what was there."""
        _check_key(key)
        text = _json(key, value)
        if (size := len(text.encode(errors="surrogatepass"))) > self._max_value_bytes:
            raise _too_much(f"keep {key!r}", f"its value has {size} bytes and {self._max_value_bytes} are allowed")
        with self._changing() as values:
            if key not in values and len(values) >= self._max_entries:
                raise _too_much(f"keep {key!r}", f"there are {len(values)} values already, as many as are allowed")
            values[key] = text

    def delete(self, key: str) -> bool:
        """Forget a value. Was there one?"""
        with self._lock:
            self._refresh()
            if key not in self._values:
                return False
            with self._changing() as values:
                return values.pop(key, None) is not None

    def query(self, prefix: str = "", where: Where | None = None, *, limit: int | None = None) -> dict[str, Any]:
        """The values whose keys begin with `prefix`, by key, in order; the first `limit` of them.

        `where` is a function of the value, or fields that it must have: `{"done": False, "owner.name": "Ada"}` (a dot goes into
        an object).
        """
        with self._lock:
            self._refresh()
            texts = sorted((key, text) for key, text in self._values.items() if key.startswith(prefix))
        found: dict[str, Any] = {}
        for key, text in texts:
            if limit is not None and len(found) >= limit:
                break
            value = json.loads(text)
            if where is None or (where(value) if callable(where) else _fits(value, where)):
                found[key] = value
        return found

    def keys(self) -> list[str]:
        """All keys, in order."""
        with self._lock:
            self._refresh()
            return sorted(self._values)

    def __len__(self) -> int:
        return len(self.keys())

    def __contains__(self, key: str) -> bool:
        return self.get(key, _MISSING) is not _MISSING

    # -- the file

    @contextmanager
    def _changing(self) -> Iterator[dict[str, str]]:
        """A copy to change; it is written, and holds, unless the block raises."""
        with self._lock, self._alone():
            self._refresh()
            values = dict(self._values)
            yield values
            if values == self._values:
                return
            data = _encoded(values)
            if len(data) > self._max_bytes:
                raise _too_much("keep this", f"all values together would have {len(data)} bytes of {self._max_bytes}")
            if self.path is not None:
                write_durably(self.path, data)
                self._read_as = self._stamp()
            self._values = values

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other process changes the file meanwhile. The lock's file stays: to remove it would let two hold it."""
        if self.path is None:
            yield
            return
        fd = open_lock(self.path.with_name(f".{self.path.name}.lock"))
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _refresh(self) -> None:
        """Read the file anew where another process has written it."""
        stamp = self._stamp()
        if self.path is None or stamp == self._read_as:
            return
        data = read_bounded(self.path, self._max_bytes)
        self._values = {} if data is None else _decoded(self.path, data)
        self._read_as = stamp

    def _stamp(self) -> tuple[int, int, int] | None:
        """Each write is a new file: its inode, time and size tell it from the one before."""
        if self.path is None:
            return None
        try:
            status = os.stat(self.path)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size


def _check_key(key: str) -> None:
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_CHARS or not key.isprintable() or key != key.strip():
        raise UsageError(
            f"cannot use {str(key)[:MAX_KEY_CHARS]!r} as a key, because a key is 1 to {MAX_KEY_CHARS} printable characters without "
            "space around them"
        )


def _json(key: str, value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot keep {key!r}, because its value is no JSON: {error}") from None


def _too_much(what: str, why: str) -> UsageError:
    return UsageError(
        f"cannot {what}, because {why}", kind="limit_exceeded", hint="delete what is not needed, or be brief"
    )


def _encoded(values: Mapping[str, str]) -> bytes:
    entries = ",\n".join(f"{json.dumps(key, ensure_ascii=False)}:{text}" for key, text in sorted(values.items()))
    text = f'{{"format":"{_FORMAT}","version":{_VERSION},"values":{{\n{entries}\n}}}}\n'
    return text.encode(errors="surrogatepass")


def _decoded(path: Path, data: bytes) -> dict[str, str]:
    try:
        whole = json.loads(data.decode(errors="surrogatepass"))
        if not isinstance(whole, dict) or (whole.get("format"), whole.get("version")) != (_FORMAT, _VERSION):
            raise ValueError("it is of another format or version")
        if not isinstance(values := whole.get("values"), dict):
            raise ValueError("there are no values in it")
        return {str(key): _json(key, value) for key, value in values.items()}
    except (ValueError, RecursionError, UsageError) as error:
        raise UsageError(
            f"cannot read {path} as a working memory, because it is none: {error}",
            hint="move it away, or give another path",
        ) from None


def _fits(value: Any, where: Mapping[str, Any]) -> bool:
    return all(_at(value, path) == wanted for path, wanted in where.items())


def _at(value: Any, path: str) -> Any:
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return _MISSING
        value = value[name]
    return value
