"""A restart in place: the daemon executes itself anew, with the code and the configuration that are there by then.

The process stays the same one, so its locks are never free in between; the socket stays bound, so a client that connects
meanwhile waits; keepers and their CLIs do not notice. Connections end, and clients come back by cursor and by key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from clisup.errors import EXIT_CONFIGURATION, ConfigurationError
from clisup.host.process.carrying import CarriedEnvironment
from clisup.host.process.trial import try_start

__all__ = ["Succession"]


@dataclass
class Succession:
    """How the successor is to be started, what was inherited from a predecessor, and whether one is due.

    `credentials` are systemd's, by name, as they were when the service started: they travel in memory, like the environment.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    inherited: Mapping[str, int]
    credentials: Mapping[str, str] = field(default_factory=dict)
    due: bool = False

    @property
    def carried(self) -> CarriedEnvironment:
        """What the successor takes for its own."""
        return CarriedEnvironment(self.env, self.credentials)

    async def prepare(self) -> None:
        """Make sure that a successor would start. Raises `ConfigurationError` that says why not; then nothing changes."""
        if (refused := await try_start(self.argv, self.carried)) is not None:
            raise ConfigurationError(
                f"cannot restart, because the daemon would not start again: {refused.reason}",
                kind="configuration" if refused.code == EXIT_CONFIGURATION else "unsupported",
                hint=f"{refused.hint or 'mend that first'}; until then this daemon goes on as it is",
            )
