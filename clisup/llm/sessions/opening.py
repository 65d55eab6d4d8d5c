"""Plan of a chat's session: params for the backend, and text in the first prompt for params that the backend lacks."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clisup.client.aio import AsyncClient
from clisup.client.raw import JsonObject
from clisup.client.reconnect import new_key
from clisup.llm.answers import ModelName
from clisup.llm.chat import ChatOptions
from clisup.llm.failures import InvalidRequest, usage_error
from clisup.llm.histories import OpenRound, open_round
from clisup.llm.messages import Block, ImageBlock, Message, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from clisup.llm.serving import to_wire
from clisup.llm.sessions.turn_reader import BRIDGE_PREFIX
from clisup.llm.tools import Tool, ToolDefinition, definitions_of, runnable_of

PLAIN_SYSTEM = "Answer what is asked, in the form that is asked for."
"""System prompt of a call without the CLI's tools and without its own: replaces the prompt of a coding agent."""


@dataclass(frozen=True, slots=True)
class Opening:
    """Plan of a session. `params` go to `session/new`; `seed` and `system` go before the first prompt.

    `definitions` are the caller's tools: `native` on a backend with `caller_tools`, else tools of the session.
    """

    cwd: str
    params: JsonObject
    definitions: tuple[ToolDefinition, ...]
    runnable: tuple[Tool, ...]
    seed: tuple[Message, ...] = ()
    system: str | None = None
    native: bool = False
    tells_ends: bool = True

    @property
    def wire_names(self) -> frozenset[str]:
        """Names of the caller's tools at the backend."""
        return frozenset(("" if self.native else BRIDGE_PREFIX) + tool.name for tool in self.definitions)


async def opening_of(client: AsyncClient, name: ModelName, options: ChatOptions) -> Opening:
    """Plan a session by the backend's capabilities. Raises `Unsupported` for sampling that the backend lacks."""
    stopped = open_round(options.history)
    definitions, runnable = definitions_of(options.offered), runnable_of(options.offered)
    asks = options.history or options.system or definitions or options.sampling or options.cli_tools == "none"
    can = await _capabilities(client, name.backend) if asks else {}
    if can is not None and options.sampling is not None:
        options.sampling.check(name, can)
    can = can or {}
    native = bool(can.get("caller_tools"))
    params: JsonObject = {"session_id": new_key(), "model": name.model, "labels": dict(options.labels) or None}
    system = options.system
    if options.cli_tools == "none" and options.session.get("cli_tools") in (None, "none"):
        params |= _plain(can, system)
    elif system and can.get("system_prompt"):
        params["system_prompt"] = system
    sent, seed = _parted(options.history, stopped, native=native, takes=bool(can.get("history")))
    of_session = runnable if native else options.offered
    if wire := history_to_wire(sent, {tool.name for tool in of_session}):
        params["history"] = wire
    if of_session:
        params["tools"] = to_wire(of_session)
    if options.budget is not None:
        params["budget"] = options.budget.to_wire()
    return Opening(
        directory(options.cwd),
        params | dict(options.session),
        definitions,
        runnable,
        seed=seed,
        system=None if "system_prompt" in params or "system_prompt" in options.session else system,
        native=native,
        tells_ends="message_stop" in (can.get("events") or ()),
    )


def directory(cwd: str | None) -> str:
    """Return the absolute directory: the daemon cannot resolve a relative path of the caller."""
    try:
        return os.path.abspath(cwd or ".")
    except FileNotFoundError:
        raise usage_error("the working directory does not exist any more", "give cwd=, an absolute path") from None


def _plain(can: Mapping[str, Any], system: str | None) -> JsonObject:
    """Return params of a session without a coding agent's tools and system prompt, as far as the backend has them."""
    params: JsonObject = {}
    if can.get("cli_tools"):
        params["cli_tools"] = "none"
    if can.get("system_prompt") and "replace" in (can.get("system_prompt_modes") or ()):
        params |= {"system_prompt": system or PLAIN_SYSTEM, "system_prompt_mode": "replace"}
    elif system and can.get("system_prompt"):
        params["system_prompt"] = system
    return params


def _parted(
    history: Sequence[Message], stopped: OpenRound | None, *, native: bool, takes: bool
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Part a history into messages for the session and messages to tell as text.

    A CLI takes no history that stops at open calls.
    """
    if not takes:
        return (), tuple(history)
    if stopped is None:
        return tuple(history), ()
    return (stopped.without_results, ()) if native else (stopped.before, stopped.since)


async def _capabilities(client: AsyncClient, backend: str) -> JsonObject | None:
    """Return the backend's capabilities, or None for an unknown backend: `session/new` refuses such a backend."""
    return next((info.capabilities for info in await client.backends() if info.name == backend), None)


# -- messages on the wire (docs/reference/protocol.md) --------------------------------------------------------------------------


def prompt_to_wire(prompt: Message, *, results: bool = False) -> str | list[JsonObject]:
    """Return a prompt's text, or the blocks if the prompt holds more. `results` allows results of tools.

    Cache marks go along: an API backend passes the marks to its API, and a CLI ignores the marks.
    Raises `InvalidRequest` for other blocks.
    """
    if all(isinstance(block, TextBlock) and not block.cache for block in prompt.content):
        return prompt.text
    kinds = (TextBlock, ImageBlock, ToolResultBlock) if results else (TextBlock, ImageBlock)
    wrong = next((block for block in prompt.content if not isinstance(block, kinds)), None)
    if wrong is not None:
        raise InvalidRequest(
            f"a prompt holds text and images, and no block of type {wrong.type}",
            hint="put earlier messages into the history",
        )
    return [_unmarked(block.model_dump(mode="json")) for block in prompt.content]


def _unmarked(wire: JsonObject) -> JsonObject:
    """Return the block without unset marks and without marks inside a result."""
    found = {name: value for name, value in wire.items() if name != "cache" or value}
    if isinstance(content := found.get("content"), list):
        found["content"] = [_unmarked({**part, "cache": False}) for part in content]
    return found


def history_to_wire(history: Sequence[Message], ours: Collection[str] = ()) -> list[JsonObject]:
    """Return the messages without empty texts, unsigned thinking, and messages emptied by this removal.

    Calls of tools in `ours` get the CLI's name of the tool. Otherwise the model would continue with a name unknown to the CLI.
    """
    messages = (
        {"role": message.role, "content": [wire for block in message.content if (wire := _block(block, ours))]}
        for message in history
    )
    return [message for message in messages if message["content"]]


def _block(block: Block, ours: Collection[str]) -> JsonObject | None:
    if (isinstance(block, TextBlock) and not block.text) or (isinstance(block, ThinkingBlock) and not block.signature):
        return None
    wire: JsonObject = block.model_dump(mode="json", exclude_none=True)
    if isinstance(block, ToolResultBlock) and not isinstance(block.content, str):
        wire["content"] = [part for part in wire["content"] if part.get("text", "image")]
    if isinstance(block, ToolUseBlock) and block.name in ours:
        wire["name"] = BRIDGE_PREFIX + block.name
    return wire
