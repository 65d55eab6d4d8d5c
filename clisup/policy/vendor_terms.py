"""Logins that `clisup gateway` serves only with `allow_subscription`, and what the vendors' pages say about them. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

__all__ = ["TERMS", "TERMS_DATE", "VendorTerms", "logs_in_by_key"]

TERMS_DATE = "2026-11-26"
"""Day on which copies of the pages were read."""

_KEY_KINDS = ("anthropic-api", "openai-api", "demo")


class VendorTerms(NamedTuple):
    """Address of a vendor's page, and its statement on programs that use the login of a subscription."""

    page: str
    words: str


TERMS: dict[str, VendorTerms] = {
    "claude": VendorTerms(
        "https://code.claude.com/docs/en/legal-and-compliance",
        "OAuth logins support ordinary use of Claude Code and other native Anthropic applications; products and services use API keys",
    ),
    "codex": VendorTerms(
        "https://developers.openai.com/codex/auth",
        "sign in with ChatGPT gives subscription access, an API key usage-based access",
    ),
    "gemini": VendorTerms(
        "https://geminicli.com/docs/resources/faq/",
        "third-party tools that use Gemini CLI's OAuth login violate the terms, and accounts may be suspended; API keys are supported",
    ),
}
TERMS["codex-exec"] = TERMS["codex"]


def logs_in_by_key(kind: str, keys: Collection[str] | None, there: Collection[str]) -> bool:
    """Tell whether a backend certainly pays by an API key.

    `keys` are the variables with which its CLI logs in, `there` the names that its environment has. No value is read. A
    CLI without such a variable may use the login of a subscription.
    """
    return kind in _KEY_KINDS or any(name.endswith("_API_KEY") for name in {*(keys or ())} & {*there})
