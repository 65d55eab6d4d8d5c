"""Hostile texts, names, browsers and cookies against a real `clisup web`, beside those of test_pages_real.py."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from harness import until
from test_chromium_real import CHROMIUM, DESKTOP, Tab, chromium, sync_api
from test_pages_real import SCRIPT, ask, lasting, resolved
from web_process import Browser, Pages

from clisup.web.stream import MOST_STREAMS

__all__ = ["chromium", "lasting"]

IN_CHROMIUM = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
MARKDOWN = (
    "[run](javascript:alert(1)) ![see](x onerror=alert(1)) <javascript:alert(1)>\n\n"
    "<iframe src=javascript:alert(1)></iframe><svg onload=alert(1)><a href='data:text/html,x'>y</a>\n\n"
    "```html\n</pre></code><script>document.title='owned'</script>\n```"
)


def shown_session(made: Pages, **params: Any) -> str:
    """A session with hostile Markdown, tool input and output, in a directory with a hostile name, that waits for an answer."""
    folder = made.daemon.cwd / "<img src=x onerror=alert(1)>'\""
    folder.mkdir(exist_ok=True)
    tool = f'@tool Edit {{"file_path": "/<img src=x>", "old_string": "{SCRIPT}", "new_string": "</ins>{SCRIPT}"}} => </pre>{SCRIPT}'
    prompt = f'{MARKDOWN}\n{tool}\n@ask Bash {{"command": "</pre>{SCRIPT}"}}'
    settings = {"mode": "live", "permission_mode": "default", **params}
    new = made.daemon.call("session/new", backend="demo", cwd=str(folder), title=SCRIPT[:80], **settings)["session_id"]
    made.daemon.call("session/prompt", session_id=new, prompt=prompt)
    until(lambda: made.daemon.call("approval/list")["approvals"], "nothing asks")
    return str(new)


@IN_CHROMIUM
def test_hostile_markdown_paths_and_outputs_are_text_on_every_page(pages: Callable[..., Pages], chromium: Any) -> None:
    made = pages()
    session_id = shown_session(made)
    tab = Tab(chromium, made, DESKTOP)
    for path in ("/", "/approvals", f"/sessions/{session_id}", "/sessions/new"):
        page = tab.go(path)
        foreign = "main :is(script, img, iframe, svg, object, embed), a[href^='javascript:' i], a[href^='data:' i]"
        assert page.evaluate(f'document.querySelectorAll("{foreign}").length') == 0, path
        handlers = "[...document.querySelectorAll('*')].filter(e => [...e.attributes].some(a => a.name.startsWith('on'))).length"
        assert page.evaluate(handlers) == 0, path
        assert not page.title().startswith("owned")
    assert "javascript:alert(1)" in tab.go(f"/sessions/{session_id}").inner_text("#log")  # as text
    assert tab.problems == []


@IN_CHROMIUM
def test_a_stored_page_of_a_tool_is_shown_as_text_and_runs_nothing(pages: Callable[..., Pages], chromium: Any) -> None:
    made = pages()
    new = made.daemon.call("session/new", backend="demo", cwd=str(made.daemon.cwd))["session_id"]
    prompt = f'@tool Read {{"file_path": "page.html"}} => <!doctype html><html><body>{SCRIPT * 20_000}</body></html>'
    made.daemon.call("session/prompt", session_id=new, prompt=prompt, wait=True)
    tab = Tab(chromium, made, DESKTOP)
    page = tab.go(f"/sessions/{new}")
    page.goto(made.origin + str(page.get_attribute(".cut a >> nth=0", "href")))
    assert page.title() == "" and page.evaluate("document.contentType") == "text/plain"
    assert page.evaluate("document.scripts.length") == 0 and "<script>" in page.inner_text("body")[:200]


@IN_CHROMIUM
def test_a_name_that_was_bound_again_to_this_machine_reads_and_changes_nothing(pages: Callable[..., Pages]) -> None:
    made = pages()
    session_id, approval_id = ask(made)
    rule = "--host-resolver-rules=MAP evil.example 127.0.0.1"
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", rule])
        tab = Tab(browser, made, DESKTOP)
        evil = f"http://evil.example:{made.port}"
        for path in ("/", "/static/page.js", "/login?code=" + made.book.add_link("rebound", "drive")):
            tab.page.goto(evil + path)
            assert tab.page.inner_text("body").strip() == "refused: unknown host"
        answer = f"fetch('/approvals/{session_id}/{approval_id}', {{method: 'POST', body: 'decision=allow'}}).then(r => r.status)"
        assert tab.page.evaluate(answer) == 403
        browser.close()
    assert resolved(made.daemon, session_id) == []
    assert [token.name for token in made.book.tokens()] == ["chromium"]  # the link is not used up


def test_a_stolen_cookie_is_worth_nothing_after_its_owner_signs_out(pages: Callable[..., Pages]) -> None:
    made = pages()
    session_id, approval_id = ask(made)
    owner, thief = made.browser(), Browser(made)
    thief.cookie = owner.cookie
    page = thief.get("/approvals")[1]
    form = {"form_token": (re.findall(r'name="form_token" value="(\w+)"', page))[0], "decision": "allow"}
    stream = thief.stream(f"/sessions/{session_id}/live?after=0")
    assert stream.message()
    assert owner.post("/logout", {})[0] == 303
    made.daemon.call("session/interrupt", session_id=session_id)
    while (message := stream.message()) is not None:
        assert "interrupted" not in message
    stream.close()
    for path in ("/", "/approvals", f"/sessions/{session_id}", f"/sessions/{session_id}/blobs/x", "/live"):
        status, text, _ = thief.get(path)
        assert status == 401 and "git push" not in text, path
    for path in (f"/approvals/{session_id}/{approval_id}", "/sessions/new", "/push", "/logout"):
        assert thief.post_bare(path, form)[0] == 401, path
    made.kill()
    made.start()
    assert thief.get("/")[0] == 401  # also for a new process


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Cookie": "clisup_web="},
        {"Cookie": "clisup_web=" + "x" * 5000},
        {"Cookie": "clisup_web=a; clisup_web=b"},
        {"Cookie": "clisup_web=\xff"},
        {"Cookie": 'clisup_web="\\'},
        {"Authorization": "Bearer x"},
        {"X_Forwarded_For": "127.0.0.1", "X_Forwarded_Host": "evil.example"},
    ],
)
def test_without_the_secret_of_a_token_no_header_opens_a_page(lasting: Browser, headers: dict[str, str]) -> None:
    stranger = Browser(lasting.pages)
    for path in ("/", "/live", "/sessions/new"):
        assert stranger.get(path, **headers)[0] == 401
    assert stranger.post_bare("/approvals", {"decision": "allow"}, **headers)[0] == 401


def connections(made: Pages, port: int) -> list[Any]:
    """Connections of the server with a browser's port."""
    assert made.process is not None
    found = psutil.Process(made.process.pid).net_connections("tcp")
    return [one for one in found if one.raddr and one.raddr.port == port]


def test_a_reader_that_stalls_is_cut_off_while_one_that_waits_stays(pages: Callable[..., Pages]) -> None:
    made = pages()
    made.end()
    made.start(before="import clisup.http.server as s; s.STALLED_S = 0.5")
    new = made.daemon.call("session/new", backend="demo", cwd=str(made.daemon.cwd))["session_id"]
    browser = made.browser("observe")
    waiting = browser.stream("/approvals/live?shown=")
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.connect(("127.0.0.1", made.port))
    port = slow.getsockname()[1]
    slow.sendall(
        f"GET /sessions/{new}/live?after=0 HTTP/1.1\r\nHost: 127.0.0.1:{made.port}\r\nCookie: {browser.cookie}\r\n\r\n".encode()
    )
    until(lambda: connections(made, port), "not connected")
    made.daemon.call("session/prompt", session_id=new, prompt="@stream 800 2000 0.001")
    until(lambda: not connections(made, port), "the stalled reader stays")
    ask(made)
    assert "git push" in (waiting.message() or "")
    waiting.close()
    slow.close()


def test_live_pages_are_bounded_and_a_closed_one_makes_room(pages: Callable[..., Pages]) -> None:
    made = pages()
    browser = made.browser("observe")
    streams = [browser.stream("/live") for _ in range(MOST_STREAMS)]
    assert all(stream.message() for stream in streams)
    assert browser.get("/live")[0] == 503 and browser.get("/")[0] == 200
    streams.pop().close()

    def comes_in() -> bool:
        stream = browser.stream("/live")
        stream.close()
        return stream.answer.status == 200

    until(comes_in, "no room")
    for stream in streams:
        stream.close()
