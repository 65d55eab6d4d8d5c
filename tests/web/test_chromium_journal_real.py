"""Timeline, processes and context in a real Chromium, at a phone's and a desktop's size: `make web-test`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import Harness, until
from test_chromium_real import AXE, CHROMIUM, DESKTOP, PHONE, Tab, chromium
from test_web_journal_real import ended, opened
from web_process import Pages

__all__ = ["chromium"]
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


def played(daemon: Harness) -> list[str]:
    """Play a running tool and a live session with a compaction; return the paths of their pages."""
    tool = opened(daemon, f"@bash sleep 3573; echo {'x' * 500}", title="x" * 100)
    live = opened(daemon, "Hello.", mode="live")
    ended(daemon, live)
    daemon.call("session/compact", session_id=live, wait=True)
    daemon.call("session/prompt", session_id=live, prompt="More.", wait=True)
    return ["/timeline", f"/timeline?session={live}&span=24h", f"/sessions/{tool}/processes", f"/sessions/{live}/processes",
            f"/sessions/{live}/context"]  # fmt: skip


@pytest.mark.parametrize("viewport", [PHONE, DESKTOP])
def test_the_pages_of_the_journal_fit_the_screen_and_break_no_policy(
    pages: Callable[..., Pages], chromium: Any, viewport: dict[str, int]
) -> None:
    made = pages()
    paths = played(made.daemon)
    tab = Tab(chromium, made, viewport)
    for path in paths:
        page = tab.go(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"], path
    page.click("text=Ask the CLI")
    page.wait_for_selector("#categories")
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    assert tab.problems == []


@pytest.mark.skipif(not AXE, reason="AXE_JS names no axe.min.js")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_on_the_pages_of_the_journal(
    pages: Callable[..., Pages], chromium: Any, scheme: str
) -> None:
    made = pages()
    paths = played(made.daemon)
    tab = Tab(chromium, made, PHONE, color_scheme=scheme)
    for path in paths:
        page = tab.go(path)
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        page.evaluate(Path(AXE).read_text())
        found = page.evaluate("axe.run().then(result => result.violations)")
        assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == [], path


def test_an_open_timeline_goes_on_and_keeps_its_open_table(pages: Callable[..., Pages], chromium: Any) -> None:
    made = pages()
    first = opened(made.daemon, "Hello.", title="First")
    ended(made.daemon, first)
    tab = Tab(chromium, made, PHONE, "observe")
    page = tab.go("/timeline")
    page.click(f"#f-{first} summary")
    opened(made.daemon, "@stall", title="Second")
    load = "document.getElementById('lanes').dispatchEvent(new Event('every'))"  # as htmx does after its time
    page.evaluate(load)
    page.wait_for_selector(".lane:nth-of-type(2)")
    assert page.get_attribute(f"#f-{first}", "open") is not None
    made.daemon.kill()
    with page.expect_response("**/timeline*", timeout=60_000) as answer:
        page.evaluate(load)
    assert answer.value.status == 503
    made.daemon.start()

    def went_on() -> bool:
        with page.expect_response("**/timeline*", timeout=60_000) as answer:
            page.evaluate(load)
        return bool(answer.value.status == 200)

    until(went_on, "the timeline does not come back")
    page.wait_for_selector("#lanes line.at.restart", state="attached")
    assert page.locator(".lane").count() == 2
    assert [one for one in tab.problems if "503" not in one] == []


def test_the_pages_of_processes_and_context_renew_themselves(pages: Callable[..., Pages], chromium: Any) -> None:
    made = pages()
    live = opened(made.daemon, "Hello.", mode="live")
    ended(made.daemon, live)
    tab = Tab(chromium, made, PHONE, "observe")
    load = "document.getElementById('renewed').dispatchEvent(new Event('every'))"  # as htmx does after its time
    page = tab.go(f"/sessions/{live}/context")
    page.click("summary")
    rows = page.locator("details tbody tr").count()
    made.daemon.call("session/prompt", session_id=live, prompt="More.", wait=True)
    page.evaluate(load)
    page.wait_for_selector(f"details tbody tr:nth-child({rows + 1})")
    assert page.get_attribute("details", "open") is not None
    page = tab.go(f"/sessions/{live}/processes")
    page.wait_for_selector("#tree")
    made.daemon.call("session/close", session_id=live)
    page.evaluate(load)
    page.wait_for_selector(".ended")
    assert page.locator("#tree").count() == 0 and tab.problems == []
