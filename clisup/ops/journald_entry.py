"""Entry of journald's native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL, systemd.journal-fields(7)), from a log
record.

Pure. An entry is a row of `NAME=value` lines. A value with a line end has another form: the name alone on its line, the
length as 64 bits little-endian, the bytes, a line end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from clisup.ops.log_events import MESSAGE_IDS

__all__ = ["IDENTIFIER", "PRIORITIES", "encode_entry", "entry_of"]

IDENTIFIER = "clisup"
PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
"""Priorities as in syslog(3)."""
_PREFIX = "CLISUP_"
_MAX_NAME = 64
_OWN = ("event", "level", "timestamp", "code_file", "code_line", "code_func")
_UNFIT = re.compile(r"[^A-Z0-9_]")


def entry_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of an entry: MESSAGE for people, PRIORITY, and each field of the record as CLISUP_<NAME>.

    journald adds the time itself. `MESSAGE_IDS` lists the events with a MESSAGE_ID.
    """
    event, level = str(record.get("event", "")), str(record.get("level", "info"))
    fields = {name: value for name, value in record.items() if name not in _OWN and value is not None}
    return {
        "MESSAGE": _message(event, fields),
        "PRIORITY": str(PRIORITIES.get(level, 6)),
        "SYSLOG_IDENTIFIER": IDENTIFIER,
        **({"MESSAGE_ID": MESSAGE_IDS[event]} if event in MESSAGE_IDS else {}),
        **{name.upper(): str(record[name]) for name in ("code_file", "code_line", "code_func") if name in record},
        "CLISUP_EVENT": event,
        **{_name(name): _text(value) for name, value in fields.items()},
    }


def encode_entry(fields: Mapping[str, str]) -> bytes:
    """Return the bytes of an entry, for a datagram or a memory file."""
    parts = []
    for name, value in fields.items():
        data = value.encode("utf-8", "replace")
        if b"\n" in data:
            parts.append(name.encode() + b"\n" + len(data).to_bytes(8, "little") + data + b"\n")
        else:
            parts.append(name.encode() + b"=" + data + b"\n")
    return b"".join(parts)


def _message(event: str, fields: Mapping[str, Any]) -> str:
    """Return the text of plain `journalctl`: the event, then its fields. A traceback stands on lines of its own."""
    words = [event, *(f"{name}={_word(value)}" for name, value in fields.items() if name != "exception")]
    trace = fields.get("exception")
    return " ".join(words) + (f"\n{trace}" if trace else "")


def _word(value: Any) -> str:
    text = _text(value)
    return json.dumps(text, ensure_ascii=False) if not text or any(c.isspace() or c in '"=' for c in text) else text


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _name(name: str) -> str:
    """Return a valid field name. journald silently drops fields with a name of another form."""
    return (_PREFIX + _UNFIT.sub("_", name.upper()))[:_MAX_NAME]
