"""Worker from its arguments to its exit code."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import trio

from clisup.stream_json.frames import Frames, token_usage
from clisup.stream_json.lines import BadInput, encode_frame, write_all
from clisup.stream_json.transcript import SessionInUse, UnknownSession, new_id
from clisup.worker.apis.api import Api, ApiRequest, MissingLibrary, failure_of
from clisup.worker.apis.failures import Endpoint
from clisup.worker.history import MessageHistory, open_history
from clisup.worker.options import parse
from clisup.worker.process import WorkerProcess
from clisup.worker.tools.mcp_servers import BadMcpConfig, McpServers, read_config
from clisup.worker.tools.permissions import Permissions
from clisup.worker.turn import TurnContext

MODELS_S = 30.0
"""Timeout in seconds of a list of models."""


class _CannotStart(Exception):
    """Reason why the worker does not start. With `as_result` a result frame reports the reason, too, as in claude."""

    def __init__(self, message: str, *, as_result: bool = False) -> None:
        super().__init__(message)
        self.as_result = as_result


def main(argv: list[str]) -> NoReturn:
    """Run the worker and exit: 0 if the last turn succeeded or was interrupted, else 1."""
    options = parse(argv)
    try:
        code = _list_models(options) if options.models else _serve(options)
    except* (_CannotStart, MissingLibrary, BadInput, BadMcpConfig) as group:
        for error in _leaves(group):
            _report(error, options.model or "")
        code = 1
    except* KeyboardInterrupt:  # before the loop handles signals
        code = 0
    os._exit(code)  # Python's own exit is slow, and all output has been written


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    return [leaf for e in group.exceptions for leaf in (_leaves(e) if isinstance(e, BaseExceptionGroup) else [e])]


def _report(error: BaseException, model: str) -> None:
    if isinstance(error, _CannotStart) and error.as_result:
        frame = Frames(new_id(), model).result(
            usage=token_usage(0, 0), subtype="error_during_execution", is_error=True, num_turns=0, duration_ms=0,
            duration_api_ms=0, errors=[str(error)], result_index=0,
        )  # fmt: skip
        write_all(1, encode_frame(frame) + b"\n")
    write_all(2, f"{error}\n".encode("utf-8", "replace"))


def _open_api(options: Namespace, alive: Callable[[], None]) -> Api:
    key = os.environ.get(options.key_env) if options.key_env else None
    if options.key_env and not key:
        raise _CannotStart(
            f"Not logged in: the variable {options.key_env} is not set. "
            "Name the variable in the backend's pass_env, or set the key by env_files.",
            as_result=True,
        )
    if options.api == "anthropic":
        from clisup.worker.apis.anthropic_api import ANTHROPIC, AnthropicApi  # a worker loads one SDK

        return AnthropicApi(Endpoint(options.base_url or ANTHROPIC, options.key_env, key), alive)
    from clisup.worker.apis.openai_api import OPENAI, ChatApi, ResponsesApi

    api = ChatApi if options.api == "chat" else ResponsesApi
    return api(Endpoint(options.base_url or OPENAI, options.key_env, key), alive)


def _list_models(options: Namespace) -> int:
    async def ask() -> list[str]:
        api = _open_api(options, lambda: None)
        try:
            with trio.fail_after(MODELS_S):
                return await api.models()
        except trio.TooSlowError:
            raise _CannotStart(f"{api.endpoint.url} did not list its models within {MODELS_S:.0f} s") from None
        except Exception as error:
            if (failure := failure_of(error, api.endpoint)) is None:
                raise
            raise _CannotStart(f"cannot list the models: {failure.message}") from None

    write_all(1, json.dumps(sorted(trio.run(ask))).encode() + b"\n")
    return 0


def _serve(options: Namespace) -> int:
    if not options.model:
        raise _CannotStart("no model: set the session's model, or the backend's")
    entries = read_config(options.mcp_config)
    try:
        history = open_history(os.getcwd(), new=options.session_id, resume=options.resume)
    except SessionInUse as error:
        raise _CannotStart(f"Error: Session ID {error} is already in use.") from None
    except UnknownSession as error:
        raise _CannotStart(f"No conversation found with session ID: {error}", as_result=True) from None
    return trio.run(_run, options, entries, history, _system_prompt(options.system_prompt_file))


async def _run(
    options: Namespace, entries: Mapping[str, Mapping[str, Any]], history: MessageHistory, system: str | None
) -> int:
    live = options.permission_prompt_tool is not None
    process = WorkerProcess(Frames(history.session_id, options.model), live=live)
    api = _open_api(options, process.alive)
    permissions = Permissions(
        options.permission_mode, options.allowedTools or "", asks=live,
        send=process.send, set_state=process.set_state,
    )  # fmt: skip
    sampling = {"max_tokens": options.max_tokens} if options.max_tokens else {}
    request = ApiRequest(
        options.model, (), system=system, effort=options.effort, thinking=options.thinking, sampling=sampling
    )
    servers = McpServers(entries, frozenset({options.key_env} if options.key_env else ()))
    return await process.run(
        TurnContext(api, history, servers, permissions, request, options.max_retries, options.max_turns)
    )


def _system_prompt(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise _CannotStart(f"cannot read the system prompt: {error}") from None
