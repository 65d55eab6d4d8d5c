"""`clisup fleet init`, `member`, `node` and `prepare`: how a fleet comes into being."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import cast

import click

from clisup.cli.fleet.extra import check_extra
from clisup.cli.options import HelpGroup, json_option
from clisup.cli.views.terminal import plain, print_table
from clisup.errors import EXIT_OK, UsageError
from clisup.fleet.member import ROLES, Role, read_member

__all__ = ["init", "member", "node", "prepare"]

DAYS, GIB = 30, 1024 * 1024 * 1024
_dir = click.option(
    "--dir", "directory", metavar="FOLDER", default="fleet", show_default=True, help="The fleet's folder."
)


@click.command("init")
@click.option("--name", required=True, help="Name of the fleet.")
@click.option("--nodes", required=True, metavar="HOST[,HOST,HOST]", help="Machines that run the engine: 1, 3 or 5.")
@click.option("--port", type=int, default=4222, show_default=True, help="Port of the nodes for members.")
@_dir
def init(name: str, nodes: str, port: int, directory: str) -> int:
    """Make the folder of a new fleet, with the files of its nodes and the admin's key.

    The fleet stands on NATS JetStream (nats-server 2.11 or later). One node is enough for a small team. With three, one may
    fail. All connections are encrypted, except to a single node on 127.0.0.1. openssl makes the certificates.

    \b
    Example:
      clisup fleet init --name team --nodes hub1
      clisup fleet init --name team --nodes hub1,hub2,hub3 --dir ~/team
    """
    check_extra()
    from clisup.fleet.setup.folder import found

    hosts = [host.strip() for host in nodes.split(",") if host.strip()]
    plan = found(directory, name, hosts, port)
    print(plain(f"made the fleet {plan.name} in {directory}/. It holds secrets: keep it off the boxes.\n"))
    steps = [f"copy {directory}/{host}/ to {host}, and run there:  clisup fleet node {host}/" for host in hosts] + [
        f"create its streams:  clisup fleet prepare {directory}/admin.member",
        f"add a box:  clisup fleet member add BOX --role worker --dir {directory}",
        f"copy {directory}/BOX.member to the box, and run there:  clisup fleet join BOX.member",
    ]
    for number, step in enumerate(steps, 1):
        print(plain(f"{number}. {step}"))
    print(plain(
        "\nOther members can read the prompts and answers of a box while it is away, because their copy is on the nodes' "
        'disks.\nA box with share = "status" in its table [fleet] keeps them.'
    ))  # fmt: skip
    return EXIT_OK


@click.group("member", cls=HelpGroup)
def member() -> None:
    """Add, list and remove the members of a fleet. A member is one daemon of one user on one box.

    \b
    Example:
      clisup fleet member add dev1 --role worker
      clisup fleet member add anna-laptop --role operator
    """


@member.command("add")
@click.argument("name")
@click.option("--role", "roles", type=click.Choice(ROLES), multiple=True, required=True,
              help="worker: shares its daemon. observer: looks. operator: also drives, and submits jobs. May be repeated.")  # fmt: skip
@_dir
def add(name: str, roles: tuple[str, ...], directory: str) -> int:
    """Add the member NAME, and write its file NAME.member for `clisup fleet join`.

    A tool that a model runs can read the key of its box. So a worker should not be an operator, too: its key could then drive
    all boxes that accept it.

    \b
    Example:
      clisup fleet member add dev1 --role worker --dir ~/team
    """
    check_extra()
    from clisup.fleet.setup.folder import add_member

    plan = add_member(directory, name, cast("list[Role]", list(dict.fromkeys(roles))))
    print(plain(f"added {name}: {os.path.join(directory, name)}.member holds its key"))
    _tell_nodes(directory, plan.nodes)
    return EXIT_OK


@member.command("remove")
@click.argument("name")
@_dir
def remove(name: str, directory: str) -> int:
    """Remove the member NAME. Its key is refused once the nodes have reloaded. The copy of its sessions stays.

    \b
    Example:
      clisup fleet member remove dev1 --dir ~/team
    """
    check_extra()
    from clisup.fleet.setup.folder import remove_member_of

    plan = remove_member_of(directory, name)
    print(plain(f"removed {name}"))
    _tell_nodes(directory, plan.nodes)
    return EXIT_OK


@member.command("list")
@_dir
@json_option("Print the members as JSON: name, roles, key (the public part).")
def list_(directory: str, as_json: bool) -> int:
    """List the members of a fleet's folder.

    \b
    Example:
      clisup fleet member list --dir ~/team
    """
    check_extra()
    import json

    from clisup.fleet.setup.folder import read_plan

    members = read_plan(directory).members
    if as_json:
        rows = [{"name": name, "roles": each.roles, "key": each.public} for name, each in sorted(members.items())]
        print(json.dumps(rows))
    else:
        print_table(["MEMBER", "ROLES"], [[name, ", ".join(each.roles)] for name, each in sorted(members.items())])
    return EXIT_OK


def _tell_nodes(directory: str, nodes: tuple[str, ...]) -> None:
    for host in nodes:
        path = os.path.join(directory, host, "members.conf")
        print(plain(f"-> copy {path} to {host}, and reload its node: SIGHUP, or systemctl reload clisup-fleet-node"))


@click.command("node")
@click.argument("folder")
@click.option("--check", is_flag=True, help="Only check the program and the configuration.")
def node(folder: str, check: bool) -> int:
    """Run a node of the fleet in the foreground: nats-server with the configuration in FOLDER.

    SIGHUP reloads the members. A unit for it: clisup fleet install --node FOLDER.

    \b
    Example:
      clisup fleet node hub1/
    """
    from clisup.fleet.setup.server import GOOD, find_server, version_of

    server = find_server()
    if (version := version_of(server)) < GOOD:
        text, good = ".".join(map(str, version)), ".".join(map(str, GOOD))
        print(f"clisup: nats-server {text} works, but {good} has mended losses: upgrade it", file=sys.stderr)
    if not os.path.isfile(os.path.join(folder, "nats.conf")):
        raise UsageError(
            f"cannot run a node in {folder}, because it has no nats.conf", hint="clisup fleet init makes it"
        )
    os.chdir(folder)
    sys.stdout.flush()
    os.execv(server, [server, "-c", "nats.conf", *(["-t"] if check else [])])


@click.command("prepare")
@click.argument("file", metavar="ADMIN.member")
@click.option(
    "--days", type=click.IntRange(1, 3650), default=DAYS, show_default=True, help="Days for which copies stay."
)
@click.option("--gib", type=click.IntRange(1, 1_000_000), default=20, show_default=True,
              help="Disk of each node for copies; the oldest go first.")  # fmt: skip
def prepare(file: str, days: int, gib: int) -> int:
    """Create the fleet's streams, or change how long they keep copies. Needs the admin's file.

    After an upgrade it renews streams and members.conf, too.

    \b
    Example:
      clisup fleet prepare team/admin.member
      clisup fleet prepare team/admin.member --days 90 --gib 100
    """
    check_extra()
    from clisup.fleet.nats_engine import connect_member
    from clisup.fleet.setup.folder import renew

    admin = read_member(file)
    if renew(os.path.dirname(os.path.abspath(file)), admin.fleet):
        print(plain("members.conf has new permissions: copy it to each node, and reload the nodes"), file=sys.stderr)

    async def run() -> None:
        async with connect_member(admin) as engine:
            await engine.prepare(min(3, len(admin.servers)), gib * GIB, days * 86_400.0)

    asyncio.run(run())
    print(plain(f"the streams of {admin.fleet} are ready: copies stay {days} days, {gib} GiB at most"))
    return EXIT_OK
