"""`clisup web` as a command: what it refuses to serve, TLS, links beside a running server, and tokens."""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import sys
from collections.abc import Callable
from http.client import HTTPSConnection
from pathlib import Path

import pytest
from harness import PATIENCE_S
from web_process import Browser, Pages


def clisup(pages: Pages, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**pages.daemon.env, "CLISUP_SOCKET": pages.daemon.socket,
           "CLISUP_STATE_DIR": str(pages.daemon.root / "client-state")}  # fmt: skip
    argv = [sys.executable, "-m", "clisup", "web", *words]
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_other_networks_need_tls_and_a_taken_port_is_told(pages: Callable[..., Pages]) -> None:
    made = pages()
    for bind in ("0.0.0.0", "192.0.2.1", "::"):
        refused = clisup(made, "--bind", bind)
        assert (refused.returncode, "without TLS" in refused.stderr) == (2, True)
    assert clisup(made, "--tls-cert", "/x").returncode == 2
    assert clisup(made, "--url", "javascript:alert(1)").returncode == 2
    taken = clisup(made, "--port", str(made.port), "--no-start")
    assert (taken.returncode, "cannot listen" in taken.stderr) == (78, True)


def test_a_link_is_made_beside_the_server_and_tokens_are_listed_and_revoked(pages: Callable[..., Pages]) -> None:
    made = pages()
    printed = clisup(made, "--port", str(made.port), "--print-link", "--role", "observe").stdout
    link = re.search(r"http://127\.0\.0\.1:\d+(/login\?code=\S+)", printed)
    assert link
    browser = Browser(made)
    status, page, _ = browser.get(link[1])
    assert status == 200 and "observe" in page
    assert browser.sign_in(link[1].partition("=")[2])[0] == 200
    assert browser.get("/")[0] == 200
    row = json.loads(clisup(made, "tokens", "list", "--json").stdout)
    assert (row["name"], row["role"]) == ("link", "observe") and "observe" in clisup(made, "tokens", "list").stdout
    added = clisup(made, "tokens", "add", "phone", "--role", "approve", "--url", "https://box.example/").stdout
    assert "https://box.example/login?code=" in added
    assert clisup(made, "tokens", "revoke", "nothing").returncode == 2
    assert clisup(made, "tokens", "revoke", row["id"]).returncode == 0
    assert browser.get("/")[0] == 401


def test_with_tls_the_cookie_is_only_for_https(pages: Callable[..., Pages], tmp_path: Path) -> None:
    made = pages()
    made.end()
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(cert), "-days", "2"]
    done = subprocess.run(["openssl", *words, "-subj", "/CN=127.0.0.1"], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("openssl is not installed")
    made.start("--tls-cert", str(cert), "--tls-key", str(key))
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = HTTPSConnection("127.0.0.1", made.port, context=context, timeout=PATIENCE_S)
    form = {"Origin": f"https://127.0.0.1:{made.port}", "Content-Type": "application/x-www-form-urlencoded"}
    connection.request("POST", "/login", "code=" + made.book.add_link("tls", "observe"), form)
    answer = connection.getresponse()
    assert (answer.status, "; Secure" in (answer.getheader("set-cookie") or "")) == (200, True)
    answer.read()
    answer.close()
    connection.close()
