"""The configured backends: each adapter with its command, version, scrub rules and environment."""

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
from clisup.config.model import API_KEYS, API_KINDS, BackendConfig, Config
from clisup.errors import ClisupError, ConfigurationError, UsageError, WorldError
from clisup.host.log import LOG
from clisup.host.process.executables import (
    Executable,
    VersionProbe,
    ask,
    find_executable,
    find_worker,
    missing_packages,
)
from clisup.host.scrub_files import Known, load_rules
from clisup.locations import in_home
from clisup.policy.environment.scrub import MARKER_PREFIX, EnvReport, build_environment, check_configuration
from clisup.policy.secrets.redact import Redactor
from clisup.policy.versions import in_range
from clisup.policy.watchdog import TurnTimeouts

__all__ = ["Backend", "Backends", "hide_secrets"]

DESCRIBE_WAIT_S = 2.0
"""How long a list of backends waits for a CLI that has not told its version yet; the question goes on behind it."""

MODELS_LIMIT_S = 45.0
"""Seconds for a provider to list its models."""
MODELS_LIMIT_BYTES = 4 * 1024 * 1024

_CREDENTIAL = re.compile(r"KEY|TOKEN|SECRET|PASS|AUTH|CREDENTIAL|COOKIE|HEADERS|_URL$|_URI$|DSN")
_FORMS: tuple[dict[str, Any], ...] = ({"live": True}, {"system_prompt": "-", "system_prompt_file": "/-"})
"""Launches beside the ordinary one for which an adapter sets further variables."""


def hide_secrets(backends: Iterable[Backend]) -> None:
    """From now on, no line of the log and no error shows their secrets."""
    for backend in backends:
        LOG.hide(backend.name, backend.private())


class Backend:
    """One `[backends.NAME]`: everything that does not depend on a session."""

    def __init__(
        self,
        name: str,
        config: BackendConfig,
        inherited: Mapping[str, str],
        lists: Path | None,
        probe: VersionProbe,
        known: Known,
    ):
        self.name = name
        self.config = config
        self.adapter = _adapter(name, config)
        rules = load_rules(self.adapter.lists, lists, known=known)
        self._inherited = inherited
        self.rules = rules
        self._probe = probe
        self.version: str | None = None  # that was told last
        self.versions = config.versions or self.adapter.default_versions
        _check_versions(name, self.versions)
        check_configuration(rules, pass_env=config.passed, env_names=config.env, request_env=config.request_env)
        _check_mode(name, config, self.adapter)
        _check_api(name, config)
        _check_command(name, self.command)
        self.environment(request_env={}, sets={}, markers={})  # shows a key whose endpoint is held back, or the reverse

    @property
    def command(self) -> tuple[str, ...]:
        """The argv prefix as configured, not yet found on PATH."""
        return tuple(self.config.command) or self.adapter.default_command

    def environment(
        self,
        *,
        request_env: Mapping[str, str],
        sets: Mapping[str, str],
        closed: Collection[str] = (),
        markers: Mapping[str, str],
    ) -> tuple[dict[str, str], EnvReport]:
        """The child's whole environment, and what was kept, dropped and set. Raises `UsageError` for a refused name."""
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
        """As `environment`, without what an adapter sets and without markers: made once where the request brought nothing."""
        return self._plain if not request_env else self.environment(request_env=request_env, sets={}, markers={})[0]

    @cached_property
    def _plain(self) -> Mapping[str, str]:
        return self.environment(request_env={}, sets={}, markers={})[0]

    def own_launch(self) -> LaunchSpec:
        """What the adapter makes of an ordinary prompt: the variables that it sets and closes by itself."""
        return self.adapter.launch(self._request())

    def _request(self) -> LaunchRequest:
        return LaunchRequest(
            command=self.command,
            prompt="-",
            native_session_id=str(uuid.UUID(int=0)),
            resume=False,
            cwd="/",
            model=self.config.model or "-",
            api=self.config.api,
        )

    @property
    def mode(self) -> str:
        """The mode of sessions that say none: one-shot or live."""
        default = "live" if self.adapter.capabilities.live_by_default else "one-shot"
        return default if self.config.mode == "auto" else self.config.mode

    def executable(self) -> Executable:
        """The command's file. Raises `WorldError(backend_unavailable)`, also where a Python package of its own command is missing."""
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

    def argv(self) -> tuple[str, ...]:
        """What is really started: the command with an absolute path, or the worker behind a launcher that the adapter knows.

        Raises `WorldError(backend_unavailable)`.
        """
        return self._argv(self.executable())

    def _argv(self, executable: Executable) -> tuple[str, ...]:
        search_path = self._inherited.get("PATH", os.defpath)
        worker = find_worker(self.adapter.workers(executable.real), search_path=search_path)
        return (*(worker or (executable.path,)), *self.command[1:])

    async def ready(self, *, patience_s: float | None = None) -> tuple[tuple[str, ...], str | None]:
        """The argv prefix to start, and the version; None where the adapter knows no way to ask for one.

        Raises `WorldError` where the backend cannot be used, or has told no version within `patience_s`.
        """
        executable = self.executable()
        argv = self._argv(executable)
        if not self.adapter.version_args:
            return argv, None
        question = argv + self.adapter.version_args
        version = self._probe.known(executable, question)
        if version is None:
            own = self.own_launch()
            env, _ = self.environment(request_env={}, sets=own.env, closed=own.closed_env, markers={})
            version = await self._probe.version(
                executable, question, env, self.adapter.parse_version, patience_s=patience_s
            )
        if version is None:
            so_far = "" if patience_s is None else " so far"
            raise WorldError(
                f"cannot use backend {self.name!r}, because {executable.path} told no version{so_far}",
                kind="backend_unavailable",
                hint=f"run {' '.join((*argv, *self.adapter.version_args))!r} and see what it says",
                backend=self.name,
            )
        self.version = version
        if not in_range(version, self.versions):
            raise WorldError(
                f"cannot use backend {self.name!r}, because {executable.path} is version {version}, "
                f"and clisup supports {self.versions}",
                kind="backend_version_unsupported",
                hint=f"install a supported version, or set backends.{self.name}.versions if you know that this one works",
                backend=self.name,
                installed=version,
                supported=self.versions,
            )
        return argv, version

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
        answer = await ask((*argv, *flags), env, limit_s=MODELS_LIMIT_S, limit_bytes=MODELS_LIMIT_BYTES)
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
        """One row of `backend/list`; never raises for a backend that cannot be used, but says why."""
        row: dict[str, Any] = {
            "name": self.name,
            "kind": self.config.kind,
            "command": list(self.command),
            "path": None,
            "version": None,
            "supported": False,
            "supported_versions": self.versions,
            "capabilities": asdict(self.adapter.capabilities),
            "unavailable_reason": None,
        }
        try:
            row["path"] = self.executable().path
            _, row["version"] = await self.ready(patience_s=DESCRIBE_WAIT_S)
            row["supported"] = True
        except ClisupError as error:
            row["version"] = error.data.get("installed")
            row["unavailable_reason"] = str(error)
        return row

    def redactor(self, secrets: Iterable[str] = ()) -> Redactor:
        """Hides the values that were set on purpose, brought by a request, or that the scrub keeps away."""
        scrubbed = [value for name, value in self._inherited.items() if self._is_credential(name)]
        configured = [value.get_secret_value() for value in self.config.env.values()]
        return Redactor([*scrubbed, *configured, *secrets])

    @cached_property
    def plain(self) -> Redactor:
        """The one of all sessions that brought no secret of their own."""
        return self.redactor()

    @cached_property
    def timeouts(self) -> TurnTimeouts:
        """The timers of all sessions that asked for no others."""
        return TurnTimeouts(**self.config.timeouts.model_dump(), resting=self.config.live.idle_s)

    def private(self) -> Redactor:
        """As `redactor`, and also what `pass_env` lets through, whatever its name, but paths: for the log and for errors."""
        let_through = [value for name in self.config.passed if (value := self._inherited.get(name))]
        return self.redactor(value for value in let_through if not value.startswith("/"))

    def unexplained(self, names: Iterable[str]) -> list[str]:
        """Of the variables that a run had: those whose values may be secret and that this configuration does not give.

        What an allow list names is no secret. Empty where the run was started with this configuration and environment.
        """
        own = self.own_launch()
        given, _ = self.environment(request_env={}, sets=own.env, closed=own.closed_env, markers={})
        known = {name for name, value in given.items() if value} | self._set_by_the_adapter()
        strange = {name for name in names if name not in known and not name.startswith(MARKER_PREFIX)}
        return sorted(name for name in strange if (rule := self.rules.verdict(name)) is None or rule.kind != "allow")

    def _set_by_the_adapter(self) -> set[str]:
        """The variables that it sets in some launches only: flags and places, no secrets."""
        names: set[str] = set()
        for form in _FORMS:
            with suppress(UsageError):  # a CLI that has no such launches sets nothing for them
                names.update(self.adapter.launch(replace(self._request(), **form)).env)
        return names

    def _is_credential(self, name: str) -> bool:
        """Scrubbed or let through on purpose, and named like a secret: a scrubbed region or path is none."""
        rule = self.rules.verdict(name)
        kept_away = rule is not None and rule.kind == "scrub"
        return name == self.config.key_env or (
            (kept_away or name in self.config.passed) and _CREDENTIAL.search(name) is not None
        )


def _adapter(name: str, config: BackendConfig) -> Adapter:
    """The adapter of its kind, which is its name where it names none."""
    if is_kind(config.kind):
        return get_adapter(config.kind, config.mode)
    raise ConfigurationError(
        f"cannot use backend {name!r}, because {config.kind!r} is no kind of backend",
        hint=f"set backends.{name}.kind to one of {', '.join(kinds())}",
    )


def _check_versions(name: str, versions: str) -> None:
    """A range that cannot be read is an error of the start, not of the first turn."""
    try:
        in_range("0", versions)
    except ConfigurationError as error:
        message = f"cannot use backends.{name}.versions, because {versions!r} is no range of versions"
        raise ConfigurationError(message, hint=error.hint) from None


def _check_command(name: str, command: tuple[str, ...]) -> None:
    """A generic adapter has no command of its own."""
    if not command:
        raise ConfigurationError(
            f"cannot use backend {name!r}, because it names no command",
            hint=f'say what to start: backends.{name}.command = ["agent", "--acp"]',
        )


def _check_mode(name: str, config: BackendConfig, adapter: Adapter) -> None:
    """A mode that the CLI does not have is an error of the start, not of the first turn."""
    if config.mode == "live" and not adapter.capabilities.live:
        raise ConfigurationError(
            f'cannot use backends.{name}.mode = "live", because a {config.kind} process serves one turn',
            hint='take the key out, or use "one-shot" or "auto"',
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
) -> Backend:
    try:
        return Backend(name, config, inherited, lists, probe, known)
    except ConfigurationError as error:
        error.data.setdefault("key", f"backends.{name}")
        raise


class Backends:
    """All of them, by name."""

    def __init__(self, config: Config, inherited: Mapping[str, str], before: Backends | None = None) -> None:
        """Raises `ConfigurationError`, whose `data` names the key. What is the same as `before` is the same object."""
        override = Path(in_home(config.daemon.scrub_lists, inherited)) if config.daemon.scrub_lists else None
        self._probe: VersionProbe = before._probe if before else VersionProbe()
        self._defaults = config.defaults
        self._all: dict[str, Backend] = {}
        known: Known = {}
        for name, backend in config.backends.items():
            new = _made(name, backend, inherited, override, self._probe, known)
            old = before and before._all.get(name)
            self._all[name] = old if old and (old.config, old.rules) == (new.config, new.rules) else new

    def take(self, other: Backends) -> None:
        """Be those from now on."""
        self._defaults, self._all = other._defaults, other._all

    def rules_differ(self, other: Backends) -> bool:
        """Has a backend that both have other scrub rules in one of them?"""
        both = [(self._all[name], other._all[name]) for name in self._all if name in other._all]
        return any(one.rules != two.rules for one, two in both if one.config.kind == two.config.kind)

    def __iter__(self) -> Iterator[Backend]:
        return iter(self._all.values())

    async def describe(self) -> list[dict[str, Any]]:
        """The rows of `backend/list`. All CLIs are asked at once, and none is waited for longer than `DESCRIBE_WAIT_S`."""
        rows: dict[str, dict[str, Any]] = {}
        asked = list(self)  # a reload may change them meanwhile

        async def ask(backend: Backend) -> None:
            rows[backend.name] = await backend.describe()

        async with trio.open_nursery() as nursery:
            for backend in asked:
                nursery.start_soon(ask, backend)
        return [{**rows[backend.name], "default": backend.name in self._defaults} for backend in asked]

    def names(self) -> list[str]:
        return sorted(self._all)

    def get(self, name: str) -> Backend:
        """A backend by name. Raises `UsageError(backend_not_found)` that lists the configured ones."""
        try:
            return self._all[name]
        except KeyError:
            raise UsageError(
                f"cannot use backend {name[:64]!r}, because it is not configured",
                kind="backend_not_found",
                hint=f"configured are: {', '.join(self.names())}",
            ) from None
