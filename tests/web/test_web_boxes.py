"""The strip of boxes on the first page."""

from __future__ import annotations

import pytest

from clisup.errors import UsageError
from clisup.web.boxes import MOST_BOXES, BoxLinks, ShownBox, box_views

ROWS = {
    "busy": {"state": "ok", "running": 2, "approvals": 1},
    "quiet": {"state": "ok"},
    "gone": {"state": "away", "beat_s": 240.0, "approvals": 3},
    "broken": {"state": "daemon_down"},
}


def test_a_box_shows_what_its_last_beat_said() -> None:
    assert box_views(["busy", "quiet", "gone", "broken", "by-ssh"], ROWS) == [
        ShownBox("busy", "asking", "2 running, 1 to answer", 1),
        ShownBox("quiet", "ok", "at rest", 0),
        ShownBox("gone", "away", "away for 4m", 0),
        ShownBox("broken", "away", "away", 0),
        ShownBox("by-ssh", "", "", 0),
    ]


def test_the_strip_is_bounded() -> None:
    assert len(box_views([f"b{number}" for number in range(MOST_BOXES + 5)], {})) == MOST_BOXES


def test_an_unknown_box_has_no_link(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(UsageError) as caught:
        BoxLinks().link("nowhere")
    assert caught.value.kind == "box_unknown"
