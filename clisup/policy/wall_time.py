"""Trust in the wall clock: what is removed or closed by its age needs a clock that did not jump since. Pure."""

from __future__ import annotations

import msgspec

from clisup.model.structs import JsonObject

__all__ = ["ClockLook", "age_of", "looked_again"]

JUMP_S = 3600.0
"""Difference between wall clock and uptime above which the wall clock was set."""
TOO_LONG_S = 10 * 366 * 86_400.0
"""Time between two boots that no daemon believes."""


class ClockLook(msgspec.Struct, frozen=True):
    """Look at the clocks. `since` is the wall time from which on the wall clock went steadily. Earlier stamps may be wrong."""

    wall: float
    boot_id: str
    uptime_s: float
    synchronised: bool | None = None
    since: float = 0.0

    def distrusted(self) -> ClockLook:
        """Return the look of a clock that was set just now."""
        return msgspec.structs.replace(self, since=self.wall)

    def as_json(self) -> JsonObject:
        """Return the look as the record that the next look is compared with."""
        return dict(msgspec.to_builtins(self))


def looked_again(before: ClockLook | None, now: ClockLook) -> ClockLook:
    """Return `now` with `since`: as before, or from now on if the wall clock was set in between."""
    if before is None:
        return now
    passed = now.wall - before.wall
    if now.boot_id == before.boot_id:
        steady = abs(passed - (now.uptime_s - before.uptime_s)) < JUMP_S
    else:  # the first stamps of a machine without a battery for its clock come before the synchronisation
        steady = 0 <= passed < TOO_LONG_S and not (before.synchronised is False and now.synchronised)
    return msgspec.structs.replace(now, since=before.since) if steady else now.distrusted()


def age_of(written: float, look: ClockLook) -> float:
    """Return the seconds since a stamp, as far as the clock went steadily: never less than 0."""
    return max(0.0, look.wall - max(written, look.since))
