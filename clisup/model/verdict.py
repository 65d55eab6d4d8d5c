"""Verdict on a turn from all known facts: the CLI's terminal frame, its exit, and the cause of the end. Pure.

After a good terminal frame the exit code is evidence, not verdict. Exit 0 without a terminal frame is a failed turn.
Exit codes 137 and 143 never count as a failure of the model: another process killed the CLI.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from clisup.model.envelope import writable
from clisup.model.events import (
    AssistantMessage,
    EventBase,
    MessageStart,
    SessionInit,
    TurnCompleted,
    TurnError,
    TurnErrorKind,
    TurnOutcome,
)
from clisup.model.shortages import SHORTAGES
from clisup.model.structs import JsonObject
from clisup.model.usage import Usage


class Terminal(Struct, frozen=True):
    """Last report of the CLI on a turn. It is not journaled: the daemon makes `turn_completed` from it and the exit.

    `cost_total_usd` and `usage_total` are the CLI's running totals to carry over. `follow_up` marks a turn that the CLI
    began by itself. `unasked` is the error of an interrupted turn that nobody interrupted. `estimated` marks a cost from a
    list of prices, not from the provider. `prompts` are the ids of the prompts that the turn took, if the CLI reports them.
    """

    is_error: bool
    text: str = ""
    stop_reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
    estimated: bool = False
    cost_total_usd: float | None = None
    usage_total: Usage | None = None
    error: TurnError | None = None
    interrupted: bool = False
    unasked: TurnError | None = None
    denied: tuple[str, ...] = ()
    structured: object = None
    follow_up: bool = False
    prompts: tuple[str, ...] | None = None


def begins_turn(events: Sequence[EventBase]) -> bool:
    """Tell whether these events after a terminal frame show a new model request. A sub-agent's events do not."""
    return any(
        isinstance(event, SessionInit)
        or (isinstance(event, MessageStart | AssistantMessage) and event.parent_tool_use_id is None)
        for event in events
    )


def sum_of(words: Sequence[Terminal]) -> Terminal:
    """Return the last terminal frame of a turn, with the usage, cost, prompts and refusals of all of them.

    A CLI has a terminal frame for each time that it goes on by itself: once more for each report of background work.
    """
    last = words[-1]
    if len(words) == 1:
        return last
    costs = [word.cost_usd for word in words if word.cost_usd is not None]
    prompts = [word.prompts for word in words if word.prompts is not None]
    return replace(
        last,
        usage=sum((word.usage for word in words[1:]), words[0].usage),
        cost_usd=sum(costs) if len(costs) == len(words) else None,
        estimated=any(word.estimated for word in words),
        cost_total_usd=next((w.cost_total_usd for w in reversed(words) if w.cost_total_usd is not None), None),
        usage_total=next((w.usage_total for w in reversed(words) if w.usage_total is not None), None),
        denied=tuple(dict.fromkeys(name for word in words for name in word.denied)),
        structured=next((w.structured for w in reversed(words) if w.structured is not None), None),
        follow_up=all(word.follow_up for word in words),
        prompts=tuple(dict.fromkeys(name for named in prompts for name in named)) if prompts else None,
    )


def behind(earlier: Terminal, later: Terminal) -> Terminal:
    """Return a terminal frame as it counts behind another one, without a request to the model between them.

    An error there is none of the answer: claude has told a success, and then an error with 0 turns (claude-code #16768). A follow-up
    of the CLI is a request to the model, also where its API refuses it.
    """
    if earlier.is_error or not later.is_error or later.follow_up:
        return later
    told = replace(later, is_error=False, error=None, interrupted=False, text=earlier.text)
    return replace(told, stop_reason=earlier.stop_reason, structured=earlier.structured)


_KILLED_CODES = {129, 130, 131, 137, 143}  # 128 + HUP, INT, QUIT, KILL, TERM: the CLI exited because of a signal

_NAMES_CHARS = 300
"""Characters of the names of tools and hooks in a message."""
_TIMEOUTS: dict[str, tuple[TurnErrorKind, str]] = {
    "startup": ("startup_timeout", "the CLI gave no frame within {limit:g} s of its start"),
    "opening": ("startup_timeout", "the CLI was silent for {limit:g} s while it opened its session{names}"),
    "model": ("idle_timeout", "the CLI gave no sign of life for {limit:g} s while the model was to answer"),
    "tool": ("idle_timeout", "the CLI gave no sign of life for {limit:g} s while a tool ran{names}"),
    "hook": ("idle_timeout", "the CLI gave no sign of life for {limit:g} s while a hook of its settings ran{names}"),
    "compaction": ("idle_timeout", "the CLI gave no sign of life for {limit:g} s while it compacted its context"),
    "login": ("idle_timeout", "the CLI gave no sign of life for {limit:g} s while it renewed its login"),
    "approval": ("idle_timeout", "nobody answered an approval for {limit:g} s"),
    "background": ("idle_timeout", "background work was silent for {limit:g} s after the answer"),
    "linger": ("idle_timeout", "the CLI did not leave within {limit:g} s of its last frame"),
    "turn": ("turn_timeout", "the turn took longer than {limit:g} s"),
}

_REASONS: dict[str, tuple[TurnOutcome, TurnError]] = {
    "client": ("interrupted", TurnError(kind="cancelled", message="the turn was interrupted by a client")),
    "operator": (
        "interrupted",
        TurnError(kind="cancelled", message="the daemon was asked to end the turn", retryable=True),
    ),
    "lease": (
        "interrupted",
        TurnError(kind="cancelled", message="no daemon came back within the lease", retryable=True),
    ),
    "output_limit": (
        "failed",
        TurnError(kind="output_limit", message="the CLI wrote more than limits.spool_bytes to its stdout"),
    ),
    "file_size": (
        "failed",
        TurnError(
            kind="storage_failed",
            message="the CLI's output reached the largest size of a file (RLIMIT_FSIZE): raise ulimit -f of the daemon, or LimitFSIZE=",
        ),
    ),
    "storage": (
        "failed",
        TurnError(
            kind="storage_failed", message="the disk refused the CLI's output for too long: repair or remount it"
        ),
    ),
    "memory": (
        "failed",
        TurnError(kind="resource_limit", message="the CLI and its tools took more than limits.memory"),
    ),
    "pids": ("failed", TurnError(kind="resource_limit", message="the CLI and its tools were more than limits.pids")),
    "approvals": (
        "failed",
        TurnError(kind="resource_limit", message="the CLI asked more questions at once than limits.open_approvals"),
    ),
    "oom": ("failed", TurnError(kind="resource_limit", message="the kernel ended the CLI for want of memory")),
}


class ExitRecord(Struct, frozen=True):
    """Facts of a keeper's exit.json that a verdict needs."""

    exit_code: int | None = None
    signal: int | None = None
    reason: str = "unknown"
    duration_s: float | None = None
    survivors: tuple[JsonObject, ...] = ()
    kept: tuple[JsonObject, ...] = ()
    left: tuple[JsonObject, ...] = ()
    max_rss_kb: int | None = None
    spawn_failed: JsonObject | None = None

    @property
    def known(self) -> bool:
        """Tell whether a keeper could report the exit."""
        return self.reason != "unknown"


def ended_by(record: ExitRecord, asked: str | None = None) -> str:
    """Return the cause of the process's end, for `process_exited`.

    `asked` is the reason why the CLI was asked, in its own protocol, to end its turn.
    """
    if not record.known:
        return "unknown"
    if record.reason != "exit":
        return record.reason
    if asked is not None:
        return asked
    stranger = record.signal is not None or record.exit_code in _KILLED_CODES
    return "unknown" if stranger else "cli"


def conclude(
    *,
    terminal: Terminal | None,
    record: ExitRecord,
    ending: Mapping[str, Any] | None,
    explained: TurnError,
    duration_s: float | None,
) -> TurnCompleted:
    """Return the single end of a turn.

    `ending` is the daemon's decision before the exit (`{"reason": ..., "told"?, "limit_s"?, "error"?, "failure"?}`).
    `explained` is the adapter's explanation of the exit. It counts if there is no terminal frame, or one whose text names
    no kind.
    """
    said = terminal or Terminal(is_error=True)
    outcome, error = _outcome(terminal, record, ending, explained)
    return TurnCompleted(
        outcome=outcome,
        stop_reason=said.stop_reason,
        text=said.text,
        usage=said.usage if terminal else Usage(),
        cost_usd=said.cost_usd,
        cost_source="unknown" if said.cost_usd is None else "estimated" if said.estimated else "reported",
        denied=said.denied,
        prompt_ids=said.prompts,
        error=error,
        duration_s=duration_s,
        structured=writable(said.structured),  # the only value that the CLI may nest at will and the ledger dumps
    )


def with_words(error: TurnError, *, stderr: str, unreadable: str) -> TurnError:
    """Return the error with what the CLI said before it, unless the message quotes the words.

    `stderr` is the end of stderr, and `unreadable` the last line of stdout that is no frame.
    """
    parts = [error.message]
    if stderr and stderr not in error.message:
        parts.append(f"its last words on stderr: {stderr}")
    if unreadable and unreadable not in error.message:
        parts.append(f"its last line on stdout that is no frame: {unreadable}")
    return replace(error, message="; ".join(parts)) if len(parts) > 1 else error


def because(silence: TurnError, failure: TurnError) -> TurnError:
    """Return the error of a turn whose CLI was silent because of a failure. A failure without a kind changes no kind."""
    if failure.kind == "crashed":
        return replace(silence, message=f"{silence.message}; its last error: {failure.message}")
    message = f"{silence.message}; its last request to the model failed: {failure.message}"
    return replace(failure, message=message, retry_after_s=None)


def _outcome(
    terminal: Terminal | None, record: ExitRecord, ending: Mapping[str, Any] | None, explained: TurnError
) -> tuple[TurnOutcome, TurnError | None]:
    if ending is not None and ending.get("reason") == "wrong_session":
        return _by_cause(ending)  # even after a good end: the answer belongs to another session than the requested one
    if terminal is not None and not terminal.is_error and (ending is None or _was_whole(terminal, ending)):
        return "completed", None
    if record.spawn_failed is not None:
        why = record.spawn_failed.get("message") or record.spawn_failed.get("error") or "the CLI could not be started"
        if record.spawn_failed.get("errno") in SHORTAGES and record.spawn_failed.get("stage") in ("fork", "exec"):
            return "failed", TurnError(kind="overloaded", message=str(why), retryable=True)
        return "failed", TurnError(kind="spawn_failed", message=str(why))
    cause = ending or ({"reason": record.reason} if record.reason not in ("exit", "unknown") else None)
    if cause is not None:
        return _by_cause(cause)  # not the exit: after an early SIGINT claude exits with 0 and without a result
    if terminal is not None:
        if terminal.interrupted and terminal.unasked is not None:
            return "failed", terminal.unasked
        outcome: TurnOutcome = "interrupted" if terminal.interrupted else "failed"
        error = terminal.error or TurnError(kind="protocol", message="the CLI reported an error without naming it")
        return outcome, _of_known_kind(error, explained)
    if not record.known:
        return "failed", TurnError(
            kind="crashed",
            message="the CLI's keeper was killed, and the CLI with it; its exit is unknown",
            retryable=True,
        )
    return "failed", explained


def _was_whole(terminal: Terminal, ending: Mapping[str, Any]) -> bool:
    """Tell whether a good terminal frame is the end of the work, and not the CLI's answer to the order to end.

    claude answers SIGINT with a success: with the words with which it waits for sub-agents, or without words while a Stop hook
    runs (2.1.330).
    """
    told = ending.get("told", "end")  # daemons before 0.3 did not note it
    return told == "end" or (told == "answer" and bool(terminal.text or terminal.structured is not None))


def _of_known_kind(error: TurnError, explained: TurnError) -> TurnError:
    """Return the CLI's own error. If its text names no kind, the exit may: gemini's code is an HTTP status."""
    if error.kind != "crashed" or explained.kind == "crashed":
        return error
    status = error.http_status or explained.http_status
    return replace(error, kind=explained.kind, retryable=explained.retryable, http_status=status)


def _by_cause(cause: Mapping[str, Any]) -> tuple[TurnOutcome, TurnError]:
    if cause.get("error"):
        return "failed", msgspec.convert(cause["error"], TurnError)
    reason = str(cause["reason"])
    if reason.startswith("watchdog:"):
        phase = reason.removeprefix("watchdog:")
        kind, text = _TIMEOUTS.get(phase, _TIMEOUTS["model"])
        limit = float(cause.get("limit_s") or 0)
        names = ", ".join(map(str, cause.get("at_work") or ()))[:_NAMES_CHARS]
        message = text.format(limit=limit, names=f": {names}" if names else "")
        if children := ", ".join(map(str, cause.get("children") or ()))[:_NAMES_CHARS]:
            message += f"; below it run: {children}"
        silence = TurnError(kind=kind, message=message, retryable=True)
        failure = cause.get("failure")
        return "timed_out", because(silence, msgspec.convert(failure, TurnError)) if failure else silence
    return _REASONS.get(reason, _REASONS["operator"])


def exit_from_file(raw: JsonObject | None) -> ExitRecord:
    """Read a keeper's exit.json. None or invalid data gives an unknown exit."""
    try:
        return msgspec.convert(
            {name: value for name, value in (raw or {}).items() if value not in (None, "")}, ExitRecord
        )
    except msgspec.ValidationError:
        return ExitRecord()
