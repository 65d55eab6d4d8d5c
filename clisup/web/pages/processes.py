"""Page of a session's processes and environment."""

from __future__ import annotations

import trio
from starlette.requests import Request
from starlette.responses import Response

from clisup.cli.views.terminal import size
from clisup.client.raw import JsonObject
from clisup.errors import ClisupError
from clisup.host.process.listing import processes_below
from clisup.web.link import PageLink
from clisup.web.pages.session import stored_events
from clisup.web.pages.site import page_of, shown, site_of
from clisup.web.views.conversation import WINDOW_SEQS
from clisup.web.views.head import head_of
from clisup.web.views.processes import EVENTS, ends_of, environment_of, running_of, tree_of

__all__ = ["processes"]


@shown
async def processes(request: Request) -> Response:
    """Show the live process tree, the ends of processes, and the environment."""
    link, session_id = site_of(request).link, request.path_params["session_id"]
    row = await link.call("session/get", session_id=session_id)
    last = int(row["next_seq"]) - 1
    events = await stored_events(link, session_id, max(0, last - WINDOW_SEQS), last, EVENTS)
    started, running = running_of(events)
    tree = None
    if started is not None and running and row.get("keeper_pid"):
        tree = tree_of(await trio.to_thread.run_sync(processes_below, int(row["keeper_pid"])), started)
    return page_of(
        request, "processes.html", title="Processes and environment", head=head_of(row), running=running, keeper=row.get("keeper_pid"),
        memory=size(row.get("rss_bytes")), tree=tree, ends=ends_of(events), environment=environment_of(started, await _report(link, row)),
    )  # fmt: skip


async def _report(link: PageLink, row: JsonObject) -> JsonObject | None:
    """Return what the lists of the backend say, or None for a backend that is not configured any more."""
    try:
        report: JsonObject = await link.call("backend/env", name=row["backend"])
    except ClisupError as error:
        if error.kind != "backend_not_found":
            raise
        return None
    return report
