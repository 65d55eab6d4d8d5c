"""Facts for `clisup doctor`, gathered concurrently and each with a time limit. `clisup.ops.doctor` has the checks."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import trio

from clisup.backends.base import LaunchRequest
from clisup.config.model import API_KINDS
from clisup.config.tables import GatewayConfig
from clisup.daemon.backends import Backend
from clisup.errors import ClisupError
from clisup.host import clock
from clisup.host.capacity import file_size_limit, turns_at_once
from clisup.host.files import read_file
from clisup.host.locks import lock_holder
from clisup.host.machine import directory_facts, hides_processes, kernel_version, missing_features, user_name
from clisup.host.process.helpers import ask
from clisup.host.systemd.service import service_facts
from clisup.host.threads import in_thread
from clisup.ops.doctor import DirectoryFacts, Finding, MachineFacts, check_machine
from clisup.ops.doctor_backend import BackendFacts, check_backend
from clisup.ops.drift import DriftEntry
from clisup.store.drift_store import last_check

LOOK_LIMIT_S = 5.0
LOGIN_FILE_BYTES = 1024 * 1024
"""Time limit for one directory: a file system without its server never answers."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Facts about the running daemon, or about a daemon that would be started here.

    `daemon`, `storage` and `log` are as in `MachineFacts`, None without a daemon; so is `configuration_problem`. `cwd` is
    the directory of a session, or None. `env` is the daemon's environment. `gateway` is the table of the configuration.
    """

    state_dir: str
    socket: str
    env: Mapping[str, str]
    configuration: str
    cgroup: str | None
    cwd: str | None = None
    daemon: Mapping[str, object] | None = None
    storage: tuple[str, str | None] | None = None
    configuration_problem: tuple[str, str] | None = None
    drift: tuple[DriftEntry, ...] = ()
    log: tuple[str, int] | None = None
    notify: tuple[Mapping[str, object], ...] = ()
    gateway: GatewayConfig | None = None


async def diagnose(around: Surroundings, backends: Sequence[Backend], *, optional: frozenset[str]) -> list[Finding]:
    """Return the machine's findings, then each backend's. `optional` backends may be missing."""
    found: dict[str, list[Finding]] = {}

    async def machine() -> None:
        found[""] = await diagnose_machine(around)

    async def one(backend: Backend) -> None:
        found[backend.name] = check_backend(await _facts(backend, around, backend.name in optional))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(machine)
        for backend in backends:
            nursery.start_soon(one, backend)
    return [finding for name in ("", *(backend.name for backend in backends)) for finding in found[name]]


async def diagnose_machine(around: Surroundings) -> list[Finding]:
    """Return the findings on the machine."""
    service = await service_facts(around.env, user_name())
    holder, stale = (None, False) if around.daemon is not None else _left_behind(around)
    facts = MachineFacts(
        configuration=around.configuration,
        configuration_problem=around.configuration_problem,
        daemon=around.daemon,
        cwd=None if around.cwd is None else await _look_at(around.cwd),
        state=await _look_at(around.state_dir, entries=True),
        storage=around.storage,
        log=around.log,
        search_path=around.env.get("PATH", os.defpath),
        notify=around.notify,
        holder=holder,
        stale=stale,
        socket=around.socket,
        socket_directory=await _look_at(os.path.dirname(around.socket)),
        kernel=kernel_version(),
        missing=missing_features(),
        hidden=hides_processes(),
        cgroup=around.cgroup,
        service=service,
        time=clock.wall(),
        synchronised=clock.synchronised(),
        turns=turns_at_once(0),
        file_size=file_size_limit(),
    )
    return check_machine(facts)


def _left_behind(around: Surroundings) -> tuple[int | None, bool]:
    """Return the holder of the state directory, and whether a socket exists.

    The daemon itself must not call this: reading a lock of its own drops it.
    """
    there = os.path.lexists(around.socket)
    try:
        return lock_holder(os.path.join(around.state_dir, "daemon.lock")), there
    except OSError:
        return None, there


async def _look_at(path: str, *, entries: bool = False) -> DirectoryFacts:
    """Read the directory in a thread. A thread that does not return is abandoned, and the facts are unknown."""
    with trio.move_on_after(LOOK_LIMIT_S):
        look = partial(directory_facts, path, entries=entries)
        return await in_thread(look, abandon_on_cancel=True)
    return DirectoryFacts(path, obstacle=f"its file system did not answer within {LOOK_LIMIT_S:g} s")


async def _facts(backend: Backend, around: Surroundings, optional: bool) -> BackendFacts:
    key_env = backend.config.key_env if backend.config.kind in API_KINDS else None
    gateway = around.gateway
    served = gateway.allow_subscription if gateway is not None and backend.name in gateway.backends else None
    facts = BackendFacts(
        backend.name, backend.adapter.lists, backend.adapter.kind, served, optional=optional, key_env=key_env
    )
    try:
        facts.path = backend.executable().path
    except ClisupError as error:
        facts.problem["executable"] = (error.message, error.hint)
        return facts
    argv = backend.argv()
    facts.worker = () if argv[0] == facts.path else argv
    try:
        own = backend.own_launch()
        env, facts.environment = backend.environment(request_env={}, sets=own.env, closed=own.closed_env, markers={})
    except ClisupError as error:
        facts.problem |= dict.fromkeys(("version", "argv", "environment"), (error.message, error.hint))
        return facts
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_ask_version, backend, facts)
        nursery.start_soon(_ask_login, backend, argv, env, facts)
    try:
        spec = backend.adapter.launch(_plain_request(backend, argv, around.cwd or "/"))
        facts.argv = tuple(backend.plain(part) for part in spec.argv)
    except ClisupError as error:
        facts.problem["argv"] = (error.message, error.hint or f"correct backends.{backend.name} in the configuration")
    facts.supported, facts.newer_than = backend.versions, backend.newer_than
    facts.inherited = frozenset(around.env)
    facts.pairs, facts.stamps = backend.rules.pairs, backend.rules.stamps
    facts.keys, facts.places = backend.adapter.login_keys, backend.adapter.login_places
    facts.pass_env, facts.args = tuple(backend.config.pass_env), tuple(backend.config.args)
    facts.root, facts.refused_as_root = os.geteuid() == 0, backend.adapter.refused_as_root(env)
    facts.names_checked = last_check(around.state_dir, backend.adapter.lists)
    facts.drift = tuple(entry for entry in around.drift if entry.kind == backend.adapter.kind)
    return facts


async def _ask_version(backend: Backend, facts: BackendFacts) -> None:
    try:
        _, facts.version = await backend.ready()
    except ClisupError as error:
        facts.version = error.data.get("installed")
        facts.problem["version"] = (error.message, error.hint)


async def _ask_login(backend: Backend, argv: tuple[str, ...], env: Mapping[str, str], facts: BackendFacts) -> None:
    if facts.key_env is not None:
        facts.login = bool(env.get(facts.key_env))
        return
    adapter = backend.adapter
    if adapter.login_args:
        facts.login_asked = " ".join((backend.command[0], *adapter.login_args))
        facts.login_elsewhere = adapter.login_elsewhere
        with trio.move_on_after(LOOK_LIMIT_S):
            facts.login_expired = await in_thread(_login_expired, backend, env, abandon_on_cancel=True)
        if facts.login_expired:
            return
        answer = await ask((*argv, *adapter.login_args), {**env, **adapter.login_env}, purpose="login status")
        facts.login = None if answer.exit_code is None else adapter.parse_login(answer.output, answer.exit_code)


def _login_expired(backend: Backend, env: Mapping[str, str]) -> bool:
    """Tell whether a question for the login would begin its renewal. Blocks."""
    path = backend.adapter.login_store(env)
    try:
        return path is not None and backend.adapter.login_expired(
            read_file(path, LOGIN_FILE_BYTES, follow=True), clock.wall()
        )
    except OSError:
        return False


def _plain_request(backend: Backend, argv: tuple[str, ...], cwd: str) -> LaunchRequest:
    chosen = str(uuid.UUID(int=0)) if backend.adapter.capabilities.chosen_id else None
    return LaunchRequest(
        command=argv,
        prompt="-",
        native_session_id=chosen,
        resume=False,
        cwd=cwd,
        setting_sources=backend.config.setting_sources,
        args=tuple(backend.config.args),
        model=backend.config.model or "-",
        api=backend.config.api,
    )
