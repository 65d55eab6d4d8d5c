"""Where the commands that read recordings look: the configuration, the state directory, and what names this machine."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Mapping

from clisup.config.model import Config
from clisup.daemon.start import Flags, config_path, place_of
from clisup.host.config_file import read_config, with_credentials
from clisup.recordings.taking import Machine

__all__ = ["state_dir_of", "this_machine"]


def this_machine(env: Mapping[str, str], config: str | None) -> Machine:
    """This machine, and the configuration as `clisup serve` would read it. Raises `ConfigurationError`."""
    path, named = config_path(Flags(config=config), env)
    settings = with_credentials(read_config(path, required=named), None, env)
    return Machine(settings, env, env.get("HOME", ""), _user(), socket.gethostname())


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a uid without a name, as in a container
        return ""


def state_dir_of(env: Mapping[str, str], config: Config) -> str:
    """The state directory of a daemon that is started without flags."""
    return place_of(Flags(), config.daemon.socket, config.daemon.state_dir, env).state_dir
