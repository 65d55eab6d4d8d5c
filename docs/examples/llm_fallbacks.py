"""Ask the first model that can answer.

    python llm_fallbacks.py "Name a colour." claude/opus codex qwen

A busy model is asked again after a pause; one that is limited for long, not logged in or not installed is passed over.
"""

import sys

import trio

from clisup.llm import Client, Fallback, LLMError, Retry, RetryPolicy


def tell_retry(retry: Retry) -> None:
    print(f"{retry.model}: {retry.error.kind}, once more in {retry.delay_s:.1f} s", file=sys.stderr)


def tell_fallback(fallback: Fallback) -> None:
    print(f"{fallback.model}: {fallback.error.kind}, now {fallback.to}", file=sys.stderr)


async def main(prompt: str, primary: str, fallbacks: list[str]) -> int:
    policy = RetryPolicy(attempts=3, first_delay_s=0.5, max_retry_after_s=30)
    client = Client(primary, fallbacks, retry=policy, on_retry=tell_retry, on_fallback=tell_fallback)
    try:
        done = await client.complete(prompt)
    except LLMError as error:
        print(f"nobody answered; the last one said: {error}", file=sys.stderr)
        return 1
    print(f"{done.model}: {done.text}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(trio.run(main, sys.argv[1], sys.argv[2], sys.argv[3:]))
