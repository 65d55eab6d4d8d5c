"""Log events of the daemon, and the cleaning of their records. Pure.

Tests compare docs/reference/observe.md and the calls with this table. A line is a state change, never a token. `info` is for
operators; `debug` is for developers of clisup; `warning` will need attention; `error` means that something is broken.

The text of an exception may hold anything: a prompt that did not parse, a model's output, a value. So the log shows its
class and its place. Its text is logged only for clisup's own errors, for the system's text of an errno, and at level
debug.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple

from clisup.errors import ClisupError
from clisup.model.structs import JsonObject

COMMON_FIELDS = ("session", "turn", "run", "backend")
"""Fields that name the subject of a line. They are the same in each line, so that `journalctl CLISUP_SESSION=...` finds
all lines."""


class LogEvent(NamedTuple):
    """Kind of log line. `limited` marks events that others can cause in floods; the log drops those above a limit."""

    levels: tuple[str, ...]
    fields: tuple[str, ...]
    says: str
    limited: bool = False


def _event(levels: str, fields: str, says: str, *, limited: bool = False) -> LogEvent:
    return LogEvent(tuple(levels.split()), tuple(fields.split()), says, limited)


# fmt: off
LOG_EVENTS: dict[str, LogEvent] = {
    # the daemon
    "ready": _event("info", "version pid instance socket state_dir sessions adopted", "the daemon serves clients"),
    "stopping": _event("info", "mode why", "the daemon was told to stop, or to restart in place"),
    "configuration reloaded": _event("info", "file changed needs_stop_and_start", "the changed keys are named, and apart from them the keys that need a stop and a start"),
    "trust changed": _event("warning", "file changed", "a reload changed these keys, which decide what a CLI may do or gets; a model's tool can write your configuration file, too"),
    "configuration not reloaded": _event("error", "file kind error", "a SIGHUP changed nothing"),
    "reload failed inside the daemon": _event("error", "exception", "an internal error; nothing has changed"),
    "stopped": _event("info", "uptime_s restarts", "the daemon is about to exit, or to execute itself again"),
    "task ended inside the daemon": _event("error", "task", "a task that must not end has ended: the daemon stops its reports to systemd's watchdog"),
    "daemon failed": _event("error", "exception", "an internal error ends the daemon"),
    "lock taken again": _event("warning", "why state_dir", "another process removed the lock file of the state directory"),
    "machine resumed": _event("warning", "suspended_s", "the machine was suspended: silent turns get a new window"),
    "log lines dropped": _event("warning", "count", "this number of lines was lost before this line, because no reader took them"),
    # clients
    "client connected": _event("debug", "uid pid", "a client may send requests", limited=True),
    "client gone": _event("debug", "uid pid client", "the client's connection has ended", limited=True),
    "client refused": _event("warning", "uid pid reason since_last", "a process may not connect, or too many do"),
    "cannot accept": _event("error", "error", "no descriptor or memory is left for another client", limited=True),
    "request refused": _event("debug", "method kind client", "a client got an error as its answer", limited=True),
    "half-closed client not watched": _event("warning", "error", "no descriptor is left to watch the client", limited=True),
    "subscription failed": _event("error", "session kind error", "a journal cannot be read", limited=True),
    "request failed inside the daemon": _event("error", "method exception", "an internal error; the client got `internal`", limited=True),
    "connection failed inside the daemon": _event("error", "uid pid exception", "an internal error: the daemon closes the connection", limited=True),
    # sessions
    "session opened": _event("info", "session backend mode", "a new session exists"),
    "session forked": _event("info", "session backend source at_turn uid pid client", "a new session has the history of another one"),
    "session seeded": _event("info", "session backend messages uid pid client", "a history was written for the session"),
    "session closed": _event("info", "session backend", "the session takes no prompt any more; its secrets are removed"),
    "session deleted": _event("info", "session", "the session's record was removed, by a client or by retention"),
    "worktree made": _event("info", "session path branch", "a session got a git worktree of its own"),
    "worktree landed": _event("info", "session branch commits", "a branch was moved forward to the session's commit"),
    "worktree discarded": _event("info", "session branch commit", "a client had the worktree removed; the commit has its work"),
    "worktree removed": _event("info", "path branch", "no session used the worktree, and everything in it had landed"),
    "worktree kept": _event("info", "path reasons", "the worktree stays, because work or a fault is in it"),
    "session not loaded": _event("error", "session error ended_runs exception", "the session's files cannot be read; they stay as they are"),
    "session backs off": _event("error", "session backend error failures", "the session's CLI failed to start several times"),
    # turns
    "prompt accepted": _event("debug", "session turn backend delivery uid pid client", "a prompt is durable"),
    "turn started": _event("info", "session turn run backend origin uid pid client", "the turn's start is journaled"),
    "turn adopted": _event("info", "session turn run backend", "a turn that a previous daemon had started goes on"),
    "turn held": _event("info", "session turn backend", "the turn waits for the end of its account's rate limit"),
    "turn ended": _event("info warning", "session turn run backend outcome kind delivery stop_reason duration_s input_tokens output_tokens cost_usd", "the single end of the turn; a warning if it failed or timed out"),
    "turn failed inside the daemon": _event("error", "session backend exception", "an internal error ended the turn"),
    "turn not ended inside the daemon": _event("error", "session exception again_in_s", "an internal error at the end of a turn: the daemon tries again"),
    "tool called": _event("debug", "session tool call", "a CLI calls a tool of its session's client"),
    "tool call ended": _event("info", "session tool call reason", "no client answered: the call's time was over, or the CLI gave the call up"),
    "turn waits for the disk": _event("error", "session run error", "the disk refuses writes: timers stand still until it accepts them again"),
    # processes
    "keeper started": _event("debug", "session turn run backend keeper pid", "the process that owns the CLI's pipes"),
    "keeper zygote started": _event("debug", "pid", "the process that forks keepers is ready"),
    "keeper zygote lost": _event("warning", "error again_in_s", "keepers are started one by one until there is another zygote; no turn is lost"),
    "keeper not forked": _event("warning", "session turn run backend error", "the zygote's fork failed: this keeper is started directly", limited=True),
    "process started": _event("info", "session turn run backend pid attested", "the CLI runs; `attested` tells whether its environment is as it should be"),
    "process exited": _event("info warning", "session turn run backend exit_code signal ended_by survivors duration_s", "the CLI has exited; a warning if its end was not requested"),
    "process restarted": _event("info", "session turn run backend", "the next turn needs a live process with other settings"),
    "run replaced": _event("warning", "session turn run backend", "the turn goes on with another process"),
    "session corrected": _event("info", "session turn run backend", "the CLI unexpectedly had, or had not, a transcript of the session: the prompt is sent again"),
    "prompt not taken": _event("info", "session turn run backend", "the live process exited before it took the prompt: another process gets it"),
    "live process failed inside the daemon": _event("error", "session backend exception", "an internal error ended the live process"),
    "live process not ended inside the daemon": _event("error", "session backend exception", "an internal error, and the live process could not be ended"),
    "keeper hung": _event("error", "session run", "the keeper did not report an end in time: its tree is killed"),
    "homeless run ended": _event("warning", "session run", "the daemon stops, and the session's backend is not configured"),
    "leftover ended": _event("warning", "session run pid comm", "a process that a dead keeper left behind is ended at the start"),
    "stale lock removed": _event("info", "path", "no process can hold this lock of a CLI any more"),
    "foreign writes": _event("warning", "session turn backend", "another process wrote to the CLI's transcript"),
    "look for other writers given up": _event("warning", "native after_s", "a file system hangs: the turn goes on without the check", limited=True),
    # the watchdog
    "watchdog warned": _event("warning", "session turn run backend phase idle_s limit_s", "four fifths of a limit are over"),
    "watchdog fired": _event("warning", "session turn run backend phase idle_s limit_s", "the turn is ended because of its silence"),
    "watchdog credited": _event("debug", "session turn run backend phase idle_s limit_s", "a new window was granted"),
    # approvals
    "approval asked": _event("info", "session turn run backend approval", "the CLI waits for an answer about a tool call"),
    "approval decided": _event("info", "session turn run backend approval decision by uid pid client", "the CLI has the answer: who gave it, and which"),
    "approval rule not sayable": _event("warning", "session kind", "a rule allows a call that this CLI cannot be told to allow: the call is denied"),
    "approval paths not followed": _event("warning", "session error", "a link or a slow disk: the call is denied"),
    # metrics and traces
    "turn not traced": _event("error", "session exception", "the turn's journal makes no spans", limited=True),
    "no traces": _event("error", "error", "tracing cannot start; turns go on"),
    "spans not taken": _event("warning", "endpoint", "the collector does not answer: these spans are dropped, and counted"),
    "spans taken again": _event("info", "endpoint", "the collector answers again"),
    # messages
    "messages fail": _event("warning", "notify target error", "a command or an address of [[notify]] does not take messages: they wait"),
    "messages delivered again": _event("info", "notify", "the command or the address takes messages again"),
    "message given up": _event("warning", "session turn notify type tries error", "a message of [[notify]] was not delivered, and is not tried again", limited=True),
    "message not made": _event("error", "session notify exception", "the session's journal makes no messages", limited=True),
    "no messages": _event("error", "notify error", "a table of [[notify]] cannot keep its cursor; turns go on"),
    # accounts, storage, retention, drift
    "account limit": _event("warning", "account state until", "a rate limit begins to hold turns, or ends"),
    "account limits not read": _event("warning", "error", "the known rate limits are lost"),
    "storage trouble": _event("error", "state error", "the state directory refuses writes"),
    "storage works again": _event("warning", "refused", "the state directory accepts writes again"),
    "journal renewed": _event("warning", "session backend", "a sync failed; the state is written again"),
    "retention removed": _event("info", "parts sessions bytes", "data over the age or size limit was removed"),
    "idle sessions closed": _event("info", "sessions limit_s", "sessions had no event for `retention.idle_close`"),
    "look for sessions of a CLI given up": _event("warning", "backend after_s", "a file system is slow; the list lacks this backend"),
    "cleared": _event("info", "sessions failed", "the data that a client asked to remove is gone"),
    "retention failed": _event("error", "error", "the data could not be removed; the next pass tries again", limited=True),
    "drift": _event("warning", "kind version frames fields", "a CLI sends frames or fields that this clisup does not know"),
    "drift not stored": _event("warning", "error", "the disk refused the count", limited=True),
    "notice": _event("debug", "session turn run backend code", "another notice of the daemon in the journal"),
}
# fmt: on

MESSAGE_IDS: dict[str, str] = {
    "ready": "8aa02b85d9f5430d99e587a45916f76f",
    "stopping": "57e239c3dba14e23a83962e9af140413",
    "daemon failed": "c237dd8a77e345f88605adad8273cd2c",
    "client refused": "1cf3bfd6e8194769899594a4cb828e42",
    "session not loaded": "3ca044abfc8c416e8a686246543ae113",
    "turn ended": "b4886865e7d442b1b405dd16fb5c797e",
    "watchdog fired": "00ffd288bc2b4261ba035fef50617c18",
    "storage trouble": "e9f5edf42005436786b55cb5ee1c45b7",
}
"""Message ids for searches and alarms: `journalctl MESSAGE_ID=...`. They never change."""


MAX_FIELD = 4096
"""Limit of a field's text, in characters."""
MAX_TRACEBACK = 16_384
"""Limit of a traceback, in characters. Its end is kept."""
MAX_FRAMES = 30
"""Limit of frames of one exception. The innermost frames are kept."""
MAX_CHAIN = 8
_MAX_ITEMS = 50
_MAX_DEPTH = 3
_CAUSE = "\nwhich was the cause of:\n"

Redact = Callable[[str], str]


def cleaned(record: Mapping[str, Any], redact: Redact) -> JsonObject:
    """Return the record with every text redacted and cut, also in nested lists and mappings.

    None fields are left out.
    """
    found = {name: _cleaned(name, value, redact, 0) for name, value in record.items() if value is not None}
    return {redact(str(name)): value for name, value in found.items()}


def _cleaned(name: str, value: Any, redact: Redact, depth: int) -> Any:
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        return _members(value, redact, depth + 1) if depth < _MAX_DEPTH else "…"
    text = redact(str(value))  # redacted before it is cut, or half a secret would stay at the end
    if name == "exception":
        return text[-MAX_TRACEBACK:]
    return text if len(text) <= MAX_FIELD else text[: MAX_FIELD - 1] + "…"


def _members(value: Any, redact: Redact, depth: int) -> Any:
    if isinstance(value, Mapping):
        items = list(value.items())[:_MAX_ITEMS]
        return {redact(str(key)[:MAX_FIELD]): _cleaned("", item, redact, depth) for key, item in items}
    members = sorted(value, key=str) if isinstance(value, set | frozenset) else value
    return [_cleaned("", item, redact, depth) for item in members[:_MAX_ITEMS]]


def traceback_text(error: BaseException, *, texts: bool = False) -> str:
    """Return the place of an exception, with its causes and the members of a group.

    With `texts`, include their texts.
    """
    return _CAUSE.join("\n".join(_one(each, texts, 0)) for each in reversed(list(_chain(error))))


def _chain(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    for _ in range(MAX_CHAIN):
        if current is None:
            return
        yield current
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


def _one(error: BaseException, texts: bool, depth: int) -> Iterator[str]:
    if error.__traceback__ is not None:
        yield "Traceback (most recent call last):"
        yield from _frames(error.__traceback__)
    name = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    said = str(error) if texts else _harmless(error)
    yield f"{name}: {said}" if said else name
    if isinstance(error, BaseExceptionGroup) and depth < MAX_CHAIN:
        for member in error.exceptions[:_MAX_ITEMS]:
            yield from (f"  | {line}" for line in _one(member, texts, depth + 1))


def _frames(trace: TracebackType) -> Iterator[str]:
    for frame in traceback.extract_tb(trace)[-MAX_FRAMES:]:
        yield f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}'
        if frame.line:
            yield f"    {frame.line}"


def _harmless(error: BaseException) -> str:
    """Return the safe part of an exception's text: clisup's own message, or the system's for an errno.

    The result never holds a file's name or a value.
    """
    if isinstance(error, ClisupError):
        return error.message
    if isinstance(error, OSError) and error.errno is not None:
        return f"[Errno {error.errno}] {error.strerror}"
    return ""


BURST = 20
"""Lines of one limited event that may come at once."""
RATE = 1.0
"""Lines of one limited event a second, after the burst."""


class LogRate:
    """Buckets of all limited events. `held` counts all held lines, by event."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[float, float]] = {}
        self._since: Counter[str] = Counter()
        self.held: Counter[str] = Counter()

    def take(self, event: str, now: float) -> int | None:
        """Return None if the event must not be logged.

        Otherwise return the number of lines held since the last logged one.
        """
        left, at = self._left.get(event, (float(BURST), now))
        left = min(float(BURST), left + (now - at) * RATE)
        if left < 1:
            self._left[event] = (left, now)
            self._since[event] += 1
            self.held[event] += 1
            return None
        self._left[event] = (left - 1, now)
        return self._since.pop(event, 0)
