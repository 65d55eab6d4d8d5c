"""claude's command line, as far as a supervisor uses it. Unknown flags are accepted and ignored."""

from __future__ import annotations

from typing import NamedTuple

from clisup.stream_json.lines import BadInput

__all__ = ["PERMISSION_MODES", "SWITCHES", "BadArguments", "CommandLine", "parse_arguments"]

PERMISSION_MODES = ("acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "plan")
SWITCHES = (
    "--print", "--help", "--version", "--verbose", "--include-partial-messages", "--strict-mcp-config",
    "--dangerously-skip-permissions", "--no-session-persistence", "--fork-session", "--include-hook-events",
    "--replay-user-messages", "--disable-slash-commands", "--bare",
)  # fmt: skip
"""Flags without a value. All other flags have one, as `--flag value` or `--flag=value`."""

_LONG = {
    "--allowed-tools": "--allowedTools",
    "-r": "--resume",
    "-n": "--name",
    "-p": "--print",
    "-h": "--help",
    "-v": "--version",
}


class BadArguments(BadInput):
    """Wrong argument. The text is the line for stderr, and the exit code is 1."""


class CommandLine(NamedTuple):
    """Parsed command line: `switches` are the flags without a value, `values` those with one."""

    switches: frozenset[str]
    values: dict[str, str]
    prompt: str

    @property
    def output_format(self) -> str:
        return self.values.get("--output-format", "text")

    @property
    def is_live(self) -> bool:
        """True if user messages come as lines of stdin, for many turns of one process."""
        return self.values.get("--input-format") == "stream-json"

    @property
    def permission_mode(self) -> str:
        if "--dangerously-skip-permissions" in self.switches:
            return "bypassPermissions"
        return self.values.get("--permission-mode", "default")


def parse_arguments(argv: list[str]) -> CommandLine:
    """Parse a command line. Raises `BadArguments`."""
    switches: set[str] = set()
    values: dict[str, str] = {}
    words: list[str] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        flag, equals, value = word.partition("=")
        flag = _LONG.get(flag, flag)
        if word == "--":
            words += rest
            break
        if not word.startswith("-"):
            words.append(word)
        elif flag in SWITCHES and not equals:
            switches.add(flag)
        elif not equals and not rest:
            raise BadArguments(f"error: option '{flag} <value>' argument missing")
        else:
            value = value if equals else rest.pop(0)
            values[flag] = f"{values[flag]},{value}" if flag == "--allowedTools" and flag in values else value
    if not switches & {"--print", "--help", "--version"}:
        raise BadArguments("Error: the demo CLI has no terminal interface; run it with -p, or see --help")
    return CommandLine(frozenset(switches), values, " ".join(words))
