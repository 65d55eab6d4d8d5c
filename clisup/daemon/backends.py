"""The configured backends: each adapter with its command, version, scrub rules and environment."""

from __future__ import annotations

import dataclasses
import os
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clisup.backends.base import Adapter, LaunchRequest
from clisup.backends.registry import get_adapter
from clisup.core.config import BackendConfig, Config
from clisup.core.redact import Redactor
from clisup.core.scrub import EnvReport, RuleSet, build_environment, check_configuration
from clisup.core.versions import in_range
from clisup.errors import ClisupError, ConfigurationError, UsageError, WorldError
from clisup.host.executables import Executable, VersionProbe, find_executable
from clisup.host.scrub_files import load_rules

__all__ = ["Backend", "Backends"]

_CREDENTIAL = re.compile(r"KEY|TOKEN|SECRET|PASS|AUTH|CREDENTIAL|COOKIE|HEADERS|_URL$|_URI$|DSN")


class Backend:
    """One `[backends.NAME]`: everything that does not depend on a session."""

    def __init__(
        self, name: str, config: BackendConfig, inherited: Mapping[str, str], rules: RuleSet, probe: VersionProbe
    ):
        self.name = name
        self.config = config
        self.adapter: Adapter = get_adapter(config.kind)
        self._inherited = inherited
        self._rules = rules
        self._probe = probe
        self.versions = config.versions or self.adapter.default_versions
        in_range("0", self.versions)  # a range that cannot be read is an error of the start, not of the first turn
        check_configuration(rules, pass_env=config.pass_env, env_names=config.env, request_env=config.request_env)
        _check_not_yet(name, config)
        self.environment(request_env={}, sets={}, markers={})  # shows a key whose endpoint is held back, or the reverse

    @property
    def command(self) -> tuple[str, ...]:
        """The argv prefix as configured, not yet found on PATH."""
        return tuple(self.config.command) or self.adapter.default_command

    def environment(
        self, *, request_env: Mapping[str, str], sets: Mapping[str, str], markers: Mapping[str, str]
    ) -> tuple[dict[str, str], EnvReport]:
        """The child's whole environment, and what was kept, dropped and set. Raises `UsageError` for a refused name."""
        return build_environment(
            self._inherited,
            self._rules,
            pass_env=self.config.pass_env,
            env=self.config.env,
            request_env_allowed=self.config.request_env,
            request_env=request_env,
            backend_sets=sets,
            markers=markers,
        )

    def own_variables(self) -> Mapping[str, str]:
        """What the adapter itself sets for an ordinary prompt."""
        request = LaunchRequest(
            command=self.command, prompt="-", native_session_id=str(uuid.UUID(int=0)), resume=False, cwd="/"
        )
        return self.adapter.launch(request).env

    def executable(self) -> Executable:
        """The command's file. Raises `WorldError(backend_unavailable)`."""
        return find_executable(
            os.path.expanduser(self.command[0]), search_path=self._inherited.get("PATH", os.defpath), backend=self.name
        )

    async def ready(self) -> tuple[tuple[str, ...], str]:
        """The argv prefix with an absolute path, and the version. Raises `WorldError` where the backend cannot be used."""
        executable = self.executable()
        argv = (executable.path, *self.command[1:])
        env, _ = self.environment(request_env={}, sets={}, markers={})
        version = await self._probe.version(
            executable, argv + self.adapter.version_args, env, self.adapter.parse_version
        )
        if version is None:
            raise WorldError(
                f"cannot use backend {self.name!r}, because {executable.path} told no version",
                kind="backend_unavailable",
                hint=f"run {' '.join((*argv, *self.adapter.version_args))!r} and see what it says",
                backend=self.name,
            )
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
            "capabilities": dataclasses.asdict(self.adapter.capabilities),
            "unavailable_reason": None,
        }
        try:
            row["path"] = self.executable().path
            _, row["version"] = await self.ready()
            row["supported"] = True
        except ClisupError as error:
            row["version"] = error.data.get("installed")
            row["unavailable_reason"] = str(error)
        return row

    def redactor(self, secrets: Mapping[str, str]) -> Redactor:
        """Hides the values that were set on purpose, brought by a request, or that the scrub keeps away."""
        scrubbed = [value for name, value in self._inherited.items() if self._is_credential(name)]
        configured = [value.get_secret_value() for value in self.config.env.values()]
        return Redactor([*scrubbed, *configured, *secrets.values()])

    def _is_credential(self, name: str) -> bool:
        """Scrubbed or let through on purpose, and named like a secret: a scrubbed region or path is none."""
        rule = self._rules.verdict(name)
        kept_away = rule is not None and rule.kind == "scrub"
        return (kept_away or name in self.config.pass_env) and _CREDENTIAL.search(name) is not None


def _check_not_yet(name: str, config: BackendConfig) -> None:
    """A key whose promise is not kept yet is refused: it must not look as if it were."""
    wanted = {"mode": config.mode == "live"}
    for key in (key for key, asked in wanted.items() if asked):
        raise ConfigurationError(
            f"cannot use backends.{name}.{key}, because this version of clisup does not have it yet",
            hint="take the key out; the README says what is not there yet",
        )


class Backends:
    """All of them, by name."""

    def __init__(self, config: Config, inherited: Mapping[str, str]) -> None:
        override = Path(config.daemon.scrub_lists).expanduser() if config.daemon.scrub_lists else None
        probe = VersionProbe()
        self._all = {
            name: Backend(name, backend, inherited, load_rules(backend.kind, override), probe)
            for name, backend in config.backends.items()
        }

    def __iter__(self) -> Any:
        return iter(self._all.values())

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
