"""Arguments of the worker."""

from __future__ import annotations

import argparse

from clisup.worker import VERSION
from clisup.worker.tools.permissions import MODES

APIS = ("anthropic", "chat", "responses")
MAX_RETRIES = 10
"""Default number of repeats of a request, as in claude 2.1.330."""
MAX_ROUNDS = 200
"""Default number of answers of the model in one turn. Each round of tool calls adds one."""

_TEXTS = {
    "--base-url": "base URL of the API (default: the vendor's)",
    "--key-env": "variable that holds the API key",
    "--session-id": "id of a new session",
    "--resume": "id of a session to resume",
    "--model": "model to ask",
    "--effort": "reasoning effort",
    "--thinking": "adaptive, off, or a number of tokens",
    "--system-prompt-file": "file with the system prompt",
    "--mcp-config": "file with MCP servers, in claude's format",
    "--allowedTools": "rules of tools that need no permission: mcp__SERVER",
}


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the arguments. Wrong arguments end the process with exit code 2."""
    parser = argparse.ArgumentParser(
        prog="python -m clisup.worker",
        description="Call an HTTP API and write claude's stream-json: user messages on stdin, frames on stdout.",
        epilog="example: python -m clisup.worker --api anthropic --key-env ANTHROPIC_API_KEY --models",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{VERSION} (clisup worker)")
    parser.add_argument("--api", choices=APIS, default="anthropic", help="API to call")
    parser.add_argument("--models", action="store_true", help="print the names of the provider's models as JSON")
    for flag, text in _TEXTS.items():
        parser.add_argument(flag, help=text)
    parser.add_argument("--permission-mode", choices=MODES, default="default", help="as in claude")
    parser.add_argument("--permission-prompt-tool", choices=("stdio",), help="ask for permissions on stdout")
    parser.add_argument("--max-tokens", type=_count, help="default limit of an answer's tokens")
    parser.add_argument(
        "--max-retries", type=_count, default=MAX_RETRIES, help="repeats of a request without an answer"
    )
    parser.add_argument("--max-turns", type=_count, default=MAX_ROUNDS, help="answers of the model in one turn")
    return parser.parse_args(argv)


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("must be 0 or more")
    return number
