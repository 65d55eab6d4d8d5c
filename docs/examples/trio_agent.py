"""Send a prompt, show the events, and ask at the terminal before a tool runs.

    python trio_agent.py BACKEND PROMPT [live]

Restart the daemon while it runs (clisup daemon restart, or even kill -9): the turn goes on, and so does this.
"""

import os
import sys
from typing import Literal

import trio

from clisup.client.aio import open_client
from clisup.client.answers import Answer, Approval, Decision
from clisup.client.events import ContentDelta, Gap, ToolResult, ToolUse, TurnCompleted


async def approve(approval: Approval) -> Decision:
    """Ask at the terminal. The turn waits until this client or another one answers."""
    print(f"\n{approval.tool_name} {approval.input}: allow? [y/N] ", end="", flush=True)
    word = await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    return "allow" if word.strip() == "y" else Answer("deny", message="The user said no.")


async def main(backend: str, prompt: str, live: bool) -> int:
    mode: Literal["live"] | None = "live" if live else None  # claude asks in live mode only
    async with open_client(name="trio-agent") as client, client.session(backend, os.getcwd(), mode=mode) as session:
        turn = session.run(prompt, on_approval=approve)
        async for envelope in turn:
            match envelope.event:
                case ContentDelta(kind="text", text=text):
                    print(text, end="", flush=True)
                case ToolUse(name=name, input=arguments):
                    print(f"\n[{name} {arguments}]", flush=True)
                case ToolResult(content=content, is_error=failed):
                    print(f"[{'failed' if failed else 'ok'}: {content[:60]!r}]", flush=True)
                case Gap(from_seq=first, to_seq=last):
                    print(f"[events {first} to {last} are gone]", flush=True)
                case TurnCompleted(outcome=outcome, usage=usage):
                    print(f"\n[{outcome}, {usage.output_tokens} tokens]", flush=True)
    return 0 if turn.result and turn.result.outcome == "completed" else 1


if __name__ == "__main__":
    sys.exit(trio.run(main, sys.argv[1], sys.argv[2], "live" in sys.argv[3:]))
