"""`clisup install` and `uninstall`: what has to be done is a list of steps, made first, shown in any case, and then carried out."""

from __future__ import annotations

import os
import pwd
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from clisup import __version__
from clisup.errors import ClisupError, UsageError
from clisup.host.locks import lock_holder
from clisup.host.systemd.service_manager import ServiceManager
from clisup.host.systemd.unit_store import SYSTEM_UNITS, read_unit, remove_unit, shipped_unit, user_units, write_unit
from clisup.locations import default_socket, home_dir
from clisup.ops.unit_files import standing_of, unit_text

__all__ = ["InstallPlan", "Target", "plan_install", "plan_uninstall", "target_of"]

HIDDEN = ("/home", "/root", "/run/user")
"""What ProtectHome=tmpfs of clisup@.service hides; /home/USER is let in."""
_LINGER = "/var/lib/systemd/linger"
_BIND_HOME = "BindPaths=-/home/%i"


@dataclass(frozen=True, slots=True)
class Target:
    """Which units, of which manager, for whom. `home` is that user's."""

    manager: ServiceManager
    user: str
    home: str
    directory: str
    files: tuple[str, ...]
    service: str
    socket: str

    @property
    def path(self) -> Callable[[str], str]:
        return lambda name: os.path.join(self.directory, name)


@dataclass(slots=True)
class InstallPlan:
    """Steps as `{action, target, detail}`, each with what carries it out (None: nothing to do), and advice for afterwards."""

    steps: list[tuple[dict[str, str], Callable[[], None] | None]] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)

    def add(self, action: str, target: str, detail: str = "", do: Callable[[], None] | None = None) -> None:
        self.steps.append(({"action": action, "target": target, "detail": detail}, do))

    def order(self, manager: ServiceManager, *words: str) -> None:
        """A step of the manager's."""
        self.add("run", manager.words(*words), do=lambda: manager.order(*words))

    def carry_out(self) -> None:
        """In order; the first that fails ends it. Raises `WorldError`."""
        for _, do in self.steps:
            if do is not None:
                do()

    def to_json(self) -> dict[str, Any]:
        return {"steps": [step for step, _ in self.steps], "advice": self.advice}


def target_of(env: Mapping[str, str], *, system: bool, user: str | None, verb: str = "install") -> Target:
    """What `--user`, or `--system --for USER`, means here; `verb` is what is to be done. Raises `UsageError`."""
    own = _own_name()
    if not system:
        if os.geteuid() == 0 and env.get("SUDO_USER"):
            raise UsageError(
                f"cannot {verb} a user's unit by sudo, because it would be root's",
                kind="usage",
                hint=f"without sudo; or a unit of the system: sudo clisup {verb} --system --for {env['SUDO_USER']}",
            )
        return Target(
            ServiceManager(env, user=True), own, home_dir(env), user_units(env),
            ("clisup.service", "clisup.socket"), "clisup.service", "clisup.socket",
        )  # fmt: skip
    chosen = user or env.get("SUDO_USER")
    if chosen is None:
        raise UsageError(
            "cannot tell whose daemon it shall be", kind="usage", hint="name the user: --system --for USER"
        )
    try:
        home = pwd.getpwnam(chosen).pw_dir
    except KeyError:
        raise UsageError(
            f"cannot {verb} for {chosen!r}, because there is no such user",
            kind="usage",
            hint="useradd -m USER" if verb == "install" else "the name is that of clisup@USER.service",
        ) from None
    if not os.path.isdir(home):
        raise UsageError(
            f"cannot {verb} for {chosen!r}, because their home {home} is not there",
            kind="usage",
            hint="the CLIs' logins and clisup's state lie in it: give the user one",
        )
    return Target(
        ServiceManager(env, user=False), chosen, home, SYSTEM_UNITS,
        ("clisup@.service", "clisup@.socket", "clisup-tmp@.service"), f"clisup@{chosen}.service", f"clisup@{chosen}.socket",
    )  # fmt: skip


def plan_install(
    target: Target, env: Mapping[str, str], *, executable: str | None, force: bool, now: bool, dry_run: bool
) -> InstallPlan:
    """The steps to installed, enabled and, with `now`, running units. Raises `UsageError`, `ConfigurationError`, `WorldError`."""
    command = executable or _own_executable(env)
    _check_executable(target, command, *(() if executable else (sys.executable,)))
    if not dry_run:
        _check_rights(target)
        target.manager.check()
    plan = InstallPlan()
    changed = _plan_files(plan, target, command, force=force)
    if changed:
        plan.order(target.manager, "daemon-reload")
    plan.order(target.manager, "enable", target.socket, target.service)
    active = _is_active(target, dry_run)
    if now:
        if not active:
            _check_alone(target, env)
        # A restart leaves running turns alone, and what runs already with these very units is left alone itself.
        plan.order(target.manager, "restart" if active and changed else "start", target.service)
    elif not active:
        plan.advice.append(f"start it: {target.manager.words('start', target.service)}")
    elif changed:
        plan.advice.append(
            f"it runs as the old unit says until {target.manager.words('restart', target.service)}; turns go on"
        )
    _advise(plan, target, env)
    return plan


def plan_uninstall(target: Target, *, force: bool, dry_run: bool) -> InstallPlan:
    """The steps to stopped, disabled and removed units. State, configuration and transcripts stay where they are."""
    if not dry_run:
        _check_rights(target)
        target.manager.check()
    plan = InstallPlan()
    there = {name: text for name in target.files if (text := read_unit(target.path(name))) is not None}
    if not there:
        plan.add("keep", target.directory, "no unit of clisup's is there")
        return plan
    if not force and (edited := [name for name in there if _standing(target, name, there[name]) == "edited"]):
        raise _edited(target.path(edited[0]), "remove")
    plan.order(target.manager, "disable", "--now", target.socket, target.service)
    others = [] if target.manager.user else _other_instances(target)
    if not target.manager.user:
        plan.order(target.manager, "stop", f"clisup-tmp@{target.user}.service")
        if read_unit(_home_file(target)) is not None:
            plan.add("remove", _home_file(target), do=lambda: remove_unit(_home_file(target)))
    for name in there:
        path = target.path(name)
        if others:
            plan.add("keep", path, f"also for {', '.join(others)}")
        else:
            plan.add("remove", path, do=lambda path=path: remove_unit(path))  # type: ignore[misc]  # bound now, not later
    plan.order(target.manager, "daemon-reload")
    plan.advice.append("sessions and their events are left in the state directory, settings in ~/.config/clisup")
    return plan


def _plan_files(plan: InstallPlan, target: Target, command: str, *, force: bool) -> bool:
    """The files that differ from what there shall be; is there one? Raises `UsageError` for an edited one."""
    wanted = {target.path(name): (shipped_unit(name), command) for name in target.files}
    texts = {path: unit_text(shipped, command, __version__) for path, (shipped, command) in wanted.items()}
    if (home := _home_text(target)) is not None:
        texts[_home_file(target)] = home
    changed = False
    for path, text in texts.items():
        found = read_unit(path)
        standing = standing_of(found, text, wanted[path][0] if path in wanted else text)
        if standing == "same":
            plan.add("keep", path, "is as it shall be")
            continue
        if standing == "edited" and not force:
            raise _edited(path, "replace")
        changed = True
        detail = {"new": "", "older": "was of another clisup", "edited": "was edited; --force"}[standing]
        plan.add("write", path, detail, do=lambda path=path, text=text: write_unit(path, text))  # type: ignore[misc]
    return changed


def _standing(target: Target, name: str, found: str) -> str:
    shipped = shipped_unit(name)
    return standing_of(found, unit_text(shipped, "", __version__), shipped)


def _edited(path: str, what: str) -> UsageError:
    return UsageError(
        f"cannot {what} {path}, because it was edited since it was installed",
        kind="usage",
        hint="keep the change as a drop-in (systemctl edit), then --force",
    )


def _home_file(target: Target) -> str:
    return target.path(f"{target.service}.d/clisup-home.conf")


def _home_text(target: Target) -> str | None:
    """A drop-in for a home that is not where the unit takes it to be."""
    if target.manager.user or target.home == f"/home/{target.user}":
        return None
    hidden = any(target.home == place or target.home.startswith(f"{place}/") for place in HIDDEN)
    line = f"BindPaths={target.home}" if hidden else f"ReadWritePaths={target.home}"
    return unit_text(f"[Service]\n{line}\n", "", __version__)


def _own_executable(env: Mapping[str, str]) -> str:
    """The `clisup` that runs now: as it was called, or the one beside this Python. Raises `UsageError`."""
    called = sys.argv[0] if os.path.basename(sys.argv[0]) == "clisup" else ""
    found = shutil.which(called, path=env.get("PATH", os.defpath)) if called else None
    beside = os.path.join(os.path.dirname(sys.executable), "clisup")
    for path in (found, beside):
        if path is not None and os.access(path, os.X_OK):
            return os.path.abspath(path)  # a link stays one: what it leads to may change with an upgrade
    raise UsageError("cannot find the clisup executable", kind="usage", hint="name it: --executable PATH")


def _check_executable(target: Target, command: str, *python: str) -> None:
    """It, and the Python behind it where that is known, have to be there for the unit. Raises `UsageError`."""
    if not os.path.isabs(command) or not os.access(command, os.X_OK):
        raise UsageError(
            f"cannot start {command} from a unit, because it is no absolute path of an executable", kind="usage",
            hint="--executable PATH",
        )  # fmt: skip
    if target.manager.user:
        return
    for path in map(os.path.realpath, (command, *python)):
        own = path.startswith(f"{target.home.rstrip('/')}/")
        if not own and any(path.startswith(f"{place}/") for place in HIDDEN):
            raise UsageError(
                f"cannot start {path} for {target.user}, because the unit sees no other home than theirs",
                kind="usage",
                hint="install clisup for all, with the system's Python: python3 -m venv /opt/clisup && /opt/clisup/bin/pip install clisup",
            )


def _check_rights(target: Target) -> None:
    if not target.manager.user and os.geteuid() != 0:
        raise UsageError(
            "cannot change units of the system, because that takes root",
            kind="usage",
            hint="with sudo; or look first: --dry-run",
        )


def _check_alone(target: Target, env: Mapping[str, str]) -> None:
    """A daemon that somebody has started by hand would keep the unit's from its socket. Raises `UsageError`."""
    if not target.manager.user:
        return
    socket = default_socket({name: value for name, value in env.items() if name != "CLISUP_SOCKET"}, os.getuid())
    if (holder := lock_holder(f"{socket}.lock")) is not None:
        raise UsageError(
            f"cannot start the unit, because pid {holder} serves {socket} already, and systemd has not started it",
            kind="daemon_already_running",
            hint="clisup stop --mode detach, then again: the unit's daemon takes over its running turns",
        )


def _is_active(target: Target, dry_run: bool) -> bool:
    try:
        return target.manager.ask("is-active", target.service) in ("active", "reloading")
    except ClisupError:
        if dry_run:
            return False
        raise


def _other_instances(target: Target) -> list[str]:
    """The users for whom clisup@ is enabled besides this one."""
    found = set()
    for directory, _, names in os.walk(target.directory):
        if directory.endswith(".wants"):
            found |= {name.removeprefix("clisup@").rpartition(".")[0] for name in names if name.startswith("clisup@")}
    return sorted(found - {target.user})


def _advise(plan: InstallPlan, target: Target, env: Mapping[str, str]) -> None:
    if target.manager.user and not os.path.exists(f"{_LINGER}/{target.user}"):
        plan.advice.append("your last logout ends it, unless you say once: loginctl enable-linger")
    if target.manager.user and env.get("CLISUP_SOCKET"):
        plan.advice.append("CLISUP_SOCKET is set in this shell: commands here look there, not at the unit's socket")
    if not target.manager.user:
        plan.advice.append(
            f"{target.user} and root reach it: CLISUP_SOCKET=/run/clisup/{target.user}/clisup.sock clisup status"
        )


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
