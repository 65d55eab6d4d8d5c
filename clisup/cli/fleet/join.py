"""`clisup fleet join`, `leave` and `forget`: a box comes, a box goes."""

from __future__ import annotations

import asyncio
import os

import click

from clisup.cli.fleet.extra import check_extra
from clisup.cli.views.terminal import plain
from clisup.errors import EXIT_OK, UsageError
from clisup.fleet.book import listed
from clisup.fleet.member import joined, member_file, read_member, remove_member, write_member

__all__ = ["forget", "join", "leave"]


@click.command("join")
@click.argument("file", metavar="NAME.member")
@click.option("--offline", is_flag=True, help="Do not try the key at the nodes.")
def join(file: str, offline: bool) -> int:
    """Make this box a member of a fleet, with the file that `clisup fleet member add` wrote.

    The file is copied to ~/.config/clisup/fleet-member.json. Run the agent afterwards: clisup fleet agent.

    \b
    Example:
      clisup fleet join dev1.member
      clisup fleet install --user --now
    """
    check_extra()
    member = read_member(file)
    own = joined(os.environ)
    if own is not None and (own.fleet, own.name) != (member.fleet, member.name):
        message = f"this box is {own.name} of the fleet {own.fleet} already"
        raise UsageError(message, kind="usage", hint="clisup fleet leave")
    if not offline:
        from clisup.fleet.nats_engine import connect_member

        async def reach() -> None:
            async with connect_member(member):
                pass

        asyncio.run(reach())
    write_member(member_file(os.environ), member)
    print(plain(f"this box is {member.name} of the fleet {member.fleet}, as {', '.join(sorted(member.roles))}"))
    if member.name in listed(os.environ):
        print(
            plain(
                f"-> the list of boxes has another {member.name}, which comes first: clisup fleet remove {member.name}"
            )
        )
    print("-> start its agent: clisup fleet install --user --now, or clisup fleet agent")
    return EXIT_OK


@click.command("leave")
def leave() -> int:
    """Remove this box's file of its fleet. The copy of its sessions stays until its retention.

    \b
    Example:
      clisup fleet leave
    """
    remove_member(os.environ)
    print("this box has left its fleet; stop its agent, and have the admin remove its key: clisup fleet member remove")
    return EXIT_OK


@click.command("forget")
@click.argument("box")
@click.option("--session", metavar="ID", help="Only this session, by its whole id.")
@click.option("--member", "file", metavar="ADMIN.member", required=True, help="The admin's file.")
def forget(box: str, session: str | None, file: str) -> int:
    """Delete the copy of BOX's sessions, or of one session, from the nodes. The box keeps its own.

    \b
    Example:
      clisup fleet forget dev1 --member team/admin.member
      clisup fleet forget dev1 --session 3f2a0000-0000-4000-8000-000000000000 --member team/admin.member
    """
    check_extra()
    from clisup.fleet.nats_engine import connect_member

    admin = read_member(file)

    async def run() -> int:
        async with connect_member(admin) as engine:
            return await engine.forget(box, session or "*")

    count = asyncio.run(run())
    print(plain(f"deleted {count} records of {box}"))
    return EXIT_OK
