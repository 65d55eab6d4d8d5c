"""Feed of `clisup top --fleet`: the status and the events of all boxes as those of one daemon.

The view knows a session as `BOX/ID`. Each box is asked on its own, so that one that hangs holds up no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any

from clisup.cli.fleet.asking import AT_ONCE, MALFORMED, malformed, path_of
from clisup.cli.status.columns import checked_rows
from clisup.cli.top.link import EventFeed
from clisup.cli.top.model import pause_after
from clisup.cli.views.events import Event, checked_event
from clisup.cli.views.form import form_of
from clisup.client.raw import JsonObject
from clisup.errors import ClisupError
from clisup.locations import HERE

__all__ = ["FleetFeed"]

AGAIN_S = 5.0
"""Pause between two attempts to reach a box."""

LIST_S = 5.0
"""Seconds for the pending approvals of a box."""


class _Box:
    """Last status of one box, and the time of it. `error` says why there is none."""

    def __init__(self, name: str, feed: EventFeed) -> None:
        self.name, self.feed = name, feed
        self.status: JsonObject | None = None
        self.at = 0.0
        self.error = "not asked yet"
        self.absent = False
        self.connected = False
        self.answers = asyncio.Event()

    def take(self, status: JsonObject) -> None:
        """Take an answer to `daemon/status`. Raises `KeyError`, `TypeError` and their like for one of another form."""
        daemon = status["daemon"]
        for row in checked_rows(status["sessions"]):
            int(row["next_seq"]), int(row["first_seq"]), float(row.get("age_s") or 0.0), float(row.get("idle_s") or 0.0)
        int(daemon["running"]), int(daemon["max_running"]), int(daemon["waiting"]), int(daemon["rss_bytes"] or 0)
        self.status, self.at, self.error, self.absent = status, monotonic(), "", False
        self.answers.set()

    def fail(self, error: ClisupError) -> None:
        """Take an error. This machine has no row while its daemon does not run."""
        self.answers.clear()
        self.status, self.error = None, str(error.data.get("reason") or error.message)
        self.absent = self.name == HERE and error.kind == "daemon_not_running"

    def rows(self) -> list[JsonObject]:
        """Return the rows of the sessions as of now, with the box in the id."""
        later = monotonic() - self.at
        return [self._row(s, later) for s in (self.status or {}).get("sessions", ())]

    def _row(self, s: JsonObject, later: float) -> JsonObject:
        timer = s.get("next_timer")
        times = {name: s[name] + later for name in ("age_s", "idle_s") if s.get(name) is not None}
        timer = timer and {**timer, "fires_in_s": timer["fires_in_s"] - later}
        return {**s, **times, "next_timer": timer, "box": self.name, "session_id": f"{self.name}/{s['session_id']}"}


class FleetFeed:
    """As `EventFeed`, over all boxes. `on_state` is called with False only while no box is connected."""

    def __init__(
        self, names: Sequence[str], *, on_event: Callable[[Event], None], on_state: Callable[[bool], None]
    ) -> None:
        self._on_event, self._on_state = on_event, on_state
        self._asking = asyncio.Semaphore(AT_ONCE)
        self._boxes = {name: _Box(name, self._feed_of(name)) for name in names}

    def place(self, session_id: str) -> tuple[str, str]:
        """Return the client's path and the id of a session `BOX/ID`."""
        box, _, id_ = session_id.partition("/")
        return path_of(box), id_

    async def run(self) -> None:
        """Ask and follow all boxes until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for box in self._boxes.values():
                tasks.create_task(self._follow(box))
                tasks.create_task(self._poll(box))

    async def call(self, method: str, /, *, patient: bool = False, **params: Any) -> Any:
        """Call the box of the session. `daemon/status` and `approval/list` are those of all boxes."""
        if method == "daemon/status":
            return merged_status([box for box in self._boxes.values() if not box.absent])
        if method == "approval/list":
            asking = [box for box in self._boxes.values() if any(s.get("approvals") for s in box.rows())]
            return {"approvals": [a for found in await asyncio.gather(*map(self._approvals, asking)) for a in found]}
        name, _, id_ = params["session_id"].partition("/")
        return await self._boxes[name].feed.call(method, patient=patient, **{**params, "session_id": id_})

    # -- one box

    def _feed_of(self, name: str) -> EventFeed:
        return EventFeed(
            path_of(name), "*", None, on_event=partial(self._take, name), on_state=partial(self._connected, name)
        )

    async def _follow(self, box: _Box) -> None:
        """Follow the box as soon as it has answered the poll, and again after a refusal."""
        while True:
            await box.answers.wait()
            try:
                await box.feed.run()
            except ClisupError:
                pass  # the poll says why
            await asyncio.sleep(AGAIN_S)
            box.feed = self._feed_of(box.name)

    async def _poll(self, box: _Box) -> None:
        while True:
            began = monotonic()
            try:
                async with self._asking:
                    box.take(await box.feed.call("daemon/status"))
                pause = pause_after(monotonic() - began)
            except ClisupError as error:
                box.fail(error)
                pause = AGAIN_S
            except MALFORMED:
                box.fail(malformed(box.name))
                pause = AGAIN_S
            await asyncio.sleep(pause)

    async def _approvals(self, box: _Box) -> list[Event]:
        try:
            async with asyncio.timeout(LIST_S):
                found = (await box.feed.call("approval/list"))["approvals"]
            return [_of_box(box.name, {"type": "approval_requested", **approval}) for approval in found]
        except (ClisupError, TimeoutError, *MALFORMED):
            return []

    def _take(self, name: str, event: Event) -> None:
        try:
            of_box = _of_box(name, event)
        except MALFORMED:
            self._boxes[name].fail(malformed(name))
            return
        self._on_event(of_box)

    def _connected(self, name: str, connected: bool) -> None:
        self._boxes[name].connected = connected
        self._on_state(any(box.connected for box in self._boxes.values()))


def _of_box(box: str, event: Event) -> Event:
    """Return the event with the box in its session's id. Raises `KeyError`, `TypeError` and their like as a check."""
    checked_event(event)
    if event["type"] == "approval_requested":
        form_of(event).head()
    return {**event, "session_id": f"{box}/{event['session_id']}"}


def merged_status(boxes: Sequence[_Box]) -> JsonObject:
    """Return one status of all boxes. `boxes` has the name and the error of each."""
    found = [(box, box.status) for box in boxes if box.status is not None]
    daemons = [status["daemon"] for _, status in found]
    totals = [status.get("totals") or {} for _, status in found]
    return {
        "boxes": [{"box": box.name, "error": box.error} for box in boxes],
        "daemon": {
            "instance_id": "+".join(str(d.get("instance_id")) for d in daemons),
            **{
                name: sum(int(d[name] or 0) for d in daemons)
                for name in ("running", "max_running", "waiting", "rss_bytes")
            },
        },
        "sessions": [row for box, _ in found for row in box.rows()],
        "accounts": [],
        "totals": {
            "turns": _summed([total.get("turns") for total in totals]),
            "tokens": _summed([total.get("tokens") for total in totals]),
            "cost_usd": sum(_number(total.get("cost_usd")) for total in totals),
            "watchdog_fired": sum(int(_number(total.get("watchdog_fired"))) for total in totals),
        },
    }


def _summed(parts: Sequence[Any]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for part in parts:
        for name, value in (part if isinstance(part, dict) else {}).items():
            sums[name] = sums.get(name, 0) + int(_number(value))
    return sums


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) else 0
