"""claude-agent-sdk's `query()` over the same fake CLI, run by the Python of the SDK's own environment.

    python sdk_reader.py FAKE SECONDS PROMPT...

One query for each prompt, all in one process and one event loop, as a program with several agents has them. It says `ready`
when each has its first message; the figures (JSON) count from there to the last message of all.
"""

import asyncio
import json
import sys
import time

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query


class Count:
    messages = 0
    begun = 0
    cpu = 0.0


async def read(prompt: str, queries: int, options: ClaudeAgentOptions) -> None:
    first = True
    async for message in query(prompt=prompt, options=options):
        Count.messages += 1
        if first:
            first = False
            Count.begun += 1
            if Count.begun == queries:
                Count.cpu = time.process_time()
                print("ready", flush=True)
        if isinstance(message, ResultMessage):
            Count.ended = time.monotonic_ns()
            Count.cpu_end = time.process_time()


async def main() -> None:
    fake, seconds, *prompts = sys.argv[1:]
    options = ClaudeAgentOptions(cli_path=fake, include_partial_messages=True)
    async with asyncio.timeout(float(seconds)):
        await asyncio.gather(*(read(prompt, len(prompts), options) for prompt in prompts))
    print(json.dumps({"messages": Count.messages, "cpu": Count.cpu_end - Count.cpu, "ended": Count.ended}))


asyncio.run(main())
