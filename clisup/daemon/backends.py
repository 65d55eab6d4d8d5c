"""Configured backends: an adapter with its command, version, scrub rules and environment."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import trio
from msgspec.structs import asdict

from clisup.backends.base import Adapter, LaunchRequest, LaunchSpec
from clisup.backends.registry import get_adapter, is_kind, kinds
from clisup.config.model import API_KEYS, API_KINDS, BackendConfig, Config, Mode
from clisup.daemon.backend_errors import no_version, wrong_version
from clisup.errors import ClisupError, ConfigurationError, UsageError, WorldError
from clisup.host.log import LOG
from clisup.host.process.executables import Executable, VersionProbe, find_executable, find_worker, missing_packages
from clisup.host.process.helpers import ask
from clisup.host.scrub_files import Known, load_rules
from clisup.locations import in_home
from clisup.policy.environment.scrub import (
    LAUNCHERS,
    MARKER_PREFIX,
    EnvReport,
    build_environment,
    check_configuration,
    held_back_like,
)
from clisup.policy.secrets.redact import Redactor
from clisup.policy.versions import in_range, newer_than
from clisup.policy.watchdog import TurnTimeouts

__all__ = ["Backend", "Backends", "hide_secrets"]

DESCRIBE_WAIT_S = 2.0
"""Seconds that a list of backends waits for a CLI's version. The probe continues in the background."""

MODELS_LIMIT_S = 45.0
"""Seconds for a provider to list its models."""
MODELS_LIMIT_BYTES = 4 * 1024 * 1024

NOT_CHOSEN = ("demo", *API_KINDS)
"""Kinds of backends that a session without a backend never gets, unless the configuration names one."""

_CREDENTIAL = re.compile(r"KEY|TOKEN|SECRET|PASS|AUTH|CREDENTIAL|COOKIE|HEADERS|_URL$|_URI$|DSN")
_FORMS: tuple[dict[str, Any], ...] = ({"live": True}, {"system_prompt": "-", "system_prompt_file": "/-"})
"""Forms of a launch for which an adapter sets further variables."""


def hide_secrets(backends: Iterable[Backend]) -> None:
    """Hide the backends' secrets from the log and from errors."""
    for backend in backends:
        LOG.hide(backend.name, backend.private())


class Backend:
    """One `[backends.NAME]` of the configuration, without anything of a session."""

    def __init__(
        self,
        name: str,
        config: BackendConfig,
        inherited: Mapping[str, str],
        lists: Path | None,
        probe: VersionProbe,
        known: Known,
        default_mode: Mode = "auto",
    ):
        self.name = name
        self.default_mode = default_mode
        self.config = config
        self.adapter = _adapter(name, config)
        rules = load_rules(self.adapter.lists, lists, module=type(self.adapter).__module__, known=known)
        self._inherited = inherited
        self.rules = rules
        self._probe = probe
        self.version: str | None = None  # as last reported
        self.versions = config.versions or self.adapter.default_versions
        _check_versions(name, self.versions)
        check_configuration(rules, pass_env=config.passed, env_names=config.env, request_env=config.request_env)
        _check_features(name, config, self.adapter)
        _check_permission_mode(name, config, self.adapter)
        _check_api(name, config)
        _check_command(name, self.command)
        self.environment(
            request_env={}, sets={}, markers={}
        )  # refuses a key whose endpoint is scrubbed, or the reverse

    @property
    def command(self) -> tuple[str, ...]:
        """Return the configured argv prefix, not yet resolved on PATH."""
        return tuple(self.config.command) or self.adapter.default_command

    def environment(
        self,
        *,
        request_env: Mapping[str, str],
        sets: Mapping[str, str],
        closed: Collection[str] = (),
        markers: Mapping[str, str],
    ) -> tuple[dict[str, str], EnvReport]:
        """Return the child's whole environment, and a report of it. Raises `UsageError` for a refused name."""
        return build_environment(
            self._inherited,
            self.rules,
            pass_env=self.config.passed,
            env=self.config.env,
            request_env_allowed=self.config.request_env,
            request_env=request_env,
            backend_sets=sets,
            closed=closed,
            markers=markers,
        )

    def own_environment(self, request_env: Mapping[str, str]) -> Mapping[str, str]:
        """Return the environment without markers and without the variables that the adapter sets."""
        return self._plain if not request_env else self.environment(request_env=request_env, sets={}, markers={})[0]

    @cached_property
    def _plain(self) -> Mapping[str, str]:
        return self.environment(request_env={}, sets={}, markers={})[0]

    def own_launch(self) -> LaunchSpec:
        """Return the launch of an ordinary prompt, with the variables that the adapter sets and removes."""
        return self.adapter.launch(self._request())

    def _request(self) -> LaunchRequest:
        return LaunchRequest(
            command=self.command,
            prompt="-",
            native_session_id=str(uuid.UUID(int=0)) if self.adapter.capabilities.chosen_id else None,
            resume=False,
            cwd="/",
            model=self.config.model or "-",
            setting_sources=self.config.setting_sources,
            api=self.config.api,
        )

    @property
    def mode(self) -> str:
        """Return the default mode of sessions: one-shot or live."""
        can = self.adapter.capabilities
        if self.config.mode != "auto":
            return self.config.mode
        if self.default_mode != "auto" and (can.live if self.default_mode == "live" else can.one_shot):
            return self.default_mode
        return "live" if can.live_by_default else "one-shot"

    def executable(self) -> Executable:
        """Return the command's file.

        Raises `WorldError(backend_unavailable)`, also if a Python package of the default command is missing.
        """
        if not self.config.command and (missing := missing_packages(self.adapter.packages)):
            raise WorldError(
                f"cannot use backend {self.name!r}, because the Python package {missing[0]} is not installed beside clisup",
                kind="backend_unavailable",
                hint="pip install 'clisup[api]'",
                backend=self.name,
            )
        return find_executable(
            in_home(self.command[0], self._inherited),
            search_path=self._inherited.get("PATH", os.defpath),
            backend=self.name,
        )

    def is_installed(self) -> bool:
        """Tell whether the command's file is there."""
        try:
            self.executable()
        except WorldError:
            return False
        return True

    def argv(self) -> tuple[str, ...]:
        """Return the argv that is started: the command with an absolute path, or the worker behind a known launcher.

        Raises `WorldError(backend_unavailable)`.
        """
        return self._argv(self.executable())

    def _argv(self, executable: Executable) -> tuple[str, ...]:
        search_path = self._inherited.get("PATH", os.defpath)
        worker = find_worker(self.adapter.workers(executable.real), search_path=search_path)
        return (*(worker or (executable.path,)), *self.command[1:])

    async def ready(self, *, patience_s: float | None = None) -> tuple[tuple[str, ...], str | None]:
        """Return the argv prefix and the version. The version is None if the adapter cannot ask for it.

        Raises `WorldError` if the backend is unavailable, or has reported no version within `patience_s`.
        """
        executable = self.executable()
        argv = self._argv(executable)
        if not self.adapter.version_args:
            return argv, None
        question = argv + self.adapter.version_args
        version = self._probe.known(executable, question)
        if version is None:
            own = self.own_launch()
            env, report = self.environment(request_env={}, sets=own.env, closed=own.closed_env, markers={})
            version = await self._probe.version(
                executable, question, env, self.adapter.parse_version, patience_s=patience_s
            )
            if version is None:
                why = self._probe.why(executable, question, self.private())
                raise no_version(self.name, executable.path, why, held_back_like(report, LAUNCHERS))
        self.version = version
        if not in_range(version, self.versions):
            raise wrong_version(self.name, executable.path, version, self.versions, self.adapter.update_command)
        return argv, version

    @property
    def newer_than(self) -> str | None:
        """Return the newest version that clisup was checked with, if the CLI is newer. A configured range counts as a check."""
        return None if self.config.versions else newer_than(self.version, self.adapter.newest_checked)

    async def models(self) -> list[str]:
        """Return the names of the models that the provider offers, sorted.

        Raises `UsageError(unsupported)` for a backend that cannot tell, and `WorldError(backend_unavailable)`.
        """
        flags = self.adapter.models_flags(self.config.api)
        if not flags:
            raise UsageError(
                f"cannot list the models of backend {self.name!r}, because a {self.config.kind} CLI does not tell them",
                kind="unsupported",
                hint=f"API backends do: {', '.join(API_KINDS)}",
            )
        argv, _ = await self.ready()
        env, _ = self.environment(request_env={}, sets={}, markers={})
        words, limit = (*argv, *flags), MODELS_LIMIT_BYTES
        answer = await ask(words, env, purpose="models", limit_s=MODELS_LIMIT_S, limit_bytes=limit)
        line = answer.output.strip().rpartition("\n")[2]
        with suppress(ValueError):
            if answer.exit_code == 0 and isinstance(found := json.loads(line), list):
                return sorted(str(name) for name in found)
        raise WorldError(
            f"cannot list the models of backend {self.name!r}: {self.private()(line) or 'the worker said nothing'}",
            kind="backend_unavailable",
            hint=f"clisup doctor {self.name}",
            backend=self.name,
        )

    async def describe(self) -> dict[str, Any]:
        """Return the row of `backend/list`, with the reason if the backend is unavailable."""
        row: dict[str, Any] = {
            "name": self.name,
            "kind": self.config.kind,
            "command": list(self.command),
            **dict.fromkeys(("path", "version", "newer_than", "unavailable_reason")),
            "supported": False,
            "supported_versions": self.versions,
            "capabilities": asdict(self.adapter.capabilities),
        }
        try:
            row["path"] = self.executable().path
            _, row["version"] = await self.ready(patience_s=DESCRIBE_WAIT_S)
            row["supported"], row["newer_than"] = True, self.newer_than
        except ClisupError as error:
            row["version"] = error.data.get("installed")
            row["unavailable_reason"] = str(error)
        return row

    def redactor(self, secrets: Iterable[str] = ()) -> Redactor:
        """Return a redactor of values that were set on purpose, came with a request, or are scrubbed."""
        scrubbed = [value for name, value in self._inherited.items() if self._is_credential(name)]
        configured = [value.get_secret_value() for value in self.config.env.values()]
        return Redactor([*scrubbed, *configured, *secrets])

    @cached_property
    def plain(self) -> Redactor:
        """Return the redactor of sessions without secrets of their own."""
        return self.redactor()

    @cached_property
    def timeouts(self) -> TurnTimeouts:
        """Return the timers of sessions without timers of their own."""
        return TurnTimeouts(**self.config.timeouts.model_dump(), resting=self.config.live.idle_s)

    def private(self) -> Redactor:
        """Return a redactor for the log and for errors: it also hides all values of `pass_env` that are no paths."""
        let_through = [value for name in self.config.passed if (value := self._inherited.get(name))]
        return self.redactor(value for value in let_through if not value.startswith("/"))

    def unexplained(self, names: Iterable[str]) -> list[str]:
        """Return the variables of a run that may be secret and that this configuration does not set.

        A name of an allow list is no secret. For a run of this configuration and environment the list is empty.
        """
        own = self.own_launch()
        given, _ = self.environment(request_env={}, sets=own.env, closed=own.closed_env, markers={})
        known = {name for name, value in given.items() if value} | self._set_by_the_adapter()
        strange = {name for name in names if name not in known and not name.startswith(MARKER_PREFIX)}
        return sorted(name for name in strange if (rule := self.rules.verdict(name)) is None or rule.kind != "allow")

    def _set_by_the_adapter(self) -> set[str]:
        """Return the variables that the adapter sets in some launches only: flags and places, no secrets."""
        names: set[str] = set()
        for form in _FORMS:
            with suppress(UsageError):  # this CLI has no such launch
                names.update(self.adapter.launch(replace(self._request(), **form)).env)
        return names

    def _is_credential(self, name: str) -> bool:
        """Tell whether a variable that is scrubbed or passed on has the name of a secret. A scrubbed region or path has not."""
        rule = self.rules.verdict(name)
        kept_away = rule is not None and rule.kind == "scrub"
        return name == self.config.key_env or (
            (kept_away or name in self.config.passed) and _CREDENTIAL.search(name) is not None
        )


def _adapter(name: str, config: BackendConfig) -> Adapter:
    """Return the adapter of the backend's kind."""
    if is_kind(config.kind):
        return get_adapter(config.kind, config.mode)
    raise ConfigurationError(
        f"cannot use backend {name!r}, because {config.kind!r} is no kind of backend",
        hint=f"set backends.{name}.kind to one of {', '.join(kinds())}",
    )


def _with_timeout(backend: BackendConfig, seconds: float) -> BackendConfig:
    """Return the backend with this limit of a turn, unless its own table sets one."""
    if not seconds or "turn" in backend.timeouts.model_fields_set:
        return backend
    return backend.model_copy(update={"timeouts": backend.timeouts.model_copy(update={"turn": seconds})})


def _identity(backend: Backend) -> tuple[object, ...]:
    return backend.config, backend.rules, backend.default_mode


def _check_versions(name: str, versions: str) -> None:
    """Refuse an invalid range of versions at the start, not in the first turn."""
    try:
        in_range("0", versions)
    except ConfigurationError as error:
        message = f"cannot use backends.{name}.versions, because {versions!r} is no range of versions"
        raise ConfigurationError(message, hint=error.hint) from None


def _check_command(name: str, command: tuple[str, ...]) -> None:
    """Refuse a generic adapter without a command."""
    if not command:
        raise ConfigurationError(
            f"cannot use backend {name!r}, because it names no command",
            hint=f'say what to start: backends.{name}.command = ["agent", "--acp"]',
        )


def _check_features(name: str, config: BackendConfig, adapter: Adapter) -> None:
    """Refuse a mode or a login that the CLI does not have at the start, not in the first turn."""
    if config.mode == "live" and not adapter.capabilities.live:
        why = f'mode = "live", because a {config.kind} process serves one turn'
        raise ConfigurationError(f"cannot use backends.{name}.{why}", hint='take it out, or use "one-shot" or "auto"')
    if config.auth_method and not adapter.capabilities.auth_method:
        why = f"auth_method, because the kind {config.kind} has no login methods"
        raise ConfigurationError(f"cannot use backends.{name}.{why}", hint="take the key out, or set kind to acp")


def _check_permission_mode(name: str, config: BackendConfig, adapter: Adapter) -> None:
    modes = adapter.capabilities.permission_modes
    if config.permission_mode and modes is not None and config.permission_mode not in modes:
        raise ConfigurationError(
            f"cannot use backends.{name}.permission_mode = {config.permission_mode!r}, because the kind {config.kind} "
            "has no such mode",
            hint=f"it has: {', '.join(modes) or 'none'}",
        )


def _check_api(name: str, config: BackendConfig) -> None:
    """Refuse keys of API backends in the table of a CLI."""
    if config.kind not in API_KINDS and (given := [key for key in API_KEYS if getattr(config, key)]):
        raise ConfigurationError(
            f"cannot use backends.{name}.{given[0]}, because the kind {config.kind} asks no API by itself",
            hint=f"take the key out, or set kind to one of {', '.join(API_KINDS)}",
        )


def _made(
    name: str,
    config: BackendConfig,
    inherited: Mapping[str, str],
    lists: Path | None,
    probe: VersionProbe,
    known: Known,
    default_mode: Mode,
) -> Backend:
    try:
        return Backend(name, config, inherited, lists, probe, known, default_mode)
    except ConfigurationError as error:
        error.data.setdefault("key", f"backends.{name}")
        raise


def check_default_backend(config: Config) -> None:
    """Check that the default backend is configured. Raises `ConfigurationError`."""
    name = config.defaults.backend
    if name and name not in config.backends:
        raise ConfigurationError(
            f"cannot use defaults.backend, because the backend {name!r} is not configured",
            hint=f"set it to one of {', '.join(sorted(config.backends))}",
            key="defaults.backend",
        )


class Backends:
    """Configured backends by name."""

    def __init__(self, config: Config, inherited: Mapping[str, str], before: Backends | None = None) -> None:
        """Create the backends. An unchanged one of `before` stays the same object.

        Raises `ConfigurationError`, whose `data` names the key.
        """
        self.inherited = inherited  # the daemon's environment
        override = Path(in_home(config.daemon.scrub_lists, inherited)) if config.daemon.scrub_lists else None
        self._probe: VersionProbe = before._probe if before else VersionProbe()
        self._untouched = config.untouched
        self.default = config.defaults.backend
        check_default_backend(config)
        self._all: dict[str, Backend] = {}
        known: Known = {}
        for name, table in config.backends.items():
            backend = _with_timeout(table, config.defaults.timeout)
            new = _made(name, backend, inherited, override, self._probe, known, config.defaults.mode)
            old = before and before._all.get(name)
            self._all[name] = old if old and _identity(old) == _identity(new) else new

    def replace(self, other: Backends) -> None:
        """Replace all backends by those of `other`."""
        self._untouched, self._all, self.default = other._untouched, other._all, other.default

    def rules_differ(self, other: Backends) -> bool:
        """Tell whether a common backend has different scrub rules."""
        both = [(self._all[name], other._all[name]) for name in self._all if name in other._all]
        return any(one.rules != two.rules for one, two in both if one.config.kind == two.config.kind)

    def __iter__(self) -> Iterator[Backend]:
        return iter(self._all.values())

    async def describe(self) -> list[dict[str, Any]]:
        """Return the rows of `backend/list`. All CLIs are asked at once, for `DESCRIBE_WAIT_S` at most."""
        rows: dict[str, dict[str, Any]] = {}
        asked = list(self)  # a reload may replace them meanwhile

        async def ask(backend: Backend) -> None:
            rows[backend.name] = await backend.describe()

        async with trio.open_nursery() as nursery:
            for backend in asked:
                nursery.start_soon(ask, backend)
        return [{**rows[backend.name], "default": backend.name in self._untouched} for backend in asked]

    def choose(self) -> str:
        """Return the backend of a session that names none: the configured one, else the only installed CLI.

        The demo and the API backends count as no CLI. Raises `UsageError(invalid_params)`, which lists the choices.
        """
        if self.default:
            return self.default
        installed = [b.name for b in self if b.config.kind not in NOT_CHOSEN and b.is_installed()]
        if len(installed) == 1:
            return installed[0]
        found = f"several CLIs are installed: {', '.join(sorted(installed))}" if installed else "no CLI is installed"
        raise UsageError(
            f"cannot open a session without a backend, because {found}",
            hint="name a backend (-b NAME; `demo` needs no CLI), or set defaults.backend. `clisup backends` lists them",
            param="backend",
            installed=sorted(installed),
        )

    def names(self) -> list[str]:
        return sorted(self._all)

    def get(self, name: str) -> Backend:
        """Return a backend. Raises `UsageError(backend_not_found)`, which lists the configured ones."""
        try:
            return self._all[name]
        except KeyError:
            raise UsageError(
                f"cannot use backend {name[:64]!r}, because it is not configured",
                kind="backend_not_found",
                hint=f"configured are: {', '.join(self.names())}",
            ) from None
