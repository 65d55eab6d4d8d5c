"""One POST to an address: TLS verified, no redirect followed, no proxy, a bounded answer. Blocks: call it in a thread."""

from __future__ import annotations

import http.client
import ssl
import urllib.parse
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["ANSWER_LIMIT", "Posted", "post"]

ANSWER_LIMIT = 4096
"""Bytes of the answer that are read."""


class Posted(NamedTuple):
    """Answer: its status, the head of its text, and the seconds that the server asks to wait. Or the `error` without one."""

    status: int | None
    text: str = ""
    retry_after_s: float | None = None
    error: str | None = None


def post(url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float) -> Posted:
    """Send the body. `timeout_s` bounds each step; the caller bounds the whole. An error never holds the address."""
    connection: http.client.HTTPConnection | None = None
    try:
        parts = urllib.parse.urlsplit(url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        if parts.scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(
                parts.hostname or "", parts.port, timeout=timeout_s, context=context
            )
        else:
            connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
        connection.request("POST", path, body, {"User-Agent": "clisup", **headers})
        answer = connection.getresponse()
        text = answer.read(ANSWER_LIMIT).decode("utf-8", "replace")
        return Posted(answer.status, text, _seconds(answer.getheader("Retry-After")))
    except ssl.SSLCertVerificationError as error:
        return Posted(None, error=f"the certificate is not valid: {error.verify_message}")
    except TimeoutError:
        return Posted(None, error=f"no answer within {timeout_s:g} s")
    except ValueError:  # a port or a host name that is none
        return Posted(None, error="the address is not valid")
    except (OSError, http.client.HTTPException) as error:
        return Posted(None, error=getattr(error, "strerror", None) or type(error).__name__)
    finally:
        if connection is not None:
            connection.close()


def _seconds(value: str | None) -> float | None:
    """Return the seconds of a Retry-After header. A date is ignored."""
    return float(value) if value is not None and value.isascii() and value.isdigit() and len(value) < 7 else None
