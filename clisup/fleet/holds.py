"""Holds of accounts: the last known rate limit of one account, shared by the boxes that use it. Pure.

Each box folds the events of its own turns into an `AccountLimit` (`clisup.policy.rate_limit`) and writes a later report
under its own name. After the end of a limit one box probes the account with a single turn. The others wait for its report.
Only accounts that the configuration names are shared.

A box may lie. So a report counts only from a box that runs the account, and holds turns of other boxes for `FOREIGN_S` at
most: then their own turn shows whether it is true. If it is not, they believe that box no more for `DISTRUST_S`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from clisup.errors import WorldError
from clisup.policy.rate_limit import AccountLimit

__all__ = [
    "AccountHold",
    "BoxHold",
    "HoldStep",
    "believable",
    "clock_agrees",
    "fleet_hold",
    "next_step",
    "read_hold",
    "refuted",
    "reported",
    "write_hold",
]

PROBE_S = 60.0
"""Seconds for which the other boxes wait for the report of the box that probes."""
FOREIGN_S = 300.0
"""Seconds for which a limit holds turns of a box that has not seen it itself."""
DISTRUST_S = 3600.0
"""Seconds for which a box does not believe another one whose limit was not true."""
EARLY_S = 10.0
"""Seconds before the end from which a box announces its probe, so that the others know it at the end by their clocks."""
CLOCK_S = 5.0
"""Largest difference to the engine's clock with which a box shares limits. Their ends are times of day."""


class AccountHold(BaseModel):
    """Limit of one account as one box reports it, and the box that probes it after its end.

    `probed` is the `said_at` of the limit that is probed. It may be the limit of another box.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    limit: AccountLimit = AccountLimit()
    probe: str = ""
    probed: float = 0.0


class BoxHold(NamedTuple):
    """Hold that a box wrote: the engine proves `box`, and orders by `revision`.

    `probed_s` are the seconds since this box first saw that probe, by its own monotonic clock.
    """

    box: str
    hold: AccountHold
    revision: int = 0
    probed_s: float = 0.0


class HoldStep(NamedTuple):
    """Step of a box with turns that wait. `wait`: until the time `until`.

    `probe`: swap in `hold`, then start one turn, after the limit's end.
    """

    do: Literal["start", "wait", "probe"]
    until: float | None = None
    hold: AccountHold | None = None


def read_hold(value: bytes) -> AccountHold:
    """Return a stored hold. Raises `WorldError` for a value that is none."""
    try:
        return AccountHold.model_validate_json(value)
    except ValidationError as error:
        message = f"cannot read the hold of an account, because of {error.error_count()} wrong fields"
        raise WorldError(message, kind="storage_failed", hint="upgrade clisup on this box") from None


def write_hold(hold: AccountHold) -> bytes:
    """Return the value to store."""
    return hold.model_dump_json(exclude_none=True).encode()


def reported(hold: AccountHold, own: AccountLimit) -> AccountHold | None:
    """Return the hold after this box's own report, or None if the stored report is not older.

    A box reports only what its own `AccountLimit.says_more_than` counts as news. A report ends the probe.
    """
    if own.state == "unknown" or (own.said_at or 0.0) <= (hold.limit.said_at or 0.0):
        return None
    return AccountHold(limit=own)


def fleet_hold(holds: Iterable[BoxHold]) -> BoxHold:
    """Return the latest limit of these boxes with its box, and in `probe` the box that probes it: the first one to say so.

    A box probes for `PROBE_S` at most.
    """
    holds = list(holds)
    latest = max(holds, key=lambda each: each.hold.limit.said_at or 0.0, default=BoxHold("", AccountHold()))
    said_at = latest.hold.limit.said_at or 0.0
    probing = [each for each in holds if each.hold.probe and each.hold.probed == said_at and each.probed_s < PROBE_S]
    first = min(probing, key=lambda each: each.revision, default=None)
    hold = AccountHold(limit=latest.hold.limit, probe=first.box if first else "", probed=said_at)
    return BoxHold(latest.box, hold, first.revision if first else 0, first.probed_s if first else 0.0)


def refuted(theirs: AccountLimit, own: AccountLimit) -> bool:
    """Tell whether this box's own report shows that a limit was not true: the account answered before the limit's end."""
    said, until = theirs.said_at or 0.0, theirs.until or 0.0
    return theirs.state == "limited" and own.state in ("ok", "warned") and said < (own.said_at or 0.0) < until


def next_step(hold: AccountHold, box: str, now: float, hold_s: float, probed_s: float) -> HoldStep:
    """Return what a box with waiting turns does.

    `hold_s` bounds the wait for a limit, as on one box. `probed_s` are the seconds since this box first saw the present
    probe, by its own monotonic clock.
    """
    limit = hold.limit
    if limit.state != "limited" or limit.until is None or not hold_s:
        return HoldStep("start")
    if (until := limit.holds(now, hold_s)) is not None and until - now > EARLY_S:
        return HoldStep("wait", until)
    if hold.probe == box:
        return HoldStep("probe")
    if hold.probe and probed_s < PROBE_S:
        return HoldStep("wait", now + PROBE_S - probed_s)
    return HoldStep("probe", hold=AccountHold(limit=limit, probe=box, probed=limit.said_at or 0.0))


def believable(hold: AccountHold, at: float) -> AccountHold:
    """Return the hold, without a limit from after the time `at` at which the engine stored it.

    The report of a wrong clock would otherwise outlast all true ones.
    """
    return hold if (hold.limit.said_at or 0.0) <= at + CLOCK_S else AccountHold()


def clock_agrees(own: float, engine: float) -> bool:
    """Tell whether a box shares limits: its clock agrees with the engine's."""
    return abs(own - engine) <= CLOCK_S
