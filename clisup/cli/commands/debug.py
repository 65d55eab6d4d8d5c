"""`clisup debug`: information for a bug report."""

from __future__ import annotations

import json
import os
import time

import click

from clisup.cli.completing import complete_session
from clisup.cli.options import CommandGroup, absolute, daemon_place_options, json_option
from clisup.cli.views.terminal import plain, size

__all__ = ["debug"]


@click.group("debug", cls=CommandGroup, invoke_without_command=True)
@click.pass_context
def debug(ctx: click.Context) -> None:
    """Collect information for a bug report.

    \b
    Example:
      clisup debug bundle
    """
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())


@debug.command("bundle")
@click.option(
    "-o", "--output", metavar="FILE", help="The file to write (default: clisup-debug-DATE-TIME.tar.gz, here)."
)
@click.option("--session", "sessions", multiple=True, metavar="SESSION", shell_complete=complete_session,
              help="Also include what is known of this session; may be repeated.")  # fmt: skip
@click.option("--with-content", is_flag=True,
              help="Include the prompts, answers and tools of these sessions, with known secrets replaced.")  # fmt: skip
@daemon_place_options
@json_option("Print a summary as JSON.")
def bundle(
    output: str | None,
    sessions: tuple[str, ...],
    with_content: bool,
    config: str | None,
    state_dir: str | None,
    as_json: bool,
) -> int:
    """Write one file to attach to a bug report.

    It has versions, configuration, doctor, status, metrics, log and a list of the state directory. Secrets are replaced. Of
    a session's events it has types, times and numbers, but no text. Look at it before you send it. No daemon is needed. An
    existing file is never overwritten.

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
        done = {"path": path, "bytes": written, "content": with_content, "members": members}
        print(json.dumps(done, ensure_ascii=False))
        return 0
    print(f"wrote {plain(path)} ({size(written)}), which only you can read:")
    for member in archive.members:
        print(f"  {size(member.bytes):>10}  {plain(member.name)}{'  (cut: it was too long)' if member.cut else ''}")
    content = (
        "it HAS prompts, answers and tool outputs of these sessions"
        if with_content
        else "it has no prompt and no answer"
    )
    print(f"known secrets are replaced; {content}. Look at it before you send it.")
    return 0
