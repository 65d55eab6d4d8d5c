"""Other boxes of this user: a strip on the first page, and a link for the pages of each."""

from __future__ import annotations

import os
from typing import NamedTuple

import trio

from clisup.cli.fleet.members import known_members
from clisup.cli.views.terminal import brief
from clisup.client.raw import JsonObject
from clisup.errors import ClisupError, UsageError
from clisup.fleet.book import boxes
from clisup.web.link import PageLink

__all__ = ["BoxLinks", "ShownBox", "box_views"]

MOST_BOXES = 100


class ShownBox(NamedTuple):
    """Box on the first page. `asking` counts the approvals that wait there, as of its last beat."""

    name: str
    state: str
    words: str
    asking: int


def box_views(names: list[str], members: dict[str, JsonObject]) -> list[ShownBox]:
    """Return what the strip shows. A box that is no member of a fleet has a name only."""
    return [_view(name, members.get(name)) for name in names[:MOST_BOXES]]


def _view(name: str, row: JsonObject | None) -> ShownBox:
    if row is None:
        return ShownBox(name, "", "", 0)
    if row.get("state") != "ok":
        age = row.get("beat_s")
        return ShownBox(name, "away", "away" if age is None else f"away for {brief(float(age))}", 0)
    running, asking = int(row.get("running") or 0), int(row.get("approvals") or 0)
    words = [f"{running} running"] if running else []
    words += [f"{asking} to answer"] if asking else []
    return ShownBox(name, "asking" if asking else "ok", ", ".join(words) or "at rest", asking)


class BoxLinks:
    """Links to boxes, each opened by the first page that needs it."""

    def __init__(self) -> None:
        self._links: dict[str, PageLink] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Keep the links connected. Ends when cancelled."""
        async with trio.open_nursery() as self._nursery:
            await trio.sleep_forever()

    def link(self, name: str) -> PageLink:
        """Return the link to a box. Raises `UsageError(box_unknown)`."""
        if (found := self._links.get(name)) is not None:
            return found
        if name not in boxes(os.environ) or self._nursery is None:
            raise UsageError(f"no box is called {name[:64]!r}", kind="box_unknown", hint="see all: clisup fleet list")
        found = self._links[name] = PageLink(f"box:{name}")
        self._nursery.start_soon(self._keep, found)
        return found

    async def views(self) -> list[ShownBox]:
        """Return the boxes of this user, as the fleet's agent knows them."""
        return await trio.to_thread.run_sync(_known)

    async def _keep(self, link: PageLink) -> None:
        """Run a link, and again after a refusal: the box may let this one in later."""
        while True:
            try:
                await link.run()
            except ClisupError:
                await trio.sleep(AGAIN_S)


AGAIN_S = 5.0


def _known() -> list[ShownBox]:
    try:
        return box_views(list(boxes(os.environ)), known_members() or {})
    except ClisupError:
        return []
