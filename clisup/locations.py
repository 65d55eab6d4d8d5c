"""Where clisup's files are, from a mapping of variables: the one place that knows, for the daemon and the light clients.

Standard library only. Order: `CLISUP_*` variable, then the configuration file (daemon only), then these defaults.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

__all__ = [
    "SOCKET_PATH_LIMIT",
    "config_file",
    "config_home",
    "default_socket",
    "default_state_dir",
    "home_dir",
    "in_home",
    "is_named",
    "socket_for_client",
    "state_dir_for_client",
]

SOCKET_PATH_LIMIT = 107
"""sun_path holds 108 bytes with the closing NUL (unix(7))."""

SYSTEM_SOCKETS = "/run/clisup"
"""Below it, by the user's name, is the socket of clisup@.service."""


def home_dir(env: Mapping[str, str], uid: int | None = None) -> str:
    """Return `$HOME`, or the home of the password database where that is unset or not absolute: systemd sets none for root.

    Raises `ConfigurationError` where neither is known. A default in /tmp would be a name that every user of the machine can take.
    """
    uid = os.getuid() if uid is None else uid
    if home := _known_home(env, uid):
        return home
    from clisup.errors import ConfigurationError

    raise ConfigurationError(
        f"cannot tell where to keep files, because HOME is not set and uid {uid} has no home in the password database",
        hint="set HOME, or name the place: --state-dir or CLISUP_STATE_DIR for the daemon, CLISUP_SOCKET for a client",
    )


def _known_home(env: Mapping[str, str], uid: int) -> str:
    """Return the home, or "" where none is known."""
    home = env.get("HOME", "")
    if not home.startswith("/"):
        import pwd

        try:
            home = pwd.getpwuid(uid).pw_dir
        except KeyError:
            return ""
    return home if home.startswith("/") else ""


def default_state_dir(env: Mapping[str, str], uid: int) -> str:
    """`$CLISUP_STATE_DIR`, else `$XDG_STATE_HOME/clisup`, else `~/.local/state/clisup`."""
    if env.get("CLISUP_STATE_DIR"):
        return _absolute(env["CLISUP_STATE_DIR"])
    base = env.get("XDG_STATE_HOME") or os.path.join(home_dir(env, uid), ".local", "state")
    return os.path.join(base, "clisup")


def default_socket(env: Mapping[str, str], uid: int) -> str:
    """`$CLISUP_SOCKET`, else `clisup/clisup.sock` in the runtime directory, else in the state directory.

    The state directory is the fallback because `/run/user/<uid>` exists only where a login session made it.
    """
    if env.get("CLISUP_SOCKET"):
        return _absolute(env["CLISUP_SOCKET"])
    runtime = env.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}"
    if os.path.isdir(runtime) and os.access(runtime, os.W_OK):
        return os.path.join(runtime, "clisup", "clisup.sock")
    return os.path.join(default_state_dir(env, uid), "clisup.sock")


def config_file(env: Mapping[str, str]) -> str:
    """`$CLISUP_CONFIG`, else `$XDG_CONFIG_HOME/clisup/config.toml`, else `~/.config/clisup/config.toml`."""
    if env.get("CLISUP_CONFIG"):
        return _absolute(env["CLISUP_CONFIG"])
    return os.path.join(config_home(env), "clisup", "config.toml")


def config_home(env: Mapping[str, str]) -> str:
    """`$XDG_CONFIG_HOME`, else `~/.config`. Without a home that is `/.config`, where only root can put a file."""
    return env.get("XDG_CONFIG_HOME") or os.path.join(_known_home(env, os.getuid()) or "/", ".config")


def in_home(path: str, env: Mapping[str, str]) -> str:
    """The path with `~/` at its beginning as the home of that environment. Raises `ConfigurationError` as `home_dir`."""
    return home_dir(env) + path[1:] if path.startswith("~/") else path


def socket_for_client(env: Mapping[str, str], uid: int) -> str:
    """The socket a client should try: as `default_socket`, but the configuration file's word counts where there is one.

    Where nothing is there and the system runs a daemon for this user (clisup@.service), that one's.
    """
    if env.get("CLISUP_SOCKET"):
        return default_socket(env, uid)
    daemon = _daemon_table(env)
    if daemon.get("socket"):
        return _absolute(in_home(str(daemon["socket"]), env))
    if daemon.get("state_dir") and not env.get("CLISUP_STATE_DIR"):
        env = {**env, "CLISUP_STATE_DIR": in_home(str(daemon["state_dir"]), env)}
    return _or_of_the_system(default_socket(env, uid), uid)


def is_named(path: str, env: Mapping[str, str], uid: int) -> bool:
    """Did somebody name this socket on purpose, or is it where `socket_for_client` looks by itself?

    The variable names one, and so does a configuration file of this user's own. An argument is seen by its being another path.
    """
    if env.get("CLISUP_SOCKET") and path == default_socket(env, uid):
        return True
    bare = {name: value for name, value in env.items() if name != "CLISUP_SOCKET"}
    if path != socket_for_client(bare, uid):
        return True
    return bool(_daemon_table(env).get("socket")) and os.stat(config_file(env)).st_uid == uid


def state_dir_for_client(env: Mapping[str, str], uid: int) -> str:
    """Where a daemon that is not there would keep its state: as `default_state_dir`, but the configuration file's word counts."""
    if not env.get("CLISUP_STATE_DIR") and (configured := _daemon_table(env).get("state_dir")):
        return _absolute(in_home(str(configured), env))
    return default_state_dir(env, uid)


def _daemon_table(env: Mapping[str, str]) -> dict[str, object]:
    """`[daemon]` of the configuration file; empty without one. `tomllib` is loaded only where there is a file."""
    path = config_file(env)
    if not os.path.exists(path):
        return {}
    import tomllib

    try:
        with open(path, "rb") as file:
            daemon = tomllib.load(file).get("daemon")
    except (
        OSError,
        ValueError,
    ):  # no TOML, or no UTF-8: the daemon says so at its start, a client just looks elsewhere
        return {}
    return daemon if isinstance(daemon, dict) else {}


def _or_of_the_system(own: str, uid: int) -> str:
    if not os.path.isdir(SYSTEM_SOCKETS) or os.path.exists(own):
        return own
    import pwd

    try:
        other = os.path.join(SYSTEM_SOCKETS, pwd.getpwuid(uid).pw_name, "clisup.sock")
    except KeyError:
        return own
    return other if os.path.exists(other) else own


def _absolute(path: str) -> str:
    try:
        return os.path.abspath(path)
    except FileNotFoundError:
        return path  # relative, and the working directory is gone: who opens it says that it is not there
