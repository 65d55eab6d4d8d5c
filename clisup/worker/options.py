"""The worker's arguments."""

from __future__ import annotations

import argparse
from typing import Any

from clisup.worker import VERSION

__all__ = ["APIS", "MAX_RETRIES", "MAX_ROUNDS", "parse"]

APIS = ("anthropic", "chat", "responses")
MAX_RETRIES = 10
"""Times that a request is repeated before the model has said anything, as by claude 2.1.330."""
MAX_ROUNDS = 200
"""Answers of the model in one turn; each call of tools makes one more."""


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the arguments. Ends the process for wrong ones, as argparse does."""
    parser = argparse.ArgumentParser(
        prog="python -m clisup.worker",
        description="Ask an HTTP API and speak claude's stream-json: user messages on stdin, frames on stdout.",
        epilog="example: python -m clisup.worker --api anthropic --model claude-opus-5-5 --models",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{VERSION} (clisup worker)")
    parser.add_argument("--api", choices=APIS, default="anthropic", help="which API to speak")
    parser.add_argument("--base-url", help="where it is; default: the vendor's own")
    parser.add_argument("--key-env", help="the variable with the key")
    parser.add_argument("--models", action="store_true", help="print the names of the provider's models as JSON")
    for flag, what in _TEXTS.items():
        parser.add_argument(flag, help=what)
    parser.add_argument("--permission-mode", default="default", help="as claude's")
    parser.add_argument("--permission-prompt-tool", choices=("stdio",), help="ask for permissions on stdout")
    parser.add_argument("--max-retries", type=_count, default=MAX_RETRIES, help="of a request without an answer")
    parser.add_argument("--max-turns", type=_count, default=MAX_ROUNDS, help="answers of the model in a turn")
    return parser.parse_args(argv)


_TEXTS = {
    "--session-id": "the id of a new session",
    "--resume": "the id of a session that goes on",
    "--model": "the model to ask",
    "--effort": "how hard the model is to think",
    "--thinking": "adaptive, off, or a number of tokens",
    "--system-prompt-file": "a file with the system prompt",
    "--mcp-config": "a file with MCP servers, in claude's format",
    "--allowedTools": "rules of tools that need no permission: mcp__SERVER",
}


def _count(text: str) -> Any:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("is no number from 0 on")
    return number
