"""Last look at the clocks, in `clock.json` of the state directory."""

from __future__ import annotations

import os
from contextlib import suppress

from clisup.errors import WorldError
from clisup.host import clock
from clisup.host.files import write_json
from clisup.policy.wall_time import ClockLook, looked_again
from clisup.store.records import read_record

__all__ = ["look_at_clock"]


def look_at_clock(state_dir: str, *, keep: bool = True) -> ClockLook:
    """Look at the clocks, compare with the last look, and keep this one. Blocks for a short time.

    Without the last look no stamp is believed: a bad disk costs only time.
    """
    path = os.path.join(state_dir, "clock.json")
    now = ClockLook(clock.wall(), clock.boot_id(), clock.uptime(), clock.synchronised())
    try:
        look = looked_again(read_record(path, ClockLook), now)
    except WorldError:
        return now.distrusted()
    if keep:
        with suppress(WorldError):
            write_json(path, look.as_json(), sync=False)
    return look
