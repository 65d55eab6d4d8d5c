"""Features of a backend, as its adapter declares them. Pure."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

__all__ = ["Capabilities", "Control"]

Control = Literal["model", "permission_mode", "context_usage", "compact"]
"""A request to a live CLI: set the model, set the permission mode, report the context usage, or compact the context."""


class Capabilities(Struct, frozen=True):
    """Features of a backend. `backend/list` shows them, and docs/backends.md has a table made from them."""

    one_shot: bool = True
    """Run one process for each turn."""
    live: bool = False
    """Run one process for many turns."""
    live_by_default: bool = False
    """Make a session live if the caller names no mode."""
    live_versions: str = ""
    """Versions with a tested live mode. Empty means all versions of the adapter."""
    resume: bool = True
    """Continue a session in a new process."""
    deltas: bool = True
    """Report text while the model writes it."""
    thinking: bool = True
    """Report the model's thinking."""
    usage: bool = True
    """Report the tokens of a turn."""
    cost: bool = False
    """Report the cost of a turn."""
    approvals: bool = False
    """Ask before a tool runs."""
    controls: tuple[Control, ...] = ()
    """Requests that a live process takes."""
    images: bool = False
    """Take images in a prompt. An ACP agent without images refuses them during the turn."""
    system_prompt: bool = True
    """Take a system prompt."""
    mcp: bool = True
    """Take the session's MCP servers."""
    tools: bool = False
    """Start clisup's MCP bridge, so that the session's client can run tools for the model."""
    permission_modes: tuple[str, ...] | None = ()
    """Permission modes of the CLI. None means that only the running CLI knows them, and refuses others during the turn."""
    running_usage: bool = False
    """Report running totals of the session. The daemon then carries them from turn to turn."""
    fork: bool = False
    """Copy a transcript, whole or up to a turn (`Adapter.fork`)."""
    history: bool = False
    """Begin a session with messages of the caller (`Adapter.seed`)."""
    structured: bool = False
    """Answer with a JSON value that fits a schema (`LaunchRequest.output_schema`)."""
    asked_by_prompt: bool = False
    """Send the schema with each prompt, so that a live process can take a prompt with another schema."""
    caller_tools: bool = False
    """Take tool definitions with a prompt. The caller runs these tools and sends the results with a later prompt."""
    sampling: tuple[str, ...] = ()
    """Names in the `sampling` of `session/prompt` that the backend takes."""
    caches: bool = False
    """Take the caller's marks for the parts of a prompt and a history that the API caches."""
    cli_tools: bool = False
    """Switch off the CLI's own tools on request."""
    system_prompt_modes: tuple[str, ...] = ()
    """Ways to combine a system prompt with the CLI's own: append, replace."""
    chosen_id: bool = True
    """Let the caller choose the native session id. The daemon then uses the id of the session."""
    native_id_prefix: str = ""
    """Text before a chosen native session id."""
    ids_once: bool = False
    """Refuse to create a session with a used id. From the second run on, the run's number follows the prefix."""
    interrupt: Literal["signal", "request"] = "signal"
    """First step of a graceful interrupt: a signal, or a request in the CLI's own protocol."""
    tokens: tuple[str, ...] = ()
    """Fields of `usage` that the CLI reports for a turn."""
    events: tuple[str, ...] = ()
    """Event types that the CLI can give. Events of the daemon come with every backend."""
