"""`clisup handover`: go on with another backend, with the conversation of a session so far."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from clisup.cli.failure import usage
from clisup.cli.lookup import find_session
from clisup.cli.options import complete_backend, json_option, named, session_argument, utf8
from clisup.cli.views.terminal import plain
from clisup.client.handover import hand_over
from clisup.client.sync import Client
from clisup.errors import EXIT_OK

__all__ = ["handover"]


@click.command("handover")
@session_argument
@click.argument("prompt", required=False, callback=utf8("send the prompt"))
@click.option("-b", "--backend", required=True, metavar="BACKEND", shell_complete=complete_backend,
              callback=utf8("name the backend"), help="The backend of the new session; see clisup backends.")  # fmt: skip
@click.option("--model", metavar="MODEL", callback=utf8("name the model"), help="The model of the new session.")
@click.option("--permission-mode", metavar="MODE", callback=utf8("name the permission mode"),
              help="What the CLI may do without asking, in its own words: acceptEdits, plan, ...")  # fmt: skip
@json_option("Print the new session and what is missing as JSON.")
def handover(session: str, prompt: str | None, backend: str, as_json: bool, **settings: Any) -> int:
    """Open a session of another backend with the conversation of SESSION.

    The new session works in the same directory and git worktree, with the same title and labels. Prompts and answers of all
    ended turns go along, also those before a fork; tool calls and images do not. With PROMPT, the new session begins a turn at
    once. A backend that takes no history gets the conversation at the head of PROMPT. Prints the new session's id. SESSION does
    not change.

    \b
    Example:
      clisup handover 3f2a -b qwen
      clisup attach "$(clisup handover 3f2a -b codex 'Go on with the tests.')"
    """
    if prompt is not None and not prompt.strip():
        raise usage("cannot send an empty prompt", hint="leave it out, or give it at least one character")
    with Client.connect(name="clisup-handover") as client:
        handed = hand_over(client, find_session(client, session), backend, prompt, **settings)
    done = {"session_id": handed.session_id, "from": handed.source["session_id"], "backend": backend, "turns": handed.turns,
            "carried": "history" if handed.takes_history else "prompt", "turn_id": handed.turn_id,
            "missing": handed.missing}  # fmt: skip
    if as_json:
        print(json.dumps(done, ensure_ascii=False))
        return EXIT_OK
    for note in handed.missing:
        print(plain(f"not handed over: {note}"), file=sys.stderr)
    how = "as its history" if handed.takes_history else "at the head of its first prompt"
    count = f"{handed.turns} turn{'' if handed.turns == 1 else 's'}"
    print(plain(f"{backend} has {count} of {handed.source['backend']} {how}"), file=sys.stderr)
    print(named(handed.session_id))
    return EXIT_OK
