"""claude's refusals of a command line. The fake CLI is as strict as claude, so that a wrong flag of ours is noticed."""

from __future__ import annotations

import os

from clisup.demo.arguments import PERMISSION_MODES, SWITCHES, BadArguments, CommandLine, parse_arguments

__all__ = ["parse_strictly"]

_FLAGS = (
    "--output-format", "--input-format", "--session-id", "--resume", "--model", "--fallback-model", "--setting-sources",
    "--settings", "--append-system-prompt", "--append-system-prompt-file", "--system-prompt", "--system-prompt-file",
    "--permission-mode", "--permission-prompt-tool", "--mcp-config", "--add-dir", "--tools", "--allowedTools",
    "--disallowed-tools", "--disallowedTools", "--max-turns", "--max-budget-usd", "--json-schema", "--effort",
    "--thinking", "--thinking-display", "--agents", "--agent", "--betas", "--name",
)  # fmt: skip
_CHOICES = {
    "--output-format": ("text", "json", "stream-json"),
    "--input-format": ("text", "stream-json"),
    "--permission-mode": PERMISSION_MODES,
}
_FILES = ("--append-system-prompt-file", "--system-prompt-file")


def parse_strictly(argv: list[str]) -> CommandLine:
    """Parse a command line. Raises `BadArguments` for all that claude refuses."""
    if argv and argv[-1].startswith("--") and argv[-1].partition("=")[0] not in (*_FLAGS, *SWITCHES, "--"):
        raise BadArguments(f"error: unknown option '{argv[-1]}'")
    command = parse_arguments(argv)
    switches, values = command.switches, command.values
    if switches & {"--help", "--version"}:
        return command
    for flag in values:
        if flag not in _FLAGS:
            raise BadArguments(f"error: unknown option '{flag}'")
    for flag, choices in _CHOICES.items():
        if values.get(flag, choices[0]) not in choices:
            allowed = f"Allowed choices are {', '.join(choices)}."
            raise BadArguments(f"error: option '{flag} <value>' argument '{values[flag]}' is invalid. {allowed}")
    for flag in _FILES:
        if flag in values and not os.path.isfile(values[flag]):
            name = flag.removeprefix("--").replace("-", " ").replace(" file", "").capitalize()
            raise BadArguments(f"Error: {name} file not found: {values[flag]}")
    _check_combinations(command)
    return command


def _check_combinations(command: CommandLine) -> None:
    switches, values = command.switches, command.values
    streams = command.output_format == "stream-json"
    both = "--session-id" in values and "--resume" in values and "--fork-session" not in switches
    for wrong, message in (
        (streams and "--verbose" not in switches,
         "Error: When using --print, --output-format=stream-json requires --verbose"),
        (command.is_live and not streams, "Error: --input-format=stream-json requires output-format=stream-json."),
        (not _is_uuid(values.get("--session-id")), "Error: Invalid session ID. Must be a valid UUID."),
        (both, "Error: --session-id can only be used with --continue or --resume if --fork-session is also specified."),
        (command.permission_mode == "bypassPermissions" and os.geteuid() == 0 and os.environ.get("IS_SANDBOX") != "1",
         "--dangerously-skip-permissions cannot be used with root/sudo privileges for security reasons"),
    ):  # fmt: skip
        if wrong:
            raise BadArguments(message)


def _is_uuid(text: str | None) -> bool:
    if text is None:
        return True
    parts = text.lower().split("-")
    return [len(part) for part in parts] == [8, 4, 4, 4, 12] and set("".join(parts)) <= set("0123456789abcdef")
