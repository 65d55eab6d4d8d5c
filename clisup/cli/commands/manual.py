"""`clisup man`: manual pages made from the tree of commands, with the texts of `--help` as roff.

click-man is not used: it joins the lines of an example, and prints today's date, so no page would match the commands.
"""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from clisup import __version__
from clisup.cli.failure import usage
from clisup.cli.views.terminal import plain
from clisup.errors import EXIT_CODES

__all__ = ["man", "page", "pages"]

_VERBATIM = "\b"
_ENVIRONMENT = {
    "CLISUP_SOCKET": "The daemon's socket.",
    "CLISUP_ON": "The box of clisup fleet whose daemon is asked.",
    "CLISUP_CONFIG": "The configuration file.",
    "CLISUP_STATE_DIR": "The daemon's state directory.",
    "NO_COLOR": "Any value that is not empty: no colours.",
}
_FILES = {
    "~/.config/clisup/config.toml": "The configuration of the user's daemon.",
    "~/.config/clisup/fleet.json": "The boxes of clisup fleet.",
    "~/.local/state/clisup": "Its sessions and their journals.",
    "$XDG_RUNTIME_DIR/clisup/clisup.sock": "Its socket.",
}


@click.command("man")
@click.argument("names", nargs=-1, metavar="[COMMAND]...")
@click.option("--directory", metavar="DIRECTORY", type=click.Path(file_okay=False, path_type=Path),
              help="Write all pages there instead, as clisup.1, clisup-run.1, ...")  # fmt: skip
@click.option("--roff", is_flag=True, help="Print the page in man's format on a terminal, too.")
def man(names: tuple[str, ...], directory: Path | None, roff: bool) -> int:
    """Show the manual page of COMMAND, or of clisup itself.

    A terminal gets the page from man, or the text of --help in a pager if man is not installed. A pipe or a file gets
    man's format (roff).

    An installed clisup has its pages: with its bin directory in PATH, man finds them (man clisup-run). Use this command for
    a checkout, for a machine whose man searches elsewhere, or for a package.

    \b
    Example:
      clisup man run
      clisup man run > clisup-run.1
      clisup man --directory ~/.local/share/man/man1
    """
    from clisup.cli.root import GROUPS, root

    assert isinstance(root, click.Group)
    if directory is None:
        try:
            text = page(root, names, GROUPS, __version__)
        except KeyError:
            reason = f"cannot show the page of {' '.join(names)!r}, because there is no such command"
            raise usage(reason, hint="see clisup --help") from None
        if roff or not sys.stdout.isatty():
            click.echo(text, nl=False)
        elif not _shown_by_man(text):
            command, context = _find(root, names)
            click.echo_via_pager(command.get_help(context) + "\n")
        return 0
    if names:
        raise usage("cannot write one page alone into a directory", hint="clisup man --directory DIRECTORY writes all")
    made = pages(root, GROUPS, __version__)
    try:
        _write(made, directory)
    except OSError as error:
        raise usage(
            f"cannot write the pages into {directory}, because of {error.filename or directory}: {error.strerror}",
            hint="name a directory that you may write to",
        ) from None
    click.echo(f"{len(made)} pages in {plain(str(directory))}", err=True)
    return 0


def _shown_by_man(text: str) -> bool:
    """Let man show the page on this terminal. Return False if man is not installed, or cannot show a page from stdin."""
    if shutil.which("man") is None:
        return False
    try:
        return subprocess.run(["man", "-l", "-"], input=text.encode(), check=False).returncode == 0
    except OSError:
        return False


def _write(made: dict[str, str], directory: Path) -> None:
    """Write all pages, and remove pages of commands that no longer exist."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in made.items():
        (directory / name).write_text(text)
    for stale in directory.glob("clisup*.1"):
        if stale.name not in made:
            stale.unlink()


def pages(root: click.Group, groups: Mapping[str, Sequence[str]], version: str) -> dict[str, str]:
    """Return a page by file name for clisup and for each command and subcommand, as `clisup-approvals-allow.1`."""
    made = {}
    for path, _ in _walk(root, ("clisup",)):
        made[f"{'-'.join(path)}.1"] = page(root, path[1:], groups, version)
    return made


def page(root: click.Group, names: Sequence[str], groups: Mapping[str, Sequence[str]], version: str) -> str:
    """Return the page of the command with these names, or of `clisup` itself without names. Raises `KeyError`."""
    path = ("clisup", *names)
    command, context = _find(root, names)
    title = "-".join(path)
    parts = [f'.TH {_roff(title.upper())} 1 "" "clisup {version}" "clisup manual"']
    summary = command.get_short_help_str(200).rstrip(".")
    parts += [".SH NAME", f"{_roff(title)} \\- {_roff(summary[:1].lower() + summary[1:])}"]
    parts += [".SH SYNOPSIS", f".B {_roff(' '.join(path))}", _roff(" ".join(command.collect_usage_pieces(context)))]
    description, sections = _body(command.help or "")
    parts += [".SH DESCRIPTION", *description] if description else []
    parts += _options(command, context)
    parts += _commands(command, context, groups if command is root else {})
    parts += _for_all() if command is root else []
    for name in ("EXIT STATUS", "EXAMPLES"):
        parts += [f".SH {name}", *sections[name]] if name in sections else []
    parts += [".SH SEE ALSO", ",\n".join(f".BR {_roff(name)} (1)" for name in _related(path, command, context))]
    return "\n".join(parts) + "\n"


def _find(root: click.Group, names: Sequence[str]) -> tuple[click.Command, click.Context]:
    """Return the command with these names, and its context. Raises `KeyError`."""
    command: click.Command = root
    context = click.Context(root, info_name="clisup", **root.context_settings)
    for name in names:
        inner = command.get_command(context, name) if isinstance(command, click.Group) else None
        if inner is None:
            raise KeyError(" ".join(("clisup", *names)))
        command, context = inner, click.Context(inner, info_name=name, parent=context)
    return command, context


def _walk(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path[-1])
        for name in command.list_commands(context):
            if (inner := command.get_command(context, name)) is not None:
                yield from _walk(inner, (*path, name))


def _body(text: str) -> tuple[list[str], dict[str, list[str]]]:
    """Split a help text into the description and the sections for examples and exit codes."""
    description: list[str] = []
    sections: dict[str, list[str]] = {}
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text).split("\f")[0]):
        verbatim = paragraph.startswith(_VERBATIM)
        lines = paragraph.lstrip(_VERBATIM).strip("\n").split("\n")
        first = lines[0].strip()
        if first.startswith("Example"):
            sections["EXAMPLES"] = _kept([line.strip() for line in lines[1:]])
        elif first.startswith(("Exit code", "Exit status")):
            sections["EXIT STATUS"] = [_roff(" ".join(line.strip() for line in lines))]
        elif verbatim:
            description += _kept(lines)
        else:
            description += [".PP", _roff(" ".join(line.strip() for line in lines))]
    return (description[1:] if description[:1] == [".PP"] else description), sections


def _kept(lines: Sequence[str]) -> list[str]:
    return [".RS 4", ".nf", *map(_roff, lines), ".fi", ".RE"]


def _options(command: click.Command, context: click.Context) -> list[str]:
    records = [param.get_help_record(context) for param in command.get_params(context)]
    described = dict(record for record in records if record and record[1])  # the description covers arguments
    return [".SH OPTIONS", *_list(described)] if described else []


def _commands(command: click.Command, context: click.Context, groups: Mapping[str, Sequence[str]]) -> list[str]:
    if not isinstance(command, click.Group):
        return []
    made = [".SH COMMANDS"]
    for title, names in (groups or {"": command.list_commands(context)}).items():
        found = {name: inner for name in names if (inner := command.get_command(context, name))}
        made += [f".SS {title}"] if title else []
        made += _list({name: inner.get_short_help_str(200) for name, inner in found.items()})
    return made


def _for_all() -> list[str]:
    exits = {str(code): meaning for code, meaning in EXIT_CODES.items()}
    made = []
    for title, rows in (("EXIT STATUS", exits), ("ENVIRONMENT", _ENVIRONMENT), ("FILES", _FILES)):
        made += [f".SH {title}", *_list(rows)]
    return made


def _list(rows: Mapping[str, str]) -> list[str]:
    return [line for name, text in rows.items() for line in (".TP", f"\\fB{_roff(name)}\\fR", _roff(text or "-"))]


def _related(path: Sequence[str], command: click.Command, context: click.Context) -> list[str]:
    above = ["-".join(path[:-1])] if len(path) > 1 else []
    below = command.list_commands(context) if isinstance(command, click.Group) else []
    return [*above, *("-".join((*path, name)) for name in below)]


def _roff(text: str) -> str:
    """Escape a text for roff: it holds no request, and its hyphens can be copied."""
    made = text.replace("\\", "\\e")
    made = re.sub(r"(?<![^\W_])-|-(?=-)|-(?![^\W_])", r"\\-", made)
    made = made.replace("'", "\\(aq").replace("`", "\\(ga").replace("~", "\\(ti").replace("^", "\\(ha")
    made = "".join(char if ord(char) < 128 else f"\\[u{ord(char):04X}]" for char in made)
    return f"\\&{made}" if made.startswith(".") else made
