"""Files of one session, by name: the layout that docs/explanation/architecture.md shows. Directories are 0700, files 0600."""

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
from clisup.host.files import (
    FILE_LIMIT,
    RECORD_LIMIT,
    make_private_dir,
    read_file,
    read_json,
    storage_error,
    write_atomic,
    write_json,
)
from clisup.model.lines.json_values import has_larger_number
from clisup.model.prompts.options import StoredPrompt
from clisup.model.sessions.turn_state import Intent, StartRecord
from clisup.store.records import read_record

__all__ = ["SCRATCH", "BroughtTools", "RunDir", "SessionDir", "empty_trash", "list_sessions"]

_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

LARGEST_NUMBER = 2**53
"""Largest whole number in a keeper's record. Sums of larger ones could not be written."""
SCRATCH = "scratch"
"""Directory of a run for its CLI: it holds the files written for the CLI, and the CLI may write there freely."""


class BroughtTools(NamedTuple):
    """Tools that a session's client runs, as in the request, and the token that identifies the session's MCP bridge.

    Both stay the same as long as the session is open.
    """

    definitions: list[dict[str, Any]]
    token: str

    def __repr__(self) -> str:
        return f"<{len(self.definitions)} tools and a token>"


class SessionDir:
    """Directory of one session: `<state_dir>/sessions/<session_id>/`."""

    __slots__ = ("id", "path")

    def __init__(self, state_dir: str, session_id: str) -> None:
        self.id = session_id
        self.path = os.path.join(state_dir, "sessions", session_id)

    @property
    def journal(self) -> str:
        """Return the directory of the journal."""
        return os.path.join(self.path, "journal")

    @property
    def runs(self) -> str:
        """Return the directory that holds the run directories."""
        return os.path.join(self.path, "runs")

    def run(self, number: int) -> RunDir:
        """Return the directory of one run."""
        return RunDir(os.path.join(self.runs, str(number)))

    def run_numbers(self) -> list[int]:
        """Return the numbers of all runs that have a directory, in order."""
        try:
            names = os.listdir(self.runs)
        except OSError:
            return []
        return sorted(int(name) for name in names if name.isdecimal())

    def next_run(self, after: int) -> int:
        """Return the number for a new run, which no keeper has used.

        The journal of such runs may have been cut away.
        """
        number = after + 1
        while any(os.path.exists(os.path.join(self.run(number).path, name)) for name in ("start.json", "exit.json")):
            number += 1
        return number

    def load_spec(self) -> SessionSpec | None:
        """Return the spec that the session was opened with, or None if the directory holds no whole session.

        Raises `WorldError(storage_failed)` for a file that is not a session's.
        """
        raw = read_json(os.path.join(self.path, "session.json"), RECORD_LIMIT)
        return SessionSpec.read(self.id, raw) if raw else None

    def create(
        self,
        spec: SessionSpec,
        variables: dict[str, str],
        system_prompt: str | None,
        mcp_config: bytes | None,
        tools: list[dict[str, Any]] | None = None,
    ) -> None:
        """Write all files of the session, `session.json` last. Raises `WorldError(storage_failed)`.

        Without `session.json` no session exists.
        """
        make_private_dir(self.path)
        for name in ("private", "journal", "prompts"):  # the sync of session.json covers these names
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
        """Remove the directory of a session that was not created."""
        shutil.rmtree(self.path, ignore_errors=True)

    @property
    def _secrets(self) -> str:
        return os.path.join(self.path, "private", "secrets.json")

    @property
    def system_prompt(self) -> str:
        """Return the path of the stored system prompt."""
        return os.path.join(self.path, "private", "system_prompt.txt")

    @property
    def mcp_config(self) -> str:
        """Return the path of the stored MCP configuration."""
        return os.path.join(self.path, "private", "mcp.json")

    @property
    def _tools(self) -> str:
        return os.path.join(self.path, "private", "tools.json")

    def read_tools(self) -> BroughtTools | None:
        """Return the tools of the request. Return None for a session without tools, and after the session is closed."""
        match read_json(self._tools):
            case {"tools": list(definitions), "token": str(token)}:
                return BroughtTools(definitions, token)
        return None

    @property
    def bridge_config(self) -> str:
        """Return the path of the MCP configuration that includes our server."""
        return os.path.join(self.path, "private", "bridge.json")

    def write_bridge_config(self, config: Mapping[str, Any]) -> None:
        """Write the MCP configuration that includes our server, for the CLI to read."""
        write_json(self.bridge_config, dict(config))

    def read_system_prompt(self) -> str | None:
        """Return the system prompt of the request, or None."""
        try:
            return read_file(self.system_prompt).decode()
        except FileNotFoundError:
            return None

    def read_mcp_config(self) -> bytes | None:
        """Return the MCP configuration of the request, as stored, or None."""
        try:
            return read_file(self.mcp_config)
        except FileNotFoundError:
            return None

    def read_mcp(self) -> dict[str, Any]:
        """Return the MCP configuration of the request as a dict, empty if the request had none."""
        return read_json(self.mcp_config) or {}

    def read_mcp_servers(self) -> dict[str, Any] | None:
        """Return the `mcpServers` of the request's MCP configuration, or None."""
        servers = self.read_mcp().get("mcpServers")
        return servers if isinstance(servers, dict) else None

    def secrets(self) -> dict[str, str]:
        """Return the variables of the request, with their values."""
        return {str(k): str(v) for k, v in (read_json(self._secrets) or {}).items()}

    def brought_secrets(self, spec: SessionSpec | None = None) -> list[str]:
        """Return values that may be secret besides the request's variables: of its MCP servers, and the bridge's token.

        Without the `spec`, the function looks in all files.
        """
        servers = self.server_secrets() if spec is None or spec.has_mcp_config else []
        return [*servers, *(self.bridge_secrets() if spec is None or spec.tools else [])]

    def server_secrets(self) -> list[str]:
        """Return the values that may be secret in the request's MCP servers."""
        return [str(value) for server in (self.read_mcp_servers() or {}).values() for value in _secret_values(server)]

    def bridge_secrets(self) -> list[str]:
        """Return the bridge's token in a list, empty if the session has no tools."""
        return [] if (tools := self.read_tools()) is None else [tools.token]

    def forget_secrets(self) -> None:
        """Remove the private files, the prompts and the messages to CLIs at close. The journal stays."""
        shutil.rmtree(os.path.join(self.path, "private"), ignore_errors=True)
        shutil.rmtree(os.path.join(self.path, "prompts"), ignore_errors=True)
        for number in self.run_numbers():
            self.run(number).drop_kept()

    def _prompt(self, turn_id: str) -> str:
        return os.path.join(self.path, "prompts", f"{turn_id}.json")

    def save_prompt(self, turn_id: str, prompt: StoredPrompt) -> None:
        """Make a prompt durable before the daemon accepts it."""
        make_private_dir(os.path.join(self.path, "prompts"))
        data = msgspec.json.encode(prompt)  # for 16 MiB the module `json` takes ten times as long
        write_atomic(self._prompt(turn_id), data + b"\n")

    def load_prompt(self, turn_id: str) -> StoredPrompt | None:
        """Return an accepted prompt, or None if it is gone."""
        return read_record(self._prompt(turn_id), StoredPrompt, FILE_LIMIT)

    def drop_prompt(self, turn_id: str) -> None:
        """Remove the prompt of a finished turn: the CLI's own transcript has the prompt.

        The close of the session removes a prompt that a bad disk keeps.
        """
        with suppress(OSError):
            os.unlink(self._prompt(turn_id))

    def save_kept(self, name: str, data: bytes) -> str:
        """Keep the redacted blocks of a prompt for readers, and return the name of this blob.

        The blob stays with its event. Raises `WorldError(storage_failed)`.
        """
        make_private_dir(os.path.join(self.path, "asked"))
        blob = f"prompt-{name}"
        write_atomic(self.kept_path(blob), data, sync=False)
        return blob

    def kept_path(self, blob: str) -> str:
        """Return the path of a blob that `save_kept` wrote."""
        return os.path.join(self.path, "asked", blob)

    def drop_kept(self, name: str) -> None:
        """Remove the blob of a prompt that the daemon did not accept."""
        with suppress(OSError):
            os.unlink(self.kept_path(f"prompt-{name}"))

    def drop_kept_before(self, written: float) -> None:
        """Remove the blobs of prompts that were written before this time: their events are gone. Raises `OSError`."""
        directory = os.path.join(self.path, "asked")
        for name in os.listdir(directory) if os.path.isdir(directory) else ():
            path = os.path.join(directory, name)
            if os.stat(path, follow_symlinks=False).st_mtime < written:
                os.unlink(path)

    def throw_away(self) -> str:
        """Move the whole session away in one step, and return the path for a slow `shutil.rmtree`.

        A session that somebody has already removed is no error. Raises `WorldError(storage_failed)`.
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
        """Remove all prompts but those of `turn_ids`. Raises `WorldError(storage_failed)`.

        A crash between a turn's end and `drop_prompt`, or in the middle of a write, leaves a prompt behind.
        """
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
    """Return the values of an MCP server's variables and headers."""
    parts = [server.get(name) for name in ("env", "headers")] if isinstance(server, dict) else []
    return [value for part in parts if isinstance(part, dict) for value in part.values()]


class RunDir:
    """Directory `runs/<k>/`: one CLI process, owned by its keeper."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.number = int(os.path.basename(path))
        self.session = os.path.basename(os.path.dirname(os.path.dirname(path)))
        self.out = f"{path}/out.spool"
        self.err = f"{path}/err.spool"
        self.lock = f"{path}/keeper.lock"
        self.checkpoint = f"{path}/checkpoint"
        self.scratch = f"{path}/{SCRATCH}"

    def create(self, intent: Intent, files: Mapping[str, str | bytes]) -> None:
        """Create the directory and record what will be run: argv and names, but no prompt and no value of a variable.

        `files` are written for the CLI to read. They may hold secrets, and `drop_scratch` removes them. Nothing is synced:
        after a power loss no process of the run lives.
        """
        make_private_dir(self.path)
        if files:
            make_private_dir(self.scratch)
        for name, held in files.items():
            data = held.encode() if isinstance(held, str) else held
            write_atomic(os.path.join(self.scratch, name), data, sync=False)
        write_json(os.path.join(self.path, "intent.json"), dict(intent), sync=False)

    def drop_scratch(self) -> None:
        """Remove the files written for the CLI: the run is over."""
        shutil.rmtree(self.scratch, ignore_errors=True)

    def intent(self) -> Intent:
        """Return the intent that `create` recorded, or an empty dict if it is gone."""
        return read_record(os.path.join(self.path, "intent.json"), Intent) or {}

    def amend_intent(self, **changed: Any) -> None:
        """Replace parts of the intent. Raises `WorldError(storage_failed)`."""
        write_json(os.path.join(self.path, "intent.json"), {**self.intent(), **changed}, sync=False)

    @property
    def started(self) -> str:
        """Return the path of start.json."""
        return os.path.join(self.path, "start.json")

    def may_have_started(self) -> bool:
        """Tell whether a CLI may have been started. After a power loss start.json may be empty.

        Raises `WorldError(storage_failed)`.
        """
        try:
            os.stat(self.started)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise storage_error("read", self.started, error) from None
        return True

    def start_record(self) -> StartRecord | None:
        """Return the content of start.json, or None."""
        return read_record(self.started, StartRecord)

    def exit_record(self) -> dict[str, Any] | None:
        """Return the content of exit.json, or None."""
        record = read_record(os.path.join(self.path, "exit.json"), dict[str, Any])
        return None if has_larger_number(record, LARGEST_NUMBER) else record

    def declare_dead(self, record: dict[str, Any]) -> None:
        """Write exit.json in place of the keeper.

        Call this only under keeper.lock: a late keeper that finds exit.json exits.
        """
        write_json(os.path.join(self.path, "exit.json"), record)

    def save_message(self, token: str, text: str) -> None:
        """Keep a message to the CLI's stdin until it is acknowledged. Raises `WorldError(storage_failed)`.

        The message is kept before it is journaled.
        """
        make_private_dir(os.path.join(self.path, "said"))
        write_atomic(os.path.join(self.path, "said", token), text.encode(), sync=False)

    def load_message(self, token: str) -> str | None:
        """Return a message that `save_message` kept, or None if it was acknowledged.

        Raises `WorldError(storage_failed)`.
        """
        path = os.path.join(self.path, "said", token)
        try:
            return read_file(path).decode()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise storage_error("read", path, error) from None

    def drop_message(self, token: str) -> None:
        """Remove an acknowledged message. A message that a bad disk keeps goes with the run's directory."""
        with suppress(OSError):
            os.unlink(os.path.join(self.path, "said", token))

    def drop_kept(self) -> None:
        """Remove the messages kept for the CLI's stdin, and the checkpoint: the run is over.

        A kill in the middle of `save_message` leaves a file that no record names.
        """
        shutil.rmtree(os.path.join(self.path, "said"), ignore_errors=True)
        with suppress(OSError):
            os.unlink(self.checkpoint)

    def save_blob(self, name: str, data: bytes | Iterable[bytes]) -> None:
        """Keep a payload before its event is journaled. The same name always has the same bytes."""
        make_private_dir(os.path.join(self.path, "blobs"))
        write_atomic(os.path.join(self.path, "blobs", name), data, sync=False)

    def blob_path(self, name: str) -> str:
        """Return the path of a payload."""
        return os.path.join(self.path, "blobs", name)


def empty_trash(state_dir: str) -> None:
    """Remove the sessions that a daemon moved to the trash and had no time to remove."""
    shutil.rmtree(os.path.join(state_dir, "trash"), ignore_errors=True)


def list_sessions(state_dir: str) -> list[str]:
    """Return the ids of all session directories. A directory of another name is not ours and is left alone."""
    try:
        return sorted(name for name in os.listdir(os.path.join(state_dir, "sessions")) if _ID.fullmatch(name))
    except FileNotFoundError:
        return []
