"""Sessions whose turns lie some days back: the dates in a stopped daemon's journals are changed."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from harness import Harness

from clisup.model.journal import JournalBlock, encode_block, encode_snapshot, scan

__all__ = ["backdate"]


def backdate(daemon: Harness, days: dict[str, int]) -> None:
    """Let all events of each session (id -> days) be as many days older. The daemon does not run meanwhile."""
    daemon.stop()
    for session_id, back in days.items():
        past = (datetime.now(UTC) - timedelta(days=back)).date().isoformat().encode()
        for path in (daemon.state / "sessions" / session_id).glob("journal/*"):
            entries = []
            for _, entry in scan(path.read_bytes()):
                if isinstance(entry, JournalBlock):
                    data = re.sub(rb'"ts":"\d{4}-\d\d-\d\d', b'"ts":"' + past, entry.frames.data)
                    entries.append(encode_block(entry._replace(frames=entry.frames._replace(data=data))))
                else:
                    assert not hasattr(entry, "why"), entry
                    entries.append(encode_snapshot(entry.state))
            path.write_bytes(b"".join(entries))
    daemon.start()
