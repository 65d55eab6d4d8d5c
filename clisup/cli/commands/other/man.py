"""`clisup man`: the manual pages, made from the command tree that runs."""

from __future__ import annotations

from pathlib import Path

import click

from clisup import __version__
from clisup.cli.failure import usage

__all__ = ["command"]


@click.command("man")
@click.argument("names", nargs=-1, metavar="[COMMAND]...")
@click.option(
    "--directory",
    metavar="DIRECTORY",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write all pages there instead, as clisup.1, clisup-run.1, ...",
)
def command(names: tuple[str, ...], directory: Path | None) -> int:
    """Print the manual page of COMMAND, or of clisup itself, as man reads it.

    An installed clisup brings its pages: with its bin directory in PATH, man finds them (man clisup-run). This command is for
    the rest: a checkout, a machine whose man looks elsewhere, a package.

    \b
    Example:
      clisup man run | man -l -
      clisup man --directory ~/.local/share/man/man1
    """
    from clisup.cli.commands.other.manual import page, pages
    from clisup.cli.root import GROUPS, root

    assert isinstance(root, click.Group)
    if directory is None:
        try:
            click.echo(page(root, names, GROUPS, __version__), nl=False)
        except KeyError:
            reason = f"cannot show the page of {' '.join(names)!r}, because there is no such command"
            raise usage(reason, hint="see clisup --help") from None
        return 0
    if names:
        raise usage("cannot write one page alone into a directory", hint="clisup man --directory DIRECTORY writes all")
    made = pages(root, GROUPS, __version__)
    try:
        _write(made, directory)
    except OSError as error:
        where = error.filename or directory
        raise usage(
            f"cannot write the pages into {directory}, because of {where}: {error.strerror}",
            hint="name a directory that is yours to write in",
        ) from None
    click.echo(f"{len(made)} pages in {directory}", err=True)
    return 0


def _write(made: dict[str, str], directory: Path) -> None:
    """All of them, and away with those of commands that are no more."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in made.items():
        (directory / name).write_text(text)
    for stale in directory.glob("clisup*.1"):
        if stale.name not in made:
            stale.unlink()
