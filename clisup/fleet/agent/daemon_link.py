"""Connection of the agent to this box's daemon: requests, and the lines of events as the daemon sends them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from clisup import __version__
from clisup.errors import ClisupError, WorldError, error_from_wire

__all__ = ["DaemonLink", "EventLines", "gone", "initialize_params"]

CONNECT_S = 5.0
ANSWER_S = 60.0
"""Seconds for an answer of the daemon. A call with `wait` may last longer: its caller names a limit of its own."""
LINE_LIMIT = 128 * 1024 * 1024
"""Bytes of one line. The longest page of events is shorter."""
_CHUNK = 256 * 1024
"""Bytes of events that are read at once. Twice as many wait in this process at most, so the daemon notices a slow reader."""
PROTOCOL_VERSION = 1


def initialize_params(name: str) -> dict[str, Any]:
    """Return the params with which a client `name` introduces itself."""
    return {"protocol_version": PROTOCOL_VERSION, "client": {"name": name, "version": __version__}}


class DaemonLink:
    """Connection for requests. A call after the daemon's end raises `WorldError(daemon_not_running)`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._ids = count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self.server: dict[str, Any] = {}

    @classmethod
    @asynccontextmanager
    async def open(cls, path: str, name: str) -> AsyncIterator[DaemonLink]:
        """Connect to the daemon, and introduce this client as `name`. Raises `WorldError(daemon_not_running)`."""
        reader, writer = await _connect(path, LINE_LIMIT)
        link = cls(reader, writer)
        reading = asyncio.create_task(link._read())
        try:
            link.server = await link.call("initialize", **initialize_params(name))
            yield link
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            writer.close()

    async def call(self, method: str, /, *, limit_s: float | None = ANSWER_S, **params: Any) -> Any:
        """Return the result of a method. `limit_s` is None for a call that may last as long as a turn.

        Raises the daemon's refusal, by `kind`.
        """
        if self._writer.is_closing():
            raise gone("it closed the connection")
        id_ = next(self._ids)
        answer = self._answers[id_] = asyncio.get_running_loop().create_future()
        try:
            self._writer.write(_request(id_, method, params))
            async with asyncio.timeout(limit_s):
                await self._writer.drain()
                return await answer
        except TimeoutError:
            raise gone(f"it did not answer {method} within {limit_s:g} s") from None
        except OSError as error:
            raise gone(error.strerror or "it closed the connection") from None
        finally:
            self._answers.pop(id_, None)

    async def _read(self) -> None:
        """Give each answer to its caller, until the connection ends."""
        why: ClisupError = gone("it closed the connection")
        try:
            while line := await self._reader.readline():
                frame = json.loads(line)
                answer = self._answers.get(frame.get("id") or 0)
                if "error" in frame:
                    error = error_from_wire(frame["error"])
                    if frame.get("id") is None:  # the daemon's last words
                        why = error
                    elif answer is not None and not answer.done():
                        answer.set_exception(error)
                elif answer is not None and not answer.done():
                    answer.set_result(frame.get("result"))
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            why = gone("it sent what is no frame")
        finally:
            self._writer.close()
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(why)


class EventLines:
    """Connection for the events of all sessions. Its lines are those of the daemon, byte for byte."""

    def __init__(self, path: str, name: str) -> None:
        self._path, self._name = path, name

    async def follow(self, after: Mapping[str, int] | None, **options: Any) -> AsyncGenerator[list[bytes], None]:
        """Yield the lines behind these seqs, as many as have arrived, newlines included.

        A session that is not named begins at its first event. Without `after` only new events come. Reading stops while
        the caller works, so the daemon keeps the rest. Raises `WorldError(daemon_not_running)` at the daemon's end.
        """
        reader, writer = await _connect(self._path, _CHUNK)
        try:
            begin = {} if after is None else {"after_seq": dict(after)}
            params = {"session_id": "*", **begin, **options}
            writer.write(_request(1, "initialize", initialize_params(self._name)))
            writer.write(_request(2, "session/subscribe", params))
            await writer.drain()
            answers = 2
            async for lines in _lines(reader):
                for line in lines[:answers]:
                    frame = json.loads(line)
                    if "error" in frame:
                        raise error_from_wire(frame["error"])
                events, answers = lines[answers:], max(0, answers - len(lines))
                if events:
                    yield events
            raise gone("it closed the connection")
        except OSError as error:
            raise gone(error.strerror or "it closed the connection") from None
        except ValueError:
            raise gone("it sent what is no frame") from None
        finally:
            writer.close()


async def _lines(reader: asyncio.StreamReader) -> AsyncGenerator[list[bytes], None]:
    """Yield the lines as they arrive, newlines included. A long line is joined once."""
    begun, size = list[bytes](), 0
    while data := await reader.read(_CHUNK):
        end = data.rfind(b"\n") + 1
        if not end:
            begun.append(data)
            if (size := size + len(data)) > LINE_LIMIT:
                raise gone(f"it sent a line of more than {LINE_LIMIT} bytes")
            continue
        whole = b"".join([*begun, data[:end]])
        yield [line + b"\n" for line in whole.split(b"\n")[:-1]]
        begun, size = [data[end:]], len(data) - end


async def _connect(path: str, limit: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect. A reader stops reading from the socket at twice the `limit`."""
    try:
        async with asyncio.timeout(CONNECT_S):
            return await asyncio.open_unix_connection(path, limit=limit)
    except (OSError, TimeoutError) as error:
        raise gone(getattr(error, "strerror", None) or "there is no answer") from None


def _request(id_: int, method: str, params: Mapping[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params}).encode() + b"\n"


def gone(why: str) -> WorldError:
    """Return the error for a daemon that does not answer."""
    return WorldError(f"cannot reach this box's daemon: {why}", kind="daemon_not_running", hint="clisup start")
