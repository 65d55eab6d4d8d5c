"""Debug bundle: one archive for a bug report, from the daemon if one answers, else from this process.

Only `Archive.add` puts text into the archive, and `add` redacts it.
"""

from __future__ import annotations

import gzip
import importlib.metadata
import io
import json
import os
import platform
import stat
import sys
import tarfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from clisup import __version__
from clisup.client.sync import Client
from clisup.config.model import Config, parse_config
from clisup.daemon.backends import Backends
from clisup.daemon.ops.offline import examine
from clisup.daemon.start import Flags, config_path, place_of
from clisup.errors import ClisupError, UsageError, WorldError
from clisup.host import clock
from clisup.host.config_file import ConfigFile
from clisup.host.systemd.journal import journal_tail
from clisup.ops.event_outline import outline
from clisup.policy.secrets.redact import Redactor, redacted, secret_arguments
from clisup.recordings.taking import find_session
from clisup.store.offline import stored_records
from clisup.store.session_dir import RunDir, SessionDir, list_sessions
from clisup.store.spool import tail_text

__all__ = ["MAX_ENTRIES", "MAX_MEMBER", "MAX_TOTAL", "Archive", "BundleRequest", "Member", "collect", "state_listing"]

MAX_MEMBER = 4 * 1024 * 1024
"""Limit of one member in bytes. A longer member is cut, and the list of contents says so."""
MAX_TOTAL = 24 * 1024 * 1024
"""Limit of all members together, before compression."""
MAX_ENTRIES = 5000
"""Limit of the lines in the listing of the state directory."""
MAX_LOG_LINES = 1000
MAX_RUNS = 50
"""Limit of the runs of one session, the last ones."""
STDERR_TAIL = 16 * 1024
_LIBRARIES = ("pydantic", "trio", "psutil", "click", "msgspec")
_SPEC = ("version", "session_id", "backend", "created_at", "mode", "model", "permission_mode", "has_system_prompt", "has_mcp_config",
         "env_names", "timeouts", "forked_from")  # fmt: skip

_README = """\
A debug bundle of clisup {version}, made {time} by: clisup debug bundle

LOOK AT IT BEFORE YOU SEND IT. Known secrets (values of the configuration, of credentials in the environment, of what clients
brought for their sessions) and text that looks like a key are replaced by [redacted]; the home directory is ~. An unknown
secret in an unexpected place is not found.

{content}

Contents, with bytes:
{members}
"""
_WITHOUT = "It holds no prompt, no answer, and no input or output of a tool: only the lengths of these texts."
_WITH = "It HOLDS PROMPTS, ANSWERS AND TOOLS' INPUTS AND OUTPUTS of the sessions named: --with-content asked for them."


@dataclass
class BundleRequest:
    """Contents to collect. `sessions` are ids or their first characters; `content` adds the texts of their events."""

    sessions: tuple[str, ...] = ()
    content: bool = False
    config: str | None = None
    state_dir: str | None = None


@dataclass
class _Machine:
    """Configuration of this machine, and the secrets to hide."""

    env: Mapping[str, str]
    config: Config
    path: str
    state_dir: str
    problem: ClisupError | None
    redactors: list[Redactor] = field(default_factory=list)

    def redact(self, text: str) -> str:
        """Return the text without secrets and without the name of the home directory."""
        text = redacted(text, self.redactors)
        home = self.env.get("HOME", "").rstrip("/")
        return text.replace(home, "~") if home.count("/") > 1 or home == "/root" else text


def collect(request: BundleRequest, env: Mapping[str, str]) -> Archive:
    """Collect everything; a member that cannot be read holds the reason. Raises `UsageError` for an unknown session."""
    client = _client()
    try:
        said = _answer_of(lambda: client.call("daemon/status")) if client is not None else None
        found = _look(request, env, said)
        now = clock.timestamp()
        archive = Archive(found.redact, folder=f"clisup-debug-{now[:10]}", time=clock.wall())
        sessions = [find_session(found.state_dir, prefix) for prefix in request.sessions]
        archive.add_json("versions.json", _versions())
        archive.add_json("config.json", _configuration(found))
        archive.add_json("doctor.json", _answer_of(lambda: _doctor(client, request)))
        status = said if said is not None else {"cannot": "no daemon answers"}
        archive.add_json("status.json", status if request.content else without_titles(status))
        _add_metrics(archive, client)
        _add_log(archive, client, env)
        archive.add("state.txt", state_listing(found.state_dir))
        for session_id in sessions:
            _add_session(archive, found.state_dir, session_id, content=request.content)
        archive.add("README.txt", _readme(archive, request, now))
        return archive
    finally:
        if client is not None:
            client.close()


def without_titles(status: Any) -> Any:
    """Return the status without the sessions' titles: they hold words of prompts."""
    if not isinstance(status, dict) or not isinstance(status.get("sessions"), list):
        return status
    rows = [row | {"title": {"chars": len(row.get("title") or "")}} for row in status["sessions"]]
    return status | {"sessions": rows}


def _client() -> Client | None:
    try:
        return Client.connect(name="clisup-debug")
    except ClisupError:
        return None


def _answer_of(look: Callable[[], Any]) -> Any:
    try:
        return look()
    except ClisupError as error:
        return {"cannot": error.message, "kind": error.kind}


def _look(request: BundleRequest, env: Mapping[str, str], said: Any) -> _Machine:
    path, named = config_path(Flags(config=request.config), env)
    config, problem = parse_config({}), None
    try:
        config = ConfigFile(path, named).read()
    except ClisupError as error:
        problem = error
    place = place_of(Flags(state_dir=request.state_dir), config.daemon.socket, config.daemon.state_dir, env).state_dir
    running = said.get("daemon", {}).get("state_dir") if isinstance(said, dict) else None
    state_dir = place if request.state_dir or not running else str(running)
    found = _Machine(env, config, path, os.path.abspath(state_dir), problem)
    _learn_secrets(found)
    return found


def _learn_secrets(found: _Machine) -> None:
    """Find all known secrets, of every session: a bundle of one session may name another."""
    try:
        backends = list(Backends(found.config, found.env))
    except ClisupError as error:
        found.problem, backends = found.problem or error, []
    secrets = [value.get_secret_value() for value in found.config.tracing.headers.values()]
    for table in found.config.backends.values():
        secrets += [value.get_secret_value() for value in table.env.values()]
        secrets += secret_arguments((*table.command, *table.args))
    for session_id in list_sessions(found.state_dir):
        directory = SessionDir(found.state_dir, session_id)
        for brought in (lambda d: d.secrets().values(), SessionDir.server_secrets, SessionDir.bridge_secrets):
            with suppress(ClisupError):  # an unreadable file hides no other secret
                secrets += brought(directory)
    found.redactors = [*(backend.private() for backend in backends), Redactor(secrets)]


def _versions() -> dict[str, Any]:
    libraries: dict[str, str | None] = {}
    for name in _LIBRARIES:
        try:
            libraries[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            libraries[name] = None
    return {
        "clisup": __version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "system": _system(),
        "root": os.geteuid() == 0,
        "executable": sys.executable,
        "libraries": libraries,
    }


def _system() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def _configuration(found: _Machine) -> dict[str, Any]:
    about = {"path": found.path, "there": os.path.exists(found.path)}
    if found.problem is not None:
        return {**about, "cannot": found.problem.message, "hint": found.problem.hint}
    return {**about, **found.config.model_dump(mode="json")}  # a SecretStr becomes stars


def _doctor(client: Client | None, request: BundleRequest) -> Any:
    if client is not None:
        return client.call("backend/check")
    return examine(Flags(config=request.config, state_dir=request.state_dir), None, "/")


def _add_metrics(archive: Archive, client: Client | None) -> None:
    said = _answer_of(lambda: client.call("daemon/metrics")) if client is not None else None
    if isinstance(said, dict) and isinstance(said.get("text"), str):
        archive.add("metrics.txt", said["text"])


def _add_log(archive: Archive, client: Client | None, env: Mapping[str, str]) -> None:
    """Add the log of the running daemon, or the journal's lines of a daemon that is down."""
    if client is None:
        archive.add(
            "log.txt", journal_tail(env) or "no daemon answers, and the journal has no line of one\n", keep_end=True
        )
    else:
        archive.add_json("log.json", _answer_of(lambda: client.call("daemon/log", limit=MAX_LOG_LINES)))


def _readme(archive: Archive, request: BundleRequest, now: str) -> str:
    members = "\n".join(f"  {m.bytes:>10}  {m.name}{'  (cut)' if m.cut else ''}" for m in archive.members)
    return _README.format(
        version=__version__, time=now, content=_WITH if request.content else _WITHOUT, members=members
    )


# -- one session -------------------------------------------------------------------------------------------------------


def _add_session(archive: Archive, state_dir: str, session_id: str, *, content: bool) -> None:
    """Add the spec, the events and the records of the runs of one session."""
    directory = SessionDir(state_dir, session_id)
    place = f"sessions/{session_id}"
    archive.add_json(f"{place}/session.json", _spec(directory))
    archive.add(f"{place}/events.jsonl", "".join(_events(directory, content)), keep_end=True)
    for number in directory.run_numbers()[-MAX_RUNS:]:
        archive.add_json(f"{place}/runs/{number}.json", _run(directory.run(number), content))


def _spec(directory: SessionDir) -> dict[str, Any]:
    try:
        spec = directory.load_spec()
    except ClisupError as error:
        return {"cannot": error.message}
    except ValueError as error:
        return {"cannot": f"it is invalid ({type(error).__name__})"}
    if spec is None:
        return {"cannot": "there is no session.json"}
    known = spec.model_dump(mode="json")
    return {name: known[name] for name in _SPEC if name in known}


def _events(directory: SessionDir, content: bool) -> Iterable[str]:
    """Return the last events, about as many as a member holds: a journal may be larger than the memory."""
    lines: deque[str] = deque()
    size = 0
    try:
        for record in stored_records(directory.journal):
            if record.event is not None:
                event = record.event if content else outline(record.event)
                lines.append(json.dumps(event, ensure_ascii=False) + "\n")
                size += len(lines[-1])
            while size > 2 * MAX_MEMBER and len(lines) > 1:
                size -= len(lines.popleft())
    except ClisupError as error:
        lines.append(json.dumps({"cannot": error.message}) + "\n")
    return lines


def _run(run: RunDir, content: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, read in (("start.json", run.start_record), ("exit.json", run.exit_record)):
        try:
            found[name] = read()
        except ClisupError as error:
            found[name] = {"cannot": error.message}
    if content:
        try:
            found["intent.json"] = run.intent()
            found["stderr"] = tail_text(run.err, STDERR_TAIL)
        except (ClisupError, OSError) as error:
            found["intent.json"] = {"cannot": str(error)}
    return found


# -- the state directory, and the archive ------------------------------------------------------------------------------


def state_listing(state_dir: str) -> str:
    """Return a line `mode uid bytes time path` for each file and directory, without following links."""
    lines = []
    for number, path in enumerate(_paths(state_dir)):
        if number >= MAX_ENTRIES:
            lines.append(f"... more than {MAX_ENTRIES} entries")
            break
        lines.append(_entry(path))
    return "\n".join(lines) + "\n"


def _paths(top: str) -> Iterator[str]:
    yield top
    for directory, directories, files in os.walk(top):
        directories.sort()
        for name in sorted([*directories, *files]):
            yield os.path.join(directory, name)


def _entry(path: str) -> str:
    try:
        found = os.lstat(path)
    except OSError as error:
        return f"{error.strerror}  {path}"
    when = datetime.fromtimestamp(found.st_mtime, UTC)
    shown = path.encode("utf-8", "replace").decode().replace("\n", "?")
    return f"{stat.filemode(found.st_mode)} {found.st_uid:>5} {found.st_size:>12} {when:%Y-%m-%dT%H:%M:%SZ} {shown}"


class Member(NamedTuple):
    """File in the archive."""

    name: str
    bytes: int
    cut: bool


class Archive:
    """Collector of redacted members, and writer of the archive."""

    def __init__(self, redact: Callable[[str], str], *, folder: str, time: float) -> None:
        self._redact, self._folder, self._time = redact, folder, time
        self._parts: list[tuple[str, bytes]] = []
        self._left = MAX_TOTAL
        self.members: list[Member] = []

    def add(self, name: str, text: str, *, keep_end: bool = False) -> None:
        """Add a text file. Of a long text keep the beginning, or the end, in whole lines."""
        data = self._redact(text).encode("utf-8", "replace")
        limit = min(MAX_MEMBER, self._left)
        kept = data if len(data) <= limit else _whole_lines(data, limit, keep_end)
        self._left -= len(kept)
        self._parts.append((name, kept))
        self.members.append(Member(name, len(kept), len(kept) < len(data)))

    def add_json(self, name: str, value: Any) -> None:
        """Add a JSON file with indentation."""
        self.add(name, json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n")

    def write(self, path: str) -> int:
        """Write a new file of mode 0600, and return its size. Raises `UsageError` or `WorldError`."""
        data = self._packed()
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise UsageError(
                f"cannot write {path}, because the file exists", kind="usage", hint="-o FILE names another"
            ) from None
        except OSError as error:
            raise _unwritten(path, error) from None
        try:
            os.fchmod(fd, 0o600)  # whatever the umask says
            with os.fdopen(fd, "wb") as file:
                file.write(data)
        except OSError as error:
            os.unlink(path)
            raise _unwritten(path, error) from None
        return len(data)

    def _packed(self) -> bytes:
        packed = io.BytesIO()
        with (
            gzip.GzipFile("", "wb", fileobj=packed, mtime=int(self._time)) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for name, data in self._parts:
                info = tarfile.TarInfo(f"{self._folder}/{name}")
                info.size, info.mode, info.mtime = len(data), 0o600, int(self._time)
                tar.addfile(info, io.BytesIO(data))
        return packed.getvalue()


def _whole_lines(data: bytes, limit: int, keep_end: bool) -> bytes:
    if keep_end:
        return data[len(data) - limit :].partition(b"\n")[2]
    return data[: data.rfind(b"\n", 0, limit) + 1]


def _unwritten(path: str, error: OSError) -> WorldError:
    return WorldError(
        f"cannot write {path}, because of: {error.strerror}", kind="storage_failed", hint="-o FILE names another place"
    )
