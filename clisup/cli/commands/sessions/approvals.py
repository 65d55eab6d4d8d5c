"""`clisup approvals`: the tool calls that wait for a word, and the word."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import click

from clisup.cli.command_group import CommandGroup
from clisup.cli.lookup import find_session
from clisup.cli.parameters import utf8
from clisup.cli.status.columns import short_ids
from clisup.cli.views.approval_words import question_lines, visible
from clisup.cli.views.event_lines import tool_words, words
from clisup.cli.views.terminal import Ink, clip, table
from clisup.client.sync import Client
from clisup.errors import UsageError

__all__ = ["command"]

_HEAD = ["ID", "TURN", "SINCE", "TOOL"]
_NAMED = re.compile(r"[1-9][0-9]{0,15}:.")
_NAME = "clisup-approvals"
_TYPES = ["approval_requested", "approval_resolved"]
_Approval = dict[str, Any]


@click.group("approvals", cls=CommandGroup, invoke_without_command=True)
@click.option("--session", metavar="SESSION", help="Only of this session: its id, or the first characters of it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line, with the whole input.")
@click.option("--watch", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.pass_context
def command(context: click.Context, session: str | None, as_json: bool, watch: bool) -> int:
    """List the tool calls that wait for a word; `allow` and `deny` give it.

    The first answer wins. An ID is what the list shows; its first characters are enough where they tell it from the others.

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
            _print(_open(client, session_id), as_json)
    return 0


def _open(client: Client, session_id: str | None) -> list[_Approval]:
    params = {"session_id": session_id} if session_id else {}
    return list(client.call("approval/list", **params)["approvals"])


def _print(approvals: list[_Approval], as_json: bool) -> None:
    if as_json:
        for approval in approvals:
            print(json.dumps(approval, ensure_ascii=False))
        return
    short = short_ids([approval["session_id"] for approval in approvals])
    rows = [
        [
            f"{short[a['session_id']]}/{a['approval_id']}",
            a["turn_id"],
            a["requested_at"][:19] + "Z",
            clip(_what(a), 100),
        ]
        for a in approvals
    ]
    print(table(_HEAD, [[visible(cell) for cell in row] for row in rows]) if rows else "No approval is open.")


def _what(approval: _Approval) -> str:
    return tool_words({**approval, "name": approval["tool_name"]})


def _watch(client: Client, session_id: str | None, as_json: bool) -> None:
    """What is open now, then each request and its end as they come; across restarts of the daemon."""
    ink = Ink()
    with client.follow(session_id or "*", None, types=_TYPES) as events:
        opened = _open(client, session_id)
        seen = {(approval["session_id"], approval["seq"]) for approval in opened}
        for approval in opened:
            _show({**approval, "type": "approval_requested"}, as_json, ink)
        for event in events:
            if event["type"] in _TYPES and (event["session_id"], event["seq"]) not in seen:
                _show(event, as_json, ink)


def _show(event: _Approval, as_json: bool, ink: Ink) -> None:
    if as_json:
        print(json.dumps(event, ensure_ascii=False), flush=True)
        return
    name = f"{event['session_id'][:8]}/{event['approval_id']}"
    if event["type"] == "approval_requested":
        lines = question_lines(event)
        print("\n".join([f"{ink('bold', visible(name))}  {lines[0]}", *lines[1:]]), flush=True)
    else:
        print(f"{visible(name)}  {words(event)}", flush=True)


@command.command("allow")
@click.argument("approval")
@click.option("--session", metavar="SESSION", help="Its session, where the ID alone does not tell.")
@click.option("--remember", is_flag=True, help="Ask the CLI not to ask again for the like, where it offers that.")
def allow(approval: str, session: str | None, remember: bool) -> int:
    """Let the tool call of APPROVAL run.

    \b
    Example:
      clisup approvals allow 3f2a9c1e/1:0
    """
    return _respond(approval, session, decision="allow", remember=remember)


@command.command("deny")
@click.argument("approval")
@click.option("--session", metavar="SESSION", help="Its session, where the ID alone does not tell.")
@click.option("--message", callback=utf8("send the message", "convert it first: iconv -t UTF-8"),
              help="What the model is told; claude alone hands it on.")  # fmt: skip
@click.option("--remember", is_flag=True, help="Ask the CLI to refuse the like by itself, where it offers that.")
def deny(approval: str, session: str | None, message: str | None, remember: bool) -> int:
    """Do not let the tool call of APPROVAL run; the turn goes on without it.

    \b
    Example:
      clisup approvals deny 3f2a9c1e/1:0 --message "Not in this directory."
    """
    more = {"message": message} if message is not None else {}
    return _respond(approval, session, decision="deny", remember=remember, **more)


def _respond(approval: str, session: str | None, **params: Any) -> int:
    with Client.connect(name=_NAME) as client:
        session_id = find_session(client, session) if session else None
        found = _find(_open(client, session_id), approval)
        if found is None:  # the daemon knows why
            prefix, _, rest = approval.rpartition("/")
            if not _NAMED.match(rest):
                reason = f"cannot find approval {approval!r}, because one is named like 1:0 or 3f2a9c1e/1:0"
                raise UsageError(reason, kind="usage", hint="list them: clisup approvals")
            session_id = session_id or (find_session(client, prefix) if prefix else None)
            known = {"session_id": session_id} if session_id else {}
            client.call("approval/respond", approval_id=rest if prefix else approval, **known, **params)
        else:
            client.call("approval/respond", approval_id=found["approval_id"], session_id=found["session_id"], **params)
            print(f"{params['decision']}: {clip(_what(found))}")
    return 0


def _find(approvals: list[_Approval], wanted: str) -> _Approval | None:
    """The one that is meant: `1:0`, or with the beginning of its session's id `3f2a/1:0`. Raises `UsageError(usage)`."""
    prefix, _, rest = wanted.rpartition("/") if ":" not in wanted.partition("/")[0] else ("", "", wanted)
    of_session = [a for a in approvals if a["session_id"].startswith(prefix.lower())]
    found = [a for a in of_session if a["approval_id"] == rest] or [
        a for a in of_session if a["approval_id"].startswith(rest) and len(rest) > len("1:")
    ]
    if len(found) > 1:
        names = ", ".join(f"{a['session_id'][:8]}/{a['approval_id']}" for a in found[:5])
        raise UsageError(
            f"cannot tell which approval {wanted!r} is, because {len(found)} ids fit",
            kind="usage",
            hint=f"give one of: {names}",
        )
    return found[0] if found else None
