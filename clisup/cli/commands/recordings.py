"""`clisup record` and `clisup replay`: turns as files that can be replayed, shared and tested with."""

from __future__ import annotations

import difflib
import json
import os
import sys
from typing import TYPE_CHECKING

import click

from clisup.cli.failure import usage
from clisup.cli.options import daemon_place_options, json_option, session_argument
from clisup.cli.views.events import words
from clisup.cli.views.terminal import Ink, clip, plain, size
from clisup.client.raw import JsonObject
from clisup.client.sync import Client
from clisup.errors import EXIT_OK, EXIT_TURN_FAILED, ClisupError

if TYPE_CHECKING:
    from clisup.recordings.files import ReplayedStep

__all__ = ["record", "replay"]

_ALARMING = ("permission_denied", "retry", "unparsed", "retracted")


@click.command("record")
@session_argument
@click.argument("turn", required=False)
@click.option("-o", "--output", metavar="FILE", help="The file to write (default: BACKEND-VERSION-TURN.jsonl, here).")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@click.option(
    "--prompt", help="The whole prompt. Without it, the recording has the first 200 characters of a long one."
)
@click.option("--cli-version", metavar="VERSION", help="The CLI's version, if the CLI did not report it.")
@click.option("--hide", metavar="FILE", help="A file with more values that must not be in the recording, one a line.")
@daemon_place_options
@json_option("Print a summary as JSON.")
def record(
    session: str, turn: str | None, output: str | None, force: bool, prompt: str | None, cli_version: str | None,
    hide: str | None, config: str | None, state_dir: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Keep a TURN of SESSION (default: the last that has ended) as a recording.

    A recording has three files: FILE.jsonl, the CLI's stdout; FILE.meta.json, the command and the times; FILE.events.jsonl,
    the events. Known secrets, values that look like a key, the home directory, the user and the host are replaced.
    docs/how-to/recordings.md says which secrets cannot be found: read a recording before you share it. No daemon is needed.

    \b
    Example:
      clisup record 3f2a
      clisup record 3f2a t2 -o fixtures/denied.jsonl
      clisup replay fixtures/denied.jsonl
    """
    from clisup.recordings.files import recording_files, write_recording
    from clisup.recordings.taking import RecordingRequest, state_dir_of, take, this_machine

    machine = this_machine(os.environ, config)
    running = None if state_dir or "CLISUP_STATE_DIR" in os.environ else _running_state_dir()
    place = state_dir or running or state_dir_of(os.environ, machine.config)
    taken = take(os.path.abspath(place), RecordingRequest(session, turn, prompt, cli_version, _hidden(hide)), machine)
    files = recording_files(output or f"{taken.name}.jsonl")
    write_recording(files, taken.data, taken.meta, taken.events, force=force)
    lines = len(taken.data.splitlines())
    if as_json:
        done = {"session_id": taken.session_id, "turn_id": taken.turn_id, "files": [str(path) for path in files]}
        counts = {"lines": lines, "bytes": len(taken.data), "secrets": taken.secrets, "names": taken.names}
        print(json.dumps({**done, **counts}, ensure_ascii=False))
    else:
        print(f"turn {taken.turn_id} of session {taken.session_id}: {lines} lines, {size(len(taken.data))}")
        print("\n".join(f"  {plain(str(path))}" for path in files))
        print(f"replaced: {taken.secrets} secrets, {taken.names} names of this machine")
    if taken.prompt_is_cut:
        print(
            "the prompt is cut: the journal holds only its beginning; give the whole with --prompt TEXT",
            file=sys.stderr,
        )
    return EXIT_OK


def _running_state_dir() -> str | None:
    """Return the state directory of the running daemon, or None without one."""
    try:
        with Client.connect(name="clisup-record") as client:
            return str(client.call("daemon/status")["daemon"]["state_dir"])
    except ClisupError as error:
        if error.kind != "daemon_not_running":
            raise
        return None


def _hidden(path: str | None) -> tuple[str, ...] | None:
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return tuple(line for line in file.read().splitlines() if line)
    except OSError as error:
        raise usage(f"cannot read {path}: {error.strerror}", hint="--hide FILE: one value a line") from None


@click.command("replay")
@click.argument("file", type=click.Path())
@click.option(
    "--kind", metavar="KIND", help="The kind of backend that decodes the file, if the recording does not name it."
)
@click.option("--no-deltas", is_flag=True, help="Leave out the pieces of text; the whole messages stay.")
@click.option("--check", is_flag=True, help="Compare with FILE.events.jsonl: exit 1 and show the difference.")
@json_option("Print the events as JSON lines, without their envelopes.")
def replay(file: str, kind: str | None, as_json: bool, no_deltas: bool, check: bool) -> int:
    """Decode the recording FILE, a .jsonl of `clisup record`, and show its events.

    A line holds the seconds since the turn began, the type, and the event's content; the last line is the turn's end. The
    command starts no process and needs no daemon. After an intended change of a decoder, write FILE.events.jsonl again with
    `--json`.

    \b
    Example:
      clisup replay claude-2.1.329-t1.jsonl --no-deltas
      clisup replay --check fixtures/denied.jsonl
      clisup replay --json fixtures/denied.jsonl > fixtures/denied.events.jsonl
    """
    from clisup.recordings.files import replay as decode
    from clisup.recordings.files import saved_events

    steps = decode(file, kind)
    if check:
        return _compare(file, saved_events(file), [step.line for step in steps if step.event is not None])
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    ink = Ink()
    for step in steps:
        if no_deltas and step.event is not None and step.event["type"] == "content_delta":
            continue
        if not as_json:
            print(_in_words(step, ink))
        elif step.event is not None:
            print(step.line)
    return EXIT_OK


def _in_words(step: ReplayedStep, ink: Ink) -> str:
    at = "-" if step.at is None else f"+{step.at:.3f}"
    if step.event is None:
        return ink("dim", f"{at:>10}  {'(to stdin)':<18}  {clip(step.line, 200)}")
    event: JsonObject = step.event
    line = f"{at:>10}  {clip(str(event['type']), 20):<18}  {words(event)}".rstrip()
    if event["type"] == "content_delta":
        return ink("dim", line)
    return ink("red", line) if event["type"] in _ALARMING or event.get("error") or event.get("is_error") else line


def _compare(file: str, saved: list[str], now: list[str]) -> int:
    if saved == now:
        print(f"{plain(str(file))}: {len(now)} events, as saved")
        return EXIT_OK
    print(plain("\n".join(difflib.unified_diff(saved, now, "saved", "now", lineterm="", n=1))))
    print(f"clisup: cannot confirm {plain(str(file))}, because the decoder now gives other events", file=sys.stderr)
    print("  hint: if the change is intended: clisup replay --json FILE > FILE.events.jsonl", file=sys.stderr)
    return EXIT_TURN_FAILED
