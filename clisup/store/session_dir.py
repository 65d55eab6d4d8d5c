"""Files of one session, by name: the layout that docs/explanation/architecture.md shows. Directories are 0700, files 0600."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from clisup.config.session_spec import SessionSpec
from clisup.errors import WorldError
from clisup.host.files import (
    RECORD_LIMIT,
    make_private_dir,
    read_json,
    read_optional,
    storage_error,
    write_atomic,
    write_json,
)
from clisup.host.log import event_logger
from clisup.host.process import cgroups
from clisup.host.process.markers import RunMarker, state_id
from clisup.model.journal import encode_snapshot
from clisup.model.lines.json_values import has_larger_number
from clisup.model.prompts.options import StoredPrompt
from clisup.model.sessions.ledger import Ledger
from clisup.model.sessions.turn_state import Intent, StartRecord
from clisup.store.journal_reader import Segments
from clisup.store.opened import SPEC_FILE, Opened, opening, settle
from clisup.store.private_files import BroughtTools, PrivateFiles
from clisup.store.records import decode_record, read_record

__all__ = ["SCRATCH", "BroughtTools", "RunDir", "SessionDir", "empty_trash", "list_sessions"]

_log = event_logger()
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

LARGEST_NUMBER = 2**53
"""Largest whole number in a keeper's record. Sums of larger ones could not be written."""
DIGEST_CHARS = 64
"""Characters of a message's name that is a digest."""
SCRATCH = "scratch"
"""Directory of a run for its CLI: it holds the files written for the CLI, and the CLI may write there freely."""


class SessionDir(PrivateFiles):
    """Directory of one session: `<state_dir>/sessions/<session_id>/`."""

    __slots__ = ()

    def __init__(self, state_dir: str, session_id: str, proofs: Mapping[str, str] | None = None) -> None:
        super().__init__(session_id, os.path.join(state_dir, "sessions", session_id), proofs)

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
        """Return the spec in `session.json`, unproved, or None if the file is missing or holds no JSON.

        Raises `WorldError(storage_failed)` for a file that is not a session's.
        """
        raw = read_json(os.path.join(self.path, SPEC_FILE), RECORD_LIMIT)
        return SessionSpec.read(self.id, raw) if raw else None

    def opened(self) -> Opened | None:
        """Return the session as its journal proves it, or None if the directory holds no whole session.

        Raises as `settle` does, or the error of an unreadable `session.json` if the journal proves nothing.
        """
        fault: WorldError | None = None
        stored: SessionSpec | None = None
        try:
            stored = self.load_spec()
        except WorldError as error:
            fault = error
        try:
            found = settle(self.id, self.path, stored)
        except WorldError as error:
            raise fault or error from None
        if found is None and fault is not None:
            raise fault
        return found

    def create(
        self,
        spec: SessionSpec,
        variables: dict[str, str],
        system_prompt: str | None,
        mcp_config: bytes | None,
        tools: list[dict[str, Any]] | None = None,
    ) -> None:
        """Write all files of the session, the journal's proof of them, and `session.json` last.

        Without `session.json` no session exists. Raises `WorldError(storage_failed)`.
        """
        make_private_dir(self.path)
        for name in ("private", "journal", "prompts"):  # the sync of session.json covers these names
            make_private_dir(os.path.join(self.path, name))
        files = self.write_private(variables, system_prompt, mcp_config, tools)
        spec = spec.model_copy(update={"journaled": True})
        ledger = Ledger(opened=opening(spec, files))
        write_atomic(Segments(self.journal).path_of(1), encode_snapshot(ledger.snapshot()))
        self.save_spec(spec)

    def save_spec(self, spec: SessionSpec) -> None:
        """Write `session.json`, for readers. Raises `WorldError(storage_failed)`."""
        write_json(os.path.join(self.path, SPEC_FILE), spec.model_dump())

    def remove(self) -> None:
        """Remove the directory of a session that was not created."""
        shutil.rmtree(self.path, ignore_errors=True)

    def forget_secrets(self) -> None:
        """Remove the private files, the prompts and the messages to CLIs at close. The journal stays."""
        shutil.rmtree(os.path.join(self.path, "private"), ignore_errors=True)
        shutil.rmtree(os.path.join(self.path, "prompts"), ignore_errors=True)
        for number in self.run_numbers():
            self.run(number).drop_kept()

    def _prompt(self, turn_id: str) -> str:
        return os.path.join(self.path, "prompts", f"{turn_id}.json")

    def save_prompt(self, turn_id: str, prompt: StoredPrompt) -> str:
        """Make a prompt durable before the daemon accepts it. Return its digest for the journal."""
        make_private_dir(os.path.join(self.path, "prompts"))
        salted: StoredPrompt = {**prompt, "salt": secrets.token_hex(16)}
        data = msgspec.json.encode(salted) + b"\n"  # for 16 MiB the module `json` takes ten times as long
        write_atomic(self._prompt(turn_id), data)
        return hashlib.sha256(data).hexdigest()

    def load_prompt(self, turn_id: str, digest: str | None = None) -> StoredPrompt | None:
        """Return an accepted prompt. Return None if it is gone, or is not the one with this `digest`."""
        data = read_optional(self._prompt(turn_id))
        if data is None or (digest is not None and hashlib.sha256(data).hexdigest() != digest):
            return None
        try:
            return decode_record(data, StoredPrompt)
        except (ValueError, RecursionError, OverflowError):
            return None

    def has_prompt(self, turn_id: str) -> bool:
        """Tell whether something lies in the place of a stored prompt."""
        return os.path.lexists(self._prompt(turn_id))

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
        """Remove all prompts but those of `turn_ids`. Leave directories, which are not the daemon's.

        A crash between a turn's end and `drop_prompt`, or in the middle of a write, leaves a prompt behind. One that cannot be
        removed is a line in the log: the session is read all the same.
        """
        directory = os.path.join(self.path, "prompts")
        wanted = {f"{turn_id}.json" for turn_id in turn_ids}
        try:
            with os.scandir(directory) as entries:
                old = [
                    entry.path
                    for entry in entries
                    if entry.name not in wanted and not entry.is_dir(follow_symlinks=False)
                ]
            for path in old:
                os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            _log.warning("old prompt kept", session=self.id, path=error.filename or directory, error=error.strerror)


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

    def mark(self) -> RunMarker:
        """Return the marker of the run's processes. Raises `WorldError(storage_failed)`."""
        # By name: a tool of the CLI can put a link in the place of a directory.
        state_dir = self.path.removesuffix(os.path.join("", "sessions", self.session, "runs", str(self.number)))
        return RunMarker(self.session, self.number, state_id(state_dir or os.curdir))

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

    def cgroup(self) -> str | None:
        """Return the cgroup in the intent, or None. A path that is not the run's own cgroup counts as none."""
        path = self.intent().get("cgroup")
        return path if isinstance(path, str) and cgroups.is_of(path, self.mark()) else None

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

    def save_message(self, text: str) -> str:
        """Keep a message to the CLI's stdin until it is acknowledged, and return its name for the journal.

        The name is the digest of the file, which begins with a salt. Raises `WorldError(storage_failed)`.
        """
        data = f"{secrets.token_hex(16)}\n{text}".encode()
        token = hashlib.sha256(data).hexdigest()
        make_private_dir(os.path.join(self.path, "said"))
        write_atomic(self._message(token), data, sync=False)
        return token

    def load_message(self, token: str) -> str | None:
        """Return a kept message, or None if it was acknowledged, or is not the one that the journal names.

        A name of an earlier version is no digest. Raises `WorldError(storage_failed)`.
        """
        data = read_optional(self._message(token))
        if data is None or len(token) != DIGEST_CHARS:
            return None if data is None else data.decode("utf-8", "replace")
        return data.partition(b"\n")[2].decode() if hashlib.sha256(data).hexdigest() == token else None

    def keeps_message(self, token: str) -> bool:
        """Tell whether something lies in the place of a message that was not acknowledged."""
        return os.path.lexists(self._message(token))

    def _message(self, token: str) -> str:
        return os.path.join(self.path, "said", token)

    def drop_message(self, token: str) -> None:
        """Remove an acknowledged message. A message that a bad disk keeps goes with the run's directory."""
        with suppress(OSError):
            os.unlink(self._message(token))

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
