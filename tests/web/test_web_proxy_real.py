"""`clisup web` behind nginx with TLS, configured as docs/how-to/web.md says."""

from __future__ import annotations

import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from http.client import HTTPResponse, HTTPSConnection
from pathlib import Path

import pytest
from harness import PATIENCE_S, until
from push_service import write_certificate
from test_pages_real import ask, keys_of, resolved
from web_process import Browser, Pages

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "web.md"
pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")


class SecureBrowser(Browser):
    """Browser that connects by TLS to a port of `localhost`."""

    def __init__(self, pages: Pages, port: int, certificate: Path) -> None:
        super().__init__(pages)
        self.port, self.context = port, ssl.create_default_context(cafile=str(certificate))

    def send(
        self, method: str, path: str, body: str | None = None, **headers: str
    ) -> tuple[HTTPSConnection, HTTPResponse]:
        connection = HTTPSConnection("localhost", self.port, context=self.context, timeout=PATIENCE_S)
        sent = {"Cookie": self.cookie} if self.cookie else {}
        connection.request(method, path, body, sent | {name.replace("_", "-"): text for name, text in headers.items()})
        return connection, connection.getresponse()


def configuration(folder: Path, port: int, pages: Pages) -> str:
    """The server of the page, with ports and files of the test."""
    server = re.search(r"```nginx\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert server
    text = server[1]
    for old, new in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("server_name box.example", "server_name localhost"),
        ("/etc/ssl/box.example.pem", f"{folder}/cert.pem"),
        ("/etc/ssl/box.example.key", f"{folder}/key.pem"),
        ("127.0.0.1:7777", f"127.0.0.1:{pages.port}"),
    ):
        assert old in text
        text = text.replace(old, new)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    return f"pid {folder}/pid;\nevents {{}}\nhttp {{\naccess_log off;\n{places}{text}}}\n"


@pytest.fixture
def proxied(pages: Callable[..., Pages], tmp_path: Path) -> Iterator[SecureBrowser]:
    made = pages()
    made.end()
    certificate, _ = write_certificate(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = int(taken.getsockname()[1])
    made.origin = f"https://localhost:{port}"
    made.start("--url", made.origin)
    (tmp_path / "nginx.conf").write_text(configuration(tmp_path, port, made))
    words = ["-p", str(tmp_path), "-e", str(tmp_path / "log"), "-c", str(tmp_path / "nginx.conf")]
    proxy = subprocess.Popen([str(NGINX), *words, "-g", "daemon off; master_process off;"])
    browser = SecureBrowser(made, port, certificate)
    try:
        until(lambda: proxy.poll() is not None or _listens(port), lambda: (tmp_path / "log").read_text())
        assert proxy.poll() is None, (tmp_path / "log").read_text()
        status, page, headers = browser.sign_in(made.book.add_link("phone", "approve"))
        assert status == 200, page
        assert "; Secure" in headers["set-cookie"]
        yield browser
    finally:
        proxy.terminate()
        proxy.wait(PATIENCE_S)


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def test_pages_and_answers_go_through_the_proxy(proxied: SecureBrowser) -> None:
    daemon = proxied.pages.daemon
    session_id, approval_id = ask(proxied.pages)
    path = f"/approvals/{session_id}/{approval_id}"
    assert "Needs you" in proxied.get("/")[1] and "git push" in proxied.get(path)[1]
    assert proxied.post(path, {"decision": "allow"}, Origin="https://localhost")[0] == 403
    assert proxied.get("/", Host="evil.example")[0] == 403
    assert proxied.post(path, {"decision": "allow"})[0] == 303
    (event,) = until(lambda: resolved(daemon, session_id), "no answer")
    assert (event["decision"], event["actor"]["client"]) == ("allow", "clisup-web:phone")


def test_a_stream_comes_piece_by_piece_through_the_proxy_and_continues_by_its_last_id(proxied: SecureBrowser) -> None:
    daemon = proxied.pages.daemon
    gate = daemon.root / "gate"
    prompt = f'@tool Read {{"file_path": "one"}}\n@wait-file {gate}\n@tool Read {{"file_path": "two"}}\nDone.'
    new = daemon.call("session/new", backend="demo", cwd=str(daemon.cwd))["session_id"]
    stream = proxied.stream(f"/sessions/{new}/live?after=0")
    daemon.call("session/prompt", session_id=new, prompt=prompt)
    seen, message = [], ""
    while "one" not in message:  # the turn cannot end before the gate, so this message is not of the end
        message = stream.message() or "one, too late"
        seen += keys_of(message)
    assert "too late" not in message
    last = stream.last
    stream.close()
    proxied.pages.kill()
    assert proxied.get("/")[0] == 502
    proxied.pages.start("--url", proxied.pages.origin)
    gate.touch()
    again = proxied.stream(f"/sessions/{new}/live?after=0", last)
    while 'class="end"' not in message:
        message = again.message() or 'class="end", too early'
        seen += keys_of(message)
    again.close()
    assert seen == keys_of(proxied.get(f"/sessions/{new}")[1])
