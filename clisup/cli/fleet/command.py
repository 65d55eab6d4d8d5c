"""`clisup fleet`: the list of boxes, and whether they answer."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import NamedTuple

import click

from clisup.cli.failure import usage
from clisup.cli.fleet.agent import agent
from clisup.cli.fleet.asking import BoxAnswer, ask_all, failure_of, print_failures
from clisup.cli.fleet.doctor import doctor
from clisup.cli.fleet.found import init, member, node, prepare
from clisup.cli.fleet.install import install
from clisup.cli.fleet.join import forget, join, leave
from clisup.cli.options import HelpGroup, json_option
from clisup.cli.views.terminal import plain, print_table
from clisup.client.raw import RawClient
from clisup.errors import EXIT_OK, UsageError
from clisup.fleet.book import MAX_BOXES, add_box, box_named, boxes, list_file, remove_box
from clisup.fleet.boxes import Box, check_name, parse_address

__all__ = ["fleet"]

MAX_COMMAND = 512


@click.group("fleet", cls=HelpGroup)
def fleet() -> None:
    """Name other daemons, and ask them with --on BOX, --fleet or BOX/SESSION.

    A box is a daemon of another machine, reached through your own ssh, or another daemon of this machine. Nothing runs here
    for a box, and no port is open. The command clisup must be on the box, and its daemon must run there.

    \b
    Example:
      clisup fleet add build ssh://build
      clisup status --on build
      clisup status --fleet
      clisup logs -f build/3f2a
    """


@fleet.command("add")
@click.argument("name")
@click.argument("url")
@click.option("--clisup", "command", metavar="PATH", default="clisup", show_default=True,
              help="The command on the box, if the PATH of its ssh commands lacks it.")  # fmt: skip
def add(name: str, url: str, command: str) -> int:
    """Add the box NAME at URL.

    URL is ssh://[user@]host[:port][/path/of/socket], or unix:///path/of/socket for another daemon of this machine.

    ssh must log in without a question, by a key or an agent, as the user of the daemon there.

    \b
    Example:
      clisup fleet add build ssh://anna@build.example.org:2222
      clisup fleet add gpu ssh://gpu --clisup .venv/bin/clisup
      clisup fleet add second unix:///run/user/1000/second/clisup.sock
    """
    box = Box(check_name(name), url, command)
    address = parse_address(url)
    if not command.isprintable() or not 0 < len(command) <= MAX_COMMAND:
        raise usage("cannot use this command", hint="--clisup names one program, such as .venv/bin/clisup")
    add_box(box, os.environ)
    print(f"added {name}; see whether it answers: clisup fleet test {name}")
    if not address.host and not os.path.exists(address.socket):
        print(plain(f"clisup: nothing is at {address.socket} now"), file=sys.stderr)
    return EXIT_OK


@fleet.command("list")
@json_option("Print the boxes as JSON: name, url, clisup.")
def list_(as_json: bool) -> int:
    """List the boxes, without asking them.

    \b
    Example:
      clisup fleet list
      clisup fleet list --json | jq -r '.[].name'
    """
    known = boxes(os.environ)
    if as_json:
        print(json.dumps([box._asdict() for box in known.values()]))
    elif known:
        others = any(box.clisup != "clisup" for box in known.values())
        rows = [[box.name, box.url, *([box.clisup] if others else [])] for box in known.values()]
        print_table(["BOX", "URL", *(["CLISUP"] if others else [])], rows)
    else:
        print(plain(f"No boxes in {list_file(os.environ)} (clisup fleet add NAME ssh://HOST)."))
    return EXIT_OK


@fleet.command("remove")
@click.argument("name")
def remove(name: str) -> int:
    """Remove the box NAME from the list. Nothing changes on the box.

    \b
    Example:
      clisup fleet remove build
    """
    remove_box(name, os.environ)
    print(f"removed {name}")
    return EXIT_OK


class _Seen(NamedTuple):
    version: str
    pid: int
    latency_s: float


@fleet.command("test")
@click.argument("name", required=False)
@json_option("Print the answers as JSON: box, version, pid, latency_s, or error.")
def test(name: str | None, as_json: bool) -> int:
    """Connect to all boxes, or to NAME, and show their versions and the time of one answer.

    The exit code is that of the first box that does not answer.

    \b
    Example:
      clisup fleet test
      clisup fleet test build --json | jq '.[0].latency_s'
    """
    names = [box_named(name, os.environ).name] if name is not None else list(boxes(os.environ))
    if not names:
        raise UsageError(
            f"there is no box to test, of {MAX_BOXES} at most", kind="usage", hint="clisup fleet add NAME ssh://HOST"
        )
    answers = ask_all(names, _see)
    if as_json:
        print(json.dumps([_as_json(answer) for answer in answers]))
    else:
        good = [(answer.box, answer.value) for answer in answers if answer.value is not None]
        if good:
            rows = [[box, seen.version, f"{seen.latency_s * 1000:.0f} ms"] for box, seen in good]
            print_table(["BOX", "VERSION", "LATENCY"], rows)
        print_failures(answers)
    return next((answer.error.exit_code for answer in answers if answer.error is not None), EXIT_OK)


def _see(path: str) -> _Seen:
    with RawClient.connect(path, name="clisup-fleet") as client:
        begun = time.monotonic()
        client.call("ping")
        latency = time.monotonic() - begun
        server = client.server["server"]
        return _Seen(str(server["version"])[:64], int(server["pid"]), latency)


def _as_json(answer: BoxAnswer[_Seen]) -> dict[str, object]:
    if answer.value is None:
        return failure_of(answer)
    return {"box": answer.box, **answer.value._asdict(), "latency_s": round(answer.value.latency_s, 6)}


for command in (init, member, node, prepare, join, leave, forget, agent, install, doctor):
    fleet.add_command(command)
