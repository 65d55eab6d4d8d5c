"""Logging to the journal or to stderr, one line for each change of state. Lines are redacted and bounded.

`configure_logging` sets the log up once in a process. `LOG.recent` keeps the last lines in memory for `daemon/log` and
`clisup debug bundle`. A reader that takes no lines blocks nobody: such lines are counted and reported later.
"""

from __future__ import annotations

import json
import logging
import os
import select
import stat
import sys
from collections import deque
from collections.abc import Callable, Collection, Mapping, MutableMapping
from functools import partial
from typing import Any, Literal, Protocol

from clisup.errors import ConfigurationError
from clisup.host import clock
from clisup.host.log_file import LogFile
from clisup.host.systemd.journal import JOURNAL_SOCKET, JournalSocket, encode_entry, entry_of, is_journal_stream
from clisup.model.structs import JsonObject
from clisup.ops.log_events import LOG_EVENTS, LogRate, cleaned, traceback_text
from clisup.policy.secrets.plain_text import plain
from clisup.policy.secrets.redact import Redactor, redacted

LINE_PAUSE_S = 0.1
"""Total seconds that a half-written line may wait for its reader. The rest of the line is then dropped."""
_PIECE = 4096  # PIPE_BUF: bytes that a ready pipe takes without waiting

Record = Mapping[str, Any]


class Sender(Protocol):
    """Receiver of rendered lines. `send` may neither wait nor raise, and returns False if it did not take the line."""

    def send(self, line: bytes) -> bool:
        """Send a line, and return whether it was taken."""
        ...


class StderrSender:
    """Writer of lines on stderr.

    A descriptor shared with others cannot be made non-blocking for us alone, so the writer polls it before each piece.
    """

    def __init__(self, fd: int = 2) -> None:
        self._fd = _of_our_own(fd)
        self._torn = False
        self._ready = select.poll()
        self._ready.register(self._fd, select.POLLOUT)

    def send(self, line: bytes) -> bool:
        """Write a line, and return whether all of it was written.

        After a torn line the next starts on a line of its own.
        """
        view = memoryview((b"\n" if self._torn else b"") + line + b"\n")
        began: float | None = None
        try:
            while view:
                left = 0.0 if began is None else max(0.0, began + LINE_PAUSE_S - clock.monotonic())
                if not any(mask & select.POLLOUT for _, mask in self._ready.poll(left * 1000)):
                    return False
                view = view[os.write(self._fd, view[:_PIECE]) :]
                began, self._torn = clock.monotonic() if began is None else began, True
        except OSError:  # its reader is gone (`clisup serve 2>&1 | head`), or the disk of its file is full
            return False
        self._torn = False
        return True


def _of_our_own(fd: int) -> int:
    """Return the same terminal or pipe, opened again so that only we do not wait for it; else `fd` itself.

    A terminal whose other end does not read counts as ready while it has room for one byte. It then waits with the rest
    of the line: forever, if an ssh connection hangs (Linux 6.x, measured with a pty).
    """
    try:
        if os.isatty(fd) or stat.S_ISFIFO(os.fstat(fd).st_mode):
            return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        pass
    return fd


class LogOutput:
    """Output of records, to a sender that may refuse some."""

    def __init__(self, sender: Sender, render: Callable[[Record], bytes]) -> None:
        self._sender = sender
        self._render = render
        self.dropped = 0
        self._untold = 0

    def msg(self, record: Record) -> None:
        """Send the record, preceded by the number of lines lost before it."""
        if self._untold:
            lost = {"event": "log lines dropped", "count": self._untold, "level": "warning"}
            if not self._sender.send(self._render({**lost, "timestamp": record.get("timestamp", "")})):
                self._lost()
                return
            self._untold = 0
        if not self._sender.send(self._render(record)):
            self._lost()

    def _lost(self) -> None:
        self.dropped += 1
        self._untold += 1


LogForm = Literal["auto", "console", "json", "journald"]
MAX_LINES = 1000
MAX_LINES_BYTES = 1024 * 1024
"""Limits of the lines kept in memory: their number, and their bytes."""
_STDERR = 2
_LEVELS = logging.getLevelNamesMapping()
_LOGGER = logging.getLogger(__name__)
_COLOURS = {"debug": 36, "info": 32, "warning": 33, "error": 31}
"""Colours of the levels on a terminal (ECMA-48)."""


class EventLogger(logging.LoggerAdapter[logging.Logger]):
    """Logger of events. The keyword arguments of a call are the fields of the line."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        error = kwargs.pop("exc_info", None)
        return msg, {"exc_info": error, "extra": {"fields": kwargs}}


def event_logger() -> EventLogger:
    """Return the logger of this process's events. `configure_logging` says where the lines go."""
    return EventLogger(_LOGGER)


class Log:
    """State of a process's log: secrets to hide, the last lines, the count of held-back lines, and the level."""

    def __init__(self) -> None:
        self._secrets: dict[str, Redactor] = {}
        self._brought: dict[str, Redactor] = {}
        self._lines: deque[bytes] = deque(maxlen=MAX_LINES)
        self._size = 0
        self.rate = LogRate()
        self.level = logging.INFO
        self.outlet: LogOutput | None = None
        self.file: LogFile | None = None
        self.form: LogForm = "auto"

    # -- secrets

    def hide(self, owner: str, secrets: Redactor) -> None:
        """Hide these values of the configuration or of the daemon in all further lines.

        A former secret stays hidden.
        """
        before = self._secrets.get(owner)
        self._secrets[owner] = secrets if before is None or before is secrets else before.also(secrets)

    def hide_brought(self, session: str, values: Collection[str]) -> None:
        """Hide the values that a client brought for its session, as `hide` does."""
        if values:
            self._brought[session] = Redactor(values)

    def forget_brought(self, session: str) -> None:
        """Stop hiding the values of a closed session: no further line can hold them."""
        self._brought.pop(session, None)

    def redact(self, text: str) -> str:
        """Return the text without known secrets, and without text that has the shape of a secret."""
        return redacted(text, (*self._secrets.values(), *self._brought.values()))

    def _redact_of(self, session: str) -> Callable[[str], str]:
        """Return the redaction for a line about one session.

        Such a line cannot hold the secrets of a thousand other sessions, and the search for them takes time.
        """
        brought = self._brought.get(session)
        return partial(redacted, redactors=(*self._secrets.values(), *([brought] if brought else [])))

    # -- the last lines

    def keep(self, line: bytes) -> None:
        """Keep one more line, and drop the oldest lines above the limits."""
        if len(self._lines) == MAX_LINES:
            self._size -= len(self._lines[0])
        self._lines.append(line)
        self._size += len(line)
        while self._size > MAX_LINES_BYTES and len(self._lines) > 1:
            self._size -= len(self._lines.popleft())

    def recent(self, limit: int = MAX_LINES) -> list[JsonObject]:
        """Return the last lines, oldest first, as parsed from JSON."""
        return [json.loads(line) for line in list(self._lines)[-limit:]]

    @property
    def path(self) -> str | None:
        """Return the log file, or None if the lines go elsewhere."""
        return None if self.file is None else self.file.path

    def leave_caller(self) -> None:
        """Write nothing more to the stderr of the caller that started this daemon, if there is a log file."""
        if self.file is not None:
            self.file.take_stderr()

    def set_level(self, level: str) -> None:
        """Log lines of this level and above from now on."""
        self.level = _LEVELS[level.upper()]
        _LOGGER.setLevel(self.level)

    def set_file_limit(self, limit: int) -> None:
        """Limit the log file to this size from now on, if there is one."""
        if self.file is not None:
            self.file.limit = limit

    # -- a line

    def write(self, said: logging.LogRecord) -> None:
        """Write a line, unless the rate limit of its event holds it back."""
        event, fields = str(said.msg), dict(getattr(said, "fields", {}))
        if event in LOG_EVENTS and LOG_EVENTS[event].limited:
            if (held := self.rate.take(event, clock.monotonic())) is None:
                return
            fields["held_back"] = held or None
        if said.exc_info and (error := said.exc_info[1]) is not None:  # its text appears only at level debug
            fields["exception"] = traceback_text(error, texts=self.level <= logging.DEBUG)
        if self.form == "journald":
            fields |= {"code_file": said.pathname, "code_line": said.lineno, "code_func": said.funcName}
        line = {"timestamp": clock.timestamp(), "level": said.levelname.lower(), "event": event, **fields}
        session = line.get("session")
        whole = session is None or "exception" in line
        record = cleaned(line, self.redact if whole else self._redact_of(str(session)))
        self.keep(_as_json(record))
        if self.outlet is not None:
            self.outlet.msg(record)


LOG = Log()
"""Log of this process."""


def configure_logging(
    level: str, form: LogForm = "auto", env: Mapping[str, str] | None = None, file: LogFile | None = None
) -> None:
    """Say where the lines of this process go.

    `auto` means the journal's own protocol if stderr goes to the journal, console text on a terminal, and JSON
    otherwise. `env` is the environment that the daemon was started with. With `file`, JSON goes to that file. Raises
    `ConfigurationError` if there is no journal to log to.
    """
    LOG.file = file
    chosen = "json" if file else _chosen(form, env or {})
    LOG.set_level(level)
    LOG.form = chosen
    LOG.outlet = LogOutput(LOG.file, _as_json) if LOG.file else _outlet(chosen, env or {})
    _LOGGER.handlers, _LOGGER.propagate = [_Handler()], False


class _Handler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        LOG.write(record)


def _chosen(form: LogForm, env: Mapping[str, str]) -> LogForm:
    there = os.path.exists(JOURNAL_SOCKET)
    if form == "journald" and not there:
        raise ConfigurationError(
            f"cannot log to the journal, because there is no {JOURNAL_SOCKET}",
            hint="clisup serve --log-format json, or auto",
        )
    if form != "auto":
        return form
    if there and is_journal_stream(env, _STDERR):
        return "journald"
    return "console" if sys.stderr.isatty() else "json"


def _outlet(form: LogForm, env: Mapping[str, str]) -> LogOutput:
    if form == "journald":
        return LogOutput(JournalSocket(), lambda record: encode_entry(entry_of(record)))
    if form == "console":
        return LogOutput(StderrSender(), partial(_as_text, coloured=_coloured(env)))
    return LogOutput(StderrSender(), _as_json)


def _coloured(env: Mapping[str, str]) -> bool:
    """Tell whether to use colours, by the rule of the commands: a terminal that is not dumb, and no NO_COLOR."""
    return sys.stderr.isatty() and not env.get("NO_COLOR") and env.get("TERM") != "dumb"


def _plain(record: Record) -> JsonObject:
    """Return the record without control sequences of terminals; only a traceback has several lines."""
    return {name: plain(value) if name == "exception" else _one_line(value) for name, value in record.items()}


def _one_line(value: Any) -> Any:
    if isinstance(value, bool | int | float):
        return value
    return plain(str(value)).replace("\n", " ").replace("\t", " ")


def _as_json(record: Record) -> bytes:
    return json.dumps(record, default=str).encode()


def _as_text(record: Record, *, coloured: bool) -> bytes:
    """Return the line for people on a terminal."""
    level = str(record["level"])
    shown = f"\033[{_COLOURS.get(level, 0)}m{level:<7}\033[0m" if coloured else f"{level:<7}"
    return f"{record['timestamp']} {shown} {entry_of(_plain(record))['MESSAGE']}".encode("utf-8", "replace")
