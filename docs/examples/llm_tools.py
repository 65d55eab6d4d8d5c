"""Tools in this program, called by the model of a CLI: side by side, and once for each call, also where the daemon is killed meanwhile.

python llm_tools.py [MODEL] [PROMPT]
"""

import sys

import trio

from clisup.llm import ChatOptions, ToolEnded, ToolStarted, resolve, tool

STOCK = {"bolts": 40, "nuts": 12}

# The demo backend calls tools by `@mcp`, and in a `@parallel` block side by side; another model decides by itself.
PROMPT = """\
How many bolts and nuts are there? Then take five bolts.
@parallel
@mcp count {"item": "bolts"}
@mcp count {"item": "nuts"}
@end
@mcp take {"item": "bolts", "number": 5}
@mcp take {"item": "nuts", "number": 50}
That is all that I could do.
"""


@tool(timeout_s=10)
def count(item: str) -> int:
    """How many of an item are in stock."""
    return STOCK[item]


@tool
async def take(item: str, number: int) -> str:
    """Take some of an item out of stock."""
    if STOCK[item] < number:
        raise ValueError(f"there are only {STOCK[item]} {item}")  # the model reads it, and goes on
    STOCK[item] -= number
    return f"{STOCK[item]} {item} are left"


async def main(model: str, prompt: str) -> None:
    async with resolve(model).chat(ChatOptions(tools=[count, take])) as chat:
        async for event in chat.stream(prompt):
            if isinstance(event, ToolStarted) and event.ours:
                print(f"{event.name} {event.input}")
            elif isinstance(event, ToolEnded):
                print(f"  {'error: ' if event.result.is_error else ''}{event.result.text}")
    print(STOCK)


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "demo", sys.argv[2] if len(sys.argv) > 2 else PROMPT)
