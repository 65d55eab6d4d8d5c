"""Commands on sessions and their turns: sessions, close, delete, gc, fork, set, context, interrupt, steer."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from typing import Any

import click

from clisup.cli.commands.worktrees import kept_note, kept_notes
from clisup.cli.failure import exit_code_of, usage
from clisup.cli.lookup import all_sessions, every_session, find_session, pick
from clisup.cli.on import SESSION, fleet_option
from clisup.cli.options import (
    MAX_COUNT,
    MAX_SECONDS,
    MAX_USD,
    age,
    complete_session,
    json_option,
    labels_of,
    limit,
    named,
    session_argument,
    turn_id,
    utf8,
)
from clisup.cli.status.columns import GO_FIRST, busy, chosen, inked, left_out, newest_first, sessions_laid_out, since
from clisup.cli.status.command import budget_words
from clisup.cli.steered import turn_that_took
from clisup.cli.views.terminal import Ink, cut, plain, print_table, size, width_of
from clisup.client.failures import AWAY
from clisup.client.options import given
from clisup.client.raw import JsonObject
from clisup.client.sync import Client
from clisup.errors import EXIT_OK, EXIT_TURN_FAILED, ClisupError

__all__ = ["close", "context", "delete", "fork", "gc", "interrupt", "sessions", "set_", "steer"]

_LISTED = (
    "SESSION", "STATUS", "SINCE", "BACKEND", "MODEL", "TURNS", "COST", "AGE", "LABELS", "BRANCH", "DIRECTORY", "TITLE",
)  # fmt: skip
_STATES = ["idle", "waiting", "starting", "running", "ending", "failed", "closed"]
_LIMITS = ("usd", "tokens", "turns", "wall_s")
_APPLIED = {"now": "from now on", "next_turn": "from the next turn on"}


# -- sessions -----------------------------------------------------------------------------------------------------------


@click.command("sessions")
@json_option("Print one JSON object a line.")
@fleet_option("List those of all boxes; --json prints one object with a list of boxes.")
@click.option("--all", "everything", is_flag=True, help="Closed sessions, too.")
@click.option("--state", type=click.Choice(_STATES), help="Only sessions in this state (default: all but closed).")
@click.option("--label", "labels", multiple=True, metavar="K=V", callback=utf8("look for the label"),
              help="Only sessions with this label; may be repeated.")  # fmt: skip
@click.option("-o", "--output", "columns", metavar="FIELDS", help="Only these columns: a comma list, as of status.")
def sessions(
    as_json: bool, everywhere: bool, everything: bool, state: str | None, labels: tuple[str, ...], columns: str | None
) -> int:
    """List sessions, newest first.

    STATUS says `wants you` if the session waits for a person, else what its turn does, else how its last turn ended.
    SINCE is the age of that.

    If no daemon is running, the list comes from its files, and the exit code is 3.

    \b
    Example:
      clisup sessions
      clisup sessions --all
      clisup sessions --state running --json | jq -r .session_id
      clisup sessions --label ticket=4711 -o session,status,title
      clisup sessions --fleet --state running
    """
    if everything and state:
        raise usage("cannot list one state and all sessions", hint="leave out --all or --state")
    if as_json and columns is not None:
        raise usage("cannot give two forms at once", hint="choose one of --json and -o")
    names = chosen(columns) if columns is not None else None
    if everywhere:
        from clisup.cli.fleet.views import show_fleet_sessions

        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # the C locale has no ellipsis
        states = [None, "closed"] if everything else [state]
        return show_fleet_sessions(states, labels_of(labels) or {}, names, _LISTED, as_json=as_json)
    found, code = _found(state, labels_of(labels) or {}, everything)
    if as_json:
        for row in found:
            print(json.dumps(row, ensure_ascii=False))
    elif found:
        _print_sessions(found, names)
        for note in kept_notes(found):
            print(note, file=sys.stderr)
    else:
        print("No sessions." if everything or state else "No open sessions (clisup sessions --all lists closed ones).")
    return code


def _found(state: str | None, labels: dict[str, str], everything: bool) -> tuple[list[JsonObject], int]:
    states = [None, "closed"] if everything else [state]
    try:
        with Client.connect(name="clisup-sessions") as client:
            rows = [row for one in states for row in all_sessions(client, state=one, labels=labels)]
            code = EXIT_OK
    except ClisupError as error:
        if error.kind != "daemon_not_running":
            raise
        from clisup.cli.offline import sessions_from_disk

        rows, code = [row for one in states for row in sessions_from_disk(one)], error.exit_code
        rows = [row for row in rows if labels.items() <= row["labels"].items()]
    return newest_first(rows) if everything else rows, code


def _print_sessions(found: list[JsonObject], names: list[str] | None) -> None:
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # the C locale has no ellipsis
    ink, width = Ink(), width_of(sys.stdout)
    layout = sessions_laid_out(found, names or _LISTED, width, () if names else GO_FIRST)
    print(cut("\n".join(inked(layout, found, ink)), width))
    if note := left_out(layout):
        print(ink("dim", note))


# -- close --------------------------------------------------------------------------------------------------------------


@click.command("close")
@click.argument("sessions", nargs=-1, metavar="[SESSION]...", type=SESSION, shell_complete=complete_session)
@click.option("--all", "everything", is_flag=True, help="Every open session; asks first on a terminal.")
@click.option("--idle", "idle_s", metavar="AGE", callback=age,
              help="Every open session without a turn for AGE, such as 12h or 2d.")  # fmt: skip
@click.option("-y", "--yes", is_flag=True, help="With --all: do not ask.")
def close(sessions: tuple[str, ...], everything: bool, idle_s: float | None, yes: bool) -> int:
    """Close each SESSION permanently.

    A running turn is interrupted first. The events of a closed session stay readable.

    A session that cannot be closed is reported, and the command goes on with the next one. The exit code is that of the
    first failure.

    \b
    Example:
      clisup close 3f2a 77b0
      clisup close --idle 2d
      clisup close --all --yes
    """
    if bool(sessions) + everything + (idle_s is not None) != 1:
        raise click.UsageError("give sessions, or one of --all and --idle", click.get_current_context())
    if everything and not yes and not sys.stdin.isatty():
        raise usage("cannot ask whether to close all sessions, because stdin is no terminal", hint="give --yes")
    with Client.connect(name="clisup-close") as client:
        if sessions:
            rows = functools.cache(lambda: every_session(client))
            wanted = dict.fromkeys(sessions)
            return _close_each(client, [functools.partial(pick, prefix, rows) for prefix in wanted])
        found = list(all_sessions(client))
        if idle_s is not None:
            found = [s for s in found if not busy(s) and (since(s) or 0.0) >= idle_s]
        if everything and found and not yes and not _confirmed(found):
            return EXIT_OK
        if not found:
            print("No open sessions." if everything else "No open session is idle for so long.")
        return _close_each(
            client, [functools.partial(str, s["session_id"]) for s in found], only_idle=idle_s is not None
        )


def _confirmed(found: list[JsonObject]) -> bool:
    """Ask on stderr whether to close these sessions."""
    at_work = sum(map(busy, found))
    also = f" ({at_work} of them at work)" if at_work else ""
    many = "1 session" if len(found) == 1 else f"{len(found)} sessions"
    return click.confirm(f"Close {many}{also}?", err=True)


def _close_each(client: Client, names: list[Callable[[], str]], *, only_idle: bool = False) -> int:
    """Close each session, report each, and return the exit code of the first failure.

    With `only_idle`, a session that has begun to work meanwhile stays open.
    """
    code = EXIT_OK
    closed: set[str] = set()
    for name in names:
        try:
            session_id = name()
            if session_id in closed or (only_idle and busy(client.call("session/get", session_id=session_id))):
                continue
            done = client.call("session/close", session_id=session_id)
            closed.add(session_id)
            print(f"session {session_id}: closed", flush=True)
            if note := kept_note(session_id, done):
                print(note, file=sys.stderr)
        except ClisupError as error:
            if error.kind in AWAY:
                raise
            failed = exit_code_of(error)
            code = code or failed
    return code


@click.command("delete")
@click.argument("sessions", nargs=-1, metavar="[SESSION]...", type=SESSION, shell_complete=complete_session)
@click.option("--all-closed", is_flag=True, help="Every closed session.")
def delete(sessions: tuple[str, ...], all_closed: bool) -> int:
    """Delete each closed SESSION permanently.

    This removes its events, the output of its turns, and its place in every durable cursor. An open session is refused:
    close it first. The CLI's own transcript stays.

    \b
    Example:
      clisup delete 3f2a 77b0
      clisup delete --all-closed
    """
    if bool(sessions) == all_closed:
        reason = "it names sessions and --all-closed" if sessions else "it names no session: give one, or --all-closed"
        raise click.UsageError(reason, click.get_current_context())
    with Client.connect(name="clisup-delete") as client:
        if not all_closed:
            for session_id in dict.fromkeys([find_session(client, session) for session in sessions]):
                client.call("session/delete", session_id=session_id)
                print(f"session {session_id}: deleted", flush=True)
            return EXIT_OK
        found = [summary["session_id"] for summary in all_sessions(client, state="closed")]
        deleted = sum(_delete(client, session_id) for session_id in found)
    print(f"{deleted} closed sessions deleted" if deleted else "No closed sessions.")
    return EXIT_OK


def _delete(client: Client, session_id: str) -> bool:
    """Delete a session. Return False if another client or retention was faster."""
    try:
        client.call("session/delete", session_id=session_id)
    except ClisupError as error:
        if error.kind != "session_not_found":
            raise
        return False
    return True


@click.command("fork")
@session_argument
@click.option("--at-turn", metavar="T", callback=turn_id, help="The last turn in the new session's history; else all.")
def fork(session: str, at_turn: str | None) -> int:
    """Open a session with the history of SESSION.

    The new session has the same directory, model and settings. SESSION and its CLI's transcript are not changed. While a
    turn of SESSION runs, the new session has all turns before it. Prints the new session's id.

    \b
    Example:
      clisup fork 3f2a
      clisup run --session "$(clisup fork 3f2a --at-turn t2)" "Try it another way."
    """
    with Client.connect(name="clisup-fork") as client:
        answer = client.call("session/fork", session_id=find_session(client, session), **given({"at_turn": at_turn}))
    print(named(answer["session_id"]))
    return EXIT_OK


@click.command("set")
@session_argument
@click.option("--title", metavar="TITLE", callback=utf8("set the title"), help="The title in every list.")
@click.option("--model", metavar="MODEL", callback=utf8("name the model"), help="The model from here on.")
@click.option("--permission-mode", metavar="MODE", callback=utf8("name the permission mode"),
              help="What the CLI may do without asking, in its own words: acceptEdits, plan, ...")  # fmt: skip
@click.option("--budget-usd", type=float, metavar="USD", callback=limit(MAX_USD),
              help="Limit of the cost of all turns together.")  # fmt: skip
@click.option("--budget-tokens", type=int, metavar="N", callback=limit(MAX_COUNT),
              help="Limit of their tokens, input and output.")  # fmt: skip
@click.option("--budget-turns", type=int, metavar="N", callback=limit(MAX_COUNT), help="Limit of the number of turns.")
@click.option("--budget-wall-s", type=float, metavar="SECONDS", callback=limit(MAX_SECONDS),
              help="Limit of the time of all turns together.")  # fmt: skip
@click.option("--no-budget", is_flag=True, help="Remove all limits.")
def set_(session: str, no_budget: bool, title: str | None, **wanted: Any) -> int:
    """Change the title, the model, the permission mode or the budget of SESSION.

    A live process changes model and mode at once, even during a turn; else the change takes effect with the next turn. A
    budget takes effect at once and counts what was used before. Limits that are not named do not change.

    \b
    Example:
      clisup set 3f2a --title "Rewrite the parser"
      clisup set 3f2a --model opus
      clisup set 3f2a --permission-mode plan
      clisup set 3f2a --budget-usd 5
    """
    # The mode comes first: a backend may refuse the mode, but not the model.
    settings = given({name: wanted[name] for name in ("permission_mode", "model")})
    limits = given({name: wanted[f"budget_{name}"] for name in _LIMITS})
    if not settings and not limits and not no_budget and title is None:
        raise usage("cannot set nothing", hint="give --title, --model, --permission-mode or a --budget-... option")
    if limits and no_budget:
        raise usage("cannot both set and remove limits", hint="leave out --no-budget")
    named = settings if title is None else {**settings, "title": title.strip()}
    if (empty := next((name for name, value in named.items() if not value), None)) is not None:
        raise usage(f"cannot set an empty {empty.replace('_', ' ')}", hint="leave the option out to keep the value")
    with Client.connect(name="clisup-set") as client:
        session_id = find_session(client, session)
        if title is not None:
            client.call("session/set_title", session_id=session_id, title=title)
            print(f"title: {plain(title)}")
        for name, value in settings.items():
            answer = client.call(f"session/set_{name}", session_id=session_id, **{name: value})
            print(f"{name.replace('_', ' ')} {value}: {_APPLIED[answer['applied']]}")
        if limits or no_budget:
            before = client.call("session/get", session_id=session_id).get("budget") or {"limit": {}}
            budget = {} if no_budget else {**before["limit"], **limits}
            answer = client.call("session/set_budget", session_id=session_id, budget=budget)
            print(f"budget: {budget_words(answer['budget']) or 'none'}")
    return EXIT_OK


@click.command("context")
@session_argument
@click.option("--compact", is_flag=True, help="Make the CLI summarize its context, and wait for it.")
@json_option("Print the answer as JSON.")
def context(session: str, compact: bool, as_json: bool) -> int:
    """Show how full the context of a live SESSION is, or summarize it.

    The CLI counts by asking its API, which takes about a second.

    \b
    Example:
      clisup context 3f2a
      clisup context 3f2a --compact
    """
    with Client.connect(name="clisup-context") as client:
        session_id = find_session(client, session)
        if compact:
            result = client.call("session/compact", session_id=session_id, wait=True)
            print(json.dumps(result) if as_json else f"turn {result['turn_id']}: {result['outcome']}")
            return EXIT_OK if result["outcome"] == "completed" else EXIT_TURN_FAILED
        used = client.call("session/context_usage", session_id=session_id)
    if as_json:
        print(json.dumps(used))
        return EXIT_OK
    share = f" ({used['percentage']:g} %)" if used["percentage"] is not None else ""
    print(f"{used['total_tokens']:,} of {used['max_tokens']:,} tokens{share}")
    for category in used["categories"]:
        print(f"  {category['tokens']:>10,}  {plain(str(category['name']))}")
    return EXIT_OK


@click.command("interrupt")
@session_argument
@click.argument("turn", required=False)
@click.option("--kill", is_flag=True, help="Do not ask the CLI: kill its whole process tree.")
def interrupt(session: str, turn: str | None, kill: bool) -> int:
    """End the running turn of SESSION, and wait until it has ended.

    A queued TURN (such as t7) is removed from the queue.

    \b
    Example:
      clisup interrupt 3f2a
      clisup interrupt --kill 3f2a t7
    """
    with Client.connect(name="clisup-interrupt") as client:
        session_id = find_session(client, session)
        params = given({"turn_id": turn or None, "mode": "kill" if kill else "graceful"})
        done = client.call("session/interrupt", session_id=session_id, **params)
    print(f"turn {done['turn_id']}: {done['outcome'].replace('_', ' ')}")
    return EXIT_OK


@click.command("steer")
@session_argument
@click.argument("prompt", callback=utf8("send the prompt", "convert it first: iconv -t UTF-8"))
@click.option("--no-wait", is_flag=True, help="Print the steered turn at once, whichever turn takes PROMPT.")
def steer(session: str, prompt: str, no_wait: bool) -> int:
    """Send PROMPT into the running turn of SESSION.

    A CLI that runs a tool reads PROMPT with the tool's result. A CLI whose model is writing reads PROMPT in a turn of its
    own right after. If no turn runs, PROMPT starts a turn. The command waits until the CLI has taken PROMPT, and prints the
    id of the turn that took it; after Ctrl-C, PROMPT stays sent. Only live sessions can be steered (clisup run --live).

    \b
    Example:
      clisup steer 3f2a "Leave the tests alone."
    """
    with Client.connect(name="clisup-steer") as client:
        wanted = find_session(client, session)
        accepted = client.call("session/prompt", session_id=wanted, prompt=prompt, when_busy="steer")
        turn = str(accepted["turn_id"])
        if accepted.get("prompt_id") and accepted["delivery"] == "steered" and not no_wait:
            print(f"sent into turn {turn}; waiting until the CLI takes it", file=sys.stderr, flush=True)
            turn = turn_that_took(client, wanted, accepted)
    print(turn)
    if accepted["delivery"] != "steered":
        print("no turn was running: the prompt has a turn of its own", file=sys.stderr)
    return EXIT_OK


# -- gc -----------------------------------------------------------------------------------------------------------------

FOREIGN_SHOWN = 10  # dead sockets of other programs that a person sees


@click.command("gc")
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@click.option("--older-than", callback=age, default="7d", metavar="AGE", show_default=True,
              help="Remove sessions that were closed at least AGE ago; 0 for all closed ones.")  # fmt: skip
@click.option("--foreign", is_flag=True,
              help="Also remove dead sockets of claude processes that clisup did not start. Else they are only listed.")  # fmt: skip
@json_option("Print the answer of daemon/gc as JSON.")
def gc(dry_run: bool, older_than: float, foreign: bool, as_json: bool) -> int:
    """Remove closed sessions and leftovers, and report the disk space freed.

    This removes closed sessions, events beyond retention, leftovers of a crash (half-written files, run directories without
    a run, secrets of closed sessions, deleted sessions, dead sockets), empty cgroups, and git worktrees of closed sessions without
    work in them. It never touches a session that
    works, waits or rests, a session that cannot be read, or the CLIs' own transcripts.

    The daemon does the work if it is running; else this command does, under the lock of the state directory.

    \b
    Example:
      clisup gc --dry-run
      clisup gc --older-than 30d
      clisup gc --older-than 0 --json | jq .bytes
    """
    asked = {"foreign": True} if foreign else {}
    try:
        with Client.connect(name="clisup-gc") as client:
            done = client.call("daemon/gc", dry_run=dry_run, older_than_s=older_than, **asked)
    except ClisupError as error:
        if error.kind != "daemon_not_running":
            raise
        from clisup.daemon.ops.offline import clean_up_offline

        done = clean_up_offline(dry_run=dry_run, older_than_s=older_than, foreign=foreign)
    if as_json:
        print(json.dumps(done, ensure_ascii=False))
    else:
        _print(done)
    for kept in done.get("kept", ()):
        print(plain(f"worktree {kept['path']} stays: {kept['error']}"), file=sys.stderr)
    for failure in done["failed"]:
        print(plain(f"clisup: cannot remove {failure['path']}: {failure['error']}"), file=sys.stderr)
    return EXIT_TURN_FAILED if done["failed"] else EXIT_OK


def _print(done: JsonObject) -> None:
    rows = _item_rows(done["items"])
    if rows:
        print_table(["KIND", "SIZE", "WHY", "PATH"], rows)
        verb = "would remove" if done["dry_run"] else "removed"
        items = "1 item" if len(rows) == 1 else f"{len(rows)} items"
        more = f"; {done['more']} more were found: repeat the command" if done["more"] else ""
        print(f"\n{verb} {items}, {size(done['bytes'])}{more}")
    else:
        print("Nothing to remove.")
    if foreign := done.get("foreign"):
        found = (
            "1 dead socket of another program stays"
            if len(foreign) == 1
            else f"{len(foreign)} dead sockets of other programs stay"
        )
        print(f"\n{found} (clisup gc --foreign removes them):")
        print_table(["KIND", "SIZE", "WHY", "PATH"], _item_rows(foreign[:FOREIGN_SHOWN]))
        if len(foreign) > FOREIGN_SHOWN:
            print(f"and {len(foreign) - FOREIGN_SHOWN} more (--json lists all)")


def _item_rows(items: list[JsonObject]) -> list[list[str]]:
    return [[item["kind"], size(item["bytes"]), item["reason"], item["path"]] for item in items]
