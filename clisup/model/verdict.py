"""How a turn ended, from everything that is known: the CLI's last word, its exit, and who asked for the end. Pure.

After a good terminal frame the exit code is evidence, not verdict. Exit 0 without a terminal frame is a failed turn.
137 and 143 are never taken for a failure of the model: somebody killed the process.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from clisup.model.envelope import writable
from clisup.model.events import TurnCompleted, TurnError
from clisup.model.terminal import Terminal
from clisup.model.usage import Usage

__all__ = ["ExitRecord", "because", "conclude", "ended_by"]

_KILLED_CODES = {129, 130, 131, 137, 143}  # 128 + HUP, INT, QUIT, KILL, TERM: the CLI left because of a signal

_TIMEOUTS = {
    "startup": ("startup_timeout", "the CLI gave no frame within {limit:g} s of its start"),
    "model": ("idle_timeout", "the CLI gave no sign of life for {limit:g} s while the model was to answer"),
    "tool": ("idle_timeout", "the CLI gave no sign of life for {limit:g} s while a tool ran"),
    "approval": ("idle_timeout", "nobody answered an approval for {limit:g} s"),
    "background": ("idle_timeout", "background work was silent for {limit:g} s after the answer"),
    "linger": ("idle_timeout", "the CLI did not leave within {limit:g} s of its last frame"),
    "turn": ("turn_timeout", "the turn took longer than {limit:g} s"),
}

_REASONS: dict[str, tuple[str, TurnError]] = {
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
    "storage_failed": (
        "failed",
        TurnError(kind="storage_failed", message="the CLI's output could not be stored", retryable=True),
    ),
}


class ExitRecord(Struct, frozen=True):
    """A keeper's exit.json, as far as a verdict needs it. `known` is false where no keeper could tell."""

    exit_code: int | None = None
    signal: int | None = None
    reason: str = "unknown"
    duration_s: float | None = None
    survivors: tuple[dict[str, Any], ...] = ()
    kept: tuple[dict[str, Any], ...] = ()
    left: tuple[dict[str, Any], ...] = ()
    max_rss_kb: int | None = None
    spawn_failed: dict[str, Any] | None = None
    known: bool = True


def ended_by(record: ExitRecord, asked: str | None = None) -> str:
    """Who ended the process, for `process_exited`. `asked` is why the CLI was asked, in its own protocol, to end its turn."""
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
    ending: dict[str, Any] | None,
    explained: TurnError,
    duration_s: float | None,
) -> TurnCompleted:
    """The turn's one end.

    `ending` is what the daemon had decided before the exit (`{"reason": ..., "limit_s"?, "error"?, "failure"?}`), `explained` what the
    adapter makes of the exit. It counts where there is no terminal frame, or one whose words say no kind.
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
        structured=writable(said.structured),  # the one value that the CLI may nest as it likes and the ledger dumps
    )


def because(silence: TurnError, failure: TurnError) -> TurnError:
    """The error of a turn whose CLI was silent because it repeated a request that failed so."""
    message = f"{silence.message}; its last request to the model failed: {failure.message}"
    return failure.model_copy(update={"message": message, "retry_after_s": None})


def _outcome(
    terminal: Terminal | None, record: ExitRecord, ending: dict[str, Any] | None, explained: TurnError
) -> tuple[str, TurnError | None]:
    if ending is not None and ending.get("reason") == "wrong_session":
        return _by_cause(ending)  # however well the CLI ended: the answer is of a session that nobody asked for
    if terminal is not None and not terminal.is_error:
        return "completed", None
    if record.spawn_failed is not None:
        return "failed", TurnError(kind="spawn_failed", message=_spawn_message(record.spawn_failed))
    cause = ending or ({"reason": record.reason} if record.reason not in ("exit", "unknown") else None)
    if cause is not None:
        return _by_cause(cause)
    if terminal is not None:
        outcome = "interrupted" if terminal.interrupted else "failed"
        error = terminal.error or TurnError(kind="protocol", message="the CLI reported an error without naming it")
        return outcome, _of_known_kind(error, explained)
    if not record.known:
        return "failed", TurnError(
            kind="crashed",
            message="the CLI's keeper was killed, and the CLI with it; its exit is unknown",
            retryable=True,
        )
    return "failed", explained


def _of_known_kind(error: TurnError, explained: TurnError) -> TurnError:
    """Return the CLI's own error. Where its words say no kind, the exit may: gemini's code is an HTTP status."""
    if error.kind != "crashed" or explained.kind == "crashed":
        return error
    known = {
        "kind": explained.kind,
        "retryable": explained.retryable,
        "http_status": error.http_status or explained.http_status,
    }
    return error.model_copy(update=known)


def _by_cause(cause: dict[str, Any]) -> tuple[str, TurnError]:
    if cause.get("error"):
        return "failed", TurnError.model_validate(cause["error"])
    reason = str(cause["reason"])
    if reason.startswith("watchdog:"):
        phase = reason.removeprefix("watchdog:")
        kind, text = _TIMEOUTS.get(phase, _TIMEOUTS["model"])
        limit = float(cause.get("limit_s") or 0)
        silence = TurnError(kind=kind, message=text.format(limit=limit), retryable=True)
        failure = cause.get("failure")
        return "timed_out", because(silence, TurnError.model_validate(failure)) if failure else silence
    return _REASONS.get(reason, _REASONS["operator"])


def _spawn_message(failure: dict[str, Any]) -> str:
    return str(failure.get("message") or failure.get("error") or "the CLI could not be started")


def exit_from_file(raw: dict[str, Any] | None) -> ExitRecord:
    """Read a keeper's exit.json; None or nonsense is an exit that nobody knows."""
    if not raw:
        return ExitRecord(known=False)
    reason = str(raw.get("reason") or "unknown")
    return ExitRecord(
        exit_code=raw.get("exit_code"),
        signal=raw.get("signal"),
        reason=reason,
        duration_s=raw.get("duration_s"),
        survivors=tuple(raw.get("survivors") or ()),
        kept=tuple(raw.get("kept") or ()),
        left=tuple(raw.get("left") or ()),
        max_rss_kb=raw.get("max_rss_kb"),
        spawn_failed=raw.get("spawn_failed"),
        known=reason != "unknown",
    )
