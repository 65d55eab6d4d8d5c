"""Push messages through a real daemon, a real `clisup web`, a push service on loopback, and the worker in Chromium."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import until
from push_service import PushService
from test_chromium_real import CHROMIUM, PHONE, chromium
from test_pages_real import SCRIPT, ask
from web_process import Pages

from clisup.web.access.guard import BODY_BYTES

__all__ = ["chromium"]

LOOPBACK = "import clisup.web.push.delivery as d; d.PRIVATE_HOSTS = True; d.PAUSES_S = (0.1, 0.1)"


@pytest.fixture
def told(pages: Callable[..., Pages], tmp_path: Path) -> Iterator[tuple[Pages, PushService]]:
    """Pages that may deliver to the push service on loopback."""
    service = PushService(tmp_path)
    made = pages()
    made.end()
    made.start(before=LOOPBACK, env={"SSL_CERT_FILE": str(service.certificate)})
    yield made, service
    service.close()


def test_an_approval_and_a_failed_turn_are_told_to_a_browser_that_asked(told: tuple[Pages, PushService]) -> None:
    made, service = told
    browser = made.browser("approve")
    assert "Notify this browser" in browser.get("/")[1]
    assert browser.post("/push", service.fields())[0] == 303
    assert "Stop notifying this browser" in browser.get("/")[1]
    ask(made, title="Publish it")
    until(lambda: service.requests, "no message")
    message = service.message(0)
    assert message["title"] == "Publish it" and "git push" not in str(message)
    assert "git push" in browser.get(message["path"])[1]
    failing = made.daemon.call("session/new", backend="demo", cwd=str(made.daemon.cwd), title="It fails")["session_id"]
    made.daemon.call("session/prompt", session_id=failing, prompt="@exit 3", wait=True)
    until(lambda: len(service.requests) == 2, "no second message")
    assert (service.message(1)["title"], service.message(1)["path"]) == ("It fails", f"/sessions/{failing}")
    assert browser.get(f"/sessions/{failing}")[0] == 200
    assert browser.post("/push", {})[0] == 303
    assert "Notify this browser" in browser.get("/")[1] and made.book.push_addresses() == {}


def test_an_approval_of_a_time_without_pages_is_told_after_the_next_start(told: tuple[Pages, PushService]) -> None:
    made, service = told
    assert made.browser().post("/push", service.fields())[0] == 303
    made.kill()
    made.daemon.kill()
    made.daemon.start()
    _, approval_id = ask(made)
    made.start(before=LOOPBACK, env={"SSL_CERT_FILE": str(service.certificate)})
    until(lambda: service.requests, "no message")
    assert service.message(0)["tag"].endswith(approval_id)


def test_a_revoked_browser_and_one_that_left_its_push_service_are_told_nothing_more(
    told: tuple[Pages, PushService],
) -> None:
    made, service = told
    service._answers = [410]
    gone = made.browser("observe", "gone")
    assert gone.post("/push", service.fields())[0] == 303
    ask(made)
    until(lambda: made.book.push_addresses() == {}, "the address stays")
    assert "Notify this browser" in gone.get("/")[1]
    revoked, other = made.browser("observe", "revoked"), made.browser("observe", "other")
    for one in (revoked, other):
        assert one.post("/push", service.fields())[0] == 303
    made.book.revoke(next(token.id for token in made.book.tokens() if token.name == "revoked"))
    session_id, _ = ask(made)
    until(lambda: len(service.requests) == 2, "no message")
    again, _ = ask(made)
    until(lambda: len(service.requests) == 3, "no message")
    assert [service.message(number)["tag"].partition("/")[0] for number in (1, 2)] == [session_id, again]


def test_hostile_push_addresses_are_refused(pages: Callable[..., Pages]) -> None:
    made = pages()
    browser = made.browser("observe")
    good = {"endpoint": "https://127.0.0.1/1", "p256dh": "B" + "A" * 86, "auth": "A" * 22}
    for changed in (
        {},  # of this machine
        {"endpoint": "https://localhost:1/"},
        {"endpoint": "https://169.254.169.254/latest/meta-data"},
        {"endpoint": "http://push.example/"},
        {"endpoint": "file:///etc/passwd"},
        {"endpoint": SCRIPT},
        {"endpoint": "https://push.example/\r\nEvil: yes"},
        {"p256dh": SCRIPT},
        {"auth": "\0" * 22},
        {"endpoint": ["https://127.0.0.1/1", "https://127.0.0.1/2"]},
    ):
        status, page = browser.post("/push", {**good, **changed})
        assert status == 400 and "<script>" not in page, changed
    assert browser.post("/push", {**good, "endpoint": "https://" + "x" * BODY_BYTES})[0] == 413
    assert browser.post_bare("/push", good)[0] == 403
    assert browser.post("/push", good, Origin="http://127.0.0.1:9")[0] == 403
    assert made.browser("observe", "nobody").whole("PUT", "/push", "", Origin=made.origin)[0] == 405
    assert made.book.push_addresses() == {}


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_worker_shows_a_message_and_the_button_says_what_the_browser_refuses(
    told: tuple[Pages, PushService], chromium: Any
) -> None:
    """Chromium of Debian has no push service of its own: DevTools brings the message, and the subscription is refused."""
    made, _ = told
    context = chromium.new_context(permissions=["notifications"])
    page = context.new_page()
    page.goto(f"{made.origin}/login?code={made.book.add_link('chromium', 'approve')}")
    page.click("main button")
    page.wait_for_selector("#notify:not([hidden])")
    devtools = context.new_cdp_session(page)
    found: list[str] = []
    devtools.on(
        "ServiceWorker.workerRegistrationUpdated",
        lambda event: found.extend(one["registrationId"] for one in event["registrations"]),
    )
    devtools.send("ServiceWorker.enable")
    page.click("#notify button")
    until(lambda: "This browser refuses" in page.inner_text("#notify"), "no word of the refusal")
    assert page.evaluate("navigator.serviceWorker.ready.then(found => found.scope)") == f"{made.origin}/"
    until(lambda: (page.evaluate("1"), found)[1], "no worker")
    session_id, approval_id = ask(made)
    path = f"/approvals/{session_id}/{approval_id}"
    data = json.dumps({"title": SCRIPT, "body": "Waits for your answer.", "path": path, "tag": "one"})
    for _ in range(2):  # the second one replaces the first
        devtools.send(
            "ServiceWorker.deliverPushMessage", {"origin": made.origin, "registrationId": found[0], "data": data}
        )
    shown = "navigator.serviceWorker.ready.then(found => found.getNotifications())"
    listed = f"{shown}.then(all => all.map(one => [one.title, one.body, one.data]))"
    assert until(lambda: page.evaluate(listed), "nothing is shown") == [[SCRIPT, "Waits for your answer.", path]]
    page.goto(made.origin + path)
    assert "git push" in page.inner_text("article.ask")
    context.close()


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_button_turns_messages_on_and_off(told: tuple[Pages, PushService], chromium: Any) -> None:
    """The subscription of the browser is a stand-in with the keys of the push service on loopback."""
    made, service = told
    given = service.fields()
    stand_in = json.dumps({"endpoint": given["endpoint"], "keys": {key: given[key] for key in ("p256dh", "auth")}})
    context = chromium.new_context(permissions=["notifications"], viewport=PHONE)
    context.add_init_script(
        f"PushManager.prototype.subscribe = async ({{applicationServerKey, userVisibleOnly}}) => {{"
        f"if (applicationServerKey.length !== 87 || !userVisibleOnly) throw Error('options');"
        f"return {{toJSON: () => ({stand_in})}}; }}"
    )
    page = context.new_page()
    page.goto(f"{made.origin}/login?code={made.book.add_link('chromium', 'approve')}")
    page.click("main button")
    page.click("#notify:not([hidden]) button")
    page.wait_for_selector("#notify[data-on]")
    ask(made, title="Publish it")
    until(lambda: service.requests, "no message")
    assert service.message(0)["title"] == "Publish it"
    page.click("#notify button")
    page.wait_for_selector("#notify:not([data-on])")
    assert made.book.push_addresses() == {}
    context.close()
