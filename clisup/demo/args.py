"""claude's flags, as far as a supervisor uses them: what is accepted, what takes a value, and what is refused as claude does."""

from __future__ import annotations

import os
from typing import NamedTuple

__all__ = ["FLAGS", "PERMISSION_MODES", "SWITCHES", "BadArguments", "Options", "parse_arguments"]

PERMISSION_MODES = ("acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "plan")

SWITCHES = (
    "-p", "--print", "-h", "--help", "-v", "--version", "--verbose", "--include-partial-messages", "--strict-mcp-config",
    "--dangerously-skip-permissions", "--no-session-persistence", "--fork-session", "--include-hook-events",
    "--replay-user-messages", "--disable-slash-commands", "--bare",
)  # fmt: skip
"""Flags without a value. Those that the demo has no use for are taken and do nothing."""

FLAGS = (
    "--output-format", "--input-format", "--session-id", "--resume", "--model", "--fallback-model", "--setting-sources",
    "--settings", "--append-system-prompt", "--append-system-prompt-file", "--system-prompt", "--system-prompt-file",
    "--permission-mode", "--permission-prompt-tool", "--mcp-config", "--add-dir", "--tools", "--allowed-tools",
    "--allowedTools", "--disallowed-tools", "--disallowedTools", "--max-turns", "--max-budget-usd", "--json-schema",
    "--effort", "--thinking", "--thinking-display", "--agents", "--agent", "--betas", "--name",
)  # fmt: skip
"""Flags with a value, as `--flag value` or `--flag=value`."""

_SHORT = {
    "--allowed-tools": "--allowedTools",
    "-r": "--resume",
    "-n": "--name",
    "-p": "--print",
    "-h": "--help",
    "-v": "--version",
}
_CHOICES = {
    "--output-format": ("text", "json", "stream-json"),
    "--input-format": ("text", "stream-json"),
    "--permission-mode": PERMISSION_MODES,
}
_HEX = set("0123456789abcdef")


class BadArguments(Exception):
    """An argument that claude refuses too. The text is the line for stderr; the exit code is 1."""


class Options(NamedTuple):
    """One parsed command line. `values` maps long flag names to their values, `switches` are the flags without one."""

    switches: frozenset[str]
    values: dict[str, str]
    prompt: str

    @property
    def output_format(self) -> str:
        return self.values.get("--output-format", "text")

    @property
    def is_live(self) -> bool:
        """Whether user messages come as lines of stdin, for many turns of one process."""
        return self.values.get("--input-format") == "stream-json"

    @property
    def permission_mode(self) -> str:
        if "--dangerously-skip-permissions" in self.switches:
            return "bypassPermissions"
        return self.values.get("--permission-mode", "default")


def parse_arguments(argv: list[str]) -> Options:
    """Read a command line. Raises `BadArguments`, which holds the line that claude would print."""
    switches: set[str] = set()
    values: dict[str, str] = {}
    words: list[str] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        flag, equals, value = word.partition("=")
        flag = _SHORT.get(flag, flag)
        if word == "--":
            words += rest
            break
        if flag in SWITCHES and not equals:
            switches.add(flag)
        elif flag in FLAGS:
            if not equals and not rest:
                raise BadArguments(f"error: option '{flag} <value>' argument missing")
            value = value if equals else rest.pop(0)
            values[flag] = f"{values[flag]},{value}" if flag == "--allowedTools" and flag in values else value
        elif word.startswith("-"):
            raise BadArguments(f"error: unknown option '{word}'")
        else:
            words.append(word)
    options = Options(frozenset(switches), values, " ".join(words))
    if not switches & {"--help", "--version"}:
        _check(options)
    return options


def _check(options: Options) -> None:
    """The combinations that claude refuses, in its own words."""
    for flag, choices in _CHOICES.items():
        if options.values.get(flag, choices[0]) not in choices:
            raise BadArguments(
                f"error: option '{flag} <value>' argument '{options.values[flag]}' is invalid. "
                f"Allowed choices are {', '.join(choices)}."
            )
    if "--print" not in options.switches:
        raise BadArguments("Error: the demo CLI has no terminal interface; run it with -p, or see --help")
    if options.output_format == "stream-json" and "--verbose" not in options.switches:
        raise BadArguments("Error: When using --print, --output-format=stream-json requires --verbose")
    if options.is_live and options.output_format != "stream-json":
        raise BadArguments("Error: --input-format=stream-json requires output-format=stream-json.")
    _check_session(options)
    if options.permission_mode == "bypassPermissions" and os.geteuid() == 0 and not _is_sandbox():
        raise BadArguments(
            "--dangerously-skip-permissions cannot be used with root/sudo privileges for security reasons"
        )


def _check_session(options: Options) -> None:
    new = options.values.get("--session-id")
    if new is not None and not _is_uuid(new):
        raise BadArguments("Error: Invalid session ID. Must be a valid UUID.")
    if new and "--resume" in options.values and "--fork-session" not in options.switches:
        raise BadArguments(
            "Error: --session-id can only be used with --continue or --resume if --fork-session is also specified."
        )


def _is_sandbox() -> bool:
    return os.environ.get("IS_SANDBOX") == "1" or os.environ.get("CLAUDE_CODE_BUBBLEWRAP") == "1"


def _is_uuid(text: str) -> bool:
    parts = text.lower().split("-")
    return [len(part) for part in parts] == [8, 4, 4, 4, 12] and set("".join(parts)) <= _HEX
