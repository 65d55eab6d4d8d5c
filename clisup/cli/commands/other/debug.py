"""`clisup debug`: what helps somebody else to find out what is wrong here."""

from __future__ import annotations

import json
import os
import time

import click

from clisup.cli.command_group import CommandGroup
from clisup.cli.directory import absolute
from clisup.cli.place_options import of_the_daemon
from clisup.cli.views.terminal import plain, size

__all__ = ["command"]


@click.group("debug", cls=CommandGroup, invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Collect what a bug report needs.

    \b
    Example:
      clisup debug bundle
    """
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())


@command.command("bundle")
@click.option("-o", "--output", metavar="FILE", help="Where to (default: clisup-debug-DATE-TIME.tar.gz, here).")
@click.option(
    "--session",
    "sessions",
    multiple=True,
    metavar="SESSION",
    help="Also what is known of this session; may be given again.",
)
@click.option(
    "--with-content",
    is_flag=True,
    help="With the prompts, answers and tools of these sessions, known secrets replaced.",
)
@of_the_daemon
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
def bundle(
    output: str | None,
    sessions: tuple[str, ...],
    with_content: bool,
    config: str | None,
    state_dir: str | None,
    as_json: bool,
) -> int:
    """Write one file to attach to a bug report.

    It has versions, configuration, doctor, status, metrics, log and a list of the state. Secrets are replaced, and nobody's
    words are in it: of a session's events it has the types, the times and the numbers. Look at it before you send it. It works
    with the daemon down, too. A file that is there is never written over.

    \b
    Example:
      clisup debug bundle
      clisup debug bundle --session 3f2a -o report.tar.gz
      tar -xzOf report.tar.gz --wildcards '*/README.txt'
    """
    from clisup.bundle import BundleRequest, collect

    if with_content and not sessions:
        raise click.UsageError("--with-content goes with --session", click.get_current_context())
    path = absolute(output or f"clisup-debug-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz", otherwise="-o with a whole path")
    archive = collect(BundleRequest(sessions, with_content, config, state_dir), os.environ)
    written = archive.write(path)
    if as_json:
        members = [member._asdict() for member in archive.members]
        print(
            json.dumps(
                {"path": path, "bytes": written, "content": with_content, "members": members}, ensure_ascii=False
            )
        )
        return 0
    print(f"wrote {plain(path)} ({size(written)}), which only you can read:")
    for member in archive.members:
        print(f"  {size(member.bytes):>10}  {plain(member.name)}{'  (cut: it was too long)' if member.cut else ''}")
    words = (
        "prompts, answers and tools' outputs of these sessions ARE in it"
        if with_content
        else "no prompt and no answer is in it"
    )
    print(f"known secrets are replaced; {words}. Look at it before you send it.")
    return 0
