"""A line as the real click tree reads it, without running anything."""

from __future__ import annotations

import click

from clisup.cli.root import root


class Unknown(Exception):
    """The line is none that `clisup` would take."""


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that these words (without `clisup`) name, and the words that are left for it."""
    found: click.Command = root
    with click.Context(root, info_name="clisup") as context:
        while isinstance(found, click.Group) and words and not words[0].startswith("-"):
            inner = found.get_command(context, words[0])
            if inner is None:
                raise Unknown(f"there is no command {words[0]!r}")
            found, words = inner, words[1:]
    return found, words


def check(words: list[str]) -> None:
    """Raises `Unknown` where an option does not exist, lacks its value, or a required argument is missing."""
    command, rest = command_of(words)
    if {"-h", "--help"} & set(rest):
        return
    context = click.Context(command, info_name=command.name, resilient_parsing=False)
    try:
        values, left, order = command.make_parser(context).parse_args(list(rest))
    except click.UsageError as error:
        raise Unknown(error.format_message()) from None
    if isinstance(command, click.Group):
        if not left and not command.invoke_without_command:
            raise Unknown(f"{command.name} needs a command")
    elif left:
        raise Unknown(f"too much: {left}")
    for param in order:
        _check_value(param, values.get(param.name or ""), context)


def _check_value(param: click.Parameter, value: object, context: click.Context) -> None:
    missing = value is None or value == ()
    if param.required and missing:
        raise Unknown(f"{param.name} is missing")
    if isinstance(param.type, click.Choice | click.types.IntParamType | click.types.FloatParamType) and not missing:
        given = value if isinstance(value, list | tuple) else [value]
        for item in given:
            try:
                param.type.convert(item, param, context)
            except click.UsageError as error:
                raise Unknown(error.format_message()) from None


def check_mention(words: list[str]) -> None:
    """A mention in prose (`clisup run --session ...`): the command is there, and every option named is one of its own."""
    command, rest = command_of(words)
    known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)} | {"--help", "-h"}
    for word in rest:
        if word.startswith("-") and word.strip("-") and (option := word.split("=")[0]) not in known:
            raise Unknown(f"{command.name} has no {option}")
