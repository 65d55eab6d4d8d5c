"""The pages of cost and accounts with a real daemon, over loopback and in Chromium."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from backdating import backdate
from harness import until
from test_chromium_real import AXE, DESKTOP, PHONE, Tab, chromium
from web_process import Pages

__all__ = ["chromium"]

SCRIPT = "<script>document.title='owned'</script>"


def turn(pages: Pages, prompt: str, **params: Any) -> str:
    """Run a turn in a new session, and return the session's id."""
    new = pages.daemon.call("session/new", backend="demo", cwd=str(pages.daemon.cwd), **params)["session_id"]
    pages.daemon.call("session/prompt", session_id=new, prompt=prompt, wait=True)
    return str(new)


def limit(pages: Pages) -> str:
    """Let the account reach its limit, and a further session wait for the reset. Return the id of the waiting one."""
    turn(pages, "@limit 8000", title="It reaches the limit")
    new = pages.daemon.call("session/new", backend="demo", cwd=str(pages.daemon.cwd), title=SCRIPT)["session_id"]
    pages.daemon.call("session/prompt", session_id=new, prompt="Hi")
    until(lambda: pages.daemon.call("session/get", session_id=new)["held"], "nothing waits")
    return str(new)


def test_the_cost_is_shown_by_day_and_model_also_of_closed_sessions(pages: Callable[..., Pages]) -> None:
    made = pages()
    old = turn(made, "@cost 1.25\nHi")
    turn(made, "@cost 0.5\nHi", title=SCRIPT, budget={"usd": 2.0})
    made.daemon.call("session/close", session_id=old)
    backdate(made.daemon, {old: 3})
    status, page, _ = made.browser("observe").get("/cost")
    assert status == 200 and "$1.7500" in page and "demo-1" in page and "0.5 of 2 USD" in page
    day = time.strftime("%Y-%m-%d", time.gmtime(time.time() - 3 * 86_400))
    assert f'<th scope="row">{day}</th><td>$1.2500</td>' in page and f"<title>{day}: $1.2500</title>" in page
    assert "<script>document" not in page


def test_the_cost_of_one_session_has_the_line_of_its_budget(pages: Callable[..., Pages]) -> None:
    made = pages()
    session_id = turn(made, "@cost 0.5\nHi", budget={"usd": 2.0}, title=SCRIPT)
    turn(made, "@cost 7\nHi")
    browser = made.browser("observe")
    page = browser.get(f"/cost?session={session_id}")[1]
    assert 'class="limit"' in page and "$0.5000" in page and "$7.0000" not in page and "<script>document" not in page
    assert browser.get("/cost?session=nothing")[0] == 404
    assert browser.get("/cost?session=%22%3E%3Cb%3E")[0] == 404 and "<b>" not in browser.get("/cost?session=%3Cb%3E")[1]


def test_an_open_page_of_the_cost_follows_new_turns_and_restarts(pages: Callable[..., Pages]) -> None:
    made = pages()
    turn(made, "@cost 0.5\nHi")
    browser = made.browser("observe")
    stream = browser.stream("/cost/live")
    assert "$0.5000" in (stream.message() or "")
    turn(made, "@cost 0.25\nHi")
    assert "$0.7500" in (stream.message() or "")
    stream.close()
    made.daemon.restart()
    turn(made, "@cost 0.25\nHi")
    until(lambda: "$1.0000" in browser.get("/cost")[1], "the sum is old")


def test_the_accounts_show_the_time_until_the_reset_and_who_waits(pages: Callable[..., Pages]) -> None:
    made = pages(demo={"account": "work"})
    browser = made.browser("observe")
    assert "no limit reported yet" in browser.get("/accounts")[1]
    stream = browser.stream("/accounts/live")
    assert "work" in (stream.message() or "")
    waiting = limit(made)

    def told() -> str | None:
        text = stream.message() or ""
        return text if waiting in text else None

    text = until(told, "the stream is silent")
    stream.close()
    for page in (text, browser.get("/accounts")[1]):
        assert "limit reached" in page and "in 2 h 13 min" in page and "<script>document" not in page
        assert f'href="/sessions/{waiting}"' in page


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
@pytest.mark.parametrize(("viewport", "scheme"), [(PHONE, "dark"), (DESKTOP, "light")])
def test_chromium_draws_the_pages_within_the_screen_and_axe_finds_nothing_serious(
    pages: Callable[..., Pages], chromium: Any, viewport: dict[str, int], scheme: str
) -> None:
    made = pages(demo={"account": "work"})
    session_id = turn(made, "@cost 0.5\nHi", budget={"usd": 2.0}, title="x" * 100)
    tab = Tab(chromium, made, viewport, color_scheme=scheme)
    page = tab.go("/cost")
    page.wait_for_selector("tfoot >> text=$0.5000")
    turn(made, "@cost 0.25\nHi", title="Again")
    page.wait_for_selector("tfoot >> text=$0.7500")
    limit(made)
    for path in ("/cost", f"/cost?session={session_id}", "/accounts"):
        page = tab.go(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"], path
        if AXE:
            page.evaluate(Path(AXE).read_text())
            found = page.evaluate("axe.run().then(result => result.violations)")
            assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == [], path
    assert tab.problems == []
