"""The files of one session, by name: the layout that docs/operations.md shows. Directories are 0700, files 0600."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from clisup.config.session_spec import SessionSpec
from clisup.host.files import make_private_dir, read_json, storage_error, write_atomic, write_json

__all__ = ["SCRATCH", "BroughtTools", "RunDir", "SessionDir", "empty_trash", "list_sessions"]

_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

SCRATCH = "scratch"
"""The directory of a run in which its CLI finds what was written for it, and may write what it likes."""


class BroughtTools(NamedTuple):
    """The tools that a session's client runs, as the request brought them, and the token by which the session's MCP bridge is known.

    Both are the same for as long as the session is open.
    """

    definitions: list[dict[str, Any]]
    token: str

    def __repr__(self) -> str:
        return f"<{len(self.definitions)} tools and a token>"


class SessionDir:
    """`<state_dir>/sessions/<session_id>/`."""

    __slots__ = ("id", "path")

    def __init__(self, state_dir: str, session_id: str) -> None:
        self.id = session_id
        self.path = os.path.join(state_dir, "sessions", session_id)

    @property
    def journal(self) -> str:
        return os.path.join(self.path, "journal")

    @property
    def runs(self) -> str:
        return os.path.join(self.path, "runs")

    def run(self, number: int) -> RunDir:
        """The directory of one run."""
        return RunDir(os.path.join(self.runs, str(number)))

    def run_numbers(self) -> list[int]:
        """All runs that have a directory, in order."""
        try:
            names = os.listdir(self.runs)
        except OSError:
            return []
        return sorted(int(name) for name in names if name.isdecimal())

    def next_run(self, after: int) -> int:
        """The number for a new run: one that no keeper has used, also where the journal of such runs was cut away."""
        number = after + 1
        while any(os.path.exists(os.path.join(self.run(number).path, name)) for name in ("start.json", "exit.json")):
            number += 1
        return number

    def load_spec(self) -> SessionSpec | None:
        """What the session was opened with; None where the directory holds no whole session.

        Raises `WorldError(storage_failed)` for a file that is no session's.
        """
        raw = read_json(os.path.join(self.path, "session.json"))
        return SessionSpec.read(self.id, raw) if raw else None

    def create(
        self,
        spec: SessionSpec,
        variables: dict[str, str],
        system_prompt: str | None,
        mcp_config: bytes | None,
        tools: list[dict[str, Any]] | None = None,
    ) -> None:
        """Write everything, `session.json` last: without it there is no session. Raises `WorldError(storage_failed)`."""
        make_private_dir(self.path)
        for name in ("private", "journal", "prompts"):  # their names are on disk with the session's
            make_private_dir(os.path.join(self.path, name))
        if variables:
            write_json(self._secrets, dict(variables))
        if system_prompt is not None:
            write_atomic(self.system_prompt, system_prompt.encode())
        if mcp_config is not None:
            write_atomic(self.mcp_config, mcp_config)
        if tools:
            write_json(self._tools, {"tools": tools, "token": f"{self.id}.{secrets.token_urlsafe(32)}"})
        write_json(os.path.join(self.path, "session.json"), spec.model_dump())

    def remove(self) -> None:
        """A session that did not come to be: its directory goes."""
        shutil.rmtree(self.path, ignore_errors=True)

    @property
    def _secrets(self) -> str:
        return os.path.join(self.path, "private", "secrets.json")

    @property
    def system_prompt(self) -> str:
        return os.path.join(self.path, "private", "system_prompt.txt")

    @property
    def mcp_config(self) -> str:
        return os.path.join(self.path, "private", "mcp.json")

    @property
    def _tools(self) -> str:
        return os.path.join(self.path, "private", "tools.json")

    def read_tools(self) -> BroughtTools | None:
        """What the request brought of tools; None for a session without any, and after its close."""
        match read_json(self._tools):
            case {"tools": list(definitions), "token": str(token)}:
                return BroughtTools(definitions, token)
        return None

    @property
    def bridge_config(self) -> str:
        return os.path.join(self.path, "private", "bridge.json")

    def write_bridge_config(self, config: Mapping[str, Any]) -> None:
        """The MCP configuration with our server in it, for the CLI to read."""
        write_json(self.bridge_config, dict(config))

    def read_system_prompt(self) -> str | None:
        """The system prompt that the request brought."""
        try:
            with open(self.system_prompt, encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def read_mcp_config(self) -> bytes | None:
        """The MCP configuration that the request brought, as it was stored."""
        try:
            with open(self.mcp_config, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def read_mcp(self) -> dict[str, Any]:
        """The MCP configuration that the request brought; empty where it brought none."""
        return read_json(self.mcp_config) or {}

    def read_mcp_servers(self) -> dict[str, Any] | None:
        """The `mcpServers` of the MCP configuration that the request brought."""
        servers = self.read_mcp().get("mcpServers")
        return servers if isinstance(servers, dict) else None

    def secrets(self) -> dict[str, str]:
        """The values of variables that the request brought."""
        return {str(k): str(v) for k, v in (read_json(self._secrets) or {}).items()}

    def brought_secrets(self, spec: SessionSpec | None = None) -> list[str]:
        """Values that may be secret beside the variables that the request brought: of its MCP servers, and the bridge's token.

        Without the `spec` it is looked for everywhere.
        """
        servers = self.server_secrets() if spec is None or spec.has_mcp_config else []
        return [*servers, *(self.bridge_secrets() if spec is None or spec.tools else [])]

    def server_secrets(self) -> list[str]:
        """Those of the MCP servers that the request brought, alone."""
        return [str(value) for server in (self.read_mcp_servers() or {}).values() for value in _secret_values(server)]

    def bridge_secrets(self) -> list[str]:
        """The bridge's token, alone."""
        return [] if (tools := self.read_tools()) is None else [tools.token]

    def forget_secrets(self) -> None:
        """Remove what is private and the messages to CLIs, at close. The record of events stays."""
        shutil.rmtree(os.path.join(self.path, "private"), ignore_errors=True)
        shutil.rmtree(os.path.join(self.path, "prompts"), ignore_errors=True)
        for number in self.run_numbers():
            self.run(number).drop_all_said()

    def _prompt(self, turn_id: str) -> str:
        return os.path.join(self.path, "prompts", f"{turn_id}.json")

    def save_prompt(self, turn_id: str, prompt: dict[str, Any]) -> None:
        """Make a prompt durable before it is accepted."""
        make_private_dir(os.path.join(self.path, "prompts"))
        data = msgspec.json.encode(prompt)  # of 16 MiB `json` takes ten times as long
        write_atomic(self._prompt(turn_id), data + b"\n")

    def load_prompt(self, turn_id: str) -> dict[str, Any] | None:
        """An accepted prompt; None where it is gone."""
        return read_json(self._prompt(turn_id))

    def drop_prompt(self, turn_id: str) -> None:
        """The turn is over: its prompt lives on in the CLI's own transcript. One that a bad disk keeps goes at close."""
        with suppress(OSError):
            os.unlink(self._prompt(turn_id))

    def throw_away(self) -> str:
        """Take the whole session out of the way, in one step; give the path that `shutil.rmtree` may then take its time for.

        One that somebody has removed is no error. Raises `WorldError(storage_failed)`.
        """
        trash = os.path.join(os.path.dirname(os.path.dirname(self.path)), "trash")
        make_private_dir(trash)
        path = os.path.join(trash, self.id)
        try:
            if os.path.exists(path):
                shutil.rmtree(path)
            os.rename(self.path, path)
        except OSError as error:
            if os.path.lexists(self.path):
                raise storage_error("remove", self.path, error) from None
        return path

    def keep_prompts(self, turn_ids: Collection[str]) -> None:
        """Remove all prompts but these: a crash between a turn's end and `drop_prompt`, or in mid-write, leaves one behind."""
        directory = os.path.join(self.path, "prompts")
        wanted = {f"{turn_id}.json" for turn_id in turn_ids}
        try:
            for name in set(os.listdir(directory)) - wanted:
                os.unlink(os.path.join(directory, name))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise storage_error("remove old prompts from", directory, error) from None


def _secret_values(server: Any) -> list[Any]:
    """The values of an MCP server's variables and headers."""
    parts = [server.get(name) for name in ("env", "headers")] if isinstance(server, dict) else []
    return [value for part in parts if isinstance(part, dict) for value in part.values()]


class RunDir:
    """`runs/<k>/`: one CLI process, owned by its keeper."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.number = int(os.path.basename(path))
        self.session = os.path.basename(os.path.dirname(os.path.dirname(path)))
        self.out = f"{path}/out.spool"
        self.err = f"{path}/err.spool"
        self.lock = f"{path}/keeper.lock"
        self.scratch = f"{path}/{SCRATCH}"

    def create(self, intent: dict[str, Any], files: Mapping[str, str | bytes]) -> None:
        """Make the directory and say what is about to be run (argv and names: no prompt, no value of a variable).

        `files` are written for the CLI to read; they may hold secrets and go with `drop_scratch`.
        """
        make_private_dir(self.path)
        if files:
            make_private_dir(self.scratch)
        for name, held in files.items():
            data = held.encode() if isinstance(held, str) else held
            write_atomic(os.path.join(self.scratch, name), data, sync=False)
        write_json(os.path.join(self.path, "intent.json"), intent)

    def drop_scratch(self) -> None:
        """The run is over: what was written for its CLI goes."""
        shutil.rmtree(self.scratch, ignore_errors=True)

    def intent(self) -> dict[str, Any]:
        """What `create` was told; empty where that is gone."""
        return read_json(os.path.join(self.path, "intent.json")) or {}

    def amend_intent(self, **changed: Any) -> None:
        """Another value for a part of it. Raises `WorldError(storage_failed)`."""
        write_json(os.path.join(self.path, "intent.json"), {**self.intent(), **changed})

    @property
    def started(self) -> str:
        return os.path.join(self.path, "start.json")

    def start_record(self) -> dict[str, Any] | None:
        return read_json(self.started)

    def exit_record(self) -> dict[str, Any] | None:
        return read_json(os.path.join(self.path, "exit.json"))

    def declare_dead(self, record: dict[str, Any]) -> None:
        """Write exit.json in the keeper's place. Only under keeper.lock: a late keeper that finds it leaves."""
        write_json(os.path.join(self.path, "exit.json"), record)

    def save_said(self, token: str, text: str) -> None:
        """Keep a message to the CLI's stdin until it is heard, before it is journaled. Raises `WorldError(storage_failed)`."""
        make_private_dir(os.path.join(self.path, "said"))
        write_atomic(os.path.join(self.path, "said", token), text.encode(), sync=False)

    def load_said(self, token: str) -> str | None:
        """A message that `save_said` kept; None where it was heard. Raises `WorldError(storage_failed)`."""
        path = os.path.join(self.path, "said", token)
        try:
            with open(path, encoding="utf-8", newline="") as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise storage_error("read", path, error) from None

    def drop_said(self, token: str) -> None:
        """It was heard. One that a bad disk keeps goes with the run's directory."""
        with suppress(OSError):
            os.unlink(os.path.join(self.path, "said", token))

    def drop_all_said(self) -> None:
        """Remove what was kept for the CLI's stdin: the run is over. A kill in mid-word leaves a file that nobody knows."""
        shutil.rmtree(os.path.join(self.path, "said"), ignore_errors=True)

    def save_blob(self, name: str, data: bytes | Iterable[bytes]) -> None:
        """Keep a payload, before its event is journaled. The same name always has the same bytes."""
        make_private_dir(os.path.join(self.path, "blobs"))
        write_atomic(os.path.join(self.path, "blobs", name), data, sync=False)

    def blob_path(self, name: str) -> str:
        return os.path.join(self.path, "blobs", name)


def empty_trash(state_dir: str) -> None:
    """What a daemon threw away and had no time to remove."""
    shutil.rmtree(os.path.join(state_dir, "trash"), ignore_errors=True)


def list_sessions(state_dir: str) -> list[str]:
    """The ids of all session directories. What has another name is not ours and is left alone."""
    try:
        return sorted(name for name in os.listdir(os.path.join(state_dir, "sessions")) if _ID.fullmatch(name))
    except FileNotFoundError:
        return []
