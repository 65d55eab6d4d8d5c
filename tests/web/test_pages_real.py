"""`clisup web` over loopback with a real daemon: signing in, roles, answers, live pages through kills, and hostile requests."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from typing import Any

import pytest
from harness import Harness, until
from web_process import Browser, Pages

ASK = '@ask Bash {"command": "git push", "description": "Publish"}\nPublished.'
SCRIPT = "<script>document.title='owned'</script>"


def ask(pages: Pages, prompt: str = ASK, **params: Any) -> tuple[str, str]:
    """Open a live session that asks; return its id and the approval's."""
    before = {one["session_id"] for one in pages.daemon.call("approval/list")["approvals"]}
    settings = {"mode": "live", "permission_mode": "default", **params}
    new = pages.daemon.call("session/new", backend="demo", cwd=str(pages.daemon.cwd), **settings)["session_id"]
    pages.daemon.call("session/prompt", session_id=new, prompt=prompt)

    def asked() -> dict[str, Any] | None:
        pending = pages.daemon.call("approval/list")["approvals"]
        return next((one for one in pending if one["session_id"] == new and new not in before), None)

    return new, str(until(asked, "nothing asks")["approval_id"])


def resolved(daemon: Harness, session_id: str) -> list[dict[str, Any]]:
    page = daemon.call("session/events", session_id=session_id, after_seq=0, types=["approval_resolved"])
    return list(page["events"])


def test_a_browser_signs_in_by_a_link_and_answers_an_approval_in_its_own_name(pages: Callable[..., Pages]) -> None:
    made = pages()
    session_id, approval_id = ask(made)
    browser = made.browser("approve", "phone")
    status, page, headers = browser.get("/")
    assert status == 200 and "Needs you" in page and f"/sessions/{session_id}" in page
    assert "git push" in browser.get("/approvals")[1]
    assert "git push" in browser.get(f"/approvals/{session_id}/{approval_id}")[1]
    assert browser.post(f"/approvals/{session_id}/{approval_id}", {"decision": "allow"})[0] == 303
    (event,) = until(lambda: resolved(made.daemon, session_id), "no answer")
    assert (event["decision"], event["actor"]["client"]) == ("allow", "clisup-web:phone")
    assert browser.post(f"/approvals/{session_id}/{approval_id}", {"decision": "deny"})[0] == 409
    assert browser.get(f"/approvals/{session_id}/{approval_id}")[0] == 404
    assert headers["content-security-policy"].startswith("default-src 'self'")
    assert (
        "unsafe" not in headers["content-security-policy"]
        and "frame-ancestors 'none'" in headers["content-security-policy"]
    )
    assert (headers["x-frame-options"], headers["cache-control"]) == ("DENY", "no-store")


def test_several_approvals_are_answered_at_once(pages: Callable[..., Pages]) -> None:
    made = pages()
    asked = [ask(made)[0] for _ in range(3)]
    browser = made.browser()
    keys = re.findall(r'name="pick" value="([^"]+)"', browser.get("/approvals")[1])
    assert len(keys) == 3
    assert browser.post("/approvals", {"pick": keys[:2], "decision": "deny"})[0] == 303
    until(lambda: len([one for one in asked if resolved(made.daemon, one)]) == 2, "not denied")
    assert len(made.daemon.call("approval/list")["approvals"]) == 1


def test_the_role_says_what_a_browser_may_do(pages: Callable[..., Pages]) -> None:
    made = pages()
    session_id, approval_id = ask(made)
    answer, prompt = f"/approvals/{session_id}/{approval_id}", f"/sessions/{session_id}/prompt"
    observer = made.browser("observe")
    assert observer.get("/approvals")[0] == 200 and "decision" not in observer.get("/approvals")[1]
    assert observer.post(answer, {"decision": "allow"})[0] == 403
    assert made.browser("approve").post(prompt, {"prompt": "Hi"})[0] == 403
    assert resolved(made.daemon, session_id) == []
    driver = made.browser("drive")
    assert driver.post(answer, {"decision": "deny", "message": "not now"})[0] == 303
    until(lambda: resolved(made.daemon, session_id), "no answer")
    assert driver.post(f"/sessions/{session_id}/close", {})[0] == 303


def test_a_session_is_opened_prompted_interrupted_and_closed_from_the_page(pages: Callable[..., Pages]) -> None:
    made = pages()
    browser = made.browser()
    form = browser.get("/sessions/new")[1]
    hidden = dict(re.findall(r'name="(session_id|key)" value="([^"]+)"', form))
    fields = {**hidden, "backend": "demo", "cwd": str(made.daemon.cwd), "prompt": "@stall", "title": "From a phone"}
    assert [browser.post("/sessions/new", fields)[0] for _ in range(2)] == [303, 303]  # sent twice, opened once
    (row,) = made.daemon.call("session/list")["sessions"]
    assert (row["session_id"], row["title"], row["turns"]) == (hidden["session_id"], "From a phone", 1)
    path = f"/sessions/{row['session_id']}"
    key = re.findall(r'name="key" value="([^"]+)"', browser.get(path)[1])[0]
    assert [browser.post(f"{path}/prompt", {"prompt": "Next", "key": key})[0] for _ in range(2)] == [303, 303]
    assert len(made.daemon.call("session/get", session_id=row["session_id"])["queue"]) == 1
    assert browser.post(f"{path}/interrupt", {})[0] == 303
    until(lambda: made.daemon.call("session/get", session_id=row["session_id"])["state"] == "idle", "not idle")
    page = until(lambda: (text := browser.get(path)[1]) and "You said: Next" in text and text, "no answer")
    assert "interrupted" in page
    assert browser.post(f"{path}/close", {})[0] == 303
    assert "Close the session" not in browser.get(path)[1]
    assert browser.post(f"{path}/prompt", {"prompt": " "})[0] == 400


# -- live pages


def keys_of(html: str) -> list[str]:
    return re.findall(r'class="piece" id="(e\d+-\d+)"', html)


def test_a_page_that_slept_through_kills_of_the_daemon_and_the_pages_shows_every_event_once(
    pages: Callable[..., Pages],
) -> None:
    made = pages()
    prompt = "".join(f'@tool Read {{"file_path": "{n}"}}\n@sleep 0.05\n' for n in range(60)) + "Done."
    new = made.daemon.call("session/new", backend="demo", cwd=str(made.daemon.cwd))["session_id"]
    made.daemon.call("session/prompt", session_id=new, prompt=prompt)
    browser = made.browser("observe")
    page = until(lambda: (text := browser.get(f"/sessions/{new}")[1]) and keys_of(text) and text, "nothing yet")
    found = re.search(r'hx-sse:connect="([^"]+)"', page)
    assert found
    seen, last, kills = keys_of(page), "", 0
    while True:
        stream = browser.stream(found[1], last)
        over = False
        while not over and (message := stream.message()) is not None:
            seen += keys_of(message)
            over = 'class="end"' in message
            if kills < 2 and len(seen) > 15 * (kills + 1):
                kills += 1
                break
        last = stream.last
        stream.close()
        if over:
            break
        made.kill()
        made.daemon.kill()
        made.daemon.start()
        made.start()
    whole = keys_of(browser.get(f"/sessions/{new}")[1])
    assert kills == 2 and len(whole) > 120
    assert seen == whole


def test_an_approval_comes_to_an_open_page_and_leaves_it(pages: Callable[..., Pages]) -> None:
    made = pages()
    browser = made.browser("approve")
    stream = browser.stream("/approvals/live?shown=")
    session_id, approval_id = ask(made)
    message = stream.message()
    assert message and "git push" in message and 'name="form_token"' in message
    made.daemon.call("approval/respond", session_id=session_id, approval_id=approval_id, decision="deny")
    message = stream.message()
    assert message and 'hx-swap="delete"' in message and "git push" not in message
    stream.close()


def test_a_revoked_browser_is_signed_out_of_pages_and_streams(pages: Callable[..., Pages]) -> None:
    made = pages()
    browser = made.browser()
    stream = browser.stream("/live")
    assert stream.message()
    (token,) = made.book.tokens()
    made.book.revoke(token.id)
    ask(made)
    while (message := stream.message()) is not None:
        assert "approval" not in message
    stream.close()
    assert browser.get("/")[0] == 401
    assert browser.post_bare("/approvals", {"decision": "allow"})[0] == 401


def test_fifty_pages_are_live_while_some_read_nothing(pages: Callable[..., Pages]) -> None:
    made = pages()
    new = made.daemon.call("session/new", backend="demo", cwd=str(made.daemon.cwd))["session_id"]
    browser = made.browser("observe")
    path = f"/sessions/{new}/live?after=0"
    stalled = []
    for _ in range(5):
        slow = socket.create_connection(("127.0.0.1", made.port))
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{made.port}\r\nCookie: {browser.cookie}\r\n\r\n".encode())
        stalled.append(slow)
    streams = [browser.stream(path if number % 2 else "/live") for number in range(50)]
    made.daemon.call("session/prompt", session_id=new, prompt="@stream 800 2000 0.005")
    for number, stream in enumerate(streams):
        wanted = 'class="end"' if number % 2 else "Done <span"
        while wanted not in (message := stream.message() or ""):
            assert message, "the stream ended"
        stream.close()
    assert browser.get("/")[0] == 200
    for slow in stalled:
        slow.close()
    assert made.end() == 0


# -- hostile texts and requests


def test_texts_of_others_are_escaped_on_every_page(pages: Callable[..., Pages]) -> None:
    made = pages()
    prompt = f'{SCRIPT}\n@tool Read {{"file_path": "{SCRIPT}"}} => {SCRIPT}\n@ask Bash {{"command": "{SCRIPT}"}}'
    session_id, approval_id = ask(made, prompt, title=SCRIPT[:80])
    browser = made.browser()
    for path in (
        "/",
        "/approvals",
        f"/approvals/{session_id}/{approval_id}",
        f"/sessions/{session_id}",
        "/sessions/new",
    ):
        page = browser.get(path)[1]
        assert ("<script>" not in page and "owned" in page) or path == "/sessions/new"
    stream = browser.stream(f"/sessions/{session_id}/live?after=1")
    for _ in range(2):
        assert "<script>" not in (stream.message() or "")
    stream.close()


def test_a_huge_output_makes_a_bounded_page_with_a_link_to_the_whole(pages: Callable[..., Pages]) -> None:
    made = pages()
    new = made.daemon.call("session/new", backend="demo", cwd=str(made.daemon.cwd))["session_id"]
    prompt = f'@tool Read {{"file_path": "big"}} => {"x" * 3_000_000}'
    made.daemon.call("session/prompt", session_id=new, prompt=prompt, wait=True)
    browser = made.browser("observe")
    page = browser.get(f"/sessions/{new}")[1]
    assert len(page) < 300_000
    links = re.findall(rf'href="(/sessions/{new}/blobs/[^"]+)"', page)
    assert links
    for link in links:
        status, text, headers = browser.get(link)
        assert (status, headers["content-type"], headers["x-content-type-options"]) == (
            200, "text/plain; charset=utf-8", "nosniff")  # fmt: skip
        assert len(text) > 100_000
    stream = browser.stream(f"/sessions/{new}/live?after=0")
    message = stream.message() or ""
    while links[0] not in message:  # a live page has the same link
        message = stream.message() or ""
        assert message
    stream.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:9"}, 403),
        ({"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "image"}, 403),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"}, 403),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}, 200),
    ],
)
def test_requests_of_other_sites_are_refused(lasting: Browser, headers: dict[str, str], status: int) -> None:
    assert lasting.get("/", **headers)[0] == status


def test_a_form_needs_its_token_and_an_own_origin(lasting: Browser) -> None:
    fields = {"decision": "allow"}
    assert lasting.post("/approvals", fields)[0] == 303
    assert lasting.post_bare("/approvals", fields)[0] == 403
    assert lasting.post("/approvals", {**fields, "form_token": "0" * 64})[0] == 403
    assert lasting.post("/approvals", fields, Origin="http://127.0.0.1:9")[0] == 403
    assert lasting.post("/approvals", {**fields, "message": "x" * 300_000})[0] == 413
    other = lasting.pages.browser()
    assert (
        lasting.post(
            "/approvals", {**fields, "form_token": re.findall(r'form_token" value="(\w+)', other.get("/")[1])[0]}
        )[0]
        == 403
    )


def test_without_a_token_there_is_one_page_and_no_fact(lasting: Browser) -> None:
    stranger = Browser(lasting.pages)
    for path in ("/", "/approvals", "/live", "/sessions/new", "/sessions/x", "/nothing"):
        status, page, _ = stranger.get(path)
        assert status == 401 and "clisup web --print-link" in page and "demo" not in page
    assert stranger.get("/login?code=guess")[0] == 401
    assert stranger.get("/static/style.css")[0] == 200
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/passwd"):
        assert stranger.get(path)[0] in (401, 404)
    again = stranger.get("/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="document")[1]
    assert 'http-equiv="refresh"' in again


def test_a_link_works_once_and_its_cookie_is_strict(lasting: Browser) -> None:
    code = lasting.pages.book.add_link("once", "observe")
    stranger = Browser(lasting.pages)
    status, _, headers = stranger.sign_in(code)
    assert status == 200
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(headers["set-cookie"].split("; "))
    assert stranger.get(f"/login?code={code}")[0] == stranger.sign_in(code)[0] == 401


def test_a_preview_of_a_link_and_a_form_of_another_site_do_not_use_it_up(lasting: Browser) -> None:
    book = lasting.pages.book
    code, before = book.add_link("previewed", "observe"), len(book.tokens())
    stranger = Browser(lasting.pages)
    for method in ("HEAD", "GET", "GET", "OPTIONS"):
        headers = stranger.whole(method, f"/login?code={code}")[2]
        assert "set-cookie" not in headers
    for foreign in (
        {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": ""}, {"Sec_Fetch_Site": "cross-site"},
        {"Host": "evil.example"},
    ):  # fmt: skip
        assert stranger.sign_in(code, **foreign)[0] == 403
    assert stranger.whole("POST", f"/login?code={code}", "", Origin=lasting.pages.origin)[0] == 401
    assert len(book.tokens()) == before
    page = stranger.get(f"/login?code={code}")[1]
    assert 'method="post"' in page and "previewed" in page and "observe" in page
    assert stranger.sign_in(code)[0] == 200


def test_pages_say_that_the_daemon_is_away_and_come_back(pages: Callable[..., Pages]) -> None:
    made = pages()
    browser = made.browser()
    assert browser.get("/")[0] == 200
    made.daemon.kill()
    status, page, _ = browser.get("/")
    assert status == 503 and "does not answer" in page
    made.daemon.start()
    until(lambda: browser.get("/")[0] == 200, "the pages do not come back")


@pytest.fixture(scope="module")
def lasting() -> Any:
    """A browser of one server, for requests that change nothing."""
    daemon = Harness()
    daemon.start()
    made = Pages(daemon)
    made.start()
    yield made.browser()
    made.end()
    daemon.close()
