"""`clisup uninstall`: the units of `clisup install` away again."""

from __future__ import annotations

import os

import click

from clisup.cli.commands.daemon.install import is_system, show

__all__ = ["command"]


@click.command("uninstall")
@click.option("--user", "as_user", is_flag=True, help="The unit of your own manager.")
@click.option("--system", is_flag=True, help="The unit of the system. As root.")
@click.option("--for", "for_user", metavar="USER", help="With --system: whose daemon (default: who called sudo).")
@click.option("--force", is_flag=True, help="Remove units that were edited, too.")
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--json", "as_json", is_flag=True, help="Print the steps as JSON.")
def command(
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
    plan = plan_uninstall(target, force=force, dry_run=dry_run)
    if not dry_run:
        plan.carry_out()
    show(plan, dry_run=dry_run, as_json=as_json)
    return 0
