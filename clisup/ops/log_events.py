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
    "stopping": _event("info", "mode why", "a stop or a restart in place begins"),
    "configuration reloaded": _event("info", "file changed needs_stop_and_start", "a reload changed these keys; some need a stop and a start"),
    "trust changed": _event("warning", "file changed", "these changed keys decide what a CLI may do or gets"),
    "configuration not reloaded": _event("error", "file kind error", "a SIGHUP changed nothing"),
    "reload failed inside the daemon": _event("error", "exception", "an internal error; nothing has changed"),
    "stopped": _event("info", "uptime_s restarts", "the daemon exits, or executes itself again"),
    "task overloaded": _event("error", "task error", "a permanent task failed for want of a resource, and begins again"),
    "task ended inside the daemon": _event("error", "task", "a permanent task has ended: systemd's watchdog gets no more reports"),
    "daemon failed": _event("error", "exception", "an internal error ends the daemon"),
    "lock taken again": _event("warning", "why state_dir", "another process removed the state directory's lock file"),
    "machine resumed": _event("warning", "suspended_s", "the machine was suspended: silent turns get a new window"),
    "log lines dropped": _event("warning", "count", "lines before this one were lost, because no reader took them"),
    # clients
    "client connected": _event("debug", "uid pid", "a client may send requests", limited=True),
    "client gone": _event("debug", "uid pid client", "a connection has ended", limited=True),
    "client refused": _event("warning", "uid pid reason since_last", "a process may not connect, or too many do"),
    "cannot accept": _event("error", "error", "no descriptor or memory for another client", limited=True),
    "request refused": _event("debug", "method kind client", "a client got an error", limited=True),
    "half-closed client not watched": _event("warning", "error", "no descriptor to watch the client", limited=True),
    "subscription failed": _event("error", "session kind error", "a journal cannot be read", limited=True),
    "request failed inside the daemon": _event("error", "method exception", "an internal error; the client got `internal`", limited=True),
    "connection failed inside the daemon": _event("error", "uid pid exception", "an internal error closes the connection", limited=True),
    # sessions
    "session opened": _event("info", "session backend mode", "a new session"),
    "session forked": _event("info", "session backend source at_turn uid pid client", "a new session with the history of another"),
    "session seeded": _event("info", "session backend messages uid pid client", "a history was written for the session"),
    "session closed": _event("info", "session backend", "no more prompts; its secrets are removed"),
    "session deleted": _event("info", "session", "a client or retention removed the session"),
    "worktree made": _event("info", "session path branch", "a new git worktree"),
    "worktree landed": _event("info", "session branch commits", "a branch was moved forward to the session's commit"),
    "worktree discarded": _event("info", "session branch commit", "a client removed it; the commit has its work"),
    "worktree removed": _event("info", "path branch", "no session used it, and everything in it had landed"),
    "worktree kept": _event("info", "path reasons", "work or a fault is in it"),
    "file ignored": _event("warning", "path why", "damaged or forged: the daemon goes on as if the file were missing", limited=True),
    "worktree record ignored": _event("warning", "file", "clisup would not have written it; it stays for you to look at"),
    "helper ended": _event("debug", "program purpose guard exit_code took_s", "a program that the daemon started, such as git"),
    "helper killed": _event("info", "program purpose guard exit_code took_s survivors left", "at a limit, with its request, or for what it had left"),
    "helper guard lost": _event("warning", "guard", "somebody killed or stopped it; the daemon ends the orphans"),
    "old prompt kept": _event("warning", "session path error", "a prompt of a finished turn cannot be removed"),
    "signal ignored": _event("warning", "signal", "a signal that means nothing to the daemon"),
    "session not loaded": _event("error", "session error ended_runs exception", "its files cannot be read; they stay"),
    "session backs off": _event("error", "session backend error failures", "its CLI failed to start several times"),
    # turns
    "prompt accepted": _event("debug", "session turn backend delivery uid pid client", "a prompt is durable"),
    "turn started": _event("info", "session turn run backend origin uid pid client", "the start is journaled"),
    "turn adopted": _event("info", "session turn run backend", "a turn of a previous daemon goes on"),
    "checkpoint ignored": _event("warning", "session turn run backend why", "damaged or forged: the turn is decoded from its start"),
    "turn held": _event("info", "session turn backend", "the turn waits for its account's rate limit"),
    "turn ended": _event("info warning", "session turn run backend outcome kind delivery stop_reason duration_s input_tokens output_tokens cost_usd", "the only end of the turn; a warning if it failed or timed out"),
    "turn failed inside the daemon": _event("error", "session backend exception", "an internal error ended the turn"),
    "turn not ended inside the daemon": _event("error", "session exception again_in_s", "an internal error at a turn's end: the daemon tries again"),
    "tool called": _event("debug", "session tool call", "a CLI calls a client's tool"),
    "tool call ended": _event("info", "session tool call reason", "no client answered in time, or the CLI gave up"),
    "turn waits for the disk": _event("error", "session run error", "the disk refuses writes: timers stand still"),
    # processes
    "keeper started": _event("debug", "session turn run backend keeper pid", "the process that owns the CLI's pipes"),
    "keeper zygote started": _event("debug", "pid", "the process that forks keepers is ready"),
    "keeper zygote lost": _event("warning", "error again_in_s", "keepers start one by one until a new zygote is ready"),
    "keeper not forked": _event("warning", "session turn run backend error", "the zygote's fork failed: the keeper is started directly", limited=True),
    "process started": _event("info", "session turn run backend pid attested", "the CLI runs; `attested`: its environment is as intended"),
    "process exited": _event("info warning", "session turn run backend exit_code signal ended_by survivors duration_s", "a warning if the exit was not requested"),
    "process restarted": _event("info", "session turn run backend", "the next turn needs a process with other settings"),
    "run replaced": _event("warning", "session turn run backend", "the turn goes on with another process"),
    "session corrected": _event("info", "session turn run backend", "the CLI's transcript was unexpected: the prompt is sent again"),
    "prompt not taken": _event("info", "session turn run backend", "the live process exited first: another gets the prompt"),
    "live process failed inside the daemon": _event("error", "session backend exception", "an internal error ended the live process"),
    "live process not ended inside the daemon": _event("error", "session backend exception", "an internal error; the live process may still run"),
    "turn not stored": _event("error", "session backend error", "a file or disk that takes no more ended the turn"),
    "file size limited": _event("warning", "bytes", "`RLIMIT_FSIZE` is finite: turns that write longer files end as `storage_failed`"),
    "turn overloaded": _event("error", "session backend error", "want of descriptors, processes or memory ended the turn"),
    "keeper hung": _event("error", "session run", "no end was reported in time: its tree is killed"),
    "session file refused": _event("warning", "session file fields", "a file was changed outside of the daemon: the change is not used"),
    "homeless run ended": _event("warning", "session run", "the daemon stops, and the backend is not configured"),
    "leftover ended": _event("warning", "session run pid comm", "a process that a dead keeper left is ended"),
    "stale lock removed": _event("info", "path", "no process can hold this lock of a CLI"),
    "history not kept": _event("warning", "session turn backend", "the CLI kept no transcript of its session"),
    "foreign writes": _event("warning", "session turn backend", "another process wrote to the CLI's transcript"),
    "look for other writers given up": _event("warning", "native after_s", "a file system hangs: the turn goes on unchecked", limited=True),
    # the watchdog
    "watchdog warned": _event("warning", "session turn run backend phase idle_s limit_s", "80 % of a limit are over"),
    "watchdog fired": _event("warning", "session turn run backend phase idle_s limit_s", "the turn is ended because of its silence"),
    "watchdog credited": _event("debug", "session turn run backend phase idle_s limit_s", "the turn gets a new window"),
    # approvals
    "approval asked": _event("info", "session turn run backend approval", "the CLI waits for an answer"),
    "approval decided": _event("info", "session turn run backend approval decision by uid pid client", "the CLI has the answer"),
    "approval rule not sayable": _event("warning", "session kind", "the CLI has no answer for the rule's allow: denied"),
    "approval paths not followed": _event("warning", "session error", "a link or a slow disk: denied"),
    # metrics and traces
    "turn not traced": _event("error", "session exception", "the turn's journal makes no spans", limited=True),
    "no traces": _event("error", "error", "tracing cannot start; turns go on"),
    "spans not taken": _event("warning", "endpoint", "the collector does not answer: spans are dropped"),
    "spans taken again": _event("info", "endpoint", "the collector answers again"),
    # messages
    "messages fail": _event("warning", "notify target error", "a receiver of [[notify]] fails: messages wait"),
    "messages delivered again": _event("info", "notify", "the receiver takes messages again"),
    "message given up": _event("warning", "session turn notify type tries error", "the message was not delivered, and is not tried again", limited=True),
    "message not made": _event("error", "session notify exception", "the session's journal makes no messages", limited=True),
    "no messages": _event("error", "notify error", "a receiver cannot keep its cursor"),
    # accounts, storage, retention, drift
    "account limit": _event("warning", "account state until", "a rate limit begins to hold turns, or ends"),
    "agent started": _event("info", "box fleet", "the fleet's agent runs"),
    "agent stopped": _event("info", "box", "the fleet's agent ends"),
    "engine connected": _event("info", "", "the fleet's agent reaches the engine"),
    "engine away": _event("warning", "error", "the fleet's agent cannot reach the engine, and tries on"),
    "part of the agent waits": _event("warning", "part error", "a part of the fleet's agent failed, and tries on"),
    "part of the agent failed": _event("error", "part exception", "a fault inside the fleet's agent; the part begins again"),
    "session not copied": _event("warning", "session error", "a session's chain is damaged or of another clisup"),
    "another box has this name": _event("error", "box", "two boxes beat under one name: leave the fleet on one"),
    "journal is another one than the copied": _event("warning", "session epoch last", "a journal lost its end: its copy begins again"),
    "copy begins again": _event("info", "", "the copy is compared with the journals anew"),
    "record of a box not read": _event("warning", "key error", "the record is damaged, forged, or of another clisup", limited=True),
    "no socket for a box": _event("error", "box path limit", "the path of the member's socket is too long"),
    "job": _event("info", "job was status box outcome", "this box changed the state of a job"),
    "job not read": _event("warning", "job box error", "a job or a step of it is damaged, forged, or of another clisup", limited=True),
    "step of a job ignored": _event("debug", "job box", "the step came too late, or its box may not make it"),
    "ended jobs not read": _event("warning", "error", "this box has forgotten which jobs it ended"),
    "ended jobs not stored": _event("warning", "error", "this box may forget which jobs it ended"),
    "job waits for the daemon": _event("warning", "job error", "the daemon is away while a job's turn runs"),
    "clock of this box": _event("warning", "off_s shares", "the fleet's agent: a clock over 5 s off shares no limits"),
    "limit of another box not true": _event("warning", "box account", "the account answers: this box ignores that box's limits for an hour"),
    "holds not read": _event("warning", "error", "the fleet's agent cannot read the limits of shared accounts"),
    "account limits not read": _event("warning", "error", "the known rate limits are lost"),
    "storage trouble": _event("error", "state error", "the state directory refuses writes"),
    "storage works again": _event("warning", "refused", "the state directory accepts writes"),
    "journal renewed": _event("warning", "session backend", "a sync failed; the state is written again"),
    "retention removed": _event("info", "parts sessions bytes", "data over the age or size limit"),
    "idle sessions closed": _event("info", "sessions limit_s", "no event for `retention.idle_close`"),
    "look for sessions of a CLI given up": _event("warning", "backend after_s", "a slow file system: the list lacks this backend"),
    "cleared": _event("info", "sessions failed", "a client asked to remove data"),
    "retention failed": _event("error", "error", "data could not be removed; the next pass tries again", limited=True),
    "drift": _event("warning", "kind version frames fields", "a CLI sends frames or fields unknown to this clisup"),
    "drift not stored": _event("warning", "error", "the disk refused the count", limited=True),
    "notice": _event("debug", "session turn run backend code", "another notice of the daemon"),
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
