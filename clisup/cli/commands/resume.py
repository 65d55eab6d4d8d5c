"""`clisup resume`: take up a session that began in a CLI's own terminal program."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime

import click

from clisup.cli.daemon_start import ensure_daemon, no_start_option
from clisup.cli.failure import usage
from clisup.cli.lookup import SHORTEST
from clisup.cli.options import absolute, complete_backend, in_utf8, json_option, utf8
from clisup.cli.turn import json_line, print_line
from clisup.cli.views.terminal import clip, duration, plain, print_table, width_of
from clisup.client.options import given
from clisup.client.raw import JsonObject
from clisup.client.reconnect import new_key
from clisup.client.sync import RepeatingClient
from clisup.errors import EXIT_OK, UsageError

__all__ = ["resume"]

SHOWN = 20
"""Sessions in the list for people."""

_MOST = 200
_UUID_LENGTH = 36
_MOST_TITLE, _LEAST_TITLE = 80, 12


@click.command("resume")
@click.argument("native_id", required=False, metavar="[NATIVE_ID]", callback=utf8("name the session"))
@click.option("-b", "--backend", metavar="BACKEND", shell_complete=complete_backend, callback=utf8("name the backend"),
              help="Only sessions of this backend.")  # fmt: skip
@click.option("-C", "directory", metavar="DIRECTORY", help="The sessions' directory (default: here).")
@click.option("--list", "only_list", is_flag=True, help="Print the sessions, and open none.")
@click.option("--attach", is_flag=True, help="Go on in `clisup attach`.")
@no_start_option
@json_option("Print JSON objects: with --list a line for each session, also for those that clisup has.")
def resume(
    native_id: str | None,
    backend: str | None,
    directory: str | None,
    only_list: bool,
    attach: bool,
    no_start: bool,
    as_json: bool,
) -> int:
    """Take up a session that began in a terminal's claude or codex in this directory.

    Without NATIVE_ID the newest sessions are listed, and a number chooses one. The beginning of an id is enough. The command
    opens a session of clisup that continues the conversation, and prints its id.

    A session that another process has open is refused: end that process first.

    \b
    Example:
      clisup resume
      clisup resume --list --json | jq -r .native_session_id
      clisup run --session "$(clisup resume 0ee63b03)" "Go on."
    """
    cwd = in_utf8(absolute(directory or ".", otherwise="-C DIRECTORY"), "use the directory")
    if only_list and (native_id is not None or attach):
        raise usage("cannot list sessions and open one", hint="leave --list out")
    ensure_daemon("clisup-resume", no_start=no_start)
    with RepeatingClient.connect(name="clisup-resume") as client:
        if not only_list and native_id and backend and len(native_id) == _UUID_LENGTH:
            chosen: JsonObject = {"backend": backend, "native_session_id": native_id.lower()}
        else:
            found = _found(client, cwd, backend)
            if only_list:
                _print(found, cwd, as_json=as_json)
                return EXIT_OK
            chosen = _pick(found, native_id, cwd) if native_id else _ask(found, cwd)
        session_id = _open(client, chosen, cwd)
    if attach:
        from clisup.cli.attach import attach as attach_command

        context = click.get_current_context()
        code = context.invoke(attach_command, session=session_id)
        return code if isinstance(code, int) else EXIT_OK
    print_line(json_line({"session_id": session_id, **chosen}) if as_json else session_id)
    if not as_json:
        print(f'continue with: clisup run --session {session_id[:8]} "..."', file=sys.stderr)
    return EXIT_OK


def _found(client: RepeatingClient, cwd: str, backend: str | None) -> list[JsonObject]:
    answer = client.call("backend/sessions", **given({"cwd": cwd, "backend": backend, "limit": _MOST}))
    if answer["skipped"]:
        names = plain(", ".join(answer["skipped"]))
        print(f"clisup: the sessions of {names} are missing: their files could not be read in time", file=sys.stderr)
    return list(answer["sessions"])


def _open(client: RepeatingClient, chosen: JsonObject, cwd: str) -> str:
    params = {
        "session_id": new_key(),  # a request repeated after a restart of the daemon opens no second session
        "backend": chosen["backend"],
        "cwd": cwd,
        "resume_native_id": chosen["native_session_id"],
        "title": chosen.get("title"),
    }
    return str(client.call("session/new", **given(params))["session_id"])


def _pick(found: list[JsonObject], native_id: str, cwd: str) -> JsonObject:
    """Return the one session whose id begins with `native_id`."""
    if len(native_id) < SHORTEST:
        raise usage(f"session id {native_id!r} is too short: give at least {SHORTEST} characters")
    matching = [item for item in found if item["native_session_id"].startswith(native_id.lower())]
    if len(matching) == 1:
        return matching[0]
    if matching:
        names = ", ".join(item["native_session_id"] for item in matching[:5])
        raise usage(
            f"session id {native_id!r} is ambiguous, because {len(matching)} ids begin with it", hint=f"one of {names}"
        )
    raise UsageError(
        f"no CLI has a session {native_id!r} of {cwd}",
        kind="session_not_found",
        hint="list them: clisup resume --list; or give the whole id and its backend with -b",
    )


# -- people -------------------------------------------------------------------------------------------------------------


def _ask(found: list[JsonObject], cwd: str) -> JsonObject:
    """Let a person choose a session by its number."""
    if not sys.stdin.isatty():
        raise usage(
            "cannot choose a session, because stdin is no terminal", hint="name it: clisup resume NATIVE_ID, or --list"
        )
    fresh = _fresh(found)
    if not fresh:
        raise UsageError(
            f"no CLI has a session of {cwd} that clisup does not have already",
            kind="session_not_found",
            hint="see clisup sessions; -C names another directory",
        )
    shown = fresh[:SHOWN]
    print(_table(shown, numbered=True), file=sys.stderr)
    number: int = click.prompt(f"Number (1-{len(shown)})", type=click.IntRange(1, len(shown)), default=1, err=True)
    return shown[number - 1]


def _print(found: list[JsonObject], cwd: str, *, as_json: bool) -> None:
    if as_json:
        for item in found:
            print_line(json_line(item))
        return
    fresh = _fresh(found)
    if not fresh:
        print(f"no CLI has a session of {clip(cwd, 200)} that clisup does not have already", file=sys.stderr)
        return
    head, rows = _rows(fresh[:SHOWN], width_of(sys.stdout), numbered=False)
    print_table(head, rows)
    if len(fresh) > SHOWN:
        print(f"{len(fresh) - SHOWN} older ones: --list --json prints all", file=sys.stderr)


def _fresh(found: list[JsonObject]) -> list[JsonObject]:
    return [item for item in found if item.get("session_id") is None]


def _table(found: list[JsonObject], *, numbered: bool) -> str:
    from clisup.cli.views.terminal import table

    return table(*_rows(found, width_of(sys.stderr), numbered=numbered))


def _rows(found: list[JsonObject], width: int | None, *, numbered: bool) -> tuple[list[str], list[list[str]]]:
    """Return a table's head and rows. Each row fits into the width. A narrow terminal gets no column for the branch."""
    columns = {
        "#": [str(number) for number in range(1, len(found) + 1)] if numbered else [],
        "ID": [item["native_session_id"][:8] for item in found],
        "AGE": [_age(item["updated_at"]) for item in found],
        "BACKEND": [clip(item["backend"], 16) for item in found],
        "BRANCH": [clip(item.get("branch") or "", 24) for item in found],
    }
    columns = {name: cells for name, cells in columns.items() if any(cells)}
    titles = [item.get("title") or "(no prompt yet)" for item in found]
    if width is not None and _room(columns, width) < _LEAST_TITLE:
        columns.pop("BRANCH", None)
    room = _MOST_TITLE if width is None else max(_LEAST_TITLE, min(_MOST_TITLE, _room(columns, width)))
    columns["TITLE"] = [clip(title, room) for title in titles]
    return list(columns), [list(row) for row in zip(*columns.values(), strict=True)]


def _room(columns: dict[str, list[str]], width: int) -> int:
    return width - sum(2 + max(len(name), *map(len, cells)) for name, cells in columns.items())


def _age(moment: str) -> str:
    at = datetime.fromisoformat(moment).astimezone(UTC).timestamp()
    return duration(max(0.0, time.time() - at))
