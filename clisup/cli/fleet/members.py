"""Members of the fleet as this box's agent knows them: state, age of the last beat, load, and events that are not copied."""

from __future__ import annotations

import os

from clisup.client.raw import JsonObject, RawClient
from clisup.errors import ClisupError
from clisup.fleet.member import joined
from clisup.fleet.places import agent_socket
from clisup.locations import HERE

__all__ = ["known_members"]


def known_members() -> dict[str, JsonObject] | None:
    """Return a row for each member by the name that `--fleet` uses, or None for a box without a fleet or agent."""
    member = joined(os.environ)
    if member is None:
        return None
    try:
        with RawClient.connect(agent_socket(os.environ, os.getuid()), name="clisup-fleet") as client:
            rows = client.call("fleet/boxes")["boxes"]
        return {HERE if row["box"] == member.name else str(row["box"]): row for row in rows}
    except (ClisupError, KeyError, TypeError):
        return None
