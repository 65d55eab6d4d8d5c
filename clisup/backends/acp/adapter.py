"""Backend `acp`: any agent that speaks the Agent Client Protocol, version 1 (agentclientprotocol.com), on stdin and stdout.

Each turn is one process. The configuration names the command. An agent reports its features itself (`initialize`), so a missing
feature fails the turn. A subclass with another `kind` gives one agent its own flags, variables and words: see "hooks" below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import clisup
from clisup.backends.acp.dialect import AcpDialect
from clisup.backends.acp.dialogue import PROTOCOL_VERSION, AcpDecoder
from clisup.backends.acp.rpc_lines import prompt_params, prompt_request, request_text
from clisup.backends.base import TOKENS, Adapter, Capabilities, Carried, LaunchRequest, LaunchSpec, Recovery, RunEnd
from clisup.backends.errors import Taxonomy, explain_end
from clisup.backends.frames import Frame
from clisup.backends.launch import check_named, check_prompt
from clisup.errors import UsageError
from clisup.model.events import TurnError
from clisup.model.prompts.content import Content

__all__ = ["AcpAdapter"]

_EVENTS = (
    "session_init", "message_start", "content_delta", "message", "message_stop", "tool_use", "tool_progress", "tool_result",
    "approval_requested", "approval_resolved", "usage", "status", "unparsed",
)  # fmt: skip
_MARK = "\u200b"
_MARKED = "zero-width space before a leading command character"


class AcpAdapter(AcpDialect, Adapter):
    """Launch rules of an ACP agent. The mode and model names are the agent's own."""

    kind = "acp"
    lists = "acp"
    default_command = ()
    default_versions = ""
    version_args = ()
    tells_work = False  # the protocol has no word for a hook, and goose tells a tool's end alone
    noise = (
        r"\[(?:acp|perf|session/\w+)\] .*",
        r"DeprecationWarning: .*",
        r"Ripgrep (?:is )?not available.*",
        r"Warning: \d+-color support not detected\..*",
        r".*\bcodex_app_server\b.* Codex could not find bubblewrap on PATH\..*",
    )
    capabilities = Capabilities(
        live=True,
        cost=True,
        images=True,
        controls=("model", "permission_mode"),
        system_prompt=None,
        auth_method=True,
        permission_modes=None,
        chosen_id=False,
        interrupt="request",
        approvals=True,
        tokens=TOKENS,
        events=tuple(sorted(_EVENTS)),
    )
    command_characters: tuple[str, ...] = ("/",)
    """Character that makes a prompt a command of the agent, at the beginning of a text."""

    def launch(self, request: LaunchRequest) -> LaunchSpec:
        """Return the configured command, with `initialize` as its first stdin; of a later turn, session/prompt.

        Raises `UsageError` for an unsupported request.
        """
        check_named("an ACP", request)
        content, altered = self.prompt(request)
        mcp_servers(request.mcp_servers)
        can = {
            "fs": {"readTextFile": False, "writeTextFile": False},
            "terminal": False,
            "elicitation": {"form": {}, "url": {}},
        }
        client = {"name": "clisup", "title": "clisup", "version": clisup.__version__}
        stdin = request_text(
            0, "initialize", {"protocolVersion": PROTOCOL_VERSION, "clientCapabilities": can, "clientInfo": client}
        )
        if request.later:
            params = prompt_params(self.wire_id(str(request.native_session_id), resumed=request.resume), content)
            stdin = request_text(prompt_request(request), "session/prompt", params)
        return LaunchSpec(
            argv=(*request.command, *self.flags(request), *request.args),
            stdin=stdin,
            stdin_eof=False,
            env=self.environment(request),
            files=self.files(request),
            prompt_altered=altered,
        )

    def decoder(self, carried: Carried, request: LaunchRequest) -> AcpDecoder:
        """Return the dialogue of one turn."""
        return AcpDecoder(self, carried, request, mcp_servers(request.mcp_servers), self.prompt(request)[0])

    def explain_exit(self, end: RunEnd) -> TurnError:
        """Explain a run that ended without an answer to the prompt, by its stderr, else as `crashed`."""
        return explain_end(Taxonomy(self.errors), "the agent", end, before="before it answered the prompt")

    def recovery(self, failed: TurnError | RunEnd) -> Recovery | None:
        """Return `fresh` for a session that the agent does not know, if no turn of the session has completed."""
        return "fresh" if isinstance(failed, TurnError) and failed.kind == "session_not_found" else None

    # Hooks that a subclass for one agent may override, beside those of AcpDialect

    def flags(self, request: LaunchRequest) -> Sequence[str]:
        """Return the flags between the command and the configured `args`."""
        return ()

    def environment(self, request: LaunchRequest) -> Mapping[str, str]:
        """Return the variables that the adapter sets."""
        return {}

    def files(self, request: LaunchRequest) -> Mapping[str, str]:
        """Return the files that the agent needs in `request.scratch`."""
        return {}

    def prompt(self, request: LaunchRequest) -> tuple[Content, str | None]:
        """Return the prompt to send, and a description of the changes to it.

        A leading slash makes a text a command. Agents strip the text first (gemini 0.61.0, qwen 0.24.4), so a newline does not
        hide the slash; U+200B is no white space to them. Agents look into the first text, also behind an image (qwen 0.24.4), or
        into others, so this method changes each text. Raises `UsageError` for a prompt without text.
        """
        check_prompt("the agent", request.prompt)
        content = request.content or (request.prompt,)
        if request.expand:
            return content, None
        sent = tuple(self.as_text(part) if isinstance(part, str) else part for part in content)
        return sent, _MARKED if sent != content else None

    def as_text(self, text: str) -> str:
        """Return a text that the agent takes for no command."""
        command = text.lstrip("\ufeff \t\r\n\v\f").startswith(self.command_characters)
        return _MARK + text if command else text


def mcp_servers(servers: Mapping[str, Any] | None) -> list[Frame]:
    """Return claude's `mcpServers` as ACP's list. Raises `UsageError` for an entry without a form in ACP."""
    return [_mcp_server(name, server) for name, server in (servers or {}).items()]


def _mcp_server(name: str, server: Any) -> Frame:
    transport = server.get("type", "stdio") if isinstance(server, dict) else None
    if transport == "stdio" and isinstance(server.get("command"), str):
        args = [str(arg) for arg in server.get("args") or ()]
        return {"name": name, "command": server["command"], "args": args, "env": _pairs(server.get("env"))}
    if transport in ("http", "sse") and isinstance(server.get("url"), str):
        return {"type": transport, "name": name, "url": server["url"], "headers": _pairs(server.get("headers"))}
    raise UsageError(
        f"cannot give the MCP server {name!r} to an ACP agent, because it is no command and no http or sse address",
        hint="mend the session's mcp_config",
    )


def _pairs(mapping: Any) -> list[dict[str, str]]:
    items = mapping.items() if isinstance(mapping, dict) else ()
    return [{"name": str(name), "value": str(value)} for name, value in items]
