"""Holds of accounts: the last known rate limit of one account, shared by the boxes that use it. Pure.

Each box folds the events of its own turns into an `AccountLimit` (`clisup.policy.rate_limit`) and swaps a later report
into the engine. After the end of a limit one box probes the account with a single turn. The others wait for its report.
Only accounts that the configuration names are shared.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from clisup.errors import WorldError
from clisup.policy.rate_limit import AccountLimit

__all__ = ["AccountHold", "HoldStep", "believable", "clock_agrees", "next_step", "read_hold", "reported", "write_hold"]

PROBE_S = 60.0
"""Seconds for which the other boxes wait for the report of the box that probes."""
EARLY_S = 10.0
"""Seconds before the end from which a box announces its probe, so that the others know it at the end by their clocks."""
CLOCK_S = 5.0
"""Largest difference to the engine's clock with which a box shares limits. Their ends are times of day."""


class AccountHold(BaseModel):
    """Limit of one account, and the box that probes it after its end."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    limit: AccountLimit = AccountLimit()
    probe: str = ""


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
    return HoldStep("probe", hold=hold.model_copy(update={"probe": box}))


def believable(hold: AccountHold, at: float) -> AccountHold:
    """Return the hold, without a limit from after the time `at` at which the engine stored it.

    The report of a wrong clock would otherwise outlast all true ones.
    """
    return hold if (hold.limit.said_at or 0.0) <= at + CLOCK_S else AccountHold()


def clock_agrees(own: float, engine: float) -> bool:
    """Tell whether a box shares limits: its clock agrees with the engine's."""
    return abs(own - engine) <= CLOCK_S
