"""Names and addresses of boxes: parsing, the words of ssh, and the words that ssh says. Pure."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple
from urllib.parse import unquote

from clisup.errors import UsageError
from clisup.locations import HERE, SOCKET_PATH_LIMIT

__all__ = ["CONNECT_S", "Address", "Box", "check_name", "parse_address", "said", "ssh_words"]

CONNECT_S = 10
"""Seconds that ssh has to connect."""

MAX_URL = 512
SAID_LINES, SAID_CHARS = 3, 200
"""Lines of ssh's stderr in an error, and characters of each."""

_NAME = re.compile(r"[a-z0-9-]{1,32}")
_SESSION_LIKE = re.compile(r"[0-9a-f-]{4,}")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}")
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}|[0-9A-Fa-f:][0-9A-Fa-f:.%A-Za-z0-9]{1,63}")
_FORMS = "ssh://[user@]host[:port][/path/of/socket], or unix:///path/of/socket"


class Address(NamedTuple):
    """Place of a daemon. Without a `host` the daemon is on this machine. An empty `socket` lets the box choose its own."""

    host: str
    user: str
    port: int | None
    socket: str


class Box(NamedTuple):
    """Box of the list. `clisup` is the command on the box, for a box whose PATH lacks it."""

    name: str
    url: str
    clisup: str = "clisup"

    @property
    def address(self) -> Address:
        """Return the parsed URL. Raises `UsageError(usage)`."""
        return parse_address(self.url)


def check_name(name: str) -> str:
    """Return the name. Raises `UsageError(usage)` for a name that no box may have."""
    if not _NAME.fullmatch(name) or name.startswith("-"):
        raise _wrong(f"cannot use the name {name!r}", "it is not 1 to 32 of a-z, 0-9 and -, beginning with no -")
    if name == HERE:
        raise _wrong(f"cannot use the name {name!r}", "it means the daemon of this machine")
    if _SESSION_LIKE.fullmatch(name):
        raise _wrong(f"cannot use the name {name!r}", "it looks like the id of a session: use a letter after f")
    return name


def parse_address(url: str) -> Address:
    """Parse the URL of a box. Raises `UsageError(usage)`."""
    if len(url) > MAX_URL or not url.isprintable():
        raise _wrong("cannot use this address", f"it has control characters or more than {MAX_URL} characters")
    scheme, separator, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    socket = _socket(url, unquote(slash + path)) if path else ""
    if separator and scheme == "unix" and not place and socket:
        return Address("", "", None, socket)
    if not separator or scheme != "ssh" or not place:
        raise _wrong(f"cannot use the address {url!r}", f"it is not of the form {_FORMS}")
    user, at, host = place.rpartition("@")
    host, port = _host_and_port(url, host)
    if at and ":" in user:
        raise _wrong("cannot use this address", "it holds a password: ssh uses your keys and agent")
    if (at and not _USER.fullmatch(user)) or not _HOST.fullmatch(host):  # `-oProxyCommand=...` is an option of ssh
        raise _wrong(f"cannot use the address {url!r}", "its user or host has characters that ssh must not get")
    return Address(host, user, port, socket)


def _host_and_port(url: str, text: str) -> tuple[str, int | None]:
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        port = "" if closed and not rest else rest[1:] if rest.startswith(":") and rest[1:] else "?"
    else:
        host, _, port = text.partition(":")
        if text.endswith(":"):
            port = "?"
    if not port:
        return host, None
    if not (port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65536):
        raise _wrong(f"cannot use the address {url!r}", "its port is no number from 1 to 65535 (IPv6 hosts are in [])")
    return host, int(port)


def _socket(url: str, path: str) -> str:
    if len(path.encode("utf-8", "surrogateescape")) > SOCKET_PATH_LIMIT or not path.isprintable():
        raise _wrong(f"cannot use the address {url!r}", f"a Unix socket takes {SOCKET_PATH_LIMIT} printable bytes")
    return path


def ssh_words(address: Address, clisup: str) -> list[str]:
    """Return the command line that connects stdin and stdout to the daemon of the box.

    The far side finds its own socket, and needs no permission for forwarding. The log level hides banners.
    """
    words = [
        "ssh",
        "-T",
        "-o",
        "BatchMode=yes",
        "-o",
        "LogLevel=ERROR",
        "-o",
        f"ConnectTimeout={CONNECT_S}",
        "-o",
        "ServerAliveInterval=15",
    ]
    words += ["-p", str(address.port)] if address.port else []
    words += ["-l", address.user] if address.user else []
    named = ["env", f"CLISUP_SOCKET={address.socket}"] if address.socket else []
    return [*words, "--", address.host, shlex.join([*named, clisup, "socket", "--stdio"])]


def said(text: bytes) -> str:
    """Return the first lines of ssh's stderr as one line without control characters."""
    lines = [line.strip() for line in text.decode("utf-8", "replace").splitlines()]
    shown = [line[:SAID_CHARS] for line in lines if line.strip("@ ")][:SAID_LINES]  # ssh frames a warning with @
    return "; ".join("".join(c if c.isprintable() else "?" for c in line) for line in shown)


def _wrong(what: str, why: str) -> UsageError:
    return UsageError(f"{what}, because {why}", kind="usage", hint=f"clisup fleet add NAME {_FORMS}")
