"""The worker from its arguments to its exit code."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import trio

from clisup.stream_json.frames import Frames, token_usage
from clisup.stream_json.lines import encode_frame, write_all
from clisup.stream_json.transcript import SessionInUse, UnknownSession, new_id
from clisup.worker.api import Api, MissingLibrary, Request, failure_of
from clisup.worker.history import History, open_history
from clisup.worker.inbox import BadInput
from clisup.worker.options import parse
from clisup.worker.permissions import Permissions
from clisup.worker.process import Process
from clisup.worker.servers import BadServers, Servers, read_config
from clisup.worker.turn import Means

__all__ = ["main"]

Entries = Mapping[str, Mapping[str, Any]]


class _Refused(Exception):
    """The worker cannot start. The text is for stderr."""


def main(argv: list[str]) -> NoReturn:
    """Run the worker and exit: 0 after a turn that went well, else 1."""
    options = parse(argv)
    try:
        code = _models(options) if options.models else _serve(options)
    except* (_Refused, MissingLibrary, BadInput, BadServers) as group:
        for error in _leaves(group):
            write_all(2, f"{error}\n".encode("utf-8", "replace"))
        code = 1
    sys.stdout.flush()
    os._exit(code)  # Python's own end of a process is slow, and nothing is left to flush


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    return [leaf for e in group.exceptions for leaf in (_leaves(e) if isinstance(e, BaseExceptionGroup) else [e])]


def open_api(options: Namespace, alive: Callable[[], None]) -> tuple[Api, str]:
    """Return the API that the options name, and its URL. Raises `MissingLibrary`."""
    key = os.environ.get(options.key_env) if options.key_env else None
    if options.key_env and not key:
        raise _Refused(
            f"Not logged in: the variable {options.key_env} is not set; name it in the backend's pass_env, or give the key by env_files"
        )
    if options.api == "anthropic":
        from clisup.worker.anthropic_api import AnthropicApi  # one worker has one API

        anthropic = AnthropicApi(options.base_url, key, alive)
        return anthropic, anthropic.url
    from clisup.worker.openai_api import ChatApi, ResponsesApi

    made = (ChatApi if options.api == "chat" else ResponsesApi)(options.base_url, key, alive)
    return made, made.url


def _models(options: Namespace) -> int:
    async def ask() -> list[str]:
        api, url = open_api(options, lambda: None)
        try:
            with trio.fail_after(30):
                return await api.models()
        except trio.TooSlowError:
            raise _Refused(f"cannot list the models, because {url} did not answer within 30 s") from None
        except Exception as error:
            if (failure := failure_of(error, url)) is None:
                raise
            raise _Refused(f"cannot list the models, because of this: {failure.message}") from None

    write_all(1, json.dumps(sorted(trio.run(ask))).encode() + b"\n")
    return 0


def _serve(options: Namespace) -> int:
    entries = read_config(options.mcp_config)
    system = None
    if options.system_prompt_file:
        with open(options.system_prompt_file, encoding="utf-8") as file:
            system = file.read()
    if not options.model:
        raise _Refused("cannot ask without a model: give one with the session, or as the backend's model")
    try:
        history = open_history(os.getcwd(), new=options.session_id, resume=options.resume)
    except SessionInUse as error:
        raise _Refused(f"Error: Session ID {error} is already in use.") from None
    except UnknownSession as error:
        return _unknown(str(error), options.model)
    return trio.run(_run, options, entries, history, system)


async def _run(options: Namespace, entries: Entries, history: History, system: str | None) -> int:
    frames = Frames(history.session_id, options.model)
    process = Process(frames)
    api, url = open_api(options, process.alive)
    permissions = Permissions(
        options.permission_mode, options.allowedTools or "", asks=options.permission_prompt_tool is not None,
        send=process.send, tell=process.tell_state,
    )  # fmt: skip
    request = Request(options.model, (), system=system, effort=options.effort, thinking=options.thinking)
    servers = Servers(entries, frozenset({options.key_env} if options.key_env else ()))
    return await process.run(
        Means(api, url, history, servers, permissions, request, options.max_retries, options.max_turns)
    )


def _unknown(session_id: str, model: str) -> int:
    """What claude does for a session that it does not know: one result, of a session of its own."""
    message = f"No conversation found with session ID: {session_id}"
    frame = Frames(new_id(), model).result(
        usage=token_usage(0, 0), subtype="error_during_execution", is_error=True, num_turns=0, duration_ms=0,
        duration_api_ms=0, errors=[message], result_index=0,
    )  # fmt: skip
    write_all(1, encode_frame(frame) + b"\n")
    write_all(2, f"{message}\n".encode())
    return 1
