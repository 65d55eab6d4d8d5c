"""Start of the daemon from the command line, and of its successor in the same process."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from clisup.errors import EXIT_OK, ConfigurationError
from clisup.host.log_file import LOG_FILE, LogFile
from clisup.host.machine import check_system
from clisup.host.process.carrying import carry_environment_over, execute_anew, taken, taken_descriptors
from clisup.host.process.own_process import harden
from clisup.host.safe_paths import check_safe_dir, make_safe_dir
from clisup.host.sockets import ACTIVATED, activated_descriptors, activated_path, without_activation
from clisup.locations import config_file, default_socket, default_state_dir, in_home
from clisup.policy.secrets.plain_text import plain

if TYPE_CHECKING:
    from clisup.config.model import Config
    from clisup.daemon.app import Daemon
    from clisup.daemon.backends import Backends
    from clisup.daemon.reexec import Reexec
    from clisup.host.config_file import ConfigFile

__all__ = ["Flags", "Place", "config_path", "place_of", "serve"]


_STDERR = 2
SWITCH_S = 0.0005
"""Seconds that a thread waits for the interpreter while the loop has work. A walk of /proc waits hundreds of times: with
Python's 5 ms, `session/get` took 1.5 s beside a CLI with much output, and 0.13 s with this."""


class Flags(NamedTuple):
    """Flags of the command line. None means that a flag was not given."""

    config: str | None = None
    socket: str | None = None
    state_dir: str | None = None
    log_format: Literal["auto", "console", "json", "journald"] = "auto"
    check: bool = False
    log_file: str | None = None


def serve(flags: Flags) -> int:
    """Run the daemon until it stops, and return the exit code. Raises `ClisupError` if it cannot start.

    `check` only checks the configuration, scrub lists, backends and owners of the directories.
    """
    check_system()
    carry_environment_over(sys.argv[1:])  # unless the command line has done so already
    carried = taken()
    descriptors = taken_descriptors() | activated_descriptors(carried.env)
    env = without_activation(carried.env)

    if not flags.check:
        gc.disable()  # until `collect_garbage`: it took a tenth of a start, a sixth of a restart with 1,000 running turns
    from clisup.daemon.app import run_daemon
    from clisup.daemon.backends import Backends
    from clisup.daemon.reexec import Reexec
    from clisup.host.config_file import ConfigFile, read_credentials, with_credentials
    from clisup.host.failpoints import VARIABLE, arm, failpoint
    from clisup.host.log import configure_logging
    from clisup.host.otlp import check_installed

    path, named = config_path(flags, env)
    credentials = read_credentials(env, carried.credentials)
    file = ConfigFile(path, named)
    config = with_credentials(file.read(), credentials, env)
    place = place_of(flags, config.daemon.socket, config.daemon.state_dir, env)
    if ACTIVATED in descriptors:
        place = _activated_place(place, activated_path(descriptors[ACTIVATED]), flags, config.daemon.socket, env)
    check_installed(config.tracing)
    if flags.check:
        Backends(config, env)
        check_safe_dir(place.state_dir, "keep state in", entries=True)
        check_safe_dir(os.path.dirname(place.socket), "listen in", check="socket")
        return EXIT_OK
    flags = _with_log_file(flags, place)
    log_file = None if flags.log_file is None else LogFile(flags.log_file, config.daemon.max_log_bytes)
    configure_logging(config.daemon.log_level, flags.log_format, env, log_file)
    arm(env.get(VARIABLE, ""))
    harden()
    sys.setswitchinterval(SWITCH_S)
    again = _successors_words(flags, place, path if named else None)
    reexec = Reexec(tuple(again), env, descriptors, credentials)
    daemon = _daemon(config, Backends(config, env), reexec, place, file)
    run_daemon(daemon)
    if reexec.due:
        failpoint("restart.before")
        daemon.notifier.watchdog()  # the successor's event loop sends the next ping
        execute_anew(again, reexec.carried, daemon.descriptors())
    return EXIT_OK


def _daemon(config: Config, backends: Backends, reexec: Reexec, place: Place, file: ConfigFile) -> Daemon:
    """Compose the daemon with its handlers and the reload, which themselves need a daemon."""
    from clisup.daemon.app import Daemon
    from clisup.daemon.clients.handlers import make_handlers
    from clisup.daemon.reload import check_restart, reload

    return Daemon(config, backends, reexec, state_dir=place.state_dir, socket_path=place.socket, config_file=file,
                  make_handlers=make_handlers, apply_reload=reload, check_restart=check_restart)  # fmt: skip


def _successors_words(flags: Flags, place: Place, config: str | None) -> list[str]:
    """Return the arguments of a successor in place. It serves in the same place, whatever the configuration says by then."""
    words = ["serve", "--socket", place.socket, "--state-dir", place.state_dir, "--log-format", flags.log_format]
    words += ["--log-file", flags.log_file] if flags.log_file is not None else []
    return [*words, "--config", config] if config is not None else words


def _with_log_file(flags: Flags, place: Place) -> Flags:
    """Return the flags with an absolute log file.

    A shell's background job (`clisup serve &`) would write its log between the commands and answers on the terminal. So
    its log goes to a file, unless a format was asked for.
    """
    if flags.log_file is not None:
        return flags._replace(log_file=_absolute(flags.log_file))
    if flags.log_format != "auto" or not _in_background():
        return flags
    make_safe_dir(place.state_dir, "keep state in")
    path = os.path.join(place.state_dir, LOG_FILE)
    print(
        plain(f"clisup: the daemon runs in the background, and logs to {path} (see it: clisup daemon log)"),
        file=sys.stderr,
    )
    return flags._replace(log_file=path)


def _in_background() -> bool:
    """Tell whether stderr is a terminal on which another job is in the foreground."""
    try:
        return os.isatty(_STDERR) and os.tcgetpgrp(_STDERR) != os.getpgrp()
    except OSError:  # a terminal that does not control this process
        return False


def config_path(flags: Flags, env: Mapping[str, str]) -> tuple[str, bool]:
    """Return the configuration file, and whether it was named, so that it must exist."""
    return _absolute(flags.config or config_file(env)), flags.config is not None or "CLISUP_CONFIG" in env


class Place(NamedTuple):
    """State directory and socket of the daemon."""

    state_dir: str
    socket: str


def place_of(flags: Flags, socket: str, state_dir: str, env: Mapping[str, str]) -> Place:
    uid = os.getuid()
    chosen = flags.state_dir or env.get("CLISUP_STATE_DIR") or in_home(state_dir, env)
    state = _absolute(chosen or default_state_dir(env, uid))
    own = {**env, "CLISUP_STATE_DIR": state}
    sock = flags.socket or env.get("CLISUP_SOCKET") or in_home(socket, env) or default_socket(own, uid)
    return Place(state, _absolute(sock))


def _absolute(path: str) -> str:
    """Return an absolute path. Raises `ConfigurationError` for a relative one in a removed directory."""
    try:
        return os.path.abspath(path)
    except FileNotFoundError:
        raise ConfigurationError(
            f"cannot use the relative path {path}: the working directory is gone",
            hint="give an absolute path, or go to another directory",
        ) from None


def _activated_place(place: Place, path: str, flags: Flags, configured: str, env: Mapping[str, str]) -> Place:
    """Use the socket of systemd. Raises `ConfigurationError` if clients would look for another one."""
    asked = flags.socket or env.get("CLISUP_SOCKET") or configured
    if asked and os.path.realpath(place.socket) != os.path.realpath(path):
        raise ConfigurationError(
            f"systemd listens at {path}, but clients connect to {place.socket}",
            hint="set ListenStream= of the socket unit and daemon.socket (CLISUP_SOCKET, --socket) to the same path, or omit the latter",
        )
    return Place(place.state_dir, path)
