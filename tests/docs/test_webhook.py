"""docs/examples/approvals_webhook.py over loopback, with a real daemon: who may see, who may answer, and what a page holds."""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from html import unescape
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import urlencode

import pytest
from harness import ENVIRONMENT, Harness, until
from session_probe import SessionProbe

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "docs" / "examples" / "approvals_webhook.py"
TOKEN = "a-token-of-this-test"


class Hook:
    """The program, and a browser for it."""

    def __init__(self, daemon: Harness, *words: str) -> None:
        env = {
            **ENVIRONMENT,
            "PYTHONPATH": str(ROOT),
            "CLISUP_SOCKET": daemon.socket,
            "CLISUP_WEBHOOK_TOKEN": TOKEN,
        }
        argv = [sys.executable, "-W", "error", str(PROGRAM), "--port", "0", *words]
        self.process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(re.findall(r":(\d+)/", self.process.stdout.readline())[0])
        self.cookie = ""

    def ask(self, method: str, path: str, body: str | None = None, **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=40)
        form = {"Content-Type": "application/x-www-form-urlencoded"} if body is not None else {}
        connection.request(method, path, body, {"Cookie": self.cookie, **form, **headers})
        return connection.getresponse()

    def log_in(self) -> None:
        answer = self.ask("GET", f"/?token={TOKEN}")
        assert (answer.status, answer.headers["Location"]) == (303, "/")
        self.cookie = answer.headers["Set-Cookie"].split(";")[0]
        assert {"HttpOnly", "SameSite=Lax"} <= set(answer.headers["Set-Cookie"].split("; "))

    def page(self) -> str:
        answer = self.ask("GET", "/")
        assert answer.status == 200
        return answer.read().decode()

    def press(self, word: str, **changes: str) -> int:
        """Press a button of the first card; the answer's status."""
        fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', self.page()))
        form = {name: unescape(value) for name, value in fields.items()} | {"word": word, "message": "no"} | changes
        return self.ask("POST", "/", urlencode(form)).status


@pytest.fixture
def hook(serve: Callable[..., Harness]) -> Iterator[tuple[Hook, SessionProbe]]:
    daemon = serve()
    found = Hook(daemon)
    yield found, daemon.new(mode="live")
    found.process.kill()
    found.process.communicate()


def ask_for_leave(session: SessionProbe, command: str = "echo hi") -> str:
    turn = session.prompt(f'@ask Bash {{"command":"{command}"}}\nDone.')
    session.await_event("approval_requested", turn_id=turn)
    return turn


@pytest.mark.parametrize(("word", "denied"), [("allow", []), ("deny", ["Bash"])])
def test_a_button_answers(hook: tuple[Hook, SessionProbe], word: str, denied: list[str]) -> None:
    browser, session = hook
    browser.log_in()
    turn = ask_for_leave(session)
    assert "echo hi" in browser.page()
    assert browser.press(word) == 303
    assert session.end_of(turn)["denied"] == denied
    resolved = session.events("approval_resolved")[0]
    assert (resolved["decision"], resolved["actor"]["client"]) == (word, "approvals-webhook")
    assert "Nothing waits" in browser.page()


@pytest.mark.parametrize("path", ["/", "/?token=wrong", "/?token=", "/other", f"/other?x={TOKEN}"])
def test_who_has_no_token_sees_nothing(hook: tuple[Hook, SessionProbe], path: str) -> None:
    browser, session = hook
    ask_for_leave(session)
    for cookie in ("", "clisup=", "clisup=wrong", f"clisup={TOKEN}", "clisup=\xff"):
        answer = browser.ask("GET", path, Cookie=cookie)
        assert answer.status == 403
        assert b"echo" not in answer.read()


def test_a_form_of_another_site_answers_nothing(hook: tuple[Hook, SessionProbe]) -> None:
    """It may have the browser send the cookie, but it cannot know the proof; and who has no cookie cannot use a proof."""
    browser, session = hook
    browser.log_in()
    ask_for_leave(session)
    cookie_value = browser.cookie.split("=")[1]
    for proof in ("", "guessed", cookie_value, TOKEN):
        assert browser.press("allow", proof=proof) == 403
    fields = dict(re.findall(r'name="(\w+)" value="([^"]*)">', browser.page()))
    body = urlencode({**fields, "word": "allow"})
    assert browser.ask("POST", "/", body, Cookie="").status == 403
    assert browser.ask("POST", "/", "x" * 9000).status == 413
    assert browser.ask("POST", "/", "x", **{"Content-Length": "many"}).status == 413
    assert session.events("approval_resolved") == []


def test_who_is_late_is_told(hook: tuple[Hook, SessionProbe]) -> None:
    browser, session = hook
    browser.log_in()
    ask_for_leave(session)
    fields = dict(re.findall(r'name="(\w+)" value="([^"]*)">', browser.page()))
    assert browser.press("deny") == 303
    assert browser.ask("POST", "/", urlencode({**fields, "word": "allow"})).status == 409


def test_what_a_tool_would_run_cannot_break_out_of_the_page(hook: tuple[Hook, SessionProbe]) -> None:
    browser, session = hook
    browser.log_in()
    ask_for_leave(session, "</pre><script>x()</script>\\u202e\\u0007")
    page = browser.page()
    assert "<script>" not in page
    assert "&lt;script&gt;x()&lt;/script&gt;\\u202e\\u0007" in page
    answer = browser.ask("GET", "/")
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["Cache-Control"] == "no-store"


def test_it_says_when_the_daemon_is_away_and_goes_on_with_the_next(hook: tuple[Hook, SessionProbe]) -> None:
    browser, session = hook
    browser.log_in()
    turn = ask_for_leave(session)
    session.daemon.kill()
    assert browser.ask("GET", "/").status == 503
    session.daemon.start()
    until(lambda: "echo hi" in browser.page(), "the approval is not there any more")
    assert browser.press("allow") == 303
    assert session.end_of(turn)["outcome"] == "completed"


def test_a_push_service_is_told_that_something_waits_and_not_what(serve: Callable[..., Harness]) -> None:
    heard: list[bytes] = []

    class Service(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None: ...

    with HTTPServer(("127.0.0.1", 0), Service) as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        daemon = serve()
        url = f"http://127.0.0.1:{service.server_address[1]}/topic"
        browser = Hook(daemon, "--notify", url, "--link", "https://phone.example/")
        try:
            ask_for_leave(daemon.new(mode="live"))
            until(lambda: heard, "nothing is told")
        finally:
            browser.process.kill()
            browser.process.communicate()
            service.shutdown()
    assert heard == [b"'Bash' waits for your word: https://phone.example/"]


@pytest.mark.parametrize("port", ["used", "99999"])
def test_a_port_that_cannot_be_had_is_told_in_a_line(port: str) -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as other:
        wanted = str(other.server_port) if port == "used" else port
        argv = [sys.executable, "-W", "error", str(PROGRAM), "--port", wanted]
        done = subprocess.run(
            argv, env={**ENVIRONMENT, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr.startswith(f"cannot listen at port {wanted}, because of: ") and "--port N" in done.stderr
    assert done.stderr.count("\n") == 1
