"""A working memory beside a conversation: it outlives what the conversation leaves out, and the process.

    python llm_memory.py [MODEL] [FILE]

The model is told of the keys and has a tool `memory`; the program reads and writes the same values.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import trio

from clisup.llm import Conversation, TokenBudget, WorkingMemory

# The demo backend calls the tool by `@mcp`; a model of another backend decides by itself.
PROMPTS = [
    '@mcp memory {"operation": "set", "key": "plan/2", "value": {"do": "free the disk", "done": false}}\nI have noted it.',
    "Forget all that was said before.",
    '@mcp memory {"operation": "query", "prefix": "plan/", "where": {"done": false}}\nThat is still to do.',
]


async def main(model: str, path: Path) -> None:
    memory = WorkingMemory(path)
    memory.set("plan/1", {"do": "read the log", "done": True})
    policies = [TokenBudget(limit=600, keep_turns=1)]  # so small that each turn is forgotten after the next one
    async with Conversation(model, memory=memory, policies=policies) as conversation:
        for prompt in PROMPTS:
            turn = await conversation.send(prompt)
            for call in turn.calls:
                print(f"[{call.name} {call.input}]\n  {call.result.text if call.result else 'no answer'}")
            print(turn.text)
    for key, value in WorkingMemory(path).query(where={"done": False}).items():
        print(f"still open: {key}: {value['do']}")


if __name__ == "__main__":
    with TemporaryDirectory() as scratch:
        chosen = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(scratch) / "memory.json"
        trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "demo", chosen)
