"""`clisup run`: send a prompt, print the answer, and return the outcome as the exit code."""

from __future__ import annotations

import os
import select
import stat
import sys
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any

import click

from clisup.cli.commands.worktrees import opened_note
from clisup.cli.daemon_start import connect, no_start_option
from clisup.cli.failure import usage
from clisup.cli.lookup import all_sessions, find_session
from clisup.cli.on import SESSION
from clisup.cli.options import (
    MAX_COUNT,
    MAX_USD,
    complete_backend,
    complete_session,
    in_utf8,
    json_file,
    json_option,
    labels_of,
    limit,
    session_directory,
    text_file,
    time_limit,
    utf8,
)
from clisup.cli.turn import PromptedTurn
from clisup.cli.views.answer import Screen
from clisup.cli.views.terminal import plain
from clisup.client.failures import AWAY
from clisup.client.images import image_block
from clisup.client.options import given
from clisup.client.raw import JsonObject
from clisup.client.sync import Client
from clisup.errors import ClisupError, UsageError

__all__ = ["run"]

_UUID_LENGTH = 36
_UNCERTAIN = (*AWAY, "overloaded")
"""Kinds of errors after which the daemon may have accepted the prompt."""

_RECODE = "convert it, or send it on stdin (-), where each wrong byte becomes U+FFFD"


@dataclass(frozen=True, kw_only=True)
class NewSession:
    """Options of a new session, as the command line has them. All but `backend` are fixed when the session is opened."""

    backend: str | None
    directory: str | None
    live: bool
    model: str | None
    permission_mode: str | None
    system_prompt_file: str | None
    mcp_config: str | None
    labels: tuple[str, ...]
    budget_usd: float | None
    budget_tokens: int | None
    title: str | None
    cli_tools: str | None
    resume: str | None
    worktree: bool
    worktree_name: str | None
    worktree_base: str | None

    def given(self) -> list[str]:
        """Return the names of the fixed options that were given, sorted."""
        return sorted(name for name, value in vars(self).items() if value and name != "backend")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of the prompt and of this command, as the command line has them."""

    as_json: bool
    images: tuple[str, ...]
    schema: str | None
    expand: bool
    refuse_limited: bool
    session: str | None
    last: bool
    remove: bool
    timeout_s: float | None
    show_thinking: bool
    no_start: bool


@click.command("run")
@click.argument("prompt", required=False, callback=utf8("send the prompt", _RECODE))
@click.option("-b", "--backend", metavar="BACKEND", shell_complete=complete_backend, callback=utf8("name the backend"),
              help="The backend of a new session; see clisup backends.")  # fmt: skip
@click.option("-C", "directory", metavar="DIRECTORY",
              help="The directory of a new session, on the daemon's machine (default: here).")  # fmt: skip
@click.option("--session", metavar="SESSION", type=SESSION, shell_complete=complete_session, callback=utf8("name the session"),
              help="Continue this session: its id, or the first characters of it.")  # fmt: skip
@click.option("-c", "--continue", "last", is_flag=True, help="Continue the last session of this directory (or of -C).")
@click.option("--resume", metavar="NATIVE_ID", callback=utf8("name the conversation"),
              help="Take up a conversation that the CLI itself began, by the CLI's own id of it.")  # fmt: skip
@click.option("--rm", "remove", is_flag=True, help="Close and delete the new session at the end.")
@click.option("--title", metavar="TITLE", callback=utf8("set the title"), help="The title of a new session.")
@click.option("--timeout", "timeout_s", metavar="TIME", callback=time_limit,
              help="End the turn after this time, such as 90s, 10m or 2h.")  # fmt: skip
@click.option("--model", metavar="MODEL", callback=utf8("name the model"), help="The model of a new session.")
@click.option("--permission-mode", metavar="MODE", callback=utf8("name the permission mode"),
              help="What the CLI may do without asking, in its own words: acceptEdits, plan, ...")  # fmt: skip
@click.option("--system-prompt-file", type=click.Path(exists=True, dir_okay=False),
              help="Text added to the CLI's own system prompt.")  # fmt: skip
@click.option("--cli-tools", metavar="none|A,B", callback=utf8("name the tools"),
              help="Which of the CLI's own tools a new session has: none, or these. Only claude can.")  # fmt: skip
@click.option("--mcp-config", type=click.Path(exists=True, dir_okay=False), help="A JSON file with MCP servers.")
@click.option("--live", is_flag=True, help="Keep the CLI's process of a new session for later prompts.")
@click.option("--budget-usd", type=float, metavar="USD", callback=limit(MAX_USD),
              help="Limit of the cost of all turns of a new session.")  # fmt: skip
@click.option("--budget-tokens", type=int, metavar="N", callback=limit(MAX_COUNT),
              help="Limit of their tokens, input and output.")  # fmt: skip
@click.option("--label", "labels", multiple=True, metavar="K=V", callback=utf8("set the label"),
              help="A label of a new session; may be repeated.")  # fmt: skip
@click.option("--worktree", is_flag=True, help="Give a new session a git worktree and a branch of its own.")
@click.option("--worktree-name", metavar="NAME", callback=utf8("name the worktree"),
              help="The same, with this name; the branch is clisup/NAME.")  # fmt: skip
@click.option("--worktree-base", metavar="COMMIT", callback=utf8("name the commit"),
              help="The same, from this branch or commit (default: HEAD).")  # fmt: skip
@click.option("--image", "images", multiple=True, metavar="FILE", type=click.Path(exists=True, dir_okay=False),
              help="A PNG, JPEG, GIF or WebP file for the model, before PROMPT; may be repeated.")  # fmt: skip
@click.option("--output-schema", "schema", type=click.Path(exists=True, dir_okay=False),
              help="A file with the JSON Schema of an object: ask for such an answer, and print it as one line of JSON.")  # fmt: skip
@click.option("--expand", is_flag=True, help="Let the CLI expand its /commands, @files and $skills in the prompt.")
@click.option("--no-wait-limit", "refuse_limited", is_flag=True,
              help="Give up (exit 75) if the account's rate limit holds new turns.")  # fmt: skip
@no_start_option
@click.option("--show-thinking", is_flag=True, help="Print what the model thinks on stderr, if the CLI shows it.")
@json_option("Print every event as a JSON line, and nothing else, on stdout.")
def run(prompt: str | None, **options: Any) -> int:
    """Send PROMPT and print the answer. `-`, or no PROMPT in a pipe, reads it from stdin.

    Without -b, a new session has the default backend of the configuration, or the only CLI that is installed.

    The answer goes to stdout, everything else to stderr. A terminal gets Markdown drawn, and a status line while the turn
    works. A pipe gets the answer as it is, and only text that the CLI can no longer take back. Ctrl-C interrupts the turn, a
    second one kills it, a third leaves without waiting. SIGTERM and SIGHUP (`timeout`, a cancelled job, a closed terminal) leave
    the turn running: give --timeout.

    \b
    Exit codes: 0 done, 1 the turn failed, 69 the CLI is not logged in, 77 a tool was denied, 124 timed out, 130 interrupted;
    before the turn: 2 usage, 3 no daemon, 4 no such session, 69 no such backend, 75 busy.
    If the answer cannot be written, the turn goes on: 74 stdout cannot be written, 141 its reader has left.

    \b
    Example:
      clisup run -b claude "Which files does this project have?"
      git diff | clisup run -b claude -C ~/src/app --model sonnet -
      clisup run -c "And now in French."
      clisup run --session 3f2a --timeout 10m "And now in Greek."
      clisup run -b claude --cli-tools none --rm "A name for a cat?"
      clisup run -b claude --image shot.png "What is wrong on this page?"
      clisup run -b claude --live "Tidy up the tests."
      clisup run -b claude --worktree "Mend the parser."
      clisup run -b codex --budget-usd 0.5 "Find the bug."
      clisup run -b claude --output-schema port.json "At which port does it listen?" | jq .port
    """
    here = RunOptions(**{field.name: options.pop(field.name) for field in fields(RunOptions)})
    return _run(prompt, here, NewSession(**options))


def _run(prompt: str | None, options: RunOptions, new: NewSession) -> int:
    blocks = _with_images(_prompt_text(prompt), options.images)
    output_schema = json_file(options.schema, '{"type": "object", "properties": {...}}')
    _check_options(options.session, options.last, options.remove, new)
    with connect("clisup-run", no_start=options.no_start) as client:
        session_id = _last_session(client, new) if options.last else _session(client, options.session, new)
        about = client.call("session/get", session_id=session_id)
        path = client.path
    turn = PromptedTurn(
        path, session_id, about["backend"], blocks, Screen(), expand=options.expand,
        refuse_limited=options.refuse_limited, json=options.as_json, output_schema=output_schema,
        thinking=options.show_thinking, timeout_s=options.timeout_s, kept=not options.remove,
    )  # fmt: skip
    try:
        return turn.run(about["next_seq"] - 1)
    except ClisupError as error:
        is_new = options.session is None and not options.last
        if is_new and not turn.accepted and error.kind not in _UNCERTAIN:
            _close(path, session_id)
        raise
    finally:
        if options.remove and turn.ended:
            _delete(path, session_id)


def _check_options(session: str | None, last: bool, remove: bool, new: NewSession) -> None:
    """Raise `UsageError` for options that exclude each other."""
    if last and session is not None:
        raise usage(
            "cannot continue two sessions, because -c and --session name one each", hint="leave one of them out"
        )
    if remove and (last or session is not None):
        raise usage(
            "cannot delete a session that is continued: --rm is for a new session",
            hint="clisup close SESSION, then clisup delete SESSION",
        )
    if last and (fixed := [name for name in new.given() if name != "directory"]):
        raise usage(
            f"cannot set {', '.join(fixed)} with -c, because it is fixed when a session is opened",
            hint="leave it out, or open a new session without -c",
        )


def _prompt_text(prompt: str | None) -> str:
    if prompt is not None and prompt != "-":
        if not prompt.strip():
            raise usage("cannot send an empty prompt", hint="give it at least one character")
        if _stdin_has_text():
            print("stdin is not read: give - as PROMPT to send what it holds", file=sys.stderr)
        return prompt
    if prompt is None and sys.stdin.isatty():
        raise usage(
            "cannot run without a prompt, because stdin is a terminal", hint='clisup run -b claude "Say hello."'
        )
    text = sys.stdin.buffer.read().decode("utf-8", "replace")
    if not text.strip():
        raise usage("cannot run without a prompt, because stdin was empty", hint="give it as an argument or on stdin")
    return text


def _stdin_has_text() -> bool:
    """Tell whether stdin is a pipe or a file with unread text. Never wait: the pipe of a job may stay silent."""
    try:
        fd = sys.stdin.fileno()
        about = os.fstat(fd)
        if stat.S_ISREG(about.st_mode):
            return about.st_size > 0 and os.lseek(fd, 0, os.SEEK_CUR) == 0  # else a loop of a shell reads the file
        if not stat.S_ISFIFO(about.st_mode):
            return False
        look = select.poll()
        look.register(fd, select.POLLIN)
        return any(what & select.POLLIN for _, what in look.poll(0))
    except (AttributeError, OSError, ValueError):
        return False  # closed, or not a real stream


def _with_images(text: str, paths: tuple[str, ...]) -> str | list[dict[str, str]]:
    """Return the blocks of a prompt with images: the images first. The first bytes of a file tell its format."""
    if not paths:
        return text
    return [*map(_image, paths), {"type": "text", "text": text}]


def _image(path: str) -> dict[str, str]:
    try:
        with open(path, "rb") as file:
            return image_block(file.read())
    except OSError as error:
        raise usage(f"cannot read {path}, because {error.strerror}") from None
    except ClisupError as error:
        raise usage(f"cannot send {path}, because models do not accept this kind of file", hint=error.hint) from None


def _session(client: Client, wanted: str | None, options: NewSession) -> str:
    """Return the id of the session for the prompt, and open it if it is new."""
    if wanted is None:
        return _open(client, options)
    if len(wanted) == _UUID_LENGTH and options.backend and not _exists(client, wanted):
        return _open(client, options, session_id=wanted.lower())
    session_id = find_session(client, wanted)
    if given := options.given():
        raise usage(
            f"cannot set {', '.join(given)} of session {wanted}, because it is fixed when a session is opened",
            hint="leave it out, or open a new session without --session; `clisup set` changes model, permission mode and budget",
        )
    backend = client.call("session/get", session_id=session_id)["backend"]
    if options.backend not in (None, backend):
        raise usage(f"cannot use backend {options.backend} in session {wanted}, because it belongs to {backend}")
    return session_id


def _close(path: str, session_id: str) -> None:
    """Close a session that this command opened and that never received the prompt: nobody knows its id."""
    with suppress(ClisupError), Client.connect(path, name="clisup-run") as client:
        client.call("session/close", session_id=session_id)


def _exists(client: Client, session_id: str) -> bool:
    try:
        client.call("session/get", session_id=session_id.lower())
    except ClisupError as error:
        if error.kind != "session_not_found":
            raise
        return False
    return True


def _last_session(client: Client, options: NewSession) -> str:
    """Return the open session of the directory that worked last. Raises `UsageError` if there is none."""
    directory = _directory(options.directory)
    places = {directory, os.path.realpath(directory)}
    found = [
        row
        for row in all_sessions(client)
        if row["cwd"] in places and row["state"] != "closed" and options.backend in (None, row["backend"])
    ]
    if not found:
        of_backend = f" of {options.backend}" if options.backend else ""
        raise UsageError(
            f"no open session{of_backend} in {directory}",
            kind="session_not_found",
            hint="list all sessions: clisup sessions; open a new session without -c",
        )
    return str(max(found, key=_last_worked)["session_id"])


def _last_worked(row: JsonObject) -> tuple[bool, str]:
    ended = (row.get("last_turn") or {}).get("ended_at") or row["created_at"]
    return bool(row.get("turn_id")), str(ended)


def _delete(path: str, session_id: str) -> None:
    """Close and delete the session of a turn that is over. If that fails, tell how to do it later."""
    try:
        with Client.connect(path, name="clisup-run") as client:
            client.call("session/close", session_id=session_id)
            client.call("session/delete", session_id=session_id)
    except ClisupError as error:
        print(f"the session stays: {plain(str(error))}; delete it: clisup delete {session_id}", file=sys.stderr)


def _open(client: Client, options: NewSession, **fixed: str) -> str:
    names = [str(name) for name in client.server.get("backends") or ()]
    params = {
        "backend": options.backend,
        "cwd": _directory(options.directory),
        "title": options.title,
        "mode": "live" if options.live else None,
        "model": options.model,
        "permission_mode": options.permission_mode,
        "system_prompt": text_file(options.system_prompt_file),
        "mcp_config": json_file(options.mcp_config, '{"mcpServers": {...}}'),
        "labels": labels_of(options.labels),
        "budget": _budget(options),
        "cli_tools": _cli_tools(options.cli_tools),
        "resume_native_id": options.resume,
        "worktree": _worktree(options),
        **fixed,
    }
    try:
        opened = client.call("session/new", **given(params))
    except ClisupError as error:
        if error.kind == "backend_not_found" and (near := _nearest(options.backend, names)):
            raise UsageError(error.message, kind=error.kind, hint=f"did you mean: -b {near}; {error.hint}") from None
        raise
    if opened.get("worktree") and (note := opened_note(opened["worktree"])):
        print(note, file=sys.stderr)
    return str(opened["session_id"])


def _nearest(name: str | None, names: list[str]) -> str:
    import difflib  # only a wrong name needs it

    return next(iter(difflib.get_close_matches(name or "", names, n=1, cutoff=0.5)), "")


def _cli_tools(named: str | None) -> str | list[str] | None:
    if named is None or named in ("none", "default"):
        return named
    return [name.strip() for name in named.split(",") if name.strip()]


def _directory(given: str | None) -> str:
    path = session_directory(given)
    return in_utf8(path, f"use directory {path!r}", "rename it, or give another one: -C DIRECTORY")


def _worktree(options: NewSession) -> dict[str, str] | bool | None:
    return given({"name": options.worktree_name, "base": options.worktree_base}) or options.worktree or None


def _budget(options: NewSession) -> dict[str, float] | None:
    return given({"usd": options.budget_usd, "tokens": options.budget_tokens}) or None
