"""A phone that sleeps while everything is killed, and one that answers what a terminal asks: both in a real Chromium."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from harness import until
from pty_terminal import Terminal
from session_probe import SessionProbe
from test_chromium_real import CHROMIUM, PHONE, Tab, chromium
from test_pages_real import resolved
from web_process import Pages

__all__ = ["chromium"]

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
SHOWN = "[...document.querySelectorAll('#log .piece')].map(e => e.id)"


def test_a_page_that_slept_through_kills_of_the_daemon_and_of_the_pages_shows_each_event_once(
    pages: Callable[..., Pages], chromium: Any
) -> None:
    made = pages()
    gate = made.daemon.root / "gate"
    tools = [f'@tool Read {{"file_path": "{number}"}}\n' for number in range(40)]
    prompt = "".join(tools[:10]) + f"@wait-file {gate}\n" + "".join(tools[10:]) + "Done."
    new = made.daemon.call("session/new", backend="demo", cwd=str(made.daemon.cwd))["session_id"]
    tab = Tab(chromium, made, PHONE, "observe")
    page = tab.go(f"/sessions/{new}")
    made.daemon.call("session/prompt", session_id=new, prompt=prompt)
    page.wait_for_selector("#log .piece:nth-of-type(20)")
    devtools = tab.context.new_cdp_session(page)
    devtools.send("Page.setWebLifecycleState", {"state": "frozen"})
    devtools.send("Network.enable")
    offline = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    devtools.send("Network.emulateNetworkConditions", offline)
    made.kill()
    made.daemon.kill()
    gate.touch()  # the turn goes on and ends while nobody sees it
    made.daemon.start()
    until(lambda: made.daemon.call("session/get", session_id=new)["last_turn"], "the turn does not end")
    made.start()
    devtools.send("Network.emulateNetworkConditions", {**offline, "offline": False})
    devtools.send("Page.setWebLifecycleState", {"state": "active"})
    page.wait_for_selector("#log .end")
    shown = page.evaluate(SHOWN)
    page.reload()
    assert shown == page.evaluate(SHOWN)
    assert len(shown) == len(set(shown)) > 80


@pytest.mark.parametrize("decision", ["allow", "deny"])
def test_an_answer_on_the_phone_reaches_the_cli_and_ends_the_question_of_a_terminal(
    pages: Callable[..., Pages], chromium: Any, decision: str
) -> None:
    made = pages()
    session = SessionProbe(
        made.daemon,
        made.daemon.call(
            "session/new", backend="demo", cwd=str(made.daemon.cwd), mode="live", permission_mode="default"
        )["session_id"],
    )
    terminal = Terminal(made.daemon, "attach", session.id[:8])
    try:
        terminal.until("Ctrl-D leaves]")
        turn = session.prompt('@run Bash {"command": "echo made > made.txt"}')
        terminal.until("[d]eny with a message: ")
        tab = Tab(chromium, made, PHONE, "approve")
        page = tab.go("/approvals")
        assert "echo made > made.txt" in page.inner_text("article.ask")
        page.click(f"article.ask button[value={decision}]")
        terminal.until(f"approval: {decision} Bash")
        session.end_of(turn)
        assert (made.daemon.cwd / "made.txt").exists() is (decision == "allow")
        (event,) = resolved(made.daemon, session.id)
        assert (event["decision"], event["actor"]["client"]) == (decision, "clisup-web:chromium")
        assert tab.problems == []
    finally:
        terminal.close()
