"""`clisup replay`: a recording through the decoder."""

from __future__ import annotations

import difflib
import sys
from typing import TYPE_CHECKING, Any

import click

from clisup.cli.views.event_lines import words
from clisup.cli.views.terminal import Ink, clip, plain

if TYPE_CHECKING:
    from clisup.recordings.files import ReplayedStep

__all__ = ["command"]

_ALARMING = ("permission_denied", "retry", "unparsed", "retracted")


@click.command("replay")
@click.argument("file", type=click.Path())
@click.option(
    "--kind", metavar="KIND", help="The kind of backend whose decoder is to read it, where the recording does not say."
)
@click.option("--json", "as_json", is_flag=True, help="Print the events as JSON lines, without their envelopes.")
@click.option("--no-deltas", is_flag=True, help="Leave out the pieces of text; the whole messages stay.")
@click.option("--check", is_flag=True, help="Compare with FILE.events.jsonl: exit 1 and show where they differ.")
def command(file: str, kind: str | None, as_json: bool, no_deltas: bool, check: bool) -> int:
    """Decode the recording FILE, a .jsonl of `clisup record`, and show its events.

    A line holds the seconds since the turn began, the type, and what the event says; the last one is the turn's end. Nothing is run,
    and no daemon is needed. After a wanted change of a decoder, `--json` makes FILE.events.jsonl anew.

    \b
    Example:
      clisup replay claude-2.1.329-t1.jsonl --no-deltas
      clisup replay --check fixtures/denied.jsonl
      clisup replay --json fixtures/denied.jsonl > fixtures/denied.events.jsonl
    """
    from clisup.recordings.files import replay, saved_events

    steps = replay(file, kind)
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
    return 0


def _in_words(step: ReplayedStep, ink: Ink) -> str:
    at = "-" if step.at is None else f"+{step.at:.3f}"
    if step.event is None:
        return ink("dim", f"{at:>10}  {'(to stdin)':<18}  {clip(step.line, 200)}")
    event: dict[str, Any] = step.event
    line = f"{at:>10}  {clip(str(event['type']), 20):<18}  {words(event)}".rstrip()
    if event["type"] == "content_delta":
        return ink("dim", line)
    return ink("red", line) if event["type"] in _ALARMING or event.get("error") or event.get("is_error") else line


def _compare(file: str, saved: list[str], now: list[str]) -> int:
    if saved == now:
        print(f"{file}: {len(now)} events, as saved")
        return 0
    difference = difflib.unified_diff(saved, now, "saved", "now", lineterm="", n=1)
    print(plain("\n".join(difference)))
    print(f"clisup: cannot confirm {file}, because the decoder now says something else", file=sys.stderr)
    print("  hint: where that is wanted: clisup replay --json FILE > FILE.events.jsonl", file=sys.stderr)
    return 1
