"""One POST: a certificate that nobody vouches for is refused, and no error holds the address."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

from clisup.host.http_post import post


def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed here")
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1", "-days", "2"]
    subprocess.run([*made, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    got: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        try:
            with context.wrap_socket(connection, server_side=True) as secure:
                got.append(secure.recv(1000))
        except OSError:
            connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        answer = post(f"https://127.0.0.1:{listener.getsockname()[1]}/secret-path", b"body", {}, timeout_s=30)
        thread.join(30)
    assert answer.status is None and "certificate is not valid" in str(answer.error) and got in ([], [b""])


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/secret-path", "https://127.0.0.1:99999/secret-path", "http://\u00e9..x/secret-path"]
)
def test_an_error_does_not_hold_the_address(url: str) -> None:
    answer = post(url, b"", {}, timeout_s=30)
    assert answer.status is None and answer.error and "secret-path" not in answer.error
