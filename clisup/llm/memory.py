"""Working memory: values by key, in one file beside the conversation, independent of every edit of the conversation.

    memory = WorkingMemory("chat.memory.json")
    memory.set("plan/step-1", {"do": "read the logs", "done": False})
    memory.query("plan/", where={"done": False})
    Conversation(model, memory=memory)        # the model gets a tool `memory` for the same

Each change is durable when its call returns, whole or not at all. Threads, tasks and processes may share a file, and each sees
the others' changes. A change waits for the disk: a trio task with little time calls it in `trio.to_thread.run_sync`.
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

import trio

from clisup.client.raw import JsonObject
from clisup.errors import ClisupError, UsageError
from clisup.llm.files import open_lock, read_bounded, write_durably
from clisup.llm.tools import ToolOutput

MAX_ENTRIES = 1000
MAX_KEY_CHARS = 200
MAX_VALUE_BYTES = 64 * 1024
MAX_BYTES = 4 * 1024 * 1024
"""Limit of the whole file."""

Where = Mapping[str, Any] | Callable[[Any], bool]
_FORMAT, _VERSION = "clisup.memory", 1
_MISSING = object()


class WorkingMemory:
    """JSON values of one file, by key. Without a `path`, they live in this process only.

    Keys are 1 to `MAX_KEY_CHARS` printable characters. By custom, `/` joins their parts, for queries by prefix.
    A value beyond a limit changes nothing and raises `UsageError` (`limit_exceeded`). Raises `WorldError` (`storage_failed`) if
    the file cannot be read or written.
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
        self._values: dict[str, str] = {}  # as JSON, so that callers get copies
        self._read_as: tuple[int, int, int] | None = None
        self._lock = threading.RLock()
        with self._lock:
            self._refresh()

    def get(self, key: str, default: Any = None) -> Any:
        """Return a copy of the value, or `default`."""
        with self._lock:
            self._refresh()
            return json.loads(self._values[key]) if key in self._values else default

    def set(self, key: str, value: Any) -> None:
        """Set or replace a value."""
        _check_key(key)
        text = _json(key, value)
        if (size := len(text.encode(errors="surrogatepass"))) > self._max_value_bytes:
            raise _too_much(f"keep {key!r}", f"its value has {size} bytes, and {self._max_value_bytes} are allowed")
        with self._changing() as values:
            if key not in values and len(values) >= self._max_entries:
                raise _too_much(f"keep {key!r}", f"there are {len(values)} values already, the most allowed")
            values[key] = text

    def delete(self, key: str) -> bool:
        """Delete a value. Return whether there was one."""
        with self._lock:
            self._refresh()
            if key not in self._values:
                return False
            with self._changing() as values:
                return values.pop(key, None) is not None

    def query(self, prefix: str = "", where: Where | None = None, *, limit: int | None = None) -> JsonObject:
        """Return the values of keys with this prefix, in order of the keys, at most `limit` of them.

        `where` is a function of the value, or fields of it: `{"done": False, "owner.name": "Ada"}`. A dot goes into an object.
        """
        with self._lock:
            self._refresh()
            texts = sorted((key, text) for key, text in self._values.items() if key.startswith(prefix))
        found: JsonObject = {}
        for key, text in texts:
            if limit is not None and len(found) >= limit:
                break
            value = json.loads(text)
            if where is None or (where(value) if callable(where) else _fits(value, where)):
                found[key] = value
        return found

    def keys(self) -> list[str]:
        """Return all keys, in order."""
        with self._lock:
            self._refresh()
            return sorted(self._values)

    def __len__(self) -> int:
        return len(self.keys())

    def __contains__(self, key: str) -> bool:
        return self.get(key, _MISSING) is not _MISSING

    @classmethod
    def beside(cls, conversation: str | os.PathLike[str], **limits: int) -> WorkingMemory:
        """Return the memory beside a conversation's file: `chat.memory.json` for `chat.json`."""
        path = Path(conversation)
        return cls(path.with_name(f"{path.stem}.memory.json"), **limits)

    def brief(self) -> str:
        """Return a text for a system prompt: the memory and its keys."""
        keys, shown, length = self.keys(), [], 0
        for key in keys:
            length += len(key) + 2
            if length > BRIEF_CHARS:
                break
            shown.append(key)
        more = f", and {len(keys) - len(shown)} more" if len(shown) < len(keys) else ""
        held = f"It holds: {', '.join(shown)}{more}." if keys else "It is empty."
        return (
            "You have a working memory, by the tool `memory`. Earlier parts of this conversation may be left out; what you put into "
            f"the memory stays. {held}"
        )

    def tool(self) -> MemoryTool:
        """Return the tool `memory`, by which a model sets, gets, deletes and queries."""
        return MemoryTool(self)

    # -- the file

    @contextmanager
    def _changing(self) -> Iterator[dict[str, str]]:
        """Give a copy to change, and write it unless the block raises."""
        with self._lock, self._alone():
            self._refresh()
            values = dict(self._values)
            yield values
            if values == self._values:
                return
            data = _encoded(values)
            if len(data) > self._max_bytes:
                raise _too_much(
                    "keep the value",
                    f"all values together would have {len(data)} bytes, and {self._max_bytes} are allowed",
                )
            if self.path is not None:
                write_durably(self.path, data)
                self._read_as = self._stamp()
            self._values = values

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes from changing the file. The lock file stays: after its removal two processes could hold the lock."""
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
        """Read the file again after a change by another process."""
        stamp = self._stamp()
        if self.path is None or stamp == self._read_as:
            return
        data = read_bounded(self.path, self._max_bytes)
        self._values = {} if data is None else _decoded(self.path, data)
        self._read_as = stamp

    def _stamp(self) -> tuple[int, int, int] | None:
        """Return the inode, time and size of the file. Each write makes a new file."""
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
            f"{str(key)[:MAX_KEY_CHARS]!r} is not a key: a key is 1 to {MAX_KEY_CHARS} printable characters without space around them"
        )


def _json(key: str, value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"the value of {key!r} is not JSON: {error}") from None


def _too_much(what: str, why: str) -> UsageError:
    return UsageError(f"cannot {what}: {why}", kind="limit_exceeded", hint="delete old values, or store shorter ones")


def _encoded(values: Mapping[str, str]) -> bytes:
    entries = ",\n".join(f"{json.dumps(key, ensure_ascii=False)}:{text}" for key, text in sorted(values.items()))
    text = f'{{"format":"{_FORMAT}","version":{_VERSION},"values":{{\n{entries}\n}}}}\n'
    return text.encode(errors="surrogatepass")


def _decoded(path: Path, data: bytes) -> dict[str, str]:
    try:
        whole = json.loads(data.decode(errors="surrogatepass"))
        if not isinstance(whole, dict) or (whole.get("format"), whole.get("version")) != (_FORMAT, _VERSION):
            raise ValueError("another format or version")
        if not isinstance(values := whole.get("values"), dict):
            raise ValueError("it has no values")
        return {str(key): _json(key, value) for key, value in values.items()}
    except (ValueError, RecursionError, UsageError) as error:
        raise UsageError(
            f"{path} is not a working memory: {error}",
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


QUERY_LIMIT = 50
"""Most values that a query returns to the model."""
ANSWER_CHARS = 40_000
"""Longest answer to the model. A query with more results says so."""

_DESCRIPTION = """\
Your working memory: JSON values by key, kept on disk. It outlives this conversation and everything that is left out of it.
Use it for plans, decisions, findings and open points that you will need later.
operation "set" needs key and value, "get" and "delete" need key, "query" lists values by prefix of the key and by fields (where)."""

_NEEDS = {"set": ("key", "value"), "get": ("key",), "delete": ("key",), "query": ()}  # operation -> needed arguments
_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "operation": {"type": "string", "enum": [*_NEEDS]},
        "key": {"type": "string", "maxLength": MAX_KEY_CHARS, "description": 'Such as "plan/step-1".'},
        "value": {"description": "Any JSON value; for set."},
        "prefix": {"type": "string", "description": "For query: how the keys begin. All, where it is left out."},
        "where": {
            "type": "object",
            "description": 'For query: fields that a value must have, as {"done": false}; "a.b" goes into objects.',
        },
    },
    "required": ["operation"],
    "additionalProperties": False,
}


class MemoryTool:
    """The tool `memory`, made by `WorkingMemory.tool`: a model's access to its working memory."""

    name = "memory"
    description = _DESCRIPTION
    timeout_s: float | None = None

    def __init__(self, memory: WorkingMemory) -> None:
        self._memory = memory

    @property
    def input_schema(self) -> JsonObject:
        """JSON Schema of the input."""
        return _SCHEMA

    async def run(self, arguments: JsonObject) -> ToolOutput:
        """Run the operation in a thread, because changes wait for the disk. Errors go to the model."""
        needs = _NEEDS.get(str(arguments.get("operation")))
        if needs is None:
            return ToolOutput(f"operation must be one of {', '.join(_NEEDS)}", is_error=True)
        wrong = [name for name in needs if name not in arguments]
        wrong += [name for name in ("key", "prefix") if not isinstance(arguments.get(name, ""), str)]
        wrong += [] if isinstance(arguments.get("where") or {}, Mapping) else ["where"]
        if wrong:
            return ToolOutput(f"{arguments['operation']} needs a fitting {' and '.join(wrong)}", is_error=True)
        try:
            return await trio.to_thread.run_sync(self._run, arguments)
        except ClisupError as error:
            return ToolOutput(str(error), is_error=True)

    def _run(self, given: JsonObject) -> ToolOutput:
        memory, key = self._memory, given.get("key", "")
        if given["operation"] == "set":
            memory.set(key, given["value"])
            return ToolOutput(f"kept {key}")
        if given["operation"] == "delete":
            return ToolOutput(f"{'deleted' if memory.delete(key) else 'there was no'} {key}")
        if given["operation"] == "query":
            return _query(memory, given)
        if key in memory:
            return ToolOutput(_text(memory.get(key)))
        known = ", ".join(memory.keys()[:QUERY_LIMIT]) or "none"
        return ToolOutput(f"there is no {key!r}; keys: {known}", is_error=True)


def _query(memory: WorkingMemory, given: JsonObject) -> ToolOutput:
    found = memory.query(given.get("prefix") or "", given.get("where") or None, limit=QUERY_LIMIT + 1)
    shown: JsonObject = {}
    length = 0
    for key, value in list(found.items())[:QUERY_LIMIT]:
        length += len(key) + len(_text(value))
        if shown and length > ANSWER_CHARS:
            break
        shown[key] = value
    more = "" if len(shown) == len(found) else "\n(There are more: ask by a longer prefix, or by where.)"
    return ToolOutput(_text(shown) + more)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


BRIEF_CHARS = 2000
"""Longest list of keys in a system prompt."""
