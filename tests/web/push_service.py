"""A push service on loopback with a certificate of its own, and the keys of a browser that subscribed there."""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import socket
import ssl
import threading
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import http_ece
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from py_vapid import Vapid02


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """Write a certificate for 127.0.0.1 and localhost, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))
    form = serialization.PrivateFormat.PKCS8
    (folder / "key.pem").write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
    return folder / "cert.pem", folder / "key.pem"


def encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


class PushService:
    """Service in a thread. It answers each POST with the next of `answers`, then with 201."""

    def __init__(self, folder: Path, *answers: int | bytes) -> None:
        self.certificate, key = write_certificate(folder)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(self.certificate, key)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._browser = ec.generate_private_key(ec.SECP256R1())
        self._secret = os.urandom(16)
        self._answers = list(answers)
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def fields(self, path: str = "/push/1?x=y") -> dict[str, str]:
        """What the browser gives to the page."""
        encoding, form = serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
        point = self._browser.public_key().public_bytes(encoding, form)
        endpoint = f"https://localhost:{self.port}{path}"
        return {"endpoint": endpoint, "p256dh": encoded(point), "auth": encoded(self._secret)}

    def message(self, number: int) -> dict[str, Any]:
        """The text that the browser reads. The signature and the headers are checked, too."""
        line, headers, body = self.requests[number]
        assert line.startswith("POST /push/1?x=y ") and headers["content-encoding"] == "aes128gcm"
        assert Vapid02.verify(headers["authorization"])
        assert int(headers["ttl"]) > 0 and len(headers["topic"]) == 32
        plain = http_ece.decrypt(body, private_key=self._browser, auth_secret=self._secret, version="aes128gcm")
        return dict(json.loads(plain))

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            try:
                with self._context.wrap_socket(connection, server_side=True) as secured:
                    self._answer(secured)
            except OSError:  # a client that trusts no such certificate, or leaves
                continue
            finally:
                connection.close()

    def _answer(self, secured: ssl.SSLSocket) -> None:
        with secured.makefile("rb") as lines:
            line = lines.readline().decode()
            headers = {}
            while (header := lines.readline().decode().strip()) != "":
                name, _, value = header.partition(": ")
                headers[name.lower()] = value
            self.requests.append((line, headers, lines.read(int(headers["content-length"]))))
            answer = self._answers.pop(0) if self._answers else 201
            head = b"HTTP/1.1 %d Said\r\nContent-Length: 0\r\n\r\n" % answer if isinstance(answer, int) else answer
            secured.sendall(head)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
