"""Backends for HTTP APIs with a key: claude's adapter in front of clisup's own worker (`clisup.worker`).

The worker speaks claude's stream-json, so claude's decoder, fork and history apply. The prompt goes to stdin as a line of
stream-json, with the requirements for the answer. The key goes into the variable that `key_env` names, never into argv.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from clisup.backends.base import LaunchRequest, LaunchSpec
from clisup.backends.claude.adapter import ClaudeAdapter, user_message
from clisup.backends.claude.errors import ERRORS
from clisup.backends.claude.transcript import ClaudeSeed
from clisup.backends.errors import ErrorRule
from clisup.backends.launch import argv_path, argv_text, check_mode, check_prompt, check_uuid
from clisup.backends.transcripts import own_directory
from clisup.config.model import ApiSettings
from clisup.errors import UsageError
from clisup.model.prompts.options import BRIDGE_SERVER

__all__ = ["PERMISSION_MODES", "AnthropicApiAdapter", "OpenAiApiAdapter"]

PERMISSION_MODES = ("bypassPermissions", "default", "dontAsk", "plan")
_REFUSALS = (
    ErrorRule("stderr", r"Not logged in", "authentication"),
    ErrorRule(
        "stderr", r"Session ID \S+ is already in use|Invalid MCP configuration|without a model", "invalid_request"
    ),
    ErrorRule("stderr", r"No conversation found", "session_not_found"),
    ErrorRule("stderr", r"is not installed\. Install it", "spawn_failed"),
)


def _home(env: Mapping[str, str]) -> str | None:
    """Return the worker's own directory."""
    state = own_directory(env, ".local/state", "XDG_STATE_HOME")
    return f"{state}/clisup-worker" if state else None


class _ApiAdapter(ClaudeAdapter):
    """Launch rules of the worker: a process for each turn, or a live one."""

    lists = "api"
    default_command = (sys.executable, "-I", "-m", "clisup.worker")
    default_versions = ">=1,<2"
    newest_checked = update_command = ""
    program = "the worker"
    codes_tell = False
    version_pattern = r"(\d+\.\d+\.\d+) \(clisup worker\)"
    login_args = ()
    errors = (*(rule for rule in ERRORS if rule.where == "status"), *_REFUSALS)
    presence = None
    native_sessions = None  # no terminal has a session of these backends
    seed = ClaudeSeed(_home, marks_caches=True)
    capabilities = replace(
        ClaudeAdapter.capabilities,
        live_by_default=True,
        controls=("model", "permission_mode"),
        by_prompt=("output_schema",),
        caller_tools=True,
        caches=True,
        cli_tools=True,
        system_prompt_modes=("append", "replace"),
        permission_modes=PERMISSION_MODES,
        tokens=(*ClaudeAdapter.capabilities.tokens, "reasoning_tokens"),
        events=tuple(e for e in ClaudeAdapter.capabilities.events if e != "task"),
    )

    def launch(self, request: LaunchRequest) -> LaunchSpec:
        """Return argv and stdin for one run.

        The system prompt of the session is the only one, in both modes: the worker has none of its own.
        Raises `UsageError` for a prompt or value that the API cannot take.
        """
        return LaunchSpec(
            argv=(*request.command, "--api", self.api_name(request), *_flags(request), *request.args),
            stdin=_message(request),
            stdin_eof=not request.live,
        )

    def api_name(self, request: LaunchRequest) -> str:
        """Return the worker's name for the API. Raises `UsageError` for a request that the API does not support."""
        raise NotImplementedError

    def models_flags(self, api: ApiSettings) -> tuple[str, ...]:
        """Return the flags by which the worker lists the provider's models."""
        name = "anthropic" if self.kind == "anthropic-api" else api.dialect or "responses"
        return ("--api", name, *_given({"--base-url": api.base_url, "--key-env": api.key_env}), "--models")

    def refused_as_root(self, env: Mapping[str, str]) -> tuple[str, ...]:
        """Return nothing: the worker runs no commands of its own."""
        return ()


_TOOL_PARAMS = ("tool_choice", "parallel_tool_calls")


class AnthropicApiAdapter(_ApiAdapter):
    """The Anthropic Messages API."""

    kind = fields = (
        "anthropic-api"  # without recordings: the worker's frames are clisup's own, and no version changes them
    )
    packages = ("anthropic",)
    login_keys = ("ANTHROPIC_API_KEY",)
    capabilities = replace(
        _ApiAdapter.capabilities, sampling=("max_tokens", "temperature", "top_p", "stop", *_TOOL_PARAMS)
    )

    def api_name(self, request: LaunchRequest) -> str:
        """Return the worker's name for the API."""
        return "anthropic"


class OpenAiApiAdapter(_ApiAdapter):
    """OpenAI's two APIs, and those of providers that speak like them."""

    kind = fields = "openai-api"
    packages = ("openai",)
    login_keys = ("OPENAI_API_KEY",)
    capabilities = replace(
        _ApiAdapter.capabilities, sampling=("max_tokens", "temperature", "top_p", "stop", "seed", *_TOOL_PARAMS)
    )

    def api_name(self, request: LaunchRequest) -> str:
        """Return the worker's name for the API."""
        dialect = request.api.dialect or "responses"
        if dialect == "responses" and (missing := [name for name in ("stop", "seed") if name in request.sampling]):
            raise UsageError(
                f"cannot ask with {missing[0]}, because OpenAI's Responses API has no such field",
                kind="unsupported",
                hint='leave it out, or take dialect = "chat" for this backend',
                param="sampling",
            )
        return dialect


def _flags(request: LaunchRequest) -> list[str]:
    api = request.api
    values = {
        "--base-url": api.base_url,
        "--key-env": api.key_env,
        "--effort": api.effort,
        "--thinking": api.thinking,
        "--max-tokens": str(api.max_tokens or ""),
        "--model": argv_text("model", _model(request)),
        "--system-prompt-file": request.system_prompt_file and argv_path("system_prompt_file", request.system_prompt_file),
        "--mcp-config": request.mcp_config_file and argv_path("mcp_config_file", request.mcp_config_file),
        "--allowedTools": f"mcp__{BRIDGE_SERVER}" if request.tools else "",
        "--permission-mode": request.permission_mode and check_mode("the worker", request.permission_mode, PERMISSION_MODES),
        "--permission-prompt-tool": "stdio" if request.live else "",
    }  # fmt: skip
    session = check_uuid("worker", request)
    named = [] if session is None else [f"--{'resume' if request.resume else 'session-id'}={session}"]
    return [*named, *_given(values)]


def _given(values: Mapping[str, str | None]) -> list[str]:
    return [f"{flag}={value}" for flag, value in values.items() if value]


def _model(request: LaunchRequest) -> str:
    if request.model is None:
        raise UsageError(
            "cannot ask an API without a model",
            kind="invalid_params",
            hint="name one with the session (clisup run --model M), or as the backend's model in the configuration",
            param="model",
        )
    return request.model


def _message(request: LaunchRequest) -> str:
    """Return the prompt as a line of stream-json, with the requirements for its answer."""
    asked: dict[str, Any] = {}
    if request.output_schema is not None:
        asked["schema"] = dict(request.output_schema)
    if request.caller_tools:
        asked["tools"] = [dict(tool) for tool in request.caller_tools]
    if request.sampling:
        asked["sampling"] = dict(request.sampling)
    if not request.tool_results:
        check_prompt("the model", request.prompt)
    content = request.content or ((request.prompt,) if request.prompt.strip() else ())
    line, _ = user_message(content, uuid=request.prompt_id, expand=True)
    if not asked and not request.tool_results and not request.cached:
        return line
    frame = json.loads(line)
    said = frame["message"]["content"]
    for index in request.cached:
        said[index]["cache_control"] = {"type": "ephemeral"}
    frame["message"]["content"] = [*map(_result, request.tool_results), *said]
    return json.dumps({**frame, **({"asked": asked} if asked else {})}) + "\n"


def _result(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool result in the form of the Messages API."""
    content = result["content"]
    blocks = content if isinstance(content, str) else [_block(part) for part in content]
    failed = {"is_error": True} if result.get("is_error") else {}
    cached = {"cache_control": {"type": "ephemeral"}} if result.get("cache") else {}
    return {"type": "tool_result", "tool_use_id": result["tool_use_id"], "content": blocks, **failed, **cached}


def _block(part: Mapping[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    return {"type": "image", "source": {"type": "base64", "media_type": part["media_type"], "data": part["data"]}}
