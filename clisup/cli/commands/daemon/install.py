"""`clisup install`: the daemon as a service of systemd."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import click

from clisup.cli.failure import usage
from clisup.cli.views.terminal import plain

if TYPE_CHECKING:
    from clisup.installing import InstallPlan

__all__ = ["command", "is_system", "show"]


@click.command("install")
@click.option("--user", "as_user", is_flag=True, help="A unit of your own manager: it runs as you, with your logins.")
@click.option("--system", is_flag=True, help="A unit of the system for one user: from boot on, in a sandbox. As root.")
@click.option("--for", "for_user", metavar="USER", help="With --system: whose daemon it is (default: who called sudo).")
@click.option("--now", is_flag=True, help="Start it too; where it runs with other units, restart it (turns go on).")
@click.option("--force", is_flag=True, help="Replace a unit that was edited.")
@click.option("--executable", metavar="PATH", help="The clisup that the unit starts (default: this one).")
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--json", "as_json", is_flag=True, help="Print the steps as JSON.")
def command(
    as_user: bool, system: bool, for_user: str | None, now: bool, force: bool, executable: str | None, dry_run: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Make the daemon a service of systemd: write its units and enable them.

    With --now they are started, too. Doing it again does nothing, or brings the units up to date. systemd then holds the
    socket, restarts a daemon that fails or hangs, and starts it with your login or at boot. See docs/systemd.md.

    \b
    Example:
      clisup install --user --dry-run
      clisup install --user --now
      sudo clisup install --system --for alice --now
    """
    from clisup.installing import plan_install, target_of

    target = target_of(os.environ, system=is_system(as_user, system, for_user), user=for_user)
    plan = plan_install(target, os.environ, executable=executable, force=force, now=now, dry_run=dry_run)
    if not dry_run:
        plan.carry_out()
    show(plan, dry_run=dry_run, as_json=as_json)
    return 0


def is_system(as_user: bool, system: bool, for_user: str | None) -> bool:
    """Which of the two; exactly one has to be named."""
    if as_user == system:
        raise usage("cannot tell which manager is meant", hint="--user for yourself, --system for the machine")
    if for_user is not None and as_user:
        raise usage("cannot make a user's unit for somebody else", hint="--system --for USER")
    return system


def show(plan: InstallPlan, *, dry_run: bool, as_json: bool) -> None:
    """What was done, or would be."""
    if as_json:
        print(json.dumps({"dry_run": dry_run, **plan.to_json()}))
        return
    for step, _ in plan.steps:
        detail = f"  ({step['detail']})" if step["detail"] else ""
        print(
            plain(
                f"{'would ' if dry_run and step['action'] != 'keep' else ''}{step['action']} {step['target']}{detail}"
            )
        )
    for line in plan.advice:
        print(plain(f"-> {line}"))
