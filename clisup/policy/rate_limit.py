"""Rate limit of a backend account, folded from the events of its CLIs. Pure; times are seconds since the epoch.

A limit with a known end holds new turns back until this end. A limit without an end holds no turn, because any time to
try again would be a guess. After the end a single turn goes first, as a probe. Otherwise a hundred waiting turns could
all fail at once after too early an end.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict

from clisup.model.envelope import rfc3339
from clisup.model.events import AssistantMessage, EventBase, MessageStart, RateLimit, TurnCompleted
from clisup.model.structs import JsonObject
from clisup.policy.reset_words import reset_in

SAME_S = 60.0
"""Seconds in which a repeated report of the same limit is no news. A hold lasts for hours."""
LimitState = Literal["unknown", "ok", "warned", "limited"]
_WARNINGS = ("allowed_warning", "warning")
_REJECTED = ("rejected", "exceeded", "limited")
_LIMITING = ("rate_limit", "quota_exceeded")


class AccountLimit(BaseModel):
    """Last known limit of one account. `until` is its end; `said_at` is the time of the CLI's report."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    state: LimitState = "unknown"
    until: float | None = None
    limit_type: str | None = None
    utilization: float | None = None
    message: str | None = None
    said_at: float | None = None

    def says_more_than(self, other: AccountLimit) -> bool:
        """Tell whether this limit differs from `other`, or repeats it after `SAME_S`."""
        passed = (self.said_at or 0.0) - (other.said_at or 0.0)
        return not 0.0 <= passed < SAME_S or self != other.model_copy(update={"said_at": self.said_at})

    def holds(self, now: float, hold_s: float) -> float | None:
        """Return the time until which a new turn waits, or None without a wait.

        `hold_s` bounds the wait; 0 holds no turn.
        """
        if self.state != "limited" or self.until is None or not hold_s:
            return None
        until = min(self.until, (self.said_at or now) + hold_s)
        # an even later end means that the clock was set back since
        return until if now < until <= now + hold_s else None


def fold_limit(known: AccountLimit, event: EventBase, now: float) -> AccountLimit:
    """Return the account's limit after this event of one of its turns.

    Return the same object if the event does not concern limits.
    """
    if type(event) is RateLimit:
        return _told(event, now)
    if type(event) is TurnCompleted:
        return _ended(known, event, now)
    answers = isinstance(event, MessageStart) or (isinstance(event, AssistantMessage) and not event.synthetic)
    return AccountLimit(state="ok", said_at=now) if answers and known.state == "limited" else known


def _told(event: RateLimit, now: float) -> AccountLimit:
    if event.status in _REJECTED:
        state: LimitState = "limited"
    else:
        state = "warned" if event.status in _WARNINGS else "ok"
    until = _end(event.resets_at, event.retry_after_s, now)
    return AccountLimit(
        state=state, until=until, limit_type=event.limit_type, utilization=event.utilization, said_at=now
    )


def _ended(known: AccountLimit, event: TurnCompleted, now: float) -> AccountLimit:
    if event.outcome == "completed" and known.state == "limited":
        return AccountLimit(state="ok", said_at=now)
    error = event.error
    if error is None or error.kind not in _LIMITING:
        return known
    until = _end(error.resets_at, error.retry_after_s, now) or reset_in(error.message, now)
    if until is None and known.state == "limited":
        return known  # the earlier report names the end, this error does not
    message = error.message.partition("\n")[0][:200]
    return AccountLimit(state="limited", until=until, limit_type=error.kind, message=message, said_at=now)


def with_wait(done: TurnCompleted, limit: AccountLimit, now: float) -> TurnCompleted:
    """Return a turn's end whose error names the wait for a limit. CLIs give a time in the error, in its words, or earlier.

    `limit` is the account's limit after this end, so the next turn is refused for the same time.
    """
    error = done.error
    if error is None or error.kind not in _LIMITING or error.retry_after_s is not None:
        return done
    until = (
        _end(error.resets_at, None, now)
        or reset_in(error.message, now)
        or (limit.until if limit.state == "limited" else None)
    )
    if until is None:
        return done
    wait_s, resets_at = round(max(0.0, until - now), 3), error.resets_at or iso(until)
    return replace(done, error=replace(error, retryable=True, retry_after_s=wait_s, resets_at=resets_at))


def _end(resets_at: str | None, retry_after_s: float | None, now: float) -> float | None:
    if resets_at is not None and (at := epoch(resets_at)) is not None:
        return at
    return now + retry_after_s if retry_after_s else None


def epoch(text: str) -> float | None:
    """Return an RFC 3339 time in seconds since the epoch, or None for an invalid time."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def iso(at: float | None) -> str | None:
    """Return `rfc3339` in whole seconds."""
    return rfc3339(at, timespec="seconds")


def describe(limit: AccountLimit) -> JsonObject:
    """Return the limit as `daemon/status` shows it."""
    return {
        "state": limit.state,
        "until": iso(limit.until),
        "limit_type": limit.limit_type,
        "utilization": limit.utilization,
        "message": limit.message,
        "said_at": iso(limit.said_at),
    }
