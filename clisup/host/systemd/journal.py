"""systemd's journal: entries of its native protocol, the socket that takes them, and the daemon's last lines.

The protocol is systemd.io/JOURNAL_NATIVE_PROTOCOL; the names of fields are in systemd.journal-fields(7). An entry is a
row of `NAME=value` lines. A value with a line end has another form: the name alone on its line, the length as 64 bits
little-endian, the bytes, a line end.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping
from typing import Any

from clisup.ops.log_events import MESSAGE_IDS

IDENTIFIER = "clisup"
PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
"""Priorities as in syslog(3)."""
JOURNAL_SOCKET = "/run/systemd/journal/socket"
MAX_ENTRY = 128 * 1024
"""Limit of an entry in bytes: it fits into a datagram of the kernel's default size (net.core.wmem_default)."""
MAX_VALUE = 32 * 1024
ASK_LIMIT_S = 10.0
_SEND_BUFFER = 8 * 1024 * 1024  # as libsystemd requests; the kernel grants what net.core.wmem_max allows
_MAX_NAME = 64
_OWN = ("event", "level", "timestamp", "code_file", "code_line", "code_func")
_UNFIT = re.compile(r"[^A-Z0-9_]")
_PASSED = ("PATH", "HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")


def entry_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of an entry: MESSAGE for people, PRIORITY, and each field of the record as CLISUP_<NAME>.

    journald adds the time itself. `MESSAGE_IDS` lists the events with a MESSAGE_ID.
    """
    event, level = str(record.get("event", "")), str(record.get("level", "info"))
    fields = {name: _text(value) for name, value in record.items() if name not in _OWN and value is not None}
    words = [event, *(f"{name}={_word(text)}" for name, text in fields.items() if name != "exception")]
    trace = f"\n{fields['exception']}" if fields.get("exception") else ""
    return {
        "MESSAGE": " ".join(words) + trace,
        "PRIORITY": str(PRIORITIES.get(level, 6)),
        "SYSLOG_IDENTIFIER": IDENTIFIER,
        **({"MESSAGE_ID": MESSAGE_IDS[event]} if event in MESSAGE_IDS else {}),
        **{name.upper(): str(record[name]) for name in ("code_file", "code_line", "code_func") if name in record},
        "CLISUP_EVENT": event,
        # journald silently drops fields with a name of another form
        **{("CLISUP_" + _UNFIT.sub("_", name.upper()))[:_MAX_NAME]: text for name, text in fields.items()},
    }


def encode_entry(fields: Mapping[str, str]) -> bytes:
    """Return the bytes of an entry, at most `MAX_ENTRY`: long values are cut, and the last fields left out."""
    parts: list[bytes] = []
    size = 0
    for name, value in fields.items():
        data = value.encode("utf-8", "replace")[:MAX_VALUE]
        if b"\n" in data:
            parts.append(name.encode() + b"\n" + len(data).to_bytes(8, "little") + data + b"\n")
        else:
            parts.append(name.encode() + b"=" + data + b"\n")
        size += len(parts[-1])
        if size > MAX_ENTRY:
            return b"".join(parts[:-1])
    return b"".join(parts)


def _word(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if not text or any(c.isspace() or c in '"=' for c in text) else text


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


class JournalSocket:
    """Sender of entries. The journal may go away or come back at any time: each entry is addressed separately."""

    def __init__(self, path: str = JOURNAL_SOCKET) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)

    def send(self, entry: bytes) -> bool:
        """Send an entry, and return False if the journal is missing or its socket is full. Never waits, never raises."""
        try:
            self._socket.sendto(entry, self._path)
        except OSError:
            return False
        return True

    def close(self) -> None:
        self._socket.close()


def is_journal_stream(env: Mapping[str, str], fd: int) -> bool:
    """Tell whether this descriptor goes to the journal.

    `$JOURNAL_STREAM` has its device and inode (systemd.exec(5)).
    """
    try:
        there = os.fstat(fd)
    except OSError:
        return False
    return env.get("JOURNAL_STREAM") == f"{there.st_dev}:{there.st_ino}"


def journal_tail(env: Mapping[str, str]) -> str:
    """Return up to 500 lines, oldest first, of all daemons whose lines this user may read, or "" without a journal."""
    journalctl = shutil.which("journalctl", path=env.get("PATH", os.defpath))
    if journalctl is None:
        return ""
    match = f"SYSLOG_IDENTIFIER={IDENTIFIER}"
    words = [journalctl, "--merge", "--no-pager", "--quiet", "--lines=500", "--output=short-iso-precise", match]
    passed = {name: env[name] for name in _PASSED if name in env} | {"LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(
            words, env=passed, stdin=subprocess.DEVNULL, capture_output=True, timeout=ASK_LIMIT_S, check=False, cwd="/"
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace")
