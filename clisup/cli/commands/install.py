"""`clisup install` and `clisup uninstall`: the daemon as a service of systemd."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from clisup.cli.failure import usage
from clisup.cli.options import json_option
from clisup.cli.views.terminal import plain
from clisup.errors import EXIT_OK

if TYPE_CHECKING:
    from clisup.installing import InstallPlan

__all__ = ["carry_out", "install", "is_system", "target_options", "uninstall"]

_Command = TypeVar("_Command", bound=Callable[..., object])


def target_options(command: _Command) -> _Command:
    """Add the options that name the units: `--user`, or `--system --for USER`."""
    as_user = click.option(
        "--user", "as_user", is_flag=True, help="A unit of your own manager: runs as you, with your logins."
    )
    system = click.option(
        "--system", is_flag=True, help="A unit of the system for one user: from boot on, in a sandbox. As root."
    )
    for_user = click.option(
        "--for", "for_user", metavar="USER", help="With --system: the user (default: the one who called sudo)."
    )
    return as_user(system(for_user(command)))


@click.command("install")
@target_options
@click.option("--web", is_flag=True, help="Also a unit for the pages of clisup web, with --user.")
@click.option("--gateway", is_flag=True, help="Also a unit for clisup gateway, with --user.")
@click.option("--now", is_flag=True, help="Also start it, or restart it if it runs with other units (turns go on).")
@click.option("--force", is_flag=True, help="Replace a unit that was edited.")
@click.option("--executable", metavar="PATH", help="The clisup that the unit starts (default: this one).")
@click.option("-n", "--dry-run", is_flag=True, help="Only show the steps.")
@json_option("Print the steps as JSON.")
def install(
    as_user: bool, system: bool, for_user: str | None, web: bool, gateway: bool, now: bool, force: bool,
    executable: str | None, dry_run: bool, as_json: bool,
) -> int:  # fmt: skip
    """Make the daemon a service of systemd: write its units and enable them.

    With --now, also start them. A second call does nothing, or updates the units. systemd then holds the socket, restarts a
    daemon that fails or hangs, and starts it with your login or at boot. See docs/how-to/systemd.md.

    With --user the daemon gets the PATH of this shell, so that it finds the CLIs where the shell does. With --system it gets
    USER's ~/.local/bin and ~/bin, then the PATH of this shell without directories of other users. Both the PATH and the CLIs
    on it are printed. Repeat the command after a CLI has moved.

    \b
    Example:
      clisup install --user --dry-run
      clisup install --user --now
      clisup install --user --web --now
      sudo clisup install --system --for alice --now
    """
    from clisup.installing import GATEWAY, WEB, plan_install, target_of

    beside = [name for name, wanted in ((WEB, web), (GATEWAY, gateway)) if wanted]
    target = target_of(os.environ, system=is_system(as_user, system, for_user), user=for_user, beside=beside)
    plan = plan_install(target, os.environ, executable=executable, force=force, now=now, dry_run=dry_run)
    return carry_out(plan, dry_run=dry_run, as_json=as_json)


@click.command("uninstall")
@target_options
@click.option("--force", is_flag=True, help="Also remove units that were edited.")
@click.option("-n", "--dry-run", is_flag=True, help="Only show the steps.")
@json_option("Print the steps as JSON.")
def uninstall(
    as_user: bool, system: bool, for_user: str | None, force: bool, dry_run: bool, as_json: bool
) -> int:  # fmt: skip
    """Stop the service, disable it and remove its units.

    Running turns end as `daemon.on_stop` says. Sessions, their events and the configuration stay.

    \b
    Example:
      clisup uninstall --user --dry-run
      clisup uninstall --user
      sudo clisup uninstall --system --for alice
    """
    from clisup.installing import plan_uninstall, target_of

    target = target_of(os.environ, system=is_system(as_user, system, for_user), user=for_user, verb="uninstall")
    return carry_out(plan_uninstall(target, force=force, dry_run=dry_run), dry_run=dry_run, as_json=as_json)


def is_system(as_user: bool, system: bool, for_user: str | None) -> bool:
    """Return which manager is meant. Raises `UsageError` unless exactly one is named."""
    if as_user == system:
        raise usage("cannot tell which manager is meant", hint="--user for yourself, --system for the machine")
    if for_user is not None and as_user:
        raise usage("cannot make a user's unit for another user", hint="--system --for USER")
    return system


def carry_out(plan: InstallPlan, *, dry_run: bool, as_json: bool) -> int:
    """Carry out a plan, print its steps, and return the exit code."""
    if not dry_run:
        plan.carry_out()
    if as_json:
        print(json.dumps({"dry_run": dry_run, **plan.to_json()}))
        return EXIT_OK
    for step, _ in plan.steps:
        would = "would " if dry_run and step["action"] != "keep" else ""
        detail = f"  ({step['detail']})" if step["detail"] else ""
        print(plain(f"{would}{step['action']} {step['target']}{detail}"))
    if plan.search_path is not None:
        print(plain(f"PATH of the daemon: {plan.search_path}"))
    for name, found in plan.clis.items():
        print(plain(f"  {name:<8}{found or 'not found on this PATH'}"))
    for line in plan.advice:
        print(plain(f"-> {line}"))
    return EXIT_OK
