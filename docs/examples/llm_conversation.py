"""A conversation that forgets what its tools said, watched at its edits, and gone on with from its file.

    python llm_conversation.py [MODEL] [FILE]

With the demo backend (MODEL is "demo", a daemon runs) it shows what the CLI itself has of the conversation, before an edit and after.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import trio

from clisup.llm import Conversation, DropCompletedToolCalls, TextDelta, TokenBudget, ToolStarted

# What the demo backend is to do; a model of another backend reads it as a text.
PROMPTS = [
    'I read the log.\n@tool Read {"path": "app.log"} => 200 lines, one of them an error\nThe disk was full.',
    "@history",
    "@history",
]


async def main(model: str, path: Path) -> None:
    policies = [DropCompletedToolCalls(keep_turns=1), TokenBudget(limit=20_000)]
    async with Conversation(model, policies=policies, path=path) as conversation:
        for prompt in PROMPTS:
            print(f"\n> {prompt.splitlines()[0]}")
            async for event in conversation.stream(prompt):
                if isinstance(event, TextDelta) and event.parent is None:
                    print(event.text, end="", flush=True)
                elif isinstance(event, ToolStarted):
                    print(f"\n[{event.name} {event.input}]")
            print(f"\n  ({conversation.context_tokens} tokens, chat {conversation.chats_opened})")

    kept = Conversation(model, path=path)  # to read a conversation needs neither its block nor a daemon
    for turn in kept.turns:
        for call in turn.calls:
            print(
                f"\n{turn.at} {call.name} {call.input}: {'still' if call.include_in_context else 'no longer'} in the context"
            )


if __name__ == "__main__":
    with TemporaryDirectory() as scratch:
        chosen = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(scratch) / "chat.json"
        trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "demo", chosen)
