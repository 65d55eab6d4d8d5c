"""`clisup notify`: the targets of `[[notify]]`, and a test message to them."""

from __future__ import annotations

import json

import click

from clisup.cli.failure import usage
from clisup.cli.options import CommandGroup, json_option
from clisup.cli.views.terminal import Ink, clip, duration, plain, print_table
from clisup.client.options import given
from clisup.client.raw import JsonObject
from clisup.client.sync import Client
from clisup.errors import EXIT_OK, EXIT_TURN_FAILED

__all__ = ["notify"]

_HEAD = ["NAME", "TARGET", "ON", "STATE", "DELIVERED", "GIVEN UP"]
_NAME = "clisup-notify"
_NONE = "No [[notify]] table in the configuration of the daemon (docs/how-to/notify.md)."


@click.group("notify", cls=CommandGroup)
def notify() -> None:
    """Show and test the messages about approvals, failed turns and limits.

    The tables [[notify]] of the configuration say which events go to which command or address.

    \b
    Example:
      clisup notify list
      clisup notify test
    """


@notify.command("list")
@json_option("Print one JSON object a line.")
def list_(as_json: bool) -> int:
    """List the targets, with their state and the messages since the daemon's start.

    \b
    Example:
      clisup notify list
      clisup notify list --json | jq -r 'select(.state == "failing") | .name'
    """
    with Client.connect(name=_NAME) as client:
        targets = client.call("notify/list")["targets"]
    if as_json:
        for target in targets:
            print(json.dumps(target, ensure_ascii=False))
    elif not targets:
        print(_NONE)
    else:
        print_table(_HEAD, [_row(target) for target in targets], ["red" if t["error"] else "" for t in targets])
        for target in targets:
            if target["error"]:
                print(clip(f"{target['name']} fails since {target['failing_since']}: {target['error']}", 200))
    return EXIT_OK


def _row(target: JsonObject) -> list[str]:
    numbers = [str(target["delivered"]), str(target["given_up"])]
    return [target["name"], target["target"], ",".join(target["on"]), target["state"], *numbers]


@notify.command("test")
@click.argument("name", required=False)
@json_option("Print one JSON object a line.")
def test(name: str | None, as_json: bool) -> int:
    """Send a test message to the target NAME, or to all, and show what came back.

    The daemon sends the message once, without further tries. The exit code is 1 if a target did not take the message.

    \b
    Example:
      clisup notify test
      clisup notify test ntfy.sh --json | jq .detail
    """
    with Client.connect(name=_NAME) as client:
        results = client.call("notify/test", **given({"name": name}))["results"]
    if not results:
        raise usage(_NONE.rstrip("."), hint="add a table, then: clisup daemon reload")
    for result in results:
        if as_json:
            print(json.dumps(result, ensure_ascii=False))
        else:
            _show(result)
    return EXIT_OK if all(result["ok"] for result in results) else EXIT_TURN_FAILED


def _show(result: JsonObject) -> None:
    ink = Ink()
    word = ink("green", "ok") if result["ok"] else ink("red", "failed")
    where = clip(f"{result['name']} ({result['target']})", 100)
    print(f"{word}  {where}: {clip(result['detail'], 200)}, {duration(result['duration_s'])}")
    for line in result["output"].splitlines()[:20]:
        print(f"    {plain(line)}")
