"""Open approvals as a page for a phone, with buttons; for loopback, behind a tunnel that brings TLS.

    CLISUP_WEBHOOK_TOKEN=... python approvals_webhook.py [--port 8787] [--notify URL --link URL]

Without the variable a token is made and printed. Open http://127.0.0.1:8787/?token=TOKEN once; a cookie keeps you logged in.
`--notify` posts a line of text to a push service (ntfy and the like) whenever a CLI begins to wait. It names the tool, never
what it would do.
"""

import argparse
import hashlib
import hmac
import html
import json
import os
import secrets
import sys
import threading
import urllib.request
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from clisup.client.answers import Answer, Approval
from clisup.client.sync import Client
from clisup.errors import ClisupError

TOKEN = os.environ.pop("CLISUP_WEBHOOK_TOKEN", "") or secrets.token_urlsafe(24)
LARGEST_FORM = 8192  # bytes
REFRESH_S = 5
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    # no scripts, nothing from elsewhere, and no other site may put this page into a frame and have you click on it
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
}
STYLE = (
    "body{font:1.1rem system-ui;margin:1rem;max-width:40rem}pre{white-space:pre-wrap;overflow-wrap:anywhere;"
    "background:#eee;padding:.6rem}button{font:inherit;padding:.8rem;width:48%}input{font:inherit;width:96%}"
)


def proof(of: str) -> str:
    """A word that only who knows the token can make: one for the cookie, another one for the forms."""
    return hmac.new(TOKEN.encode(), of.encode(), hashlib.sha256).hexdigest()


def same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


def visible(value: object) -> str:
    """As HTML. What would not print as itself is escaped first: no text may hide, or turn its neighbours around."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
    return html.escape("".join(c if c.isprintable() or c == "\n" else f"\\u{ord(c):04x}" for c in text))


def card(approval: Approval) -> str:
    shown = "".join(f"<b>{visible(name)}</b><pre>{visible(value)}</pre>" for name, value in approval.input.items())
    cut = "<p><b>Cut.</b> The whole is in <code>clisup approvals --json</code>.</p>" if approval.blob else ""
    hidden = {"id": approval.approval_id, "session": approval.session_id, "proof": proof("form")}
    fields = "".join(f'<input type="hidden" name="{k}" value="{html.escape(v)}">' for k, v in hidden.items())
    return (
        f"<h2>{visible(approval.tool_name)}</h2><p>{visible(approval.reason or '')} session {approval.session_id[:8]}</p>"
        f'{shown}{cut}<form method="post" action="/">{fields}<p><input name="message" maxlength="500" '
        'placeholder="if denied: say why"></p><button name="word" value="deny">Deny</button> '
        '<button name="word" value="allow">Allow</button></form>'
    )


class Page(BaseHTTPRequestHandler):
    timeout = 10  # of a peer that does not go on

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        token = parse_qs(asked.query).get("token", [""])[0]
        if token and same(token, TOKEN):  # logged in: the token leaves the address bar
            cookie = f"clisup={proof('cookie')}; HttpOnly; SameSite=Lax; Path=/; Max-Age=2592000"
            return self._say(303, "", {"Location": "/", "Set-Cookie": cookie})
        if asked.path != "/" or not self._logged_in():
            return self._say(403, "<p>Open this page with its token once: /?token=...</p>")
        try:
            with Client.connect(name="approvals-webhook") as client:
                cards = [card(approval) for approval in client.open_approvals()]
        except ClisupError as error:
            return self._say(503, f"<p>{visible(error.message)}</p>", {"Refresh": str(REFRESH_S)})
        return self._say(
            200, "<hr>".join(cards) or "<p>Nothing waits.</p>", {"Refresh": str(REFRESH_S)} if not cards else {}
        )

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        size = int(length) if length.isdecimal() and len(length) < 9 else 0
        if not 0 < size <= LARGEST_FORM:
            return self._say(413, "<p>That is no answer.</p>")
        form = {name: values[0] for name, values in parse_qs(self.rfile.read(size).decode("utf-8", "replace")).items()}
        if not self._logged_in() or not same(form.get("proof", ""), proof("form")):
            return self._say(403, "<p>This form is not ours.</p>")
        answer = Answer("deny", message=form.get("message")) if form.get("word") != "allow" else Answer("allow")
        try:
            with Client.connect(name="approvals-webhook") as client:
                client.respond(form.get("id", ""), answer, session_id=form.get("session"))
        except ClisupError as error:  # somebody was faster, or the turn has ended
            return self._say(409, f'<p>{visible(error.message)}</p><p><a href="/">Back</a></p>')
        return self._say(303, "", {"Location": "/"})

    def _logged_in(self) -> bool:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get("clisup")
        except CookieError:
            return False
        return found is not None and same(found.value, proof("cookie"))

    def _say(self, code: int, body: str, headers: dict[str, str] | None = None) -> None:
        head = '<!doctype html><meta name="viewport" content="width=device-width"><title>clisup</title>'
        data = f"{head}<style>{STYLE}</style>{body}".encode()
        self.send_response(code)
        for name, value in {**HEADERS, "Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its name in the base class
        """Nothing, also of a request that cannot be read: its address may hold the token."""


def tell(url: str, link: str) -> None:
    """Post a line for every approval that begins to wait; for ever, across restarts of the daemon."""
    with Client.connect(name="approvals-webhook") as client:
        for approval in client.approvals():
            text = f"{approval.tool_name[:40]!r} waits for your word: {link}"
            try:
                urllib.request.urlopen(urllib.request.Request(url, data=text.encode()), timeout=10).close()
            except OSError as error:
                print(f"not told: {error}", file=sys.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Open approvals as a page for a phone.")
    parser.add_argument("--port", type=int, default=8787)
    parser.add_argument("--notify", help="where to post a line when something begins to wait")
    parser.add_argument("--link", default="", help="the page's address as your phone knows it, for that line")
    wish = parser.parse_args()
    try:
        server = ThreadingHTTPServer(("127.0.0.1", wish.port), Page)
    except (OSError, OverflowError) as error:
        sys.exit(f"cannot listen at port {wish.port}, because of: {error}; give another one: --port N")
    if wish.notify:
        threading.Thread(target=tell, args=(wish.notify, wish.link), daemon=True).start()
    print(f"http://127.0.0.1:{server.server_address[1]}/?token={TOKEN}", flush=True)
    server.serve_forever()
