"""`clisup approvals`: list pending approvals and answer them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

import click

from clisup.cli.approval_finder import FoundApproval, find_approval
from clisup.cli.approval_numbers import ApprovalNumbers
from clisup.cli.approval_prompt import no_echo
from clisup.cli.failure import usage
from clisup.cli.lookup import find_session
from clisup.cli.on import APPROVAL, SESSION, fleet_option
from clisup.cli.options import CommandGroup, complete_session, json_option, utf8
from clisup.cli.views.answer import blob_reader
from clisup.cli.views.approval_table import PendingApprovals, approval_rows, print_approvals, short_id
from clisup.cli.views.events import Event, visible, words
from clisup.cli.views.form import Dialog, Form, FormError, answer_of, approval_words, form_of, with_whole_input
from clisup.cli.views.terminal import Ink, clip, plain
from clisup.client.options import given
from clisup.client.raw import JsonObject
from clisup.client.sync import Client
from clisup.errors import UsageError

__all__ = ["approvals"]

_NAME = "clisup-approvals"
_TYPES = ["approval_requested", "approval_resolved"]
_SESSIONS_LOOKED_UP = 100
"""Sessions of a list whose title, directory and backend are asked for."""


@click.group("approvals", cls=CommandGroup, invoke_without_command=True)
@click.option(
    "--session",
    metavar="SESSION",
    type=SESSION,
    shell_complete=complete_session,
    help="Only of this session: its id, or the first characters of it.",
)
@json_option("Print one JSON object a line, with the whole input.")
@fleet_option("List those of all boxes; `approvals allow BOX/N` answers there.")
@click.option("--watch", is_flag=True, help="Follow new approvals and answers, until Ctrl-C.")
@click.pass_context
def approvals(context: click.Context, session: str | None, as_json: bool, everywhere: bool, watch: bool) -> int:
    """List pending approvals, and answer them.

    The first answer wins. APPROVAL is the number in the list, the ID, the first characters of it, or a session with one
    pending approval. A number stays with its approval for a day after the last list that showed it.

    \b
    Example:
      clisup approvals
      clisup approvals allow 3
      clisup approvals answer 4 2 "Use port 8080."
      clisup approvals deny 3f2a9c1e/1:0 --message "Use git restore instead."
      clisup approvals --fleet
      clisup approvals --watch --json | jq -c '[.type, .tool_name, .input.command]'
    """
    if context.invoked_subcommand is not None:
        if everywhere:
            raise usage("cannot answer on all boxes at once", hint="name the box: clisup approvals allow BOX/3")
        return 0
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    if everywhere:
        if session is not None:
            raise usage("cannot list all boxes with --session", hint="leave it out, or give --on BOX")
        if watch:
            return _watch_boxes(as_json)
        from clisup.cli.fleet.views import show_fleet_approvals

        return show_fleet_approvals(_pending, as_json=as_json)
    with Client.connect(name=_NAME) as client:
        session_id = find_session(client, session) if session else None
        if watch:
            _watch(client, session_id, as_json)
        else:
            _print(client, _list(client, session_id), as_json)
    return 0


def _list(client: Client, session_id: str | None) -> list[Event]:
    return list(client.call("approval/list", **given({"session_id": session_id}))["approvals"])


def _print(client: Client, found: list[Event], as_json: bool) -> None:
    if as_json:
        for approval in found:
            print(json.dumps(approval, ensure_ascii=False))
    elif found:
        print_approvals(_rows(client, found))
    else:
        print("No pending approvals.")


def _rows(client: Client, found: list[Event]) -> list[list[str]]:
    numbers = ApprovalNumbers(client.path).of(found)
    ages = _ages(client, found)
    found = [with_whole_input(approval, _fetcher(client, approval)) for approval in found]
    return approval_rows(found, numbers, _sessions(client, found), ages)


def _pending(path: str) -> PendingApprovals:
    """Return the pending approvals of the daemon behind a client's path."""
    with Client.connect(path, name=_NAME) as client:
        found = _list(client, None)
        return PendingApprovals(found, _rows(client, found))


def _ages(client: Client, found: list[Event]) -> list[float]:
    """Return the seconds since each request, by the daemon's clock."""
    now = datetime.fromisoformat(client.call("ping")["time"])
    return [max(0.0, (now - datetime.fromisoformat(a["requested_at"])).total_seconds()) for a in found]


def _sessions(client: Client, found: list[Event]) -> dict[str, JsonObject]:
    """Return the rows of the sessions that ask. A session that was deleted meanwhile has none."""
    rows = {}
    for session_id in list(dict.fromkeys(approval["session_id"] for approval in found))[:_SESSIONS_LOOKED_UP]:
        with suppress(UsageError):
            rows[session_id] = dict(client.call("session/get", session_id=session_id))
    return rows


def _fetcher(client: Client, approval: Event) -> Callable[[str], bytes]:
    return blob_reader(client.path, approval["session_id"], _NAME)


def _watch_boxes(as_json: bool) -> int:
    """Watch all boxes until Ctrl-C."""
    from clisup.cli.fleet.watching import watch_everywhere

    def watch(box: str, path: str) -> None:
        with Client.connect(path, name=_NAME) as client:
            _watch(client, None, as_json, box)

    return watch_everywhere(watch)


def _watch(client: Client, session_id: str | None, as_json: bool, box: str = "") -> None:
    """Print pending approvals, then new requests and answers, across restarts of the daemon. `box` is named in each."""
    ink, numbers = Ink(), ApprovalNumbers(client.path)
    with client.follow(session_id or "*", None, types=_TYPES) as events:
        opened = _list(client, session_id)
        seen = {(approval["session_id"], approval["seq"]) for approval in opened}
        for approval in opened:
            _show(client, {**approval, "type": "approval_requested"}, as_json, ink, numbers, box)
        for event in events:
            if event["type"] in _TYPES and (event["session_id"], event["seq"]) not in seen:
                _show(client, event, as_json, ink, numbers, box)


def _show(client: Client, event: Event, as_json: bool, ink: Ink, numbers: ApprovalNumbers, box: str) -> None:
    if as_json:
        print(json.dumps({"box": box, **event} if box else event, ensure_ascii=False), flush=True)
        return
    name = f"{box}/{short_id(event)}" if box else short_id(event)
    if event["type"] == "approval_requested":
        number = numbers.of([event]).get((event["session_id"], event["approval_id"]))
        lines = form_of(with_whole_input(event, _fetcher(client, event))).head()
        name = f"{box + '/' if box else ''}{number}  {name}" if number else name
        print("\n".join([f"{ink('bold', name)}  {ink('yellow', lines[0])}", *lines[1:]]), flush=True)
    else:
        print(f"{name}  {words(event)}", flush=True)


# -- answers ------------------------------------------------------------------------------------------------------------

_session_option = click.option(
    "--session",
    metavar="SESSION",
    type=SESSION,
    shell_complete=complete_session,
    help="The session, if the ID alone is ambiguous.",
)


@approvals.command("allow")
@click.argument("approval", type=APPROVAL)
@_session_option
@click.option("--remember", is_flag=True, help="Ask the CLI to allow similar calls from now on, if it can.")
@click.option("--option", metavar="ID", help="Choose this answer of the agent: the optionId of a suggestion.")
def allow(approval: str, session: str | None, remember: bool, option: str | None) -> int:
    """Allow the tool call, or approve the plan, of APPROVAL.

    Questions need answers, and so does an agent that offers several: clisup approvals answer.

    \b
    Example:
      clisup approvals allow 3
      clisup approvals allow 3 --option staging
    """
    with Client.connect(name=_NAME) as client:
        found = _find(client, approval, session)
        if found.event is not None:
            form = _form(client, found.event)
            if form.kind == "questions" and not (form.options and option):
                raise usage(
                    f"approval {approval!r} asks questions, so it needs answers",
                    hint=f"clisup approvals answer {approval}",
                )
        _respond(client, found, decision="allow", remember=remember, **given({"option": option}))
    return 0


@approvals.command("deny")
@click.argument("approval", type=APPROVAL)
@_session_option
@click.option("--message", callback=utf8("send the message", "convert it first: iconv -t UTF-8"),
              help="A message to the model; only claude passes it on.")  # fmt: skip
@click.option("--remember", is_flag=True, help="Ask the CLI to deny similar calls from now on, if it can.")
def deny(approval: str, session: str | None, message: str | None, remember: bool) -> int:
    """Deny the tool call of APPROVAL, or refuse its plan or questions; the turn goes on.

    \b
    Example:
      clisup approvals deny 3 --message "Not in this directory."
    """
    with Client.connect(name=_NAME) as client:
        found = _find(client, approval, session)
        _respond(client, found, decision="deny", remember=remember, **given({"message": message}))
    return 0


@approvals.command("answer")
@click.argument("approval", type=APPROVAL)
@click.argument("answers", nargs=-1, metavar="[ANSWER]...", callback=utf8("send the answer"))
@_session_option
def answer(approval: str, answers: tuple[str, ...], session: str | None) -> int:
    """Answer the questions of APPROVAL, one ANSWER each, in their order.

    ANSWER is the number of a choice, several numbers as 1,3, a label, or other words. `=` before it means these very
    words: =8080. An empty ANSWER takes the default of a field or skips it. A plan, a URL or a tool call takes yes or no.
    Without ANSWER, this terminal asks.

    \b
    Example:
      clisup approvals answer 4
      clisup approvals answer 4 2 1,3 "As you like."
    """
    with Client.connect(name=_NAME) as client:
        found = _find(client, approval, session)
        if found.event is None:
            raise UsageError(
                f"approval {approval!r} is not pending", kind="approval_not_found", hint="list them: clisup approvals"
            )
        form = _form(client, found.event)
        params = _given(form, approval, answers) if answers else _asked(form, approval)
        _respond(client, found, **params)
    return 0


def _find(client: Client, approval: str, session: str | None) -> FoundApproval:
    session_id = find_session(client, session) if session else None
    found = find_approval(
        _list(client, session_id), approval, ApprovalNumbers(client.path), lambda prefix: find_session(client, prefix)
    )
    return found if found.session_id else found._replace(session_id=session_id)


def _form(client: Client, event: Event) -> Form:
    return form_of(with_whole_input(event, _fetcher(client, event)))


def _given(form: Form, approval: str, answers: tuple[str, ...]) -> JsonObject:
    try:
        return answer_of(form, answers)
    except FormError as error:
        raise usage(
            f"cannot answer approval {approval!r}: {error}", hint=f"clisup approvals answer {approval}"
        ) from None


def _asked(form: Form, approval: str) -> JsonObject:
    """Ask on this terminal. Raises `UsageError` without one, or if no answer comes."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise usage(
            f"cannot ask for the answer to approval {approval!r}, because stdin or stdout is not a terminal",
            hint=f"give it: clisup approvals answer {approval} ANSWER",
        )
    dialog = Dialog(form)
    while True:
        is_secret = dialog.secret
        with no_echo(sys.stdin.fileno() if is_secret else None):
            print(plain("\n".join([*dialog.lines, dialog.prompt])), end="", flush=True)
            line = sys.stdin.readline()
        if is_secret or not line:
            print()
        if not line:
            raise usage(f"approval {approval!r} stays open, because no answer came", hint="list them: clisup approvals")
        if (params := dialog.take(line)) is not None:
            return params


def _respond(client: Client, found: FoundApproval, **params: Any) -> None:
    client.call("approval/respond", **found.ids, **params)
    if found.event is not None:
        print(f"{params['decision']}: {clip(visible(approval_words(found.event)))}")
        secret = {question.text for question in form_of(found.event).questions if question.secret}
        updated = params.get("updated_input", {})
        for question, value in {**updated.get("answers", {}), **updated.get("content", {})}.items():
            said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            print(f"  {clip(visible(question), 60)}  {'(secret)' if question in secret else clip(visible(said), 60)}")
