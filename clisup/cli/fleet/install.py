"""`clisup fleet install`: the agent, or a node, as a service of systemd."""

from __future__ import annotations

import os

import click

from clisup.cli.commands.install import carry_out, is_system, target_options
from clisup.cli.options import json_option
from clisup.errors import UsageError
from clisup.fleet.member import joined

__all__ = ["install"]


@click.command("install")
@target_options
@click.option("--node", metavar="FOLDER", help="A node of the engine with this folder, in place of the agent.")
@click.option("--now", is_flag=True, help="Also start it.")
@click.option("--force", is_flag=True, help="Replace a unit that was edited.")
@click.option("--executable", metavar="PATH", help="The clisup that the unit starts (default: this one).")
@click.option("-n", "--dry-run", is_flag=True, help="Only show the steps.")
@json_option("Print the steps as JSON.")
def install(
    as_user: bool, system: bool, for_user: str | None, node: str | None, now: bool, force: bool, executable: str | None,
    dry_run: bool, as_json: bool,
) -> int:  # fmt: skip
    """Make the agent of this box, or a node of the fleet, a service of systemd.

    The units are clisup-fleet.service and clisup-fleet-node.service. systemd starts them again when they end. To remove one:
    systemctl --user disable --now clisup-fleet, then delete its file.

    \b
    Example:
      clisup fleet install --user --now
      sudo clisup fleet install --system --for nats --node /srv/fleet/hub1 --now
    """
    from clisup.installing import plan_fleet_unit, target_of

    if node is None and as_user and joined(os.environ) is None:
        raise UsageError("this box has joined no fleet", hint="clisup fleet join FILE")
    if node is not None and not os.path.isfile(os.path.join(node, "nats.conf")):
        raise UsageError(f"cannot run a node in {node}, because it has no nats.conf", hint="clisup fleet init makes it")
    target = target_of(os.environ, system=is_system(as_user, system, for_user), user=for_user)
    plan = plan_fleet_unit(target, os.environ, node, executable=executable, force=force, now=now, dry_run=dry_run)
    return carry_out(plan, dry_run=dry_run, as_json=as_json)
