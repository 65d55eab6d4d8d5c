"""Engine on NATS JetStream. The one file that imports the NATS client; asyncio."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import nats.errors
import nats.js.errors
import nkeys  # type: ignore[import-untyped]
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, DiscardPolicy, StreamConfig

from clisup.errors import ConfigurationError, WorldError
from clisup.fleet.engine import STREAMS, Handler, StoredMessage, Stream, stream_of
from clisup.fleet.member import FleetMember, MemberKey
from clisup.fleet.setup.nodes import is_loopback
from clisup.fleet.setup.permissions import API, CALLS, MEMBER_API, MEMBER_CALLS
from clisup.fleet.setup.server import OLDEST

__all__ = ["NatsEngine", "StreamState", "connect", "connect_member"]

CONNECT_S = 10.0
_ANSWER_S = 5.0
_RETRY_S = 1.0
_BATCH = 64  # messages of a request, each at most max_payload
_HEARTBEAT_S, _REQUEST_S = 2.0, 30.0
_IDLE_S = 30.0  # a reader that went away leaves its consumer for this time
_CALLS = 192  # calls that are answered at once: each tunnel has a poll and an input, at most
_OTHER_IS_LAST = (10071,)
_NO_MESSAGE = 10037
_STREAM_EXISTS = 10058
_NS = 1_000_000_000
_SAME_ID_S = 0.1  # the shortest window: no message has an id, so a member's id can be mistaken for no other's
_DOUBT = (nats.errors.Error, OSError, asyncio.TimeoutError, ValueError, LookupError)  # the last two: a strange answer


@asynccontextmanager
async def connect(
    servers: Sequence[str],
    member: str,
    *,
    key: MemberKey | None = None,
    tls: ssl.SSLContext | None = None,
    timeout_s: float = CONNECT_S,
    api: str = API,
) -> AsyncIterator[NatsEngine]:
    """Connect to the engine's nodes as a member of the fleet. `api` is the prefix of the engine's methods for this key.

    The client reconnects by itself. Raises `WorldError`: `fleet_away` without an
    answer in time, `permission_denied` for a refused key, `unsupported` for a server that is too old. Raises
    `ConfigurationError` for a key that is none.
    """
    _check_servers(servers)
    client, faults = Client(), Faults()
    logging.getLogger("asyncio").addFilter(_is_news)
    options: dict[str, Any] = {"nkeys_seed_str": _seed(key)} if key is not None else {}
    try:
        async with asyncio.timeout(timeout_s):
            await client.connect(
                servers=list(servers),
                name=f"clisup {member}",
                error_cb=faults.note,
                tls=tls,
                max_reconnect_attempts=-1,
                reconnect_time_wait=1,
                inbox_prefix=f"_INBOX_{member}",
                **options,
            )
    except _DOUBT as error:
        with suppress(*_DOUBT):
            await client.close()
        raise _unreachable(servers, faults, error) from None
    try:
        version = client.connected_server_version
        if (version.major, version.minor, version.patch) < OLDEST:
            text = f"{version.major}.{version.minor}.{version.patch}"
            message = f"the engine of the fleet is nats-server {text}, and clisup needs 2.11 or later"
            raise WorldError(message, kind="unsupported", hint="upgrade nats-server")
        yield NatsEngine(client, faults, member, api)
    finally:
        with suppress(*_DOUBT):
            await client.close()


def connect_member(member: FleetMember, *, timeout_s: float = CONNECT_S) -> AbstractAsyncContextManager[NatsEngine]:
    """Connect as a member: with its key, and with TLS if its file has a CA. Raises as `connect` does."""
    api = API if "admin" in member.roles else MEMBER_API
    return connect(member.servers, member.name, key=member.key, tls=_tls(member.ca), timeout_s=timeout_s, api=api)


def _check_servers(servers: Sequence[str]) -> None:
    """Refuse a node that is not on this machine without TLS: others on the way could read and change everything."""
    for server in servers:
        scheme, _, place = server.partition("://")
        host = urlsplit(f"//{place}").hostname or ""
        if scheme != "tls" and not (scheme == "nats" and is_loopback(host)):
            message = f"cannot connect to {host[:200]!r} without TLS, because it is not on this machine"
            raise ConfigurationError(message, hint="use the member's file that clisup fleet member add wrote: tls://")


def _tls(ca: str) -> ssl.SSLContext | None:
    """Return a context that trusts only the fleet's CA. Raises `ConfigurationError` for a text that is no certificate."""
    if not ca:
        return None
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_verify_locations(cadata=ca)
    except (ssl.SSLError, ValueError) as error:
        message = f"cannot use the certificate of the fleet, because {_text(error)}"
        raise ConfigurationError(message, hint="join the fleet again: clisup fleet join FILE") from None
    return context


def _is_news(record: logging.LogRecord) -> bool:
    """Drop the warning that asyncio logs for every connection that the engine's client closes under TLS."""
    return "eof_received() has no effect when using ssl" not in str(record.msg)


def _seed(key: MemberKey) -> str:
    """Return the text of a key. Raises `ConfigurationError` if it is none."""
    try:
        nkeys.from_seed(bytearray(key.reveal().encode()))
    except Exception:  # nkeys raises errors of base64 and of its own
        message = "cannot use this member's key of the fleet, because it is damaged"
        raise ConfigurationError(message, hint="join the fleet again: clisup fleet join FILE") from None
    return key.reveal()


def _unreachable(servers: Sequence[str], faults: Faults, error: BaseException) -> WorldError:
    place = ", ".join(server.rpartition("@")[2].removeprefix("nats://") for server in servers)  # without a password
    if faults.unauthorized:
        message = f"the engine of the fleet at {place} refuses this member's key"
        return WorldError(message, kind="permission_denied", hint="ask the fleet's admin to add the key")
    return _away(f"cannot reach the engine of the fleet at {place}, because {_text(faults.last or error)}")


def _away(message: str) -> WorldError:
    return WorldError(message, kind="fleet_away")


def _text(error: BaseException) -> str:
    return str(error)[:200] or ("there is no answer" if isinstance(error, TimeoutError) else type(error).__name__)


class Faults:
    """Last errors that the server reported beside its answers. A refused subject has no answer."""

    def __init__(self) -> None:
        self.last: Exception | None = None
        self.unauthorized = False
        self.count = 0
        """Number of refused subjects so far."""
        self._refused = ""

    async def note(self, error: Exception) -> None:
        """Note an error of the connection."""
        self.last, text = error, str(error)
        if "permissions violation" in text.lower():
            self._refused, self.count = text, self.count + 1
        elif "authorization" in text.lower():
            self.unauthorized = True

    def refused_since(self, count: int, word: str) -> str:
        """Return the report of a refused subject with this word since `count`, or ""."""
        return self._refused if self.count > count and word.lower() in self._refused.lower() else ""


class NatsEngine:
    """`clisup.fleet.engine.Engine` on one connection."""

    def __init__(self, client: Client, faults: Faults, member: str, api: str) -> None:
        self._client, self._faults = client, faults
        self.member = member
        self._api = api
        self._js: JetStreamContext = client.jetstream(timeout=_ANSWER_S, prefix=api)

    @property
    def connected(self) -> bool:
        """Tell whether there is a connection now."""
        return bool(self._client.is_connected)

    @property
    def max_payload(self) -> int:
        """Return the largest size of a message, headers included."""
        return self._client.max_payload

    async def append(
        self, subject: str, data: bytes, headers: Mapping[str, str] | None = None, *, expected: int | None = None
    ) -> int | None:
        """Store a message and return its position, or None if another message is the last of the subject."""
        sent = dict(headers or {})
        sent["Nats-Expected-Stream"] = stream_of(subject).name
        if expected is not None:
            sent["Nats-Expected-Last-Subject-Sequence"] = str(expected)
        with _Doubt(self._faults, f"store a message of {subject}", subject):
            answer = await self._client.request(subject, data, timeout=_ANSWER_S, headers=sent)
            stored = json.loads(answer.data)
            error = stored.get("error")
            if error is None:
                return int(stored["seq"])
            if expected is not None and error.get("err_code") in _OTHER_IS_LAST:
                return None
            raise nats.js.errors.APIError.from_error(error)

    async def last(self, subject: str) -> StoredMessage | None:
        """Return the last message of a subject.

        Of a private stream, any node answers: only that method has the subject in its own subject, so that a worker's
        key reads nothing else. Such an answer may be an old one, and an append behind it is refused.
        """
        stream = stream_of(subject)
        with _Doubt(self._faults, f"look for the last message of {subject}", stream.name):
            if stream.private:
                method = f"{self._api}.DIRECT.GET.{stream.name}.{subject}"
                return _direct(await self._client.request(method, timeout=_ANSWER_S))
            try:
                found = await self._js.get_last_msg(stream.name, subject)
            except nats.js.errors.NotFoundError as error:
                if error.err_code == _NO_MESSAGE:
                    return None
                raise
            at = found.time.timestamp() if found.time else 0.0
            return StoredMessage(found.subject or "", found.seq or 0, found.data or b"", found.headers or {}, at)

    async def read(self, subject: str, after: int = 0) -> AsyncGenerator[StoredMessage, None]:
        """Yield the messages behind the position `after`, then new ones.

        The consumer is ephemeral and acknowledges nothing. After any doubt another one begins behind the last message.
        """
        stream = stream_of(subject).name
        while True:
            with suppress(*_DOUBT), _Doubt(self._faults, f"read {subject}", stream, only_refusals=True):
                info = await self._js.stream_info(stream)
                if info.state.last_seq < after:
                    return
                consumer = await self._consumer(stream, subject, after)
                async with aclosing(self._pull(stream, consumer)) as messages:
                    async for message in messages:
                        after = message.position
                        yield message
            await asyncio.sleep(_RETRY_S)

    async def _consumer(self, stream: str, subject: str, after: int) -> str:
        config = ConsumerConfig(
            name=secrets.token_hex(16),  # who knows the name can take messages from this reader
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=after + 1,
            ack_policy=AckPolicy.NONE,
            filter_subject=subject,
            inactive_threshold=_IDLE_S,
            mem_storage=True,
            num_replicas=1,
        )
        return (await self._js.add_consumer(stream, config)).name

    async def _pull(self, stream: str, consumer: str) -> AsyncGenerator[StoredMessage, None]:
        """Yield the consumer's messages. Raises an error of `_DOUBT` if one is missing or the consumer is silent."""
        request = {"batch": _BATCH, "expires": int(_REQUEST_S * _NS), "idle_heartbeat": int(_HEARTBEAT_S * _NS)}
        number = 0
        while True:
            inbox = self._client.new_inbox()  # one for each request: the node forgets the request with it
            box = await self._client.subscribe(inbox)
            try:
                await self._client.publish(
                    f"{self._api}.CONSUMER.MSG.NEXT.{stream}.{consumer}", json.dumps(request).encode(), reply=inbox
                )
                async with aclosing(_batch(box, number)) as messages:
                    async for msg in messages:
                        number += 1
                        yield _stored(msg)
            finally:
                with suppress(*_DOUBT):
                    await box.unsubscribe()

    async def call(self, subject: str, data: bytes, timeout_s: float) -> bytes | None:
        """Return the response of the process that answers to a subject, or None at once if there is none."""
        if not self._client.is_connected:  # the client would send it later
            raise _away("the engine of the fleet is away")
        with _Doubt(self._faults, f"call {subject}", subject):
            try:
                return (await self._client.request(subject, data, timeout=timeout_s)).data
            except nats.errors.NoRespondersError:
                return None

    @asynccontextmanager
    async def answer(self, subject: str, handler: Handler) -> AsyncIterator[None]:
        """Answer the calls to a subject while the context is open."""
        free, running = asyncio.Semaphore(_CALLS), set[asyncio.Task[None]]()

        async def respond(msg: Msg) -> None:
            try:
                response = await handler(msg.subject, msg.data)
                with suppress(*_DOUBT):  # the caller sees no answer
                    await msg.respond(response)
            except Exception as error:
                report = {"message": f"no answer to a call of {msg.subject}", "exception": error}
                asyncio.get_running_loop().call_exception_handler(report)
            finally:
                free.release()

        async def receive(msg: Msg) -> None:
            await free.acquire()  # the other calls wait in the subscription
            running.add(task := asyncio.create_task(respond(msg)))
            task.add_done_callback(running.discard)

        if self._api == MEMBER_API:
            subject = subject.replace(CALLS, MEMBER_CALLS, 1)
        with _Doubt(self._faults, f"answer calls to {subject}", subject):
            box = await self._client.subscribe(subject, cb=receive)
            await self._client.flush(timeout=int(_ANSWER_S))
        try:
            yield
        finally:
            with suppress(*_DOUBT):
                await box.unsubscribe()
            ending = list(running)
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)

    async def prepare(self, replicas: int, max_bytes: int, keep_s: float = STREAMS[0].keep_s) -> None:
        """Create or update the fleet's streams. `max_bytes` and `keep_s` bound the copies of events. Needs the admin's key."""
        for stream in STREAMS:
            copies = stream.name == STREAMS[0].name
            wanted = stream._replace(keep_s=keep_s, max_bytes=max_bytes) if copies else stream
            config = _config(wanted, replicas)
            with _Doubt(self._faults, f"create the stream {stream.name}", stream.name):
                try:
                    await self._js.add_stream(config)
                except nats.js.errors.APIError as error:
                    if error.err_code != _STREAM_EXISTS:
                        raise
                    await self._js.update_stream(config)

    async def forget(self, member: str, session_id: str) -> int:
        """Delete a member's copies and rows, of one session or with `*` of all. Return the number of deleted records.

        Needs the admin's key.
        """
        count = 0
        for subject in (f"clisup.ev.{member}.{session_id}.*", f"$KV.SESSIONS.{member}.{session_id}"):
            stream = stream_of(subject).name
            with _Doubt(self._faults, f"delete {subject}", stream):
                request = json.dumps({"filter": subject}).encode()
                answer = await self._client.request(f"{self._api}.STREAM.PURGE.{stream}", request, timeout=_ANSWER_S)
                said = json.loads(answer.data)
                if error := said.get("error"):
                    raise nats.js.errors.APIError.from_error(error)
                count += int(said["purged"])
        return count

    @property
    def server_version(self) -> tuple[int, int, int]:
        """Return the version of the node to which this client is connected."""
        version = self._client.connected_server_version
        return version.major, version.minor, version.patch

    async def stream_states(self) -> dict[str, StreamState]:
        """Return the state of each of the fleet's streams. A stream that does not exist is left out."""
        found = {}
        for stream in STREAMS:
            with _Doubt(self._faults, f"look at the stream {stream.name}", stream.name):
                try:
                    info = await self._js.stream_info(stream.name)
                except nats.js.errors.NotFoundError:
                    continue
                cluster = info.cluster
                behind = [peer.name or "?" for peer in (cluster.replicas or []) if not peer.current] if cluster else []
                leader = (cluster.leader or "") if cluster else ""
                found[stream.name] = StreamState(
                    leader, info.config.num_replicas or 1, info.state.messages, info.state.bytes, behind
                )
        return found


class StreamState(NamedTuple):
    """State of a stream: its leader, its copies on nodes, its size, and the nodes whose copy is behind."""

    leader: str
    replicas: int
    messages: int
    bytes: int
    behind: list[str]


class _Doubt:
    """Context that turns every failure of the engine into a `WorldError` about what this client was doing."""

    def __init__(self, faults: Faults, doing: str, word: str, *, only_refusals: bool = False) -> None:
        self._faults, self._doing, self._word, self._only_refusals = faults, doing, word, only_refusals
        self._count = faults.count

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, _DOUBT):
            return
        if refused := self._faults.refused_since(self._count, self._word):
            message = f"cannot {self._doing}, because the engine refuses it to this key: {refused[:200]}"
            raise WorldError(message, kind="permission_denied") from None
        if not self._only_refusals:
            raise _away(f"cannot {self._doing}, because {_text(error)}") from None


async def _batch(box: Subscription, number: int) -> AsyncGenerator[Msg, None]:
    """Yield the messages of one request behind the `number`-th of its consumer. The request ends when it is full or expires.

    Raises an error of `_DOUBT` for a message that is missing. The heartbeats tell of it, too, because no other message may
    follow: a client that connects anew within a moment gets the next ones, and not those of this moment.
    """
    left = _BATCH
    while left:
        msg = await box.next_msg(timeout=2 * _HEARTBEAT_S + 1)
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise asyncio.CancelledError  # the client's wait_for swallows it under Python 3.11 if a message comes just then
        headers = msg.headers or {}
        status = headers.get("Status") if not msg.data else None
        if status in ("404", "408"):
            return
        if status is None:
            left, number = left - 1, number + 1
            sent = msg.metadata.sequence.consumer
        elif status == "100":
            sent = int(headers.get("Nats-Last-Consumer") or number)
        else:
            raise nats.errors.Error(f"the consumer ended with status {status}")
        if sent != number:
            raise nats.errors.Error("a message is missing")
        if status is None:
            yield msg


def _stored(msg: Msg) -> StoredMessage:
    found = msg.metadata
    return StoredMessage(msg.subject, found.sequence.stream, msg.data, msg.headers or {}, found.timestamp.timestamp())


def _direct(msg: Msg) -> StoredMessage | None:
    """Return the message of an answer to a direct request. Raises an error of `_DOUBT` for another answer."""
    headers = dict(msg.headers or {})
    if not msg.data and (status := headers.get("Status")):
        if status == "404":
            return None
        raise nats.errors.Error(f"the engine answers with status {status}")
    at = datetime.fromisoformat(headers.pop("Nats-Time-Stamp")).timestamp()
    return StoredMessage(headers.pop("Nats-Subject"), int(headers.pop("Nats-Sequence")), msg.data, headers, at)


def _config(stream: Stream, replicas: int) -> StreamConfig:
    """Return the configuration of a stream. No header of a message may change or remove other messages."""
    keeps_all = stream.most == -1
    return StreamConfig(
        name=stream.name,
        subjects=[f"{stream.prefix}>"],
        max_age=stream.keep_s,
        max_bytes=stream.max_bytes,
        max_msg_size=stream.max_message,
        max_msgs_per_subject=stream.most,
        discard=DiscardPolicy.OLD if keeps_all else DiscardPolicy.NEW,
        discard_new_per_subject=stream.once,
        duplicate_window=_SAME_ID_S,
        num_replicas=replicas,
        allow_direct=True,
        allow_rollup_hdrs=False,
        deny_delete=True,
        deny_purge=not stream.private,  # the admin forgets boxes and sessions that are gone
    )
