"""Checks of `clisup doctor` that run in the command itself: without a daemon, or too slow for a daemon."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import trio
from msgspec.structs import asdict

from clisup.config.model import Config, parse_config
from clisup.daemon.backends import Backend, Backends
from clisup.daemon.ops.doctor import Surroundings, diagnose
from clisup.daemon.start import Flags, Place, config_path, place_of
from clisup.errors import ClisupError, ConfigurationError, WorldError
from clisup.host import clock
from clisup.host.config_file import read_config, with_credentials
from clisup.host.process.carrying import taken_environment
from clisup.host.process.cgroups import CgroupHome
from clisup.host.process.program_files import program_files, read_pieces
from clisup.ops.drift import OVERLAP, NameCheck, Scan, compare, looks_secret, remember
from clisup.store.drift_store import load_checks, load_drift, save_checks

Progress = Callable[[int, int], None]
"""Called with the bytes read and the bytes to read."""


def examine(flags: Flags, name: str | None, cwd: str | None) -> list[dict[str, Any]]:
    """Return the answer of `backend/check` for a daemon that would start here and now.

    Raises `UsageError(backend_not_found)`. A wrong configuration is a finding.
    """
    env = taken_environment()
    path, named = config_path(flags, env)
    config, backends, problem = parse_config({}), None, None
    try:
        config = with_credentials(read_config(path, required=named), None, env)
        backends = Backends(config, env)
    except ConfigurationError as error:
        problem = (error.message, error.hint)
    place = _place(flags, config)
    around = Surroundings(
        state_dir=place.state_dir,
        socket=place.socket,
        env=env,
        configuration=path if os.path.exists(path) else f"none at {path}: all defaults",
        configuration_problem=problem,
        cgroup=CgroupHome.find().path,
        cwd=cwd,
        drift=tuple(load_drift(place.state_dir)),
    )
    chosen = [] if backends is None else list(backends) if name is None else [backends.get(name)]

    async def found() -> list[dict[str, Any]]:
        findings = await diagnose(around, chosen, optional=config.defaults if name is None else frozenset())
        return [asdict(finding) for finding in findings]

    return trio.run(found)


def find_name_drift(flags: Flags, name: str, progress: Progress, command: list[str] | None = None) -> dict[str, Any]:
    """Find environment names in the files of a backend's CLI that its scrub lists lack. Remember them for the next check.

    `command` is the command that a running daemon starts for the backend: the daemon may have another PATH.
    Raises `UsageError(backend_not_found)`, `ConfigurationError`, and `WorldError` if there is no file to read.
    """
    env = taken_environment()
    path, named = config_path(flags, env)
    config = with_credentials(read_config(path, required=named), None, env)
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
    state_dir, lists = _place(flags, config).state_dir, backend.adapter.lists
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


def _place(flags: Flags, config: Config) -> Place:
    return place_of(flags, config.daemon.socket, config.daemon.state_dir, taken_environment())
