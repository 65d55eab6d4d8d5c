"""Paths of clisup's files, from a mapping of variables, for the daemon and its clients.

A `CLISUP_*` variable overrides the configuration file, and the file overrides the defaults. `clisup status` loads this
module, so the module imports almost nothing.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping

__all__ = [
    "HERE",
    "SOCKET_PATH_LIMIT",
    "box_of",
    "checked_toml",
    "config_bytes",
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

HERE = "here"
"""Name of this machine's own daemon among the boxes."""

_BOX = "box:"

MAX_CONFIG_BYTES = 4 * 1024 * 1024
"""Limit of the configuration file's size. A thousand backends with every key take a quarter of it."""
MAX_PARTS = 1000
"""Limit of the parts of a dotted key."""
SYSTEM_SOCKETS = "/run/clisup"
"""Directory of the sockets of clisup@.service, by the user's name."""


def home_dir(env: Mapping[str, str], uid: int | None = None) -> str:
    """Return `$HOME`, or the home of the password database if `$HOME` is not absolute: systemd sets none for root.

    Raises `ConfigurationError` without either. A default in /tmp could be taken by any user of the machine.
    """
    uid = os.getuid() if uid is None else uid
    if home := _known_home(env, uid):
        return home
    from clisup.errors import ConfigurationError

    home = "HOME is no absolute path" if env.get("HOME") else "HOME is not set"
    raise ConfigurationError(
        f"cannot tell where to keep files, because {home} and uid {uid} has no home in the password database",
        hint="set HOME, or name the directory: --state-dir or CLISUP_STATE_DIR for the daemon, CLISUP_SOCKET for a client",
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
    """Return `$CLISUP_STATE_DIR`, else `$XDG_STATE_HOME/clisup`, else `~/.local/state/clisup`."""
    if env.get("CLISUP_STATE_DIR"):
        return _absolute(env["CLISUP_STATE_DIR"])
    base = env.get("XDG_STATE_HOME") or os.path.join(home_dir(env, uid), ".local", "state")
    return os.path.join(base, "clisup")


def default_socket(env: Mapping[str, str], uid: int) -> str:
    """Return `$CLISUP_SOCKET`, else `clisup/clisup.sock` in the runtime directory, else in the state directory.

    `/run/user/<uid>` exists only after a login, so the state directory is the fallback.
    """
    if env.get("CLISUP_SOCKET"):
        return _absolute(env["CLISUP_SOCKET"])
    runtime = env.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}"
    if os.path.isdir(runtime) and os.access(runtime, os.W_OK):
        return os.path.join(runtime, "clisup", "clisup.sock")
    return os.path.join(default_state_dir(env, uid), "clisup.sock")


def config_file(env: Mapping[str, str]) -> str:
    """Return `$CLISUP_CONFIG`, else `$XDG_CONFIG_HOME/clisup/config.toml`, else `~/.config/clisup/config.toml`."""
    if env.get("CLISUP_CONFIG"):
        return _absolute(env["CLISUP_CONFIG"])
    return os.path.join(config_home(env), "clisup", "config.toml")


def config_bytes(path: str) -> bytes:
    """Return the bytes of a configuration file, one more than `MAX_CONFIG_BYTES` at most. Raises `OSError`, also for a FIFO.

    Waiting for the FIFO's writer would block for ever, and without waiting the FIFO looks empty.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        mode = os.fstat(fd).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode)):  # /dev/null, too
            raise OSError(errno.EINVAL, "it is no regular file", path)
        return file.read(MAX_CONFIG_BYTES + 1)


def checked_toml(text: str) -> str:
    """Return the text. Raises `RecursionError` for a key of so many parts that its reader takes seconds."""
    if text.count(".") >= MAX_PARTS:
        import re

        if re.search(rf"(?<![\w-])(?:(?:[\w-]++|\"[^\"\n]*+\"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{MAX_PARTS}}}", text):
            raise RecursionError
    return text


def config_home(env: Mapping[str, str]) -> str:
    """Return `$XDG_CONFIG_HOME`, else `~/.config`. Without a home that is `/.config`, where only root can write."""
    return env.get("XDG_CONFIG_HOME") or os.path.join(_known_home(env, os.getuid()) or "/", ".config")


def in_home(path: str, env: Mapping[str, str]) -> str:
    """Replace `~/` at the beginning by the home of the environment. Raises `ConfigurationError` as `home_dir` does."""
    return home_dir(env) + path[1:] if path.startswith("~/") else path


def socket_for_client(env: Mapping[str, str], uid: int) -> str:
    """Return the socket for a client: as `default_socket`, but the configuration file overrides the defaults.

    If no socket is there, and the system runs a daemon for this user (clisup@.service), return its socket.

    `CLISUP_ON` names a box instead: the result is `box:NAME`, which every client takes as a path (docs/how-to/fleet.md).
    """
    if (box := env.get("CLISUP_ON")) and box != HERE:
        return _BOX + box
    if env.get("CLISUP_SOCKET"):
        return default_socket(env, uid)
    daemon = _daemon_table(env)
    if daemon.get("socket"):
        return _absolute(in_home(str(daemon["socket"]), env))
    if daemon.get("state_dir") and not env.get("CLISUP_STATE_DIR"):
        env = {**env, "CLISUP_STATE_DIR": in_home(str(daemon["state_dir"]), env)}
    return _or_of_the_system(default_socket(env, uid), uid)


def box_of(path: str) -> str:
    """Return the name of the box for a client's path `box:NAME`, or "" for the path of a socket."""
    return path.removeprefix(_BOX) if path.startswith(_BOX) else ""


def is_named(path: str, env: Mapping[str, str], uid: int) -> bool:
    """Tell whether the user named this socket, by the variable, an argument, or a configuration file of their own.

    An argument shows as a path that differs from that of `socket_for_client`.
    """
    if env.get("CLISUP_SOCKET") and path == default_socket(env, uid):
        return True
    bare = {name: value for name, value in env.items() if name != "CLISUP_SOCKET"}
    if path != socket_for_client(bare, uid):
        return True
    return bool(_daemon_table(env).get("socket")) and os.stat(config_file(env)).st_uid == uid


def state_dir_for_client(env: Mapping[str, str], uid: int) -> str:
    """Return the state directory: as `default_state_dir`, but the configuration file overrides the defaults."""
    if not env.get("CLISUP_STATE_DIR") and (configured := _daemon_table(env).get("state_dir")):
        return _absolute(in_home(str(configured), env))
    return default_state_dir(env, uid)


def _daemon_table(env: Mapping[str, str]) -> dict[str, object]:
    """Return `[daemon]` of the configuration file, or an empty table without a file."""
    path = config_file(env)
    if not os.path.exists(path):
        return {}
    import tomllib

    try:
        daemon = tomllib.loads(checked_toml(config_bytes(path).decode("utf-8-sig"))).get("daemon")
    except (OSError, ValueError, RecursionError):  # the daemon reports it at its start, a client uses the defaults
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
        return path  # relative, and the working directory is gone: opening the file reports it
