"""Ask a model, watch it answer, and talk on.

    python llm_quickstart.py claude/haiku "Name a colour." "And its opposite?"

Every prompt knows those before it. Ctrl-C in the middle of an answer ends it, and leaves no process behind.
"""

import sys

import trio

from clisup.llm import Finished, LLMError, TextDelta, ToolEnded, ToolStarted, Waiting, resolve


async def main(name: str, prompts: list[str]) -> int:
    try:
        async with resolve(name).chat() as chat:
            for prompt in prompts:
                async for event in chat.stream(prompt):
                    match event:
                        case TextDelta(text=text, parent=None):
                            print(text, end="", flush=True)
                        case ToolStarted(name=tool, input=arguments):
                            print(f"\n[{tool} {arguments}]", flush=True)
                        case ToolEnded(result=result):
                            print(f"[{'failed' if result.is_error else 'ok'}: {result.text[:60]!r}]", flush=True)
                        case Waiting(reason=reason):
                            print(f"[waits: {reason}]", file=sys.stderr, flush=True)
                        case Finished(completion=done):
                            cost = f"${done.cost.usd:.4f} ({done.cost.source})" if done.cost else "unknown"
                            print(f"\n[{done.model}, {done.usage.output_tokens} tokens, cost {cost}]", flush=True)
    except LLMError as error:
        print(f"{error.kind}: {error}", file=sys.stderr)
        return 75 if error.retryable else 1
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(trio.run(main, sys.argv[1], sys.argv[2:]))
