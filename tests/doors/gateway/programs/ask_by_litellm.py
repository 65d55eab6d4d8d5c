"""Program of others: LiteLLM asks the gateway in each dialect, and prints what came. It runs in LiteLLM's own environment."""

from __future__ import annotations

import json
import os
from typing import Any

import litellm  # type: ignore[import-not-found]

TOOL = {
    "type": "function",
    "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}},
}


def text_of(stream: Any) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream)


def call_and_answer(ask: dict[str, Any]) -> list[str]:
    """Let the model call a tool, and bring its result."""
    messages: list[Any] = [{"role": "user", "content": 'Look.\n@mcp add {"a": 1}\nDone.'}]
    said = litellm.completion(messages=messages, tools=[TOOL], **ask).choices[0]
    (call,) = said.message.tool_calls
    messages += [said.message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "1"}]
    ended = litellm.completion(messages=messages, tools=[TOOL], **ask).choices[0]
    return [said.finish_reason, call.function.name, call.function.arguments, ended.message.content]


def failure(ask: dict[str, Any], prompt: str) -> str:
    try:
        litellm.completion(messages=[{"role": "user", "content": prompt}], max_retries=0, **ask)
    except Exception as error:
        return type(error).__name__
    return "none"


def main() -> None:
    url, key = os.environ["GATEWAY_URL"], os.environ["GATEWAY_TOKEN"]
    hello = [{"role": "user", "content": "Hello."}]
    stream = [{"role": "user", "content": "@stream 3"}]
    openai = {"api_base": f"{url}/v1", "api_key": key, "model": "openai/demo"}
    for name, ask in (("openai", openai), ("anthropic", {"api_base": url, "api_key": key, "model": "anthropic/demo"})):
        print(json.dumps({
            "dialect": name,
            "text": litellm.completion(messages=hello, **ask).choices[0].message.content,
            "stream": text_of(litellm.completion(messages=stream, stream=True, **ask)),
            "tool": call_and_answer(ask),
            "failures": [failure(ask, f"@error {kind}") for kind in ("rate_limit", "context")],
        }))  # fmt: skip
    print(
        json.dumps(
            {"dialect": "responses", "text": litellm.responses(input="Hello.", **openai).output[0].content[0].text}
        )
    )


main()
