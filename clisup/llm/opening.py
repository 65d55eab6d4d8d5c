"""Plan of a chat's session: the options that its backend takes, and those that are told in words."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clisup.client.aio import AsyncClient
from clisup.client.reconnect import new_key
from clisup.errors import UsageError
from clisup.llm.chat import ChatOptions
from clisup.llm.messages import Message
from clisup.llm.names import ModelName
from clisup.llm.reading import BRIDGE_PREFIX
from clisup.llm.rounds import OpenRound, open_round
from clisup.llm.serving import to_wire
from clisup.llm.tools import Tool, ToolDefinition, definitions_of, runnable_of
from clisup.llm.wire import history_to_wire

__all__ = ["PLAIN_SYSTEM", "Opening", "directory", "opening_of"]

PLAIN_SYSTEM = "Answer what is asked, in the form that is asked for."
"""The system prompt of a call without the CLI's tools that brings none of its own: it replaces that of a coding agent."""


@dataclass(frozen=True, slots=True)
class Opening:
    """`params` are those of `session/new`. `seed` and `system` are what the backend does not take: they go before the first prompt.

    `definitions` are the tools that the caller runs: `native` where the backend has such (`caller_tools`), else tools of the session.
    `stopped` is where the history stops at open calls.
    """

    backend: str
    cwd: str
    params: dict[str, Any]
    seed: tuple[Message, ...]
    system: str | None
    definitions: tuple[ToolDefinition, ...]
    runnable: tuple[Tool, ...]
    native: bool
    tells_ends: bool
    stopped: OpenRound | None

    @property
    def wire_names(self) -> frozenset[str]:
        """The caller's tools as the backend names them."""
        return frozenset(("" if self.native else BRIDGE_PREFIX) + tool.name for tool in self.definitions)


async def opening_of(client: AsyncClient, name: ModelName, options: ChatOptions) -> Opening:
    """Ask the daemon what the backend can do, and plan by that. Raises `Unsupported` for sampling that the backend lacks."""
    stopped = open_round(options.history)
    definitions, runnable = definitions_of(options.offered), runnable_of(options.offered)
    asks = options.history or options.system or definitions or options.sampling or options.cli_tools == "none"
    can = await _capabilities(client, name.backend) if asks else {}
    if can is not None and options.sampling is not None:
        options.sampling.check(name, can)
    can = can or {}
    native = bool(can.get("caller_tools"))
    params: dict[str, Any] = {"session_id": new_key(), "model": name.model, "labels": dict(options.labels) or None}
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
    params |= options.session
    return Opening(
        name.backend,
        directory(options.cwd),
        params,
        seed,
        None if "system_prompt" in params else system,
        definitions,
        runnable,
        native,
        "message_stop" in (can.get("events") or ()),
        stopped,
    )


def directory(cwd: str | None) -> str:
    """The daemon takes none that depends on where a program happens to be."""
    try:
        return os.path.abspath(cwd or ".")
    except FileNotFoundError:
        raise UsageError(
            "cannot tell the working directory, because it is gone", kind="usage", hint="give cwd=, an absolute path"
        ) from None


def _plain(can: Mapping[str, Any], system: str | None) -> dict[str, Any]:
    """Params of a session without a coding agent's tools and system prompt, as far as the backend has them."""
    params: dict[str, Any] = {}
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
    """Part a history into messages that the session takes and messages to tell in words.

    A CLI takes no history that stops at open calls.
    """
    if not takes:
        return (), tuple(history)
    if stopped is None:
        return tuple(history), ()
    return (stopped.without_results, ()) if native else (stopped.before, stopped.since)


async def _capabilities(client: AsyncClient, backend: str) -> dict[str, Any] | None:
    """Return the backend's capabilities; None for one that is not there, which `session/new` refuses in its own words."""
    return next((info.capabilities for info in await client.backends() if info.name == backend), None)
