"""`clisup record`: a turn as files that can be replayed, shared and tested with."""

from __future__ import annotations

import json
import os
import sys

import click

from clisup.cli.failure import usage
from clisup.cli.place_options import of_the_daemon
from clisup.cli.views.terminal import size
from clisup.client.sync import Client
from clisup.errors import ClisupError

__all__ = ["command"]


@click.command("record")
@click.argument("session")
@click.argument("turn", required=False)
@click.option("-o", "--output", metavar="FILE", help="Where to (default: BACKEND-VERSION-TURN.jsonl, here).")
@click.option("--force", is_flag=True, help="Write over files that are there.")
@click.option("--prompt", help="The whole prompt: of a long one only the first 200 characters are kept.")
@click.option("--cli-version", metavar="VERSION", help="The CLI's version, where the CLI itself did not tell it.")
@click.option("--hide", metavar="FILE", help="A file with more values that must not be in the recording, one a line.")
@of_the_daemon
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def command(
    session: str, turn: str | None, output: str | None, force: bool, prompt: str | None, cli_version: str | None,
    hide: str | None, config: str | None, state_dir: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Keep a TURN of SESSION (default: the last that has ended) as a recording.

    It is three files: FILE.jsonl, the CLI's stdout; FILE.meta.json, how it was run and when it said what; FILE.events.jsonl, the
    events. Known secrets, what looks like a key, the home directory, the user and the host are replaced. See
    docs/recordings.md for what cannot be seen, and read a recording before you share it. It only reads, so no daemon needs to run.

    \b
    Example:
      clisup record 3f2a
      clisup record 3f2a t2 -o fixtures/denied.jsonl
      clisup replay fixtures/denied.jsonl
    """
    from clisup.recordings.files import recording_files, write_recording
    from clisup.recordings.taking import RecordingRequest, state_dir_of, take, this_machine

    machine = this_machine(os.environ, config)
    place = (
        state_dir
        or (None if "CLISUP_STATE_DIR" in os.environ else _running())
        or state_dir_of(os.environ, machine.config)
    )
    request = RecordingRequest(session, turn, prompt, cli_version, _hidden(hide))
    taken = take(os.path.abspath(place), request, machine)
    files = recording_files(output or f"{taken.name}.jsonl")
    write_recording(files, taken.data, taken.meta, taken.events, force=force)
    lines = len(taken.data.splitlines())
    if as_json:
        done = {"session_id": taken.session_id, "turn_id": taken.turn_id, "files": [str(path) for path in files]}
        counts = {"lines": lines, "bytes": len(taken.data), "secrets": taken.secrets, "names": taken.names}
        print(json.dumps({**done, **counts}, ensure_ascii=False))
    else:
        print(f"turn {taken.turn_id} of session {taken.session_id}: {lines} lines, {size(len(taken.data))}")
        print("\n".join(f"  {path}" for path in files))
        print(f"replaced: {taken.secrets} secrets, {taken.names} names of this machine")
    if taken.prompt_is_cut:
        print("the prompt is cut: the journal has its beginning only; --prompt TEXT gives the whole", file=sys.stderr)
    return 0


def _running() -> str | None:
    """The state directory of the daemon that runs; None where none does."""
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
        raise usage(f"cannot read {path}, because of: {error.strerror}", hint="--hide FILE: one value a line") from None
