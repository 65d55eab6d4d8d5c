"""Work of `clisup doctor`, `config` and `gc` in the command itself: without a daemon, or too slow for a daemon."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import trio
from msgspec.structs import asdict
from pydantic import SecretStr

from clisup.config.keys import SECRET, Effect, flat, key_of, parts_of
from clisup.config.model import Config, parse_config
from clisup.config.origin import Origin, Path, lines_of
from clisup.daemon.backends import Backend, Backends, check_default_backend
from clisup.daemon.ops import garbage
from clisup.daemon.ops.cleanup import Facts, SessionFact, chosen_of, find, result_of, tidy_worktrees
from clisup.daemon.ops.doctor import Surroundings, diagnose
from clisup.daemon.ops.garbage import Removable
from clisup.daemon.ops.retention import due_of, removable_parts, remove_files
from clisup.daemon.start import Flags, Place, config_path, place_of
from clisup.daemon.worktrees.worktrees import Worktrees
from clisup.errors import ClisupError, ConfigurationError, WorldError
from clisup.host import clock
from clisup.host.config_file import ConfigFile, with_credentials
from clisup.host.locks import StateLock
from clisup.host.log import configure_logging
from clisup.host.otlp import check_installed
from clisup.host.process.carrying import taken_environment
from clisup.host.process.cgroups import CgroupHome
from clisup.host.process.program_files import program_files, read_pieces
from clisup.host.safe_paths import make_safe_dir
from clisup.locations import SOCKET_PATH_LIMIT
from clisup.model.structs import JsonObject
from clisup.ops.drift import OVERLAP, NameCheck, Scan, compare, looks_secret, remember
from clisup.policy.retention import Part
from clisup.policy.secrets.redact import Redactor
from clisup.store.clock_store import look_at_clock
from clisup.store.cursor_store import CursorStore
from clisup.store.drift_store import load_checks, load_drift, save_checks
from clisup.store.journal_reader import Segments
from clisup.store.offline import StoredSession, stored_sessions
from clisup.store.session_dir import SessionDir
from clisup.store.stored_sizes import look_at
from clisup.wire.params import GcParams
from clisup.wire.results import GcFailure

Progress = Callable[[int, int], None]
"""Called with the bytes read and the bytes to read."""


def examine(flags: Flags, name: str | None, cwd: str | None) -> list[JsonObject]:
    """Return the answer of `backend/check` for a daemon that would start here and now.

    Raises `UsageError(backend_not_found)`. A wrong configuration is a finding.
    """
    env = taken_environment()
    path, named = config_path(flags, env)
    config, backends, problem = parse_config({}), None, None
    try:
        config = with_credentials(ConfigFile(path, named).read(), None, env)
        backends = Backends(config, env)
    except ConfigurationError as error:
        problem = (error.message, error.hint)
    place = _place(flags, config, env)
    around = Surroundings(
        state_dir=place.state_dir,
        socket=place.socket,
        env=env,
        configuration=path if os.path.exists(path) else f"none at {path}: all defaults",
        configuration_problem=problem,
        cgroup=CgroupHome.find().path,
        cwd=cwd,
        gateway=config.gateway,
        drift=tuple(load_drift(place.state_dir)),
    )
    chosen = [] if backends is None else list(backends) if name is None else [backends.get(name)]

    async def found() -> list[JsonObject]:
        findings = await diagnose(around, chosen, optional=config.untouched if name is None else frozenset())
        return [asdict(finding) for finding in findings]

    return trio.run(found)


def find_name_drift(flags: Flags, name: str, progress: Progress, command: list[str] | None = None) -> JsonObject:
    """Find environment names in the files of a backend's CLI that its scrub lists lack. Remember them for the next check.

    `command` is the command that a running daemon starts for the backend: the daemon may have another PATH.
    Raises `UsageError(backend_not_found)`, `ConfigurationError`, and `WorldError` if there is no file to read.
    """
    env = taken_environment()
    config = with_credentials(ConfigFile(*config_path(flags, env)).read(), None, env)
    if command and name in config.backends:
        asked = config.backends[name].model_copy(update={"command": command})
        config = config.model_copy(update={"backends": {**config.backends, name: asked}})
    backend = Backends(config, env).get(name)
    files = program_files(backend.argv())
    version = trio.run(_version, backend) or "unknown"

    def known(variable: str) -> bool:
        return backend.rules.verdict(variable) is not None

    scan = Scan(known)
    read = read_pieces(files, scan.feed, overlap=OVERLAP, progress=progress)
    state_dir, lists = _place(flags, config, env).state_dir, backend.adapter.lists
    before = load_checks(state_dir, lists)
    drift = compare(scan.names, version, known, before)
    check = NameCheck(version, clock.timestamp()[:10], tuple(sorted(scan.names)))
    return {
        "backend": name,
        "kind": backend.adapter.kind,
        "version": version,
        "path": files[0],
        "read": read._asdict(),
        "lists": [
            {"list": stamp.list_name, "source": stamp.source, "date": stamp.date} for stamp in backend.rules.stamps
        ],
        "counts": {"found": drift.found, "unknown": len(drift.unknown), "new": len(drift.new)},
        "since": None if drift.since is None else {"version": drift.since.version, "date": drift.since.date},
        "new": list(drift.new),
        "unknown": list(drift.unknown),
        "secret_like": [variable for variable in drift.unknown if looks_secret(variable)],
        "not_stored": _save(state_dir, lists, remember(before, check)),
    }


def _save(state_dir: str, kind: str, checks: list[NameCheck]) -> str | None:
    """Save the checks. Return None, or why the next check cannot compare with this one."""
    try:
        save_checks(state_dir, kind, checks)
    except ClisupError as error:
        return str(error)
    return None


async def _version(backend: Backend) -> str | None:
    try:
        return (await backend.ready())[1]
    except WorldError as error:
        return error.data.get("installed")  # a version out of range is the common reason to look


_TOML_LINE = re.compile(r"\(at line (\d+)")


class Checked(NamedTuple):
    """Checked file. `problems` are `{key, line, message, nearest, hint}` without unknown parts."""

    file: str
    exists: bool
    problems: list[JsonObject]


class Value(NamedTuple):
    """Key with its value for JSON (a secret as `[set]`) and its origin."""

    key: str
    value: Any
    origin: Origin
    effect: Effect


class Shown(NamedTuple):
    """File, the daemon's socket, and every value. `plain` are backends without settings."""

    file: str
    exists: bool
    socket: str
    values: list[Value]
    plain: frozenset[str]


def check_configuration(flags: Flags) -> Checked:
    """Find everything that prevents a start with this configuration. Never raises for an invalid file."""
    env = taken_environment()
    file = ConfigFile(*config_path(flags, env))
    try:
        text = file.text()
        config = file.read()
    except ConfigurationError as error:
        return Checked(file.path, os.path.exists(file.path), _told(error))
    lines = lines_of(text or "")
    problems = [problem for name in config.backends if (problem := _backend_problem(config, name, env, lines))]
    problems += _problem_of("defaults.backend", lines, lambda: check_default_backend(config))
    problems += _place_problem(_place(flags, config, env), lines)
    problems += _problem_of("tracing.enabled", lines, lambda: check_installed(config.tracing))
    return Checked(file.path, text is not None, problems)


def _told(error: ConfigurationError) -> list[JsonObject]:
    """Return the problems of an error, or the error itself."""
    if told := error.data.get("problems"):
        told.sort(key=lambda problem: problem.get("line", 0))
        return [{name: value for name, value in problem.items() if name != "path"} for problem in told]
    found = _TOML_LINE.search(error.message)
    return [{"message": error.message, "hint": error.hint, **({"line": int(found[1])} if found else {})}]


def _backend_problem(config: Config, name: str, env: Mapping[str, str], lines: Mapping[Path, int]) -> JsonObject | None:
    try:
        defaults = config.defaults.model_copy(update={"backend": ""})  # it names a backend that may not be this one
        alone = config.model_copy(update={"backends": {name: config.backends[name]}, "defaults": defaults})
        Backends(with_credentials(alone, None, env), env)
    except ConfigurationError as error:
        key = error.data.get("key", f"backends.{name}")
        return _problem(key, error.message, error.hint, lines.get(("backends", name)))
    return None


def _problem_of(key: str, lines: Mapping[Path, int], check: Callable[[], object]) -> list[JsonObject]:
    """Return the problem with the value of a key, if its check raises `ConfigurationError`."""
    try:
        check()
    except ConfigurationError as error:
        return [_problem(key, error.message, error.hint, lines.get(parts_of(key)))]
    return []


def _place_problem(place: Place, lines: Mapping[Path, int]) -> list[JsonObject]:
    length = len(os.fsencode(place.socket))
    if length <= SOCKET_PATH_LIMIT:
        return []
    message = f"the socket's path has {length} bytes, and {SOCKET_PATH_LIMIT} is the most: {place.socket}"
    return [_problem("daemon.socket", message, "choose a shorter one", lines.get(("daemon", "socket")))]


def _problem(key: str, message: str, hint: str, line: int | None) -> JsonObject:
    return {"key": key, "message": message, "hint": hint, **({"line": line} if line else {})}


def show_configuration(flags: Flags) -> Shown:
    """Return every value of a daemon that would be started here now. Raises `ConfigurationError`."""
    env = taken_environment()
    file = ConfigFile(*config_path(flags, env))
    text, config = file.text(), file.read()
    place = _place(flags, config, env)
    lines = lines_of(text or "")
    values = list(_values(config, lines, place, flags, env))
    return Shown(file.path, text is not None, place.socket, values, config.untouched)


def _values(
    config: Config, lines: Mapping[Path, int], place: Place, flags: Flags, env: Mapping[str, str]
) -> Iterator[Value]:
    hide = Redactor()
    for key, value in flat(config):
        row = key_of(key)
        assert row is not None, f"{key} is in no row of the table of keys"
        origin = _origin(key, value, lines)
        if key in ("daemon.socket", "daemon.state_dir"):
            name = key.removeprefix("daemon.")
            origin = _place_origin(name, getattr(flags, name), env, origin)
            yield Value(key, getattr(place, name), origin, row.effect)
        else:
            yield Value(key, _sayable(value, hide), origin, row.effect)


def _origin(key: str, value: Any, lines: Mapping[Path, int]) -> Origin:
    line = lines.get(parts_of(key))
    return Origin("default") if line is None or value == "" else Origin("file", None, line)


def _place_origin(name: str, flag: str | None, env: Mapping[str, str], otherwise: Origin) -> Origin:
    variable = f"CLISUP_{name.upper()}"
    if flag:
        return Origin("flag", f"--{name.replace('_', '-')}")
    return Origin("environment", variable) if env.get(variable) else otherwise


def _sayable(value: Any, hide: Redactor) -> Any:
    """Return the value for JSON, without marked secrets and without text that looks like a secret."""
    if isinstance(value, SecretStr):
        return SECRET
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, list):
        return [_sayable(item, hide) for item in value]
    if isinstance(value, dict):
        return {name: _sayable(item, hide) for name, item in value.items()}
    return value


def _place(flags: Flags, config: Config, env: Mapping[str, str]) -> Place:
    return place_of(flags, config.daemon.socket, config.daemon.state_dir, env)


def clean_up_offline(*, dry_run: bool, older_than_s: float, foreign: bool = False) -> JsonObject:
    """Remove garbage and return the answer of `daemon/gc`. The lock of the state directory lets no daemon start meanwhile.

    Raises `WorldError` if a daemon holds the state directory, and `ConfigurationError`.
    """
    env = taken_environment()
    config = ConfigFile(*config_path(Flags(), env)).read()
    place = place_of(Flags(), config.daemon.socket, config.daemon.state_dir, env)
    params = GcParams(dry_run=dry_run, older_than_s=older_than_s, foreign=foreign)
    if not os.path.isdir(place.state_dir):
        return result_of(params, [], {}).model_dump()
    make_safe_dir(place.state_dir, "clean up")
    with _locked(place.state_dir):
        damaged: dict[str, str] = {}  # damaged sessions stay
        stored = list(stored_sessions(place.state_dir, damaged))
        found = list(
            find(_facts(place.state_dir, place.socket, stored), older_than_s, _due(place.state_dir, stored, config))
        )
        failed = {} if dry_run else _remove_all(place.state_dir, chosen_of(params, found), config)
        worktrees, kept = _worktrees(place.state_dir, stored, damaged, env, dry_run=dry_run)
        return result_of(params, found, failed, worktrees).model_copy(update={"kept": kept}).model_dump()


def _worktrees(
    state_dir: str, stored: list[StoredSession], damaged: dict[str, str], env: Mapping[str, str], *, dry_run: bool
) -> tuple[list[Removable], list[GcFailure]]:
    configure_logging("warning")  # without it, a line would lack its fields
    worktrees = Worktrees(state_dir, env)
    worktrees.load()
    for session in stored:
        if not session.closed:
            worktrees.join(session.spec.session_id, session.spec.worktree)
    return trio.run(partial(tidy_worktrees, worktrees, damaged, lambda: False, dry_run=dry_run))


@contextmanager
def _locked(state_dir: str) -> Iterator[None]:
    lock = StateLock(state_dir)
    holder = lock.acquire()
    if holder is not None:
        who = f"pid {holder}" if holder > 0 else "another process"
        raise WorldError(
            f"cannot clean up, because {who} holds the state directory and does not answer as a daemon",
            kind="overloaded",
            hint="it is starting, stuck, or listens at another socket: see clisup status",
        )
    try:
        yield
    finally:
        lock.release()


def _facts(state_dir: str, socket: str, stored: list[StoredSession]) -> Facts:
    sessions = tuple(
        SessionFact(
            SessionDir(state_dir, s.spec.session_id), s.closed, s.ledger.active_turn is None and not s.ledger.queue
        )
        for s in stored
    )
    runs = frozenset((s.spec.session_id, s.ledger.active_turn.run) for s in stored if s.ledger.active_turn is not None)
    return Facts(state_dir, socket, False, CgroupHome.find(), sessions, runs)


def _due(state_dir: str, stored: list[StoredSession], config: Config) -> list[Part]:
    """Return the parts that retention removes. The last segment of an open session stays: the next daemon needs it."""
    limits = config.daemon.retention
    if not limits.days and not limits.bytes:
        return []
    found = []
    for session in stored:
        session_id = session.spec.session_id
        try:
            sizes = look_at(SessionDir(state_dir, session_id))
        except OSError:
            continue  # unreadable sessions stay
        held = session.ledger.active_turn is not None or bool(session.ledger.queue)
        mine = removable_parts(session_id, sizes, closed=session.closed, next_seq=session.next_seq, last_too=False)
        found.append((sizes, [] if held else mine))
    return due_of(found, limits, look_at_clock(state_dir, keep=False))


def _remove_all(state_dir: str, items: list[Removable], config: Config) -> dict[str, str]:
    failed: dict[str, str] = {}
    cursors = CursorStore(state_dir, limit=config.daemon.max_cursors)
    for item in items:
        try:
            if item.part is not None:
                _remove_part(SessionDir(state_dir, item.part.session_id), item.part)
            elif item.kind == "session" and item.session_id is not None:
                cursors.drop_sessions([item.session_id])
                shutil.rmtree(SessionDir(state_dir, item.session_id).throw_away())
            elif (error := garbage.remove(item)) is not None:
                failed[item.path] = error
        except (ClisupError, OSError) as refused:
            failed[item.path] = str(refused)
    return failed


def _remove_part(directory: SessionDir, part: Part) -> None:
    """Remove whole segments, but never the last: the next daemon reads only that one."""
    first = [segment.first_seq for segment in look_at(directory).segments]
    ends = [following - 1 for following in first[1:]]
    gone = [seq for seq, end in zip(first, ends, strict=False) if part.upto is not None and end <= part.upto]
    journal = Segments(directory.journal)
    remove_files([journal.path_of(seq) for seq in gone], [directory.run(run).path for run in part.runs])
