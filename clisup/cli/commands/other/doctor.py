"""`clisup doctor`: is everything there that a turn needs, and if not, what to do; and what the lists do not know of a CLI."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import click

from clisup.cli.directory import absolute
from clisup.cli.failure import usage
from clisup.cli.parameters import utf8
from clisup.cli.views.terminal import Ink, plain, size
from clisup.client.sync import Client
from clisup.errors import ClisupError, UsageError

__all__ = ["command"]

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}
_EXIT_FAIL = 1


@click.command("doctor")
@click.argument("backend", required=False)
@click.option(
    "-C",
    "--cwd",
    metavar="DIRECTORY",
    type=click.Path(),
    callback=utf8("look at the directory", "rename it"),
    help="The directory that a session would work in.",
)
@click.option(
    "--config", metavar="FILE", type=click.Path(), help="The configuration file to look at where no daemon runs."
)
@click.option(
    "--drift", metavar="BACKEND", help="List the variables that BACKEND's CLI knows of and the scrub lists do not."
)
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def command(backend: str | None, cwd: str | None, config: str | None, drift: str | None, as_json: bool) -> int:
    """Check the machine and the backends, and say how to mend what is wrong.

    With a BACKEND, only that one: then it has to be installed. No check sends anything to a model. The running daemon does
    the checks; where none runs, this command does them in its place.

    Exit code 1 means that a check failed.

    With --drift, read the files of the installed CLI (this command does it, with its own PATH and configuration), list the
    environment names that no scrub list knows, and flag those that are new since the check before.

    \b
    Example:
      clisup doctor
      clisup doctor claude -C ~/project
      clisup doctor --drift claude
      clisup doctor --json | jq -r '.[] | select(.status != "ok") | .fix'
    """
    if drift is not None:
        if backend is not None:
            raise usage("cannot check a backend and list its drift at once", hint="clisup doctor --drift BACKEND")
        return _show_drift(drift, config, as_json)
    found = _findings(backend, _directory(cwd), config)
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
    else:
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # a C locale has not every letter
        print("\n".join(_lines(found, Ink())))
    return _EXIT_FAIL if any(finding["status"] == "fail" for finding in found) else 0


def _directory(given: str | None) -> str | None:
    """What a session would work in; None where that would be here, and here is no more: the rest can be looked at all the same."""
    try:
        return absolute(given or ".", otherwise="-C DIRECTORY")
    except UsageError as error:
        if given is not None:
            raise
        print(f"clisup: {error.message}; the rest is looked at without it", file=sys.stderr)
        return None


def _findings(backend: str | None, cwd: str | None, config: str | None) -> list[dict[str, Any]]:
    wanted = {name: value for name, value in (("name", backend), ("cwd", cwd)) if value is not None}
    try:
        with Client.connect(name="clisup-doctor") as client:
            found: list[dict[str, Any]] = client.call("backend/check", **wanted)
            return found
    except ClisupError as error:
        if error.kind != "daemon_not_running":
            raise
    from clisup.daemon.ops.offline import Flags, examine

    return examine(Flags(config=config), backend, cwd)


def _lines(found: list[dict[str, Any]], ink: Ink) -> Iterator[str]:
    width = max(len(finding["check"]) for finding in found)
    group: str | None = ""
    for finding in found:
        if finding["backend"] != group:
            yield from ([""] if group != "" else [])
            group = finding["backend"]
            yield ink("bold", plain(group or "Machine"))
        status = ink(_COLOURS[finding["status"]], finding["status"].ljust(4))
        yield f"  {status}  {plain(finding['check']).ljust(width)}  {plain(finding['detail'])}"
        if finding["fix"]:
            yield f"        {' ' * width}  -> {plain(finding['fix'])}"
    counts = [(word, sum(finding["status"] == word for finding in found)) for word in ("fail", "warn")]
    yield ""
    yield ", ".join(f"{count} {word}" for word, count in counts if count) or "all is well"


# -- drift of names ---------------------------------------------------------------------------------------------------


def _show_drift(backend: str, config: str | None, as_json: bool) -> int:
    from clisup.daemon.ops.offline import Flags, find_name_drift

    daemon, command = _daemon_view(backend)
    if config is not None:
        command = None  # another configuration is asked about than the daemon's
    elif (file := daemon.get("config_file")) and os.path.exists(file):
        config = file
    flags = Flags(config=config, state_dir=daemon.get("state_dir"))
    found = find_name_drift(flags, backend, _Progress(), command)
    if found["not_stored"]:
        print(f"clisup: the next check will not know of this one: {plain(found['not_stored'])}", file=sys.stderr)
    print(json.dumps(found, ensure_ascii=False) if as_json else "\n".join(_drift_lines(found, Ink())))
    return 0


def _daemon_view(backend: str) -> tuple[dict[str, Any], list[str] | None]:
    """Where the running daemon keeps its files, and the backend's command as it starts it; nothing where none runs."""
    try:
        with Client.connect(name="clisup-doctor") as client:
            status = client.call("daemon/status")
    except ClisupError:
        return {}, None
    commands = [
        [row["path"], *row["command"][1:]] for row in status["backends"] if row["name"] == backend and row["path"]
    ]
    return status["daemon"], commands[0] if commands else None


class _Progress:
    """How far the reading is, on stderr: again and again on a terminal, once elsewhere."""

    def __init__(self) -> None:
        self._told = False

    def __call__(self, done: int, total: int) -> None:
        if sys.stderr.isatty():
            end = "\n" if done >= total else ""
            print(f"\rreading {size(done)} of {size(total)}   ", end=end, file=sys.stderr, flush=True)
        elif not self._told:
            self._told = True
            print(f"reading {size(total)}", file=sys.stderr, flush=True)


def _drift_lines(found: dict[str, Any], ink: Ink) -> Iterator[str]:
    read, counts, since = found["read"], found["counts"], found["since"]
    cut = "" if read["complete"] else ink("yellow", " (not all of it: a limit was reached)")
    yield ink("bold", plain(f"{found['backend']} {found['version']}")) + f"  {plain(found['path'])}"
    yield f"read {read['files']} files, {size(read['bytes'])}{cut}"
    checked = "; ".join(dict.fromkeys(f"{stamp['source']}, {stamp['date']}" for stamp in found["lists"]))
    yield f"scrub lists checked with: {checked or 'they do not say'}"
    yield f"{counts['found']} names, {counts['unknown']} of them unknown to the lists: they are not inherited (unlisted)"
    if since is None:
        yield "this is the first check: from the next version on, new names are flagged"
    else:
        what = f"new since {since['version']}, checked {since['date']}"
        yield from _names(what, found["new"], ink, "yellow")
    yield from _names("named like a credential or an address", found["secret_like"], ink, "bold")
    secret = set(found["secret_like"])
    yield from _names("others", [name for name in found["unknown"] if name not in secret], ink, "bold")


def _names(title: str, names: list[str], ink: Ink, style: str) -> Iterator[str]:
    yield ""
    yield ink(style, f"{title}: {len(names)}")
    yield from textwrap.wrap("  ".join(map(plain, names)), 118, initial_indent="  ", subsequent_indent="  ")
