"""`clisup approvals`: list pending approvals and answer them."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import click

from clisup.cli.lookup import find_session
from clisup.cli.options import CommandGroup, complete_session, json_option, utf8
from clisup.cli.status.columns import short_ids
from clisup.cli.views.events import Event, question_lines, tool_words, visible, words
from clisup.cli.views.terminal import Ink, clip, print_table
from clisup.client.options import given
from clisup.client.sync import Client
from clisup.errors import UsageError

__all__ = ["approvals"]

_HEAD = ["ID", "TURN", "SINCE", "TOOL"]
_NAMED = re.compile(r"[1-9][0-9]{0,15}:.")
_NAME = "clisup-approvals"
_TYPES = ["approval_requested", "approval_resolved"]


@click.group("approvals", cls=CommandGroup, invoke_without_command=True)
@click.option(
    "--session",
    metavar="SESSION",
    shell_complete=complete_session,
    help="Only of this session: its id, or the first characters of it.",
)
@json_option("Print one JSON object a line, with the whole input.")
@click.option("--watch", is_flag=True, help="Follow new approvals and answers, until Ctrl-C.")
@click.pass_context
def approvals(context: click.Context, session: str | None, as_json: bool, watch: bool) -> int:
    """List pending approvals. `allow` and `deny` answer them.

    The first answer wins. The list shows the ID of each approval; the first characters are enough if they are unique.

    \b
    Example:
      clisup approvals
      clisup approvals allow 3f2a9c1e/1:0
      clisup approvals deny 1:0 --message "Use git restore instead."
      clisup approvals --watch --json | jq -c '[.type, .tool_name, .input.command]'
    """
    if context.invoked_subcommand is not None:
        return 0
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    with Client.connect(name=_NAME) as client:
        session_id = find_session(client, session) if session else None
        if watch:
            _watch(client, session_id, as_json)
        else:
            _print(_list(client, session_id), as_json)
    return 0


def _list(client: Client, session_id: str | None) -> list[Event]:
    return list(client.call("approval/list", **given({"session_id": session_id}))["approvals"])


def _print(found: list[Event], as_json: bool) -> None:
    if as_json:
        for approval in found:
            print(json.dumps(approval, ensure_ascii=False))
        return
    if not found:
        print("No pending approvals.")
        return
    short = short_ids([approval["session_id"] for approval in found])
    rows = [
        [
            f"{short[a['session_id']]}/{a['approval_id']}",
            a["turn_id"],
            a["requested_at"][:19] + "Z",
            clip(_what(a), 100),
        ]
        for a in found
    ]
    print_table(_HEAD, [[visible(cell) for cell in row] for row in rows])


def _what(approval: Event) -> str:
    return tool_words({**approval, "name": approval["tool_name"]})


def _watch(client: Client, session_id: str | None, as_json: bool) -> None:
    """Print pending approvals, then new requests and answers, across restarts of the daemon."""
    ink = Ink()
    with client.follow(session_id or "*", None, types=_TYPES) as events:
        opened = _list(client, session_id)
        seen = {(approval["session_id"], approval["seq"]) for approval in opened}
        for approval in opened:
            _show({**approval, "type": "approval_requested"}, as_json, ink)
        for event in events:
            if event["type"] in _TYPES and (event["session_id"], event["seq"]) not in seen:
                _show(event, as_json, ink)


def _show(event: Event, as_json: bool, ink: Ink) -> None:
    if as_json:
        print(json.dumps(event, ensure_ascii=False), flush=True)
        return
    name = f"{event['session_id'][:8]}/{event['approval_id']}"
    if event["type"] == "approval_requested":
        lines = question_lines(event)
        print("\n".join([f"{ink('bold', visible(name))}  {lines[0]}", *lines[1:]]), flush=True)
    else:
        print(f"{visible(name)}  {words(event)}", flush=True)


@approvals.command("allow")
@click.argument("approval")
@click.option(
    "--session", metavar="SESSION", shell_complete=complete_session, help="The session, if the ID alone is ambiguous."
)
@click.option("--remember", is_flag=True, help="Ask the CLI to allow similar calls from now on, if it can.")
def allow(approval: str, session: str | None, remember: bool) -> int:
    """Allow the tool call of APPROVAL.

    \b
    Example:
      clisup approvals allow 3f2a9c1e/1:0
    """
    return _respond(approval, session, decision="allow", remember=remember)


@approvals.command("deny")
@click.argument("approval")
@click.option(
    "--session", metavar="SESSION", shell_complete=complete_session, help="The session, if the ID alone is ambiguous."
)
@click.option("--message", callback=utf8("send the message", "convert it first: iconv -t UTF-8"),
              help="A message to the model; only claude passes it on.")  # fmt: skip
@click.option("--remember", is_flag=True, help="Ask the CLI to deny similar calls from now on, if it can.")
def deny(approval: str, session: str | None, message: str | None, remember: bool) -> int:
    """Deny the tool call of APPROVAL; the turn goes on without it.

    \b
    Example:
      clisup approvals deny 3f2a9c1e/1:0 --message "Not in this directory."
    """
    return _respond(approval, session, decision="deny", remember=remember, **given({"message": message}))


def _respond(approval: str, session: str | None, **params: Any) -> int:
    with Client.connect(name=_NAME) as client:
        session_id = find_session(client, session) if session else None
        found = _find(_list(client, session_id), approval)
        if found is None:  # the daemon reports the reason
            prefix, _, rest = approval.rpartition("/")
            if not _NAMED.match(rest):
                reason = f"cannot find approval {approval!r}, because approvals are named 1:0 or 3f2a9c1e/1:0"
                raise UsageError(reason, kind="usage", hint="list them: clisup approvals")
            session_id = session_id or (find_session(client, prefix) if prefix else None)
            known = given({"session_id": session_id, "approval_id": rest if prefix else approval})
            client.call("approval/respond", **known, **params)
        else:
            client.call("approval/respond", approval_id=found["approval_id"], session_id=found["session_id"], **params)
            print(f"{params['decision']}: {clip(_what(found))}")
    return 0


def _find(pending: list[Event], wanted: str) -> Event | None:
    """Return the approval `1:0`, or `3f2a/1:0` with the beginning of its session's id. Raises `UsageError(usage)`."""
    prefix, _, rest = wanted.rpartition("/") if ":" not in wanted.partition("/")[0] else ("", "", wanted)
    of_session = [a for a in pending if a["session_id"].startswith(prefix.lower())]
    found = [a for a in of_session if a["approval_id"] == rest] or [
        a for a in of_session if a["approval_id"].startswith(rest) and len(rest) > len("1:")
    ]
    if len(found) > 1:
        names = ", ".join(f"{a['session_id'][:8]}/{a['approval_id']}" for a in found[:5])
        raise UsageError(
            f"approval {wanted!r} is ambiguous, because {len(found)} ids match",
            kind="usage",
            hint=f"give one of: {names}",
        )
    return found[0] if found else None
