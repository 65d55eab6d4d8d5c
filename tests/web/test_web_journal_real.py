"""Timeline, processes and context of `clisup web` with a real daemon."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from typing import Any

from harness import Harness, until
from web_process import Pages

from clisup.web.views.timeline import EVENTS, LaneReader, Window, lane_of

SCRIPT = "<script>owned</script>"


def opened(daemon: Harness, prompt: str, **params: Any) -> str:
    """Open a session with a prompt; return its id."""
    new = str(daemon.call("session/new", backend="demo", cwd=str(daemon.cwd), **params)["session_id"])
    daemon.call("session/prompt", session_id=new, prompt=prompt)
    return new


def events_of(daemon: Harness, session_id: str, *types: str) -> list[dict[str, Any]]:
    page = daemon.call("session/events", session_id=session_id, after_seq=0, types=list(types), limit=1000)
    return list(page["events"])


def ended(daemon: Harness, session_id: str, turns: int = 1) -> list[dict[str, Any]]:
    """Wait for the end of the session's turns."""
    return until(
        lambda: (found := events_of(daemon, session_id, "turn_completed")) and len(found) >= turns and found, "no end"
    )


def notices(daemon: Harness, session_id: str, code: str) -> list[dict[str, Any]]:
    return [one for one in events_of(daemon, session_id, "notice") if one["code"] == code]


def test_a_turn_that_a_killed_daemon_adopted_is_one_unbroken_bar_with_a_hairline(pages: Callable[..., Pages]) -> None:
    made = pages()
    daemon, go = made.daemon, made.daemon.root / "go"
    session_id = opened(daemon, f"I wait.\n@wait-file {go}\nDone.", title="Survivor")
    until(lambda: events_of(daemon, session_id, "content_delta", "message"), "no output")
    daemon.kill()
    daemon.start()
    until(lambda: notices(daemon, session_id, "adopted"), "not adopted")
    go.touch()
    (end,) = ended(daemon, session_id)
    assert end["outcome"] == "completed"

    events = events_of(daemon, session_id, *EVENTS)
    (start,) = [datetime.fromisoformat(one["ts"]).timestamp() for one in events if one["type"] == "turn_started"]
    stop = datetime.fromisoformat(end["ts"]).timestamp()
    row = daemon.call("session/get", session_id=session_id)
    lane = lane_of(row, LaneReader(events), Window(start, stop, stop), whole=True)
    turn = [one for one in lane.segments if one.turn]
    assert {one.kind for one in turn} == {"model"} and (turn[0].start, turn[-1].end) == (start, stop)
    assert all(one.end == after.start for one, after in pairwise(turn)), "the bar is broken"
    (mark,) = [one for one in lane.marks if one.kind == "restart"]
    assert start < mark.at < stop and any(one.start < mark.at < one.end for one in turn)

    page = made.browser("observe").get(f"/timeline?session={session_id}")[1]
    (x,) = [
        float(found) for found in re.findall(r'class="at restart" x1="([\d.]+)%" x2="[\d.]+%" y1="0" y2="36"', page)
    ]
    bars = re.findall(r'class="seg model" x="([\d.]+)%" width="([\d.]+)%"', page)
    assert any(float(left) <= x <= float(left) + float(width) for left, width in bars)
    assert "Daemon restarted: 1" in page and "Timeline of Survivor" in page


def test_the_timeline_has_recent_sessions_and_the_span_that_is_asked_for(pages: Callable[..., Pages]) -> None:
    made = pages()
    first = opened(made.daemon, "Hello.", title="First")
    ended(made.daemon, first)
    second = opened(made.daemon, '@tool Read {"file_path": "a"}', title="Second")
    ended(made.daemon, second)
    browser = made.browser("observe")
    page = browser.get("/timeline")[1]
    assert page.index("Second") < page.index("First") and 'href="?span=24h"' in page
    assert "First" not in browser.get(f"/timeline?session={second}&span=6h")[1]
    assert browser.get("/timeline?span=1y%22%3E")[0] == 200
    assert browser.get("/timeline?session=nothing")[0] in (400, 404)


def test_the_processes_of_a_tool_are_shown_as_a_tree_while_it_runs(pages: Callable[..., Pages]) -> None:
    made = pages()
    session_id = opened(made.daemon, "@bash sh -c 'sleep 3571 & wait'")
    browser = made.browser("observe")
    page = until(
        lambda: "sleep 3571</code>" in (text := browser.get(f"/sessions/{session_id}/processes")[1]) and text,
        "no process",
    )
    tree = page[page.index('id="tree"') : page.index("Ends of processes")]
    pids = [int(pid) for pid in re.findall(r"<tr><td>(\d+)</td>", tree)]
    started = events_of(made.daemon, session_id, "process_started")[0]
    assert pids[0] == started["pid"] and "the CLI" in tree and all(os.path.exists(f"/proc/{pid}") for pid in pids)
    assert re.search(r'class="depth[1-8]">sleep 3571</code>', tree)
    assert "got exactly the intended environment" in page and "CLISUP_SESSION" in page
    made.daemon.call("session/interrupt", session_id=session_id)
    ended(made.daemon, session_id)
    page = until(
        lambda: "No process runs" in (text := browser.get(f"/sessions/{session_id}/processes")[1]) and text,
        "it still runs",
    )
    assert "ended by client" in page


def test_what_the_end_of_a_turn_killed_is_shown(pages: Callable[..., Pages]) -> None:
    made = pages(timeouts={"tool_idle": 1, "model_idle": 1, "int_grace": 0.2, "term_grace": 0.2})
    orphan, stalled = opened(made.daemon, "@orphan setsid 600"), opened(made.daemon, "@stall")
    for one in (orphan, stalled):
        ended(made.daemon, one)
    browser = made.browser("observe")
    assert "Killed at the end" in browser.get(f"/sessions/{orphan}/processes")[1]
    page = browser.get(f"/sessions/{stalled}/processes")[1]
    assert "watchdog:model" in page and "fired" in page
    assert "Watchdog ended the turn: 1" in browser.get(f"/timeline?session={stalled}")[1]


def test_the_context_is_drawn_by_the_journal_and_counted_by_the_cli_when_asked(pages: Callable[..., Pages]) -> None:
    made = pages()
    session_id = opened(made.daemon, "Hello.", mode="live")
    ended(made.daemon, session_id)
    made.daemon.call("session/compact", session_id=session_id, wait=True)
    made.daemon.call("session/prompt", session_id=session_id, prompt="More.", wait=True)
    observer, driver = made.browser("observe"), made.browser("drive")
    path = f"/sessions/{session_id}/context"
    page = observer.get(path)[1]
    assert "2 model calls, 1 compaction" in page and 'class="at compaction"' in page
    assert "Ask the CLI" not in page and observer.post(path, {})[0] == 403
    assert notices(made.daemon, session_id, "asked") == [], "a look at the page asks nothing"
    status, page = driver.post(path, {})
    assert status == 200 and "200.0k" in page and 'id="categories"' in page
    assert len(notices(made.daemon, session_id, "asked")) == 1
    assert driver.get(path)[0] == 200


def test_sessions_without_a_process_or_context_have_their_pages(pages: Callable[..., Pages]) -> None:
    made = pages()
    new = made.daemon.call("session/new", backend="demo", cwd=str(made.daemon.cwd))["session_id"]
    browser = made.browser()
    assert "No process of this session has run" in browser.get(f"/sessions/{new}/processes")[1]
    assert "has not reported" in browser.get(f"/sessions/{new}/context")[1]
    assert browser.post(f"/sessions/{new}/context", {})[0] == 400
    assert browser.get(f"/timeline?session={new}")[0] == 200
    links = browser.get(f"/sessions/{new}")[1]
    assert all(f'href="{path}"' in links for path in (
        f"/timeline?session={new}", f"/sessions/{new}/processes", f"/sessions/{new}/context"))  # fmt: skip


def test_hostile_commands_and_names_are_escaped(pages: Callable[..., Pages]) -> None:
    made = pages()
    session_id = opened(made.daemon, f"@bash bash -c 'exec -a \"{SCRIPT}\" sleep 3572'", title=SCRIPT)
    browser = made.browser("observe")
    path = f"/sessions/{session_id}/processes"
    until(lambda: "owned" in browser.get(path)[1] and "sleep 3572" in browser.get(path)[1], "no process")
    named = opened(made.daemon, f'@tool {SCRIPT} {{"file_path": "{SCRIPT}"}} => {SCRIPT}', title=SCRIPT)
    ended(made.daemon, named)
    for page in (path, f"/sessions/{session_id}/context", f"/timeline?session={session_id}", f"/timeline?session={named}",
                 f"/sessions/{named}/processes", "/timeline"):  # fmt: skip
        status, text, _ = browser.get(page)
        assert status == 200 and "<script>" not in text and "owned" in text, page


def test_many_tool_calls_make_a_small_page(pages: Callable[..., Pages]) -> None:
    made = pages()
    prompt = "".join(f'@tool Read {{"file_path": "{n}"}}\n' for n in range(300)) + "Done."
    for one in [opened(made.daemon, prompt) for _ in range(3)]:
        ended(made.daemon, one)
    status, page, _ = made.browser("observe").get("/timeline")
    assert status == 200 and page.count('<section class="lane"') == 3 and len(page) < 200_000
