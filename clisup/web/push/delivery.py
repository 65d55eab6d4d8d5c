"""Delivery to push services: the key of this machine, encryption, and a POST that reaches public addresses alone."""

from __future__ import annotations

import ipaddress
import logging
import os
import ssl
import time
from base64 import urlsafe_b64decode
from urllib.parse import urlsplit

import http_ece  # type: ignore[import-untyped]
import trio
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from py_vapid import Vapid02, VapidException  # type: ignore[import-untyped]
from py_vapid.utils import b64urlencode  # type: ignore[import-untyped]

from clisup.errors import ConfigurationError
from clisup.host.files import make_private_dir, write_once
from clisup.web.push.messages import PushAddress, PushMessage

__all__ = ["ANSWER_S", "PAUSES_S", "TTL_S", "PushSender", "contact_of", "push_key"]

TTL_S = 12 * 3600
"""Seconds for which a push service keeps a message for a browser that is away."""

PAUSES_S = (2.0, 8.0)
"""Seconds before the second and the third try. There is no fourth one."""

ANSWER_S = 10.0
"""Seconds for one try."""

PRIVATE_HOSTS = False
"""Deliver to addresses of this machine and of private networks. Only tests set this."""

_GONE = (404, 410)
_SIGNED_S = 3600
_HEAD_BYTES = 4096
_logger = logging.getLogger(__name__)  # the log of clisup web, unlike docs/reference/observe.md


def push_key(directory: str) -> Vapid02:
    """Return the key of this machine. The first call makes it, with mode 0600. Raises `ConfigurationError`."""
    path = os.path.join(directory, "vapid.pem")
    make_private_dir(directory)
    if not os.path.exists(path):
        made = Vapid02()
        made.generate_keys()
        write_once(path, made.private_pem())  # the key of another process that was faster stays
    try:
        return Vapid02.from_file(path)
    except (VapidException, OSError, ValueError):
        raise ConfigurationError(
            f"cannot read the key for push messages in {path}",
            hint="remove the file; browsers must then turn notifications on again",
        ) from None


def contact_of(origin: str) -> str:
    """Return the contact that push services ask for: the pages' own address if others may know it."""
    parts = urlsplit(origin)
    public = parts.scheme == "https" and "." in (parts.hostname or "")
    return f"https://{parts.hostname}" if public else "mailto:clisup@example.com"


class PushSender:
    """Sender of messages, signed with the key of this machine."""

    def __init__(self, key: Vapid02, contact: str) -> None:
        self._key, self._contact = key, contact
        point = key.public_key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        self.public_key: str = b64urlencode(point)
        self._tls: ssl.SSLContext | None = None

    async def check(self, address: PushAddress) -> None:
        """Raise `ValueError` for an address that no message can reach."""
        self._request(address, PushMessage("", "", "/", ""))
        parts = urlsplit(address.endpoint)
        with trio.move_on_after(ANSWER_S):
            await _public_addresses(parts.hostname or "", parts.port or 443)
            return
        raise ValueError("the name of the push service was not found in time")

    async def send(self, address: PushAddress, message: PushMessage) -> bool:
        """Deliver a message. Return False if the push service does not know the address any more.

        Raises `ValueError` as `check` does.
        """
        request = self._request(address, message)
        for pause in (0.0, *PAUSES_S):
            await trio.sleep(pause)
            status = await self._post(address, request)
            if status in _GONE:
                return False
            if status is not None and status != 429 and status < 500:
                break
        if status is None or status >= 300:
            _logger.warning("push: %s answers %s", urlsplit(address.endpoint).hostname, status or "nothing")
        return True

    def _request(self, address: PushAddress, message: PushMessage) -> bytes:
        parts = urlsplit(address.endpoint)
        claims = {
            "sub": self._contact,
            "aud": f"https://{parts.netloc}",
            "exp": int(time.time()) + _SIGNED_S,
        }
        try:
            body = _sealed(message.encode(), address)
            signed = self._key.sign(claims)
        except (ValueError, VapidException, http_ece.ECEException):
            raise ValueError("the address or a key of the browser is not valid") from None
        headers = {
            "Host": parts.netloc,
            "Connection": "close",
            "Content-Length": str(len(body)),
            "Content-Encoding": "aes128gcm",
            "TTL": str(TTL_S),
            "Urgency": "high",
            "Topic": message.topic,
            **signed,
        }
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        return "\r\n".join(lines).encode("ascii") + body

    async def _post(self, address: PushAddress, request: bytes) -> int | None:
        """Return the status of the answer, or None without one. A redirect is not followed."""
        parts = urlsplit(address.endpoint)
        self._tls = self._tls or ssl.create_default_context()
        try:
            with trio.fail_after(ANSWER_S):
                stream = await _connect(parts.hostname or "", parts.port or 443)
                name = parts.hostname or ""
                async with trio.SSLStream(stream, self._tls, server_hostname=name, https_compatible=True) as secured:
                    await secured.send_all(request)
                    return await _status(secured)
        except (OSError, ValueError, trio.TooSlowError, trio.BrokenResourceError):
            return None


def _sealed(text: bytes, address: PushAddress) -> bytes:
    """Encrypt for the browser alone (RFC 8291)."""
    secret, key = (urlsafe_b64decode(f"{part}{'=' * (-len(part) % 4)}") for part in (address.auth, address.p256dh))
    own = ec.generate_private_key(ec.SECP256R1())
    sealed: bytes = http_ece.encrypt(text, private_key=own, dh=key, auth_secret=secret, version="aes128gcm")
    return sealed


async def _public_addresses(host: str, port: int) -> list[str]:
    """Return the addresses of a host. Raises `ValueError` if one of them is of this machine or a private network."""
    try:
        found = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ValueError("the name of the push service is not known") from None
    addresses = [str(row[4][0]) for row in found]
    if not PRIVATE_HOSTS and not all(_is_public(address) for address in addresses):
        raise ValueError("the push service is on this machine or in a private network")
    return addresses


def _is_public(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address.sixtofour or address
    return address.is_global and not address.is_multicast


async def _connect(host: str, port: int) -> trio.SocketStream:
    """Connect to a checked address: a second look-up of the name could give another one."""
    error: OSError = OSError("no address")
    for address in await _public_addresses(host, port):
        try:
            return await trio.open_tcp_stream(address, port)
        except OSError as failed:
            error = failed
    raise error


async def _status(stream: trio.SSLStream[trio.SocketStream]) -> int:
    """Return the status of an HTTP answer. Nothing else of it is needed. Raises `ValueError`."""
    head = b""
    while b"\r\n" not in head and len(head) < _HEAD_BYTES:
        piece = await stream.receive_some(_HEAD_BYTES)
        if not piece:
            break
        head += piece
    version, _, rest = head.partition(b" ")
    if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
        raise ValueError("no answer of HTTP")
    return int(rest[:3])
