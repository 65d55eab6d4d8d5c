"""Certificates of the nodes, made by openssl: one CA for the fleet, and one certificate for each node."""

from __future__ import annotations

import ipaddress
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from clisup.errors import WorldError

__all__ = ["make_ca", "make_certificate"]

DAYS = 3650
"""Days for which certificates are valid."""
OPENSSL_S = 30.0
_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def make_ca(fleet: str, directory: str) -> None:
    """Write `ca.crt` and `ca.key` of a fleet. Raises `WorldError(spawn_failed)` without openssl."""
    extensions = "[req]\ndistinguished_name=name\nx509_extensions=ca\n[name]\n[ca]\nbasicConstraints=critical,CA:true\n"
    extensions += "keyUsage=critical,keyCertSign,cRLSign\nsubjectKeyIdentifier=hash\n"
    with _config(extensions) as config:
        _openssl("req", "-x509", *_CURVE, "-days", str(DAYS), "-subj", f"/CN=clisup fleet {fleet}", "-config", config,
                 "-keyout", os.path.join(directory, "ca.key"), "-out", os.path.join(directory, "ca.crt"))  # fmt: skip
    os.chmod(os.path.join(directory, "ca.key"), 0o600)


def make_certificate(host: str, ca_directory: str, directory: str) -> None:
    """Write `node.crt` and `node.key` of a node for its host name or address. Raises `WorldError(spawn_failed)`."""
    key, request = os.path.join(directory, "node.key"), os.path.join(directory, "node.csr")
    with _config("[req]\ndistinguished_name=name\n[name]\n") as config:
        _openssl(
            "req", "-new", *_CURVE, "-subj", f"/CN={host[:60]}", "-config", config, "-keyout", key, "-out", request
        )
    extensions = (
        f"subjectAltName={_alternative(host)}\nextendedKeyUsage=serverAuth,clientAuth\nbasicConstraints=CA:false\n"
    )
    with _config(extensions) as config:
        _openssl("x509", "-req", "-in", request, "-days", str(DAYS), "-CA", os.path.join(ca_directory, "ca.crt"),
                 "-CAkey", os.path.join(ca_directory, "ca.key"), "-set_serial", str(int.from_bytes(os.urandom(8), "big")),
                 "-extfile", config, "-out", os.path.join(directory, "node.crt"))  # fmt: skip
    os.unlink(request)
    os.chmod(key, 0o600)


def _alternative(host: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(host)}"
    except ValueError:
        return f"DNS:{host}"


@contextmanager
def _config(text: str) -> Iterator[str]:
    """Write a temporary file for openssl, and yield its path."""
    with tempfile.NamedTemporaryFile("w", prefix="clisup-", suffix=".cnf") as file:
        file.write(text)
        file.flush()
        yield file.name


def _openssl(*words: str) -> None:
    try:
        done = subprocess.run(
            ["openssl", *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=OPENSSL_S, check=False
        )
    except FileNotFoundError:
        message = "cannot make certificates, because openssl is not installed"
        raise WorldError(message, kind="spawn_failed", hint="install it: apt install openssl") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WorldError(f"cannot make certificates, because openssl failed: {error}", kind="spawn_failed") from None
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise WorldError(f"cannot make certificates, because openssl says: {''.join(last)[:200]}", kind="spawn_failed")
