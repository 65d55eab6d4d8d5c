"""Commands on the git worktree of a session: diff, land, discard."""

from __future__ import annotations

import json
import sys

import click

from clisup.cli.failure import usage
from clisup.cli.lookup import find_session
from clisup.cli.options import json_option, session_argument, utf8
from clisup.cli.views.terminal import Ink, plain, print_table
from clisup.client.options import given
from clisup.client.raw import JsonObject
from clisup.client.sync import Client
from clisup.errors import EXIT_OK, ClisupError

__all__ = ["diff", "discard", "kept_note", "kept_notes", "land", "opened_note"]

_SHORT = 12
_LISTED = 20
_STYLES = (("+++", "bold"), ("---", "bold"), ("diff ", "bold"), ("@@", "dim"), ("+", "green"), ("-", "red"))


@click.command("diff")
@session_argument
@click.option("--stat", is_flag=True, help="List the files with their numbers of added and deleted lines.")
@json_option("Print the answer of session/diff as JSON.")
def diff(session: str, stat: bool, as_json: bool) -> int:
    """Show the changes of SESSION in its git worktree since the session's base.

    The text is a patch, as of `git diff`, of committed and uncommitted changes. Untracked files are
    listed on stderr, and are not in the patch.

    \b
    Example:
      clisup diff 3f2a
      clisup diff 3f2a --stat
      clisup diff 3f2a --json | jq .not_landed
    """
    with Client.connect(name="clisup-diff") as client:
        session_id = find_session(client, session)
        found = client.call("session/diff", session_id=session_id, patch=not stat)
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
        return EXIT_OK
    if stat:
        _print_stat(found)
    else:
        _print_patch(found["diff"])
    for line in _summary(found, session_id, with_untracked=not stat):
        print(plain(line), file=sys.stderr)
    return EXIT_OK


def _print_patch(text: str) -> None:
    """Print a patch: as it is into a pipe, else with colours and without control characters."""
    if not sys.stdout.isatty():
        sys.stdout.write(text)
        return
    ink = Ink()
    for line in text.split("\n")[:-1]:
        style = next((style for start, style in _STYLES if line.startswith(start)), "")
        shown = plain(line)
        print(ink(style, shown) if style else shown)


def _print_stat(found: JsonObject) -> None:
    rows = [[_lines("+", file["added"]), _lines("-", file["deleted"]), file["path"]] for file in found["files"]]
    rows += [["untracked", "", path] for path in found["untracked"]]
    if rows:
        print_table(["ADDED", "DELETED", "FILE"], rows)
    else:
        print("No changes.")


def _lines(sign: str, number: int | None) -> str:
    return "binary" if number is None else f"{sign}{number}"


def _summary(found: JsonObject, session_id: str, *, with_untracked: bool) -> list[str]:
    lines = [f"untracked: {path}" for path in found["untracked"][:_LISTED]] if with_untracked else []
    if with_untracked and len(found["untracked"]) > _LISTED:
        lines.append(f"untracked: {len(found['untracked']) - _LISTED} more (clisup diff {session_id[:8]} --stat)")
    if found["truncated"]:
        lines.append(f"cut: see the rest with git -C {found['path']} diff {found['base'][:_SHORT]}")
    target = found["target"] or "no branch"
    lines.append(
        f"{found['branch']}: {_count(found['not_landed'], 'commit')} not landed on {target}, "
        f"{_count(found['uncommitted'], 'uncommitted file')} in {found['path']}"
    )
    return lines


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


@click.command("land")
@session_argument
@click.option("--commit", "message", metavar="MESSAGE", callback=utf8("commit"),
              help="Commit all changes first, with this message, without hooks and without a signature.")  # fmt: skip
@json_option("Print the answer of session/land as JSON.")
def land(session: str, message: str | None, as_json: bool) -> int:
    """Fast-forward your branch to the commit of SESSION's git worktree.

    The branch is the one that was checked out at the start of SESSION. The command refuses if the branch has other
    commits, or if changes are not committed.
    SESSION stays open, and can land again.

    \b
    Example:
      clisup land 3f2a
      clisup land 3f2a --commit "Mend the parser"
    """
    if message is not None and not message.strip():
        raise usage("cannot commit with an empty message", hint='--commit "Mend the parser"')
    with Client.connect(name="clisup-land") as client:
        session_id = find_session(client, session)
        done = client.call("session/land", session_id=session_id, **given({"commit": message}))
    if as_json:
        print(json.dumps(done, ensure_ascii=False))
        return EXIT_OK
    if done["committed"]:
        print(f"committed {done['committed'][:_SHORT]}")
    moved = f"{_count(done['commits'], 'commit')} landed, now at {done['after'][:_SHORT]}"
    print(plain(f"{done['branch']}: {moved if done['commits'] else 'nothing to land'}"))
    return EXIT_OK


@click.command("discard")
@session_argument
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option("Print the answer of session/discard as JSON.")
def discard(session: str, yes: bool, as_json: bool) -> int:
    """Close SESSION, and remove its git worktree and branch with all work in them.

    The command refuses while a turn runs. It prints the commit that has the work: git keeps such a commit for two weeks or
    more. Ignored files are not in it.

    \b
    Example:
      clisup discard 3f2a
      clisup discard 3f2a --yes --json | jq -r .commit
    """
    with Client.connect(name="clisup-discard") as client:
        session_id = find_session(client, session)
        if not yes:
            _ask(client, session_id)
        done = client.call("session/discard", session_id=session_id)
    if as_json:
        print(json.dumps(done, ensure_ascii=False))
        return EXIT_OK
    print(plain(f"session {session_id}: closed; {done['path']} and branch {done['branch']} removed"))
    if done["commits"] or done["uncommitted"]:
        print(plain(f"bring the work back: git branch {done['branch']} {done['commit']}"))
    return EXIT_OK


def _ask(client: Client, session_id: str) -> None:
    """Show what a discard would remove, and ask. Raises `UsageError` without a terminal, `click.Abort` for a no."""
    if not sys.stdin.isatty():
        raise usage("cannot ask whether to discard, because stdin is no terminal", hint="give --yes")
    row = client.call("session/get", session_id=session_id)
    tree = row["worktree"]
    if tree is not None and tree["state"] != "removed":
        try:
            found = client.call("session/diff", session_id=session_id, patch=False)
        except ClisupError as error:  # the daemon may still be able to discard what cannot be compared
            print(plain(f"cannot compare: {error}"), file=sys.stderr)
        else:
            for line in _summary(found, session_id, with_untracked=True):
                print(plain(line), file=sys.stderr)
    click.confirm(f"Close session {session_id[:8]} and remove this work?", abort=True, err=True)


# -- notes of other commands --------------------------------------------------------------------------------------------


def opened_note(worktree: JsonObject | None) -> str | None:
    """Return the line about the worktree of a session that was just opened, or None."""
    if worktree is None:
        return None
    note = f"worktree {worktree['path']}, branch {worktree['branch']}, from {worktree['base'][:_SHORT]}"
    if worktree["left_changes"]:
        note += f"; uncommitted changes stay in {worktree['repository']}"
    return plain(note)


def kept_notes(rows: list[JsonObject]) -> list[str]:
    """Return lines about worktrees that stay after the close of their sessions."""
    kept = [row for row in rows if (row.get("worktree") or {}).get("state") == "kept"]
    return [plain(f"worktree {row['worktree']['path']} stays: {row['worktree']['kept']}") for row in kept]


def kept_note(session_id: str, closed: JsonObject) -> str | None:
    """Return the line about a worktree that stays after the close of its session, or None."""
    if not (why := closed.get("worktree_kept")):
        return None
    return plain(f"its worktree stays: {why} (clisup diff, land or discard {session_id[:8]})")
