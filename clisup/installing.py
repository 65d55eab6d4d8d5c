"""Plans of `clisup install` and `uninstall`: lists of steps, which are made, shown and then carried out."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from clisup import __version__
from clisup.errors import ClisupError, UsageError
from clisup.host.locks import lock_holder
from clisup.host.machine import user_name
from clisup.host.systemd.units import (
    SYSTEM_UNITS,
    ServiceManager,
    path_line,
    read_unit,
    remove_unit,
    shipped_unit,
    standing_of,
    unit_text,
    unit_word,
    user_units,
    write_unit,
)
from clisup.locations import default_socket, home_dir

__all__ = ["InstallPlan", "Target", "plan_fleet_unit", "plan_install", "plan_uninstall", "target_of"]

HIDDEN = ("/home", "/root", "/run/user")
"""Directories that ProtectHome=tmpfs of clisup@.service hides; the unit mounts /home/USER again."""
_LINGER = "/var/lib/systemd/linger"
WEB, GATEWAY = "clisup-web.service", "clisup-gateway.service"
"""Units of `clisup web` and `clisup gateway`: with --web and --gateway, and from then on with each later call."""
_TYPE = "Type=notify"
"""Line of a user's unit before which the line with PATH stands."""

CLIS = ("claude", "codex", "gemini", "qwen")
"""Commands of the built-in backends that a user installs."""


@dataclass(frozen=True, slots=True)
class Target:
    """Units of a manager for a user, and the home of that user."""

    manager: ServiceManager
    user: str
    home: str
    directory: str
    files: tuple[str, ...]
    service: str
    socket: str

    @property
    def services(self) -> tuple[str, ...]:
        """Return the units to enable and to start, beside the socket."""
        return (self.service, *(name for name in (WEB, GATEWAY) if name in self.files))

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)


@dataclass(slots=True)
class InstallPlan:
    """Steps as `{action, target, detail}`, each with its function (None: nothing to do), and advice for the user.

    `search_path` is the PATH of the unit, None without a new unit. `clis` are the CLIs that are found on it.
    """

    steps: list[tuple[dict[str, str], Callable[[], None] | None]] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    search_path: str | None = None
    clis: dict[str, str | None] = field(default_factory=dict)

    def add(self, action: str, target: str, detail: str = "", do: Callable[[], None] | None = None) -> None:
        self.steps.append(({"action": action, "target": target, "detail": detail}, do))

    def order(self, manager: ServiceManager, *words: str) -> None:
        """Add a command for the service manager."""
        self.add("run", manager.words(*words), do=lambda: manager.order(*words))

    def carry_out(self) -> None:
        """Carry out the steps in order, up to the first failure. Raises `WorldError`."""
        for _, do in self.steps:
            if do is not None:
                do()

    def to_json(self) -> dict[str, Any]:
        steps = [step for step, _ in self.steps]
        return {"steps": steps, "advice": self.advice, "search_path": self.search_path, "clis": self.clis}


def target_of(
    env: Mapping[str, str], *, system: bool, user: str | None, verb: str = "install", beside: Collection[str] = ()
) -> Target:
    """Return the target of `--user`, or of `--system --for USER`. `verb` is install or uninstall. Raises `UsageError`.

    `beside` are further units: `WEB`, `GATEWAY`. A user's unit that is there already belongs to the target, too.
    """
    if beside and system:
        raise UsageError("the pages and the gateway are a unit of a user's manager each", kind="usage",
                         hint="clisup install --user --web --gateway")  # fmt: skip
    own = user_name()
    if not system:
        if os.geteuid() == 0 and env.get("SUDO_USER"):
            raise UsageError(
                f"cannot {verb} a user's unit by sudo, because it would be root's",
                kind="usage",
                hint=f"without sudo; or a unit of the system: sudo clisup {verb} --system --for {env['SUDO_USER']}",
            )
        place = user_units(env)
        more = [name for name in (WEB, GATEWAY) if name in beside or os.path.exists(os.path.join(place, name))]
        return Target(
            ServiceManager(env, user=True), own, home_dir(env), place,
            ("clisup.service", "clisup.socket", *more), "clisup.service", "clisup.socket",
        )  # fmt: skip
    chosen = user or env.get("SUDO_USER")
    if chosen is None:
        raise UsageError(
            "cannot tell which user the daemon is for", kind="usage", hint="name the user: --system --for USER"
        )
    try:
        home = pwd.getpwnam(chosen).pw_dir
    except KeyError:
        raise UsageError(
            f"cannot {verb} for {chosen!r}, because there is no such user",
            kind="usage",
            hint="useradd -m USER" if verb == "install" else "the name is the USER of clisup@USER.service",
        ) from None
    if not os.path.isdir(home):
        raise UsageError(
            f"cannot {verb} for {chosen!r}, because the home {home} does not exist",
            kind="usage",
            hint="create it: the CLIs' logins and clisup's state are in it",
        )
    return Target(
        ServiceManager(env, user=False), chosen, home, SYSTEM_UNITS,
        ("clisup@.service", "clisup@.socket", "clisup-tmp@.service"), f"clisup@{chosen}.service", f"clisup@{chosen}.socket",
    )  # fmt: skip


def plan_install(
    target: Target, env: Mapping[str, str], *, executable: str | None, force: bool, now: bool, dry_run: bool
) -> InstallPlan:
    """Plan the installation of the units, and with `now` their start.

    Raises `UsageError`, `ConfigurationError` and `WorldError`.
    """
    command = executable or _own_executable(env)
    _check_executable(target, command, *(() if executable else (sys.executable,)))
    if not dry_run:
        _check_rights(target)
    plan = InstallPlan()
    plan.search_path = search_path_of(env) if target.manager.user else _system_search_path(target, env)
    plan.clis = find_clis(plan.search_path)
    changed = _plan_files(plan, target, command, force=force)
    if changed:
        plan.order(target.manager, "daemon-reload")
    plan.order(target.manager, "enable", target.socket, *target.services)
    active = _is_active(target, dry_run)
    if now:
        if not active:
            _check_alone(target, env)
        # Running turns survive a restart. A daemon that runs with these units is not restarted.
        plan.order(target.manager, "restart" if active and changed else "start", *target.services)
    elif not active:
        plan.advice.append(f"start it: {target.manager.words('start', *target.services)}")
    elif changed:
        plan.advice.append(
            f"it runs with the old unit until {target.manager.words('restart', *target.services)}; turns go on"
        )
    _advise(plan, target, env)
    return plan


FLEET_UNITS = ("clisup-fleet.service", "clisup-fleet-node.service")
_NODE_FOLDER = "fleet node %h/fleet-node"
_INSTALL = "WantedBy=default.target"


def plan_fleet_unit(
    target: Target,
    env: Mapping[str, str],
    node: str | None,
    *,
    executable: str | None,
    force: bool,
    now: bool,
    dry_run: bool,
) -> InstallPlan:
    """Plan the unit of a fleet's agent, or with `node`, a folder, that of a node of the engine.

    Raises `UsageError`, `ConfigurationError` and `WorldError`.
    """
    name = FLEET_UNITS[node is not None]
    command = executable or _own_executable(env)
    _check_executable(target, command, *(() if executable else (sys.executable,)))
    if not dry_run:
        _check_rights(target)
    plan, path, shipped = InstallPlan(), target.path(name), shipped_unit(name)
    lines = {} if target.manager.user else {"Restart=always": f"User={target.user}\nRestart=always"}
    if not target.manager.user:
        lines[_INSTALL] = "WantedBy=multi-user.target"
    placed = (
        shipped if node is None else shipped.replace(_NODE_FOLDER, f"fleet node {unit_word(os.path.abspath(node))}")
    )
    text = unit_text(placed, command, __version__, lines)
    found = read_unit(path)
    standing = standing_of(found, text, shipped)
    if standing == "edited" and not force:
        raise _edited(path, "replace")
    if standing == "same":
        plan.add("keep", path, "is up to date")
    else:
        plan.add("write", path, do=lambda: write_unit(path, text))
        plan.order(target.manager, "daemon-reload")
    plan.order(target.manager, "enable", name)
    if now:
        plan.order(target.manager, "restart" if standing != "same" else "start", name)
    else:
        plan.advice.append(f"start it: {target.manager.words('start', name)}")
    return plan


def plan_uninstall(target: Target, *, force: bool, dry_run: bool) -> InstallPlan:
    """Plan the removal of the units. State, configuration and transcripts stay."""
    if not dry_run:
        _check_rights(target)
    plan = InstallPlan()
    there = {name: text for name in target.files if (text := read_unit(target.path(name))) is not None}
    if not there:
        plan.add("keep", target.directory, "it has no unit of clisup")
        return plan
    if not force and (edited := [name for name in there if _standing(name, there[name]) == "edited"]):
        raise _edited(target.path(edited[0]), "remove")
    plan.order(target.manager, "disable", "--now", target.socket, *target.services)
    others = [] if target.manager.user else _other_instances(target)
    if not target.manager.user:
        plan.order(target.manager, "stop", f"clisup-tmp@{target.user}.service")
        for path in (_drop_in(target, "home"), _drop_in(target, "path")):
            if read_unit(path) is not None:
                plan.add("remove", path, do=partial(remove_unit, path))
    for name in there:
        path = target.path(name)
        if others:
            plan.add("keep", path, f"also for {', '.join(others)}")
        else:
            plan.add("remove", path, do=partial(remove_unit, path))
    plan.order(target.manager, "daemon-reload")
    plan.advice.append("sessions and their events stay in the state directory, settings in ~/.config/clisup")
    return plan


def _plan_files(plan: InstallPlan, target: Target, command: str, *, force: bool) -> bool:
    """Plan the unit files, and tell whether one changes. Raises `UsageError` for an edited file."""
    wanted = {target.path(name): (shipped_unit(name), command) for name in target.files}
    search = path_line(plan.search_path or os.defpath)
    lines = {_TYPE: f"{search}\n{_TYPE}"} if target.manager.user else {}
    texts = {path: unit_text(shipped, command, __version__, lines) for path, (shipped, command) in wanted.items()}
    if (home := _home_text(target)) is not None:
        texts[_drop_in(target, "home")] = home
    if not target.manager.user:  # clisup@.service is for all users
        texts[_drop_in(target, "path")] = unit_text(f"[Service]\n{search}\n", "", __version__)
    changed = False
    for path, text in texts.items():
        found = read_unit(path)
        standing = standing_of(found, text, wanted[path][0] if path in wanted else text)
        if standing == "same":
            plan.add("keep", path, "is up to date")
            continue
        if standing == "edited" and not force:
            raise _edited(path, "replace")
        changed = True
        detail = {"new": "", "older": "was from another clisup", "edited": "was edited; --force"}[standing]
        plan.add("write", path, detail, do=partial(write_unit, path, text))
    return changed


def search_path_of(env: Mapping[str, str]) -> str:
    """Return the caller's PATH for a unit, so that the daemon finds the CLIs and their tools where the caller's shell does.

    Relative and missing directories, and those that everybody may write to, are left out.
    """
    places = dict.fromkeys(env.get("PATH", os.defpath).split(os.pathsep))
    return os.pathsep.join(place for place in places if _is_sound(place)) or os.defpath


def _system_search_path(target: Target, env: Mapping[str, str]) -> str:
    """Return the PATH of a unit of the system: root's, and the user's own directories of programs.

    Directories that the unit's sandbox hides, and those of other users than root and this one, are left out.
    """
    named = search_path_of(env).split(os.pathsep)
    own = [os.path.join(target.home, name) for name in (".local/bin", "bin")]
    owners = {0, pwd.getpwnam(target.user).pw_uid}
    places = dict.fromkeys([*own, *named])
    return os.pathsep.join(p for p in places if _is_sound(p) and _is_seen(target, p) and os.stat(p).st_uid in owners)


def _is_seen(target: Target, path: str) -> bool:
    """Tell whether the sandbox of a unit of the system shows the path: other homes are hidden."""
    return _below(path, target.home.rstrip("/")) or not any(_below(path, place) for place in HIDDEN)


def _below(path: str, place: str) -> bool:
    return path == place or path.startswith(f"{place}/")


def _is_sound(place: str) -> bool:
    try:
        place.encode()
        return os.path.isabs(place) and "\n" not in place and not os.stat(place).st_mode & stat.S_IWOTH
    except (OSError, ValueError):  # missing, or not UTF-8, which no unit can hold
        return False


def find_clis(search_path: str) -> dict[str, str | None]:
    """Return the path of each CLI that has a built-in backend, or None for a CLI that is not installed."""
    return {name: shutil.which(name, path=search_path) for name in CLIS}


def _standing(name: str, found: str) -> str:
    shipped = shipped_unit(name)
    return standing_of(found, unit_text(shipped, "", __version__), shipped)


def _edited(path: str, what: str) -> UsageError:
    return UsageError(
        f"cannot {what} {path}, because it was edited after its installation",
        kind="usage",
        hint="keep the change as a drop-in (systemctl edit), then --force",
    )


def _drop_in(target: Target, name: str) -> str:
    return target.path(f"{target.service}.d/clisup-{name}.conf")


def _home_text(target: Target) -> str | None:
    """Return a drop-in for a home outside /home, or None."""
    if target.manager.user or target.home == f"/home/{target.user}":
        return None
    hidden = any(_below(target.home, place) for place in HIDDEN)
    line = f"BindPaths={target.home}" if hidden else f"ReadWritePaths={target.home}"
    return unit_text(f"[Service]\n{line}\n", "", __version__)


def _own_executable(env: Mapping[str, str]) -> str:
    """Return the path of this `clisup`: as it was called, or beside this Python. Raises `UsageError`."""
    called = sys.argv[0] if os.path.basename(sys.argv[0]) == "clisup" else ""
    found = shutil.which(called, path=env.get("PATH", os.defpath)) if called else None
    beside = os.path.join(os.path.dirname(sys.executable), "clisup")
    for path in (found, beside):
        if path is not None and os.access(path, os.X_OK):
            return os.path.abspath(path)  # keep a link: an upgrade may change its target
    raise UsageError("cannot find the clisup executable", kind="usage", hint="name it: --executable PATH")


def _check_executable(target: Target, command: str, *python: str) -> None:
    """Check that the unit can see the executable and its Python. Raises `UsageError`."""
    if not os.path.isabs(command) or not os.access(command, os.X_OK):
        raise UsageError(
            f"cannot start {command} from a unit, because it is not the absolute path of an executable", kind="usage",
            hint="--executable PATH",
        )  # fmt: skip
    if target.manager.user:
        return
    for path in map(os.path.realpath, (command, *python)):
        if not _is_seen(target, path):
            raise UsageError(
                f"cannot start {path} for {target.user}, because the unit cannot see other homes",
                kind="usage",
                hint="install clisup with the system's Python: python3 -m venv /opt/clisup && /opt/clisup/bin/pip install clisup",
            )


def _check_rights(target: Target) -> None:
    """Check that this user may change the units. Raises `UsageError`, and `WorldError` without a service manager."""
    if not target.manager.user and os.geteuid() != 0:
        raise UsageError(
            "cannot change units of the system, because only root may",
            kind="usage",
            hint="use sudo, or see the steps first: --dry-run",
        )
    target.manager.check()


def _check_alone(target: Target, env: Mapping[str, str]) -> None:
    """Check that no daemon started by hand holds the socket of the unit. Raises `UsageError`."""
    if not target.manager.user:
        return
    socket = default_socket({name: value for name, value in env.items() if name != "CLISUP_SOCKET"}, os.getuid())
    if (holder := lock_holder(f"{socket}.lock")) is not None:
        raise UsageError(
            f"cannot start the unit, because pid {holder} already serves {socket}, and systemd did not start it",
            kind="daemon_already_running",
            hint="clisup stop --mode detach, then repeat: the unit's daemon takes over the running turns",
        )


def _is_active(target: Target, dry_run: bool) -> bool:
    try:
        return target.manager.ask("is-active", target.service) in ("active", "reloading")
    except ClisupError:
        if dry_run:
            return False
        raise


def _other_instances(target: Target) -> list[str]:
    """Return the other users for whom clisup@ is enabled."""
    found = set()
    for directory, _, names in os.walk(target.directory):
        if directory.endswith(".wants"):
            found |= {name.removeprefix("clisup@").rpartition(".")[0] for name in names if name.startswith("clisup@")}
    return sorted(found - {target.user})


def _advise(plan: InstallPlan, target: Target, env: Mapping[str, str]) -> None:
    if target.manager.user and not os.path.exists(f"{_LINGER}/{target.user}"):
        plan.advice.append("your last logout ends it, unless you run once: loginctl enable-linger")
    if target.manager.user and env.get("CLISUP_SOCKET"):
        plan.advice.append("CLISUP_SOCKET is set in this shell: commands here use it, not the unit's socket")
    if not target.manager.user:
        plan.advice.append(
            f"{target.user} and root can reach it: CLISUP_SOCKET=/run/clisup/{target.user}/clisup.sock clisup status"
        )
        if None in plan.clis.values():
            plan.advice.append(
                f"a CLI that only {target.user}'s shell finds (command -v claude): repeat this with its directory, "
                'as sudo env "PATH=DIRECTORY:$PATH" clisup install ...; the unit sees no other home'
            )
