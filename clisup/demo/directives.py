"""THE table of the script language: parsing, `--help` and docs/demo-backend.md all come from it."""

from __future__ import annotations

from typing import NamedTuple

from clisup.demo.readers import (
    NOTHING,
    Reader,
    count,
    exit_code,
    fields,
    one_of,
    read_bash,
    read_denied,
    read_json,
    read_names,
    read_report,
    read_text,
    read_timed_text,
    read_tool,
    seconds,
    seconds_or_ever,
    signal_number,
)

__all__ = ["DIRECTIVES", "ERROR_KINDS", "ORPHAN_KINDS", "RETRY_KINDS", "Directive", "help_text", "markdown_table"]

ERROR_KINDS = (
    "authentication", "login", "rate_limit", "usage_limit", "overloaded", "server", "network", "billing", "context",
    "model_not_found", "invalid_request", "refusal", "max_turns", "budget",
)  # fmt: skip
RETRY_KINDS = ("authentication", "rate_limit", "overloaded", "server", "network")
ORPHAN_KINDS = (
    "plain", "setsid", "pgrp", "double-fork", "holds-stdout", "ignores-term", "clean-env", "stopped", "refork", "respawn",
    "zombie-parent", "many",
)  # fmt: skip


class Directive(NamedTuple):
    """One directive: `usage` is its arguments as people write them, `read` checks them and raises ValueError."""

    group: str
    name: str
    usage: str
    meaning: str
    read: Reader


_TABLE: tuple[tuple[str, str, str, str, Reader], ...] = (
    ("Text", "text", "TEXT", "Stream TEXT. A line that is no directive does the same.", read_text),
    ("Text", "stream", "N [BYTES] [DELAY_S]",
     "N numbered text deltas (`chunk 000017`), each of BYTES bytes (13), DELAY_S seconds apart (0).",
     fields(count, count, seconds, defaults=(13, 0.0))),
    ("Text", "think", "TEXT", "A thinking block.", read_text),
    ("Text", "huge", "BYTES",
     "A text answer of BYTES bytes: deltas, the whole message and the result hold it.", fields(count)),
    ("Text", "cut", "", "Some text that is then taken back (`abandoned_blocks`), a retry, and a new message.", NOTHING),
    ("Text", "structured", "JSON", "The result holds this as `structured_output`.", read_json),
    ("Text", "unstructured", "", "Asked for an answer by a schema, give none: words alone.", NOTHING),
    ("Tools", "tool", "NAME [JSON] [=> RESULT]",
     "A pretended tool call with the input JSON, which gives RESULT (ok).", read_tool),
    ("Tools", "bash", "[timeout=S] CMD",
     "REALLY run `/bin/sh -c CMD`, in a session of its own. After S seconds it goes on in the background.", read_bash),
    ("Tools", "parallel", "",
     "The tools from here to `@end` in one message; their results come out of order, the last first.", NOTHING),
    ("Tools", "end", "", "The end of `@parallel`.", NOTHING),
    ("Tools", "denied", "NAME [JSON]",
     "A pretended tool that needs a permission. Refused where the mode does not allow it; else it says what it would have done.",
     read_denied),
    ("Tools", "ask", "NAME [JSON]",
     "The same. In a live process with `--permission-prompt-tool stdio` it asks, as `@denied` and `@run` do.",
     read_denied),
    ("Tools", "run", "NAME [JSON]",
     "As `@ask`; and allowed, a Bash REALLY runs its command, and a Write or Edit REALLY changes its file.",
     read_denied),
    ("Tools", "mcp", "NAME [JSON]",
     "REALLY call the tool NAME (`mcp__SERVER__TOOL`; TOOL alone is one of the server `clisup`) of the MCP servers of `--mcp-config`.",
     read_denied),
    ("Tools", "heartbeat", "S",
     "From here on a running `@bash` reports progress every S seconds (first after 3, then every 30).",
     fields(seconds)),
    ("Tools", "background", "S TEXT",
     "Announce a background task. It ends S seconds after the result and starts a turn of its own, which says TEXT.",
     read_timed_text),
    ("Tools", "delegate", "S REPORT => ANSWER",
     "A sub-agent in the background, which is pretended. It reports REPORT after S seconds, and the turn goes on with ANSWER.",
     read_report),
    ("Time", "sleep", "S", "Say nothing for S seconds.", fields(seconds)),
    ("Time", "stall", "", "Say nothing for ever.", NOTHING),
    ("Time", "pings", "S [N]",
     "Nothing but a ping frame every S seconds, N times (for ever).", fields(seconds, count, defaults=(None,))),
    ("Time", "drip", "S [N]",
     "Nothing but a byte of junk every S seconds, N times (for ever).", fields(seconds, count, defaults=(None,))),
    ("Time", "wait-file", "PATH", "Wait until PATH exists: a test steps the script with it.", read_text),
    ("Time", "touch", "PATH", "Make the file PATH.", read_text),
    ("Time", "linger", "S|forever", "Stay alive for S seconds after the result.", fields(seconds_or_ever)),
    ("Errors", "error", "KIND",
     f"End the turn as the real CLI does when the API fails. KIND: {', '.join(ERROR_KINDS)}.",
     fields(one_of(*ERROR_KINDS))),
    ("Errors", "limit", "S", "End the turn as when the account's limit is used up, and resets in S seconds.", fields(seconds)),
    ("Errors", "retry", "KIND N",
     f"N announced retries of the model request, 50 ms apart. KIND: {', '.join(RETRY_KINDS)}.",
     fields(one_of(*RETRY_KINDS), count)),
    ("Errors", "exit", "CODE", "Exit at once with CODE, without a result.", fields(exit_code)),
    ("Errors", "die", "SIGNAL", "End by a signal (KILL, SEGV, 9), without a result.", fields(signal_number)),
    ("Errors", "crash", "", "Half a frame on stdout, a stack trace on stderr, exit code 1.", NOTHING),
    ("Errors", "ignore-term", "", "Ignore SIGTERM and SIGHUP from here on.", NOTHING),
    ("Errors", "ignore-int", "", "Ignore SIGINT from here on.", NOTHING),
    ("Errors", "orphan", "KIND S", f"Leave a process behind that lives S seconds. KIND: {', '.join(ORPHAN_KINDS)}.",
     fields(one_of(*ORPHAN_KINDS), seconds)),
    ("Bytes", "line", "BYTES",
     "One frame whose line is BYTES bytes long, newline included (512 at least).", fields(count)),
    ("Bytes", "raw", "TEXT", "TEXT as a line on stdout, verbatim.", read_text),
    ("Bytes", "bytes", "PATH [SIZE]",
     "The bytes of the file PATH on stdout as they are, SIZE bytes with each write (all at once).",
     fields(str, count, defaults=(0,))),
    ("Bytes", "play", "FILE [SPEED]",
     "Play the recording FILE (docs/recordings.md) in place of all else, SPEED times as fast (1; 0: as fast as it goes).",
     fields(str, seconds, defaults=(1.0,))),
    ("Bytes", "noise", "", "Lines on stdout that are no JSON.", NOTHING),
    ("Bytes", "bad", "", "Text deltas with invalid UTF-8, with a NUL and with a lone surrogate.", NOTHING),
    ("Bytes", "unknown", "", "A frame of an unknown type, and one of an unknown subtype.", NOTHING),
    ("Bytes", "misshapen", "", "Frames of known types with the wrong shape.", NOTHING),
    ("Bytes", "stderr", "TEXT", "TEXT as a line on stderr.", read_text),
    ("Bytes", "stderr-flood", "BYTES", "BYTES bytes of lines on stderr.", fields(count)),
    ("Facts", "env", "NAME...",
     "Say for each variable whether it is set: `NAME: present` or `NAME: absent`. Never a value.", read_names),
    ("Facts", "env-all", "", "Say the names of all variables, sorted, one a line.", NOTHING),
    ("Facts", "say-pid", "", "Say the process id.", NOTHING),
    ("Facts", "count", "", "Say which turn of its session this is, from the session's own transcript.", NOTHING),
    ("Facts", "recall", "", "Quote the first line of the session's first prompt.", NOTHING),
    ("Facts", "history", "",
     "Say what was said in the session before, as its transcript has it: a JSON message a line.", NOTHING),
    ("Facts", "images", "", "Say how many images came with the prompt.", NOTHING),
    ("Facts", "no-transcript", "", "This turn leaves no transcript, as if killed too early.", NOTHING),
    ("Facts", "usage", "IN OUT",
     "The turn's input and output tokens, instead of a quarter of the characters.", fields(count, count)),
    ("Facts", "cost", "USD", "The turn's cost, instead of one from its tokens.", fields(seconds)),
)  # fmt: skip

DIRECTIVES: dict[str, Directive] = {row[1]: Directive(*row) for row in _TABLE}


def help_text() -> str:
    """What `--help` says about the script language."""
    lines = [_INTRODUCTION]
    group = ""
    for directive in DIRECTIVES.values():
        if directive.group != group:
            group = directive.group
            lines += ["", f"{group}:"]
        lines += [f"  @{directive.name} {directive.usage}".rstrip(), f"      {directive.meaning}"]
    return "\n".join(lines) + "\n"


def markdown_table() -> str:
    """The same table for docs/demo-backend.md."""
    rows = ["| directive | what it does |", "|---|---|"]
    for directive in DIRECTIVES.values():
        usage = f"@{directive.name} {directive.usage}".rstrip().replace("|", "\\|")
        rows.append(f"| `{usage}` | {directive.meaning} |")
    return "\n".join(rows) + "\n"


_INTRODUCTION = """\
usage: python -m clisup.demo -p --output-format stream-json --verbose [claude's flags] < PROMPT
       python -m clisup.demo --play FILE [SPEED] [any CLI's flags]     plays a recording of any CLI, at SPEED times its pace

A pretended model CLI that speaks claude's stream-json. The prompt is its script: each line that begins with @name is a
directive, any other line is text of the answer. A prompt without a directive is echoed: "You said: ...".
`@text @name` says what would be a directive. Sessions are kept in $DEMO_CLI_HOME, else in $XDG_STATE_HOME/clisup-demo,
else in ~/.local/state/clisup-demo."""
