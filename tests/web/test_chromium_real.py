"""`clisup web` in a real Chromium, at a phone's and a desktop's size: `make web-test`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import until
from test_pages_real import SCRIPT, ask, resolved
from web_process import Pages

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
AXE = os.environ.get("AXE_JS", "")
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 800}
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


@pytest.fixture
def chromium() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Tab:
    """Page of a signed-in browser. `problems` are errors of scripts and violations of the policy."""

    def __init__(
        self, chromium: Any, pages: Pages, viewport: dict[str, int], role: Any = "drive", **settings: Any
    ) -> None:
        self.context = chromium.new_context(viewport=viewport, **settings)
        self.context.set_default_timeout(60_000)
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", lambda line: line.type == "error" and self.problems.append(line.text))
        self.page.goto(f"{pages.origin}/login?code={pages.book.add_link('chromium', role)}")
        self.page.click("main button")
        self.page.wait_for_selector("#cards")
        self.origin = pages.origin

    def go(self, path: str) -> Any:
        self.page.goto(self.origin + path)
        return self.page


@pytest.mark.parametrize("viewport", [PHONE, DESKTOP])
def test_no_page_is_wider_than_the_screen_and_no_policy_is_broken(
    pages: Callable[..., Pages], chromium: Any, viewport: dict[str, int]
) -> None:
    made = pages()
    session_id, _ = ask(made, title="x" * 100)
    tab = Tab(chromium, made, viewport)
    for path in ("/", "/approvals", f"/sessions/{session_id}", "/sessions/new"):
        page = tab.go(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"], path
        small = page.evaluate(
            "[...document.querySelectorAll('button, .button')].filter(e => e.getBoundingClientRect().height < 44).length"
        )
        assert small == 0, path
    assert tab.problems == []


@pytest.mark.skipif(not AXE, reason="AXE_JS names no axe.min.js")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(pages: Callable[..., Pages], chromium: Any, scheme: str) -> None:
    made = pages()
    session_id, _ = ask(made)
    tab = Tab(chromium, made, PHONE, color_scheme=scheme)
    for path in ("/", "/approvals", f"/sessions/{session_id}", "/sessions/new"):
        page = tab.go(path)
        page.evaluate(Path(AXE).read_text())
        found = page.evaluate("axe.run().then(result => result.violations)")
        assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == [], path


def test_an_approval_comes_to_a_sleeping_phone_and_is_given_while_a_terminal_has_it_open(
    pages: Callable[..., Pages], chromium: Any
) -> None:
    made = pages()
    tab = Tab(chromium, made, PHONE, "approve")
    page = tab.go("/approvals")
    assert page.is_visible("#none")
    session_id, _ = ask(made)
    page.wait_for_selector("article.ask")
    assert "git push" in page.inner_text("article.ask") and not page.is_visible("#none")
    with made.daemon.wire() as other:  # another client has the same question
        assert len(other.call("approval/list")["approvals"]) == 1
        page.click("article.ask button[value=allow]")
        page.wait_for_selector("#none")
        (event,) = until(lambda: resolved(made.daemon, session_id), "no answer")
        assert (event["decision"], event["actor"]["client"]) == ("allow", "clisup-web:chromium")
    until(lambda: made.daemon.call("session/get", session_id=session_id)["last_turn"], "the turn does not end")
    assert tab.problems == []


def test_an_approval_is_given_without_scripts(pages: Callable[..., Pages], chromium: Any) -> None:
    made = pages()
    session_id, _ = ask(made)
    tab = Tab(chromium, made, PHONE, "approve", java_script_enabled=False)
    page = tab.go("/approvals")
    page.fill("input[name=message]", "not now")
    page.click("article.ask button[value=deny]")
    (event,) = until(lambda: resolved(made.daemon, session_id), "no answer")
    assert (event["decision"], event["message"]) == ("deny", "not now")


def test_an_open_page_goes_on_through_kills_and_shows_every_piece_once(
    pages: Callable[..., Pages], chromium: Any
) -> None:
    made = pages()
    prompt = "".join(f'@tool Read {{"file_path": "{n}"}}\n@sleep 0.1\n' for n in range(60)) + "Done."
    new = made.daemon.call("session/new", backend="demo", cwd=str(made.daemon.cwd))["session_id"]
    made.daemon.call("session/prompt", session_id=new, prompt=prompt)
    tab = Tab(chromium, made, PHONE, "observe")
    page = tab.go(f"/sessions/{new}")
    page.wait_for_selector("#log .piece:nth-of-type(20)")
    made.kill()
    made.daemon.kill()
    made.daemon.start()
    made.start()
    page.wait_for_selector("#log .end")
    shown = page.evaluate("[...document.querySelectorAll('#log .piece')].map(e => e.id)")
    page.reload()
    assert shown == page.evaluate("[...document.querySelectorAll('#log .piece')].map(e => e.id)")
    assert len(shown) > 120


def test_hostile_texts_run_nothing(pages: Callable[..., Pages], chromium: Any) -> None:
    made = pages()
    prompt = (
        f'{SCRIPT}<img src=x onerror="document.title=\'owned\'">\n@tool Read {{"file_path": "{SCRIPT}"}} => {SCRIPT}'
    )
    session_id, _ = ask(made, f'{prompt}\n@ask Bash {{"command": "{SCRIPT}"}}', title=SCRIPT)
    tab = Tab(chromium, made, DESKTOP)
    for path in ("/", "/approvals", f"/sessions/{session_id}"):
        page = tab.go(path)
        page.wait_for_timeout(500)  # live messages come, too
        assert "owned" not in page.evaluate("document.title.replace(/script.*/, '')"), path
        assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert tab.problems == []


def test_a_page_of_another_origin_can_neither_frame_nor_send_nor_read(
    pages: Callable[..., Pages], chromium: Any
) -> None:
    """The other page is on another port of this machine: the same site, so that the browser sends the cookie along."""
    made = pages()
    session_id, approval_id = ask(made)
    tab = Tab(chromium, made, DESKTOP)
    target = f"{made.origin}/approvals/{session_id}/{approval_id}"
    body = (
        f'<iframe src="{made.origin}/"></iframe><form method="post" action="{target}">'
        '<input name="decision" value="allow"><button>Win a prize</button></form>'
    )
    tab.page.route("http://127.0.0.1:9/", lambda route: route.fulfill(body=body, content_type="text/html"))
    tab.page.goto("http://127.0.0.1:9/")
    assert tab.page.frames[1].evaluate("document.body ? document.body.innerText : ''").find("Needs you") < 0
    read = tab.page.evaluate(
        f"fetch('{made.origin}/', {{credentials: 'include'}}).then(r => r.text(), () => 'refused')"
    )
    assert read == "refused"
    tab.page.click("button")
    tab.page.wait_for_url("**/approvals/**")
    assert "refused" in tab.page.inner_text("body")
    assert resolved(made.daemon, session_id) == []
