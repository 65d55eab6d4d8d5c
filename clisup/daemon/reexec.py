"""Restart in place: the daemon executes itself again, with the code and configuration of that moment.

The process stays the same, so its locks are never free in between. The socket stays bound, so clients that connect
meanwhile wait. Keepers and their CLIs do not notice. Connections end, and clients reconnect by cursor and key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from clisup.errors import EXIT_CONFIGURATION, ConfigurationError
from clisup.host.process.carrying import CarriedEnvironment
from clisup.host.process.executables import try_start

__all__ = ["Reexec"]


@dataclass
class Reexec:
    """Start of the successor in this process, and the descriptors inherited from the predecessor.

    `due` tells whether a restart was requested. `credentials` are those of systemd at the start of the service. They
    stay in memory, like the environment.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    inherited: Mapping[str, int]
    credentials: Mapping[str, str] = field(default_factory=dict)
    due: bool = False

    @property
    def carried(self) -> CarriedEnvironment:
        """Return the environment and credentials of the successor."""
        return CarriedEnvironment(self.env, self.credentials)

    async def prepare(self) -> None:
        """Check that a successor would start. Raises `ConfigurationError` with the reason if not."""
        if (refused := await try_start(self.argv, self.carried)) is not None:
            raise ConfigurationError(
                f"cannot restart, because the daemon would not start again: {refused.reason}",
                kind="configuration" if refused.code == EXIT_CONFIGURATION else "unsupported",
                hint=f"{refused.hint or 'mend that first'}; until then this daemon goes on as it is",
            )
