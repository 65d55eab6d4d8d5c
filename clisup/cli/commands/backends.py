"""Commands on the backends: the list, the environment of their processes, the checks of `doctor`, and a bug report."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import suppress

import click

from clisup.cli.failure import usage
from clisup.cli.options import (
    HelpGroup,
    absolute,
    chosen_box,
    complete_backend,
    complete_session,
    daemon_place_options,
    json_option,
    session_directory,
    utf8,
)
from clisup.cli.search_path import advise_findings, notes_on_backends
from clisup.cli.views.findings import print_findings
from clisup.cli.views.terminal import Ink, plain, print_table, size
from clisup.client.options import given
from clisup.client.raw import JsonObject
from clisup.client.sync import Client
from clisup.errors import EXIT_OK, EXIT_TURN_FAILED, ClisupError, UsageError

__all__ = ["backends", "debug", "doctor", "env"]

_TITLES = {"kept": "Kept from the daemon's environment", "set": "Set on purpose", "dropped": "Dropped"}


@click.command("backends")
@click.option("--models", "name", metavar="NAME", help="List the models that the provider of this API backend offers.")
@json_option("Print the daemon's answer as JSON.")
def backends(name: str | None, as_json: bool) -> int:
    """List the backends, and the reason if one cannot be used.

    The last line is the PATH on which the daemon looks for the CLIs. It may differ from the PATH of your shell.

    \b
    Example:
      clisup backends
      clisup backends --models anthropic-api
      clisup backends --json | jq -r '.[] | select(.supported) | .name'
    """
    with Client.connect(name="clisup-backends") as client:
        if name is not None:
            models = client.models(name)
            print(json.dumps(models) if as_json else plain("\n".join(models)))
            return EXIT_OK
        found = client.call("backend/list")
        searched = client.server["server"].get("search_path")
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
        return EXIT_OK
    print_table(["BACKEND", "KIND", "VERSION", "SUPPORTED", "PATH"], [_row(b) for b in found])
    if notes := notes_on_backends(found, searched):
        print("\n" + plain("\n".join(notes)))
    return EXIT_OK


def _row(b: JsonObject) -> list[str]:
    supported = f"{'yes' if b['supported'] else 'no'} ({b['supported_versions'] or 'any'})"
    if newest := b.get("newer_than"):
        supported = f"yes (newer than {newest}, the newest checked)"
    return [b["name"], b["kind"], b.get("version") or "-", supported, b.get("path") or "-"]


@click.command("env")
@click.argument("backend", shell_complete=complete_backend)
@json_option("Print the daemon's answer as JSON.")
def env(backend: str, as_json: bool) -> int:
    """Show which variables BACKEND's processes get.

    Each name comes with the rule that decided. The output has names, never values.

    \b
    Example:
      clisup env claude
      clisup env claude --json | jq -r '.dropped[].name'
    """
    with Client.connect(name="clisup-env") as client:
        report = client.call("backend/env", name=backend)
    if as_json:
        print(json.dumps(report, ensure_ascii=False))
        return EXIT_OK
    ink = Ink()
    for part, title in _TITLES.items():
        print(ink("bold", f"{title}: {len(report[part])}"))
        if report[part]:
            print_table(["  NAME", "RULE"], [["  " + item["name"], item["rule"]] for item in report[part]])
        print()
    if lists := report.get("lists"):
        print(ink("bold", "Scrub lists, and the versions that they were checked with"))
        print_table(
            ["  LIST", "SOURCE", "DATE"], [["  " + stamp["list"], stamp["source"], stamp["date"]] for stamp in lists]
        )
    return EXIT_OK


# -- doctor -------------------------------------------------------------------------------------------------------------


@click.command("doctor")
@click.argument("backend", required=False, shell_complete=complete_backend)
@click.option("-C", "--cwd", metavar="DIRECTORY", type=click.Path(), callback=utf8("check the directory", "rename it"),
              help="The directory that a session would work in.")  # fmt: skip
@click.option("--config", metavar="FILE", type=click.Path(), help="The configuration file, if no daemon is running.")
@click.option("--drift", metavar="BACKEND", help="List variables that BACKEND's CLI knows and the scrub lists lack.")
@json_option("Print the findings as JSON.")
def doctor(backend: str | None, cwd: str | None, config: str | None, drift: str | None, as_json: bool) -> int:
    """Check the machine and the backends, and suggest a fix for each problem.

    With BACKEND, check only that backend, which then must be installed. No check sends anything to a model. The running
    daemon does the checks; without a daemon, this command does them.

    Exit code 1 means that a check failed.

    With --drift, this command reads the files of the installed CLI, with its own PATH and configuration. It lists the
    environment names that no scrub list has, and marks the names that are new since the last check.

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
        if box := chosen_box():
            raise usage(f"cannot look for drift on box {box}, because --drift reads files of this machine",
                        hint="leave out --drift")  # fmt: skip
        return _show_drift(drift, config, as_json)
    found = _findings(backend, _directory(cwd), config)
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
    else:
        print_findings(found, "Machine")
    return EXIT_TURN_FAILED if any(finding["status"] == "fail" for finding in found) else EXIT_OK


def _directory(given: str | None) -> str | None:
    """Return the directory of a session, or None if the working directory no longer exists: other checks still run."""
    if given is None and chosen_box():
        return None
    try:
        return session_directory(given)
    except UsageError as error:
        if given is not None:
            raise
        print(plain(f"clisup: {error.message}; the other checks run without it"), file=sys.stderr)
        return None


def _findings(backend: str | None, cwd: str | None, config: str | None) -> list[JsonObject]:
    try:
        with Client.connect(name="clisup-doctor") as client:
            found: list[JsonObject] = client.call("backend/check", **given({"name": backend, "cwd": cwd}))
            if any(finding["check"] == "executable" and finding["status"] != "ok" for finding in found):
                with suppress(ClisupError):  # the findings are the answer; the advice only adds to them
                    advise_findings(found, client.call("backend/list"), client.server["server"].get("search_path"))
            return found
    except ClisupError as error:
        if error.kind != "daemon_not_running":
            raise
    from clisup.daemon.ops.offline import examine
    from clisup.daemon.start import Flags

    return examine(Flags(config=config), backend, cwd)


# -- drift of names -----------------------------------------------------------------------------------------------------


def _show_drift(backend: str, config: str | None, as_json: bool) -> int:
    from clisup.daemon.ops.offline import find_name_drift
    from clisup.daemon.start import Flags

    daemon, command = _daemon_view(backend)
    if config is not None:
        command = None  # not the daemon's configuration
    elif (file := daemon.get("config_file")) and os.path.exists(file):
        config = file
    flags = Flags(config=config, state_dir=daemon.get("state_dir"))
    found = find_name_drift(flags, backend, _Progress(), command)
    if found["not_stored"]:
        print(f"clisup: cannot save this check for the next one: {plain(found['not_stored'])}", file=sys.stderr)
    print(json.dumps(found, ensure_ascii=False) if as_json else "\n".join(_drift_lines(found, Ink())))
    return EXIT_OK


def _daemon_view(backend: str) -> tuple[JsonObject, list[str] | None]:
    """Return the running daemon's own status and its command for the backend; nothing without a daemon."""
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
    """Progress of the reading on stderr: updated on a terminal, printed once elsewhere."""

    def __init__(self) -> None:
        self._reported = False

    def __call__(self, done: int, total: int) -> None:
        if sys.stderr.isatty():
            end = "\n" if done >= total else ""
            print(f"\rreading {size(done)} of {size(total)}   ", end=end, file=sys.stderr, flush=True)
        elif not self._reported:
            self._reported = True
            print(f"reading {size(total)}", file=sys.stderr, flush=True)


def _drift_lines(found: JsonObject, ink: Ink) -> Iterator[str]:
    read, counts, since = found["read"], found["counts"], found["since"]
    cut = "" if read["complete"] else ink("yellow", " (incomplete: a limit was reached)")
    yield ink("bold", plain(f"{found['backend']} {found['version']}")) + f"  {plain(found['path'])}"
    yield f"read {read['files']} files, {size(read['bytes'])}{cut}"
    checked = "; ".join(dict.fromkeys(f"{stamp['source']}, {stamp['date']}" for stamp in found["lists"]))
    yield f"scrub lists checked with: {checked or 'unknown'}"
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


# -- a bug report -------------------------------------------------------------------------------------------------------


@click.group("debug", cls=HelpGroup)
def debug() -> None:
    """Collect information for a bug report.

    \b
    Example:
      clisup debug bundle
    """


@debug.command("bundle")
@click.option(
    "-o", "--output", metavar="FILE", help="The file to write (default: clisup-debug-DATE-TIME.tar.gz, here)."
)
@click.option("--session", "sessions", multiple=True, metavar="SESSION", shell_complete=complete_session,
              help="Also include what is known of this session; may be repeated.")  # fmt: skip
@click.option("--with-content", is_flag=True,
              help="Include the prompts, answers and tools of these sessions, with known secrets replaced.")  # fmt: skip
@daemon_place_options
@json_option("Print a summary as JSON.")
def bundle(
    output: str | None,
    sessions: tuple[str, ...],
    with_content: bool,
    config: str | None,
    state_dir: str | None,
    as_json: bool,
) -> int:
    """Write one file to attach to a bug report.

    It has versions, configuration, doctor, status, metrics, log and a list of the state directory. Secrets are replaced. Of
    a session's events it has types, times and numbers, but no text. Look at it before you send it. No daemon is needed. An
    existing file is never overwritten.

    \b
    Example:
      clisup debug bundle
      clisup debug bundle --session 3f2a -o report.tar.gz
      tar -xzOf report.tar.gz --wildcards '*/README.txt'
    """
    from clisup.bundle import BundleRequest, collect

    if with_content and not sessions:
        raise click.UsageError("--with-content goes with --session", click.get_current_context())
    path = absolute(output or f"clisup-debug-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz", otherwise="-o with a whole path")
    archive = collect(BundleRequest(sessions, with_content, config, state_dir), os.environ)
    written = archive.write(path)
    if as_json:
        members = [member._asdict() for member in archive.members]
        done = {"path": path, "bytes": written, "content": with_content, "members": members}
        print(json.dumps(done, ensure_ascii=False))
        return 0
    print(f"wrote {plain(path)} ({size(written)}), which only you can read:")
    for member in archive.members:
        print(f"  {size(member.bytes):>10}  {plain(member.name)}{'  (cut: it was too long)' if member.cut else ''}")
    content = (
        "it HAS prompts, answers and tool outputs of these sessions"
        if with_content
        else "it has no prompt and no answer"
    )
    print(f"known secrets are replaced; {content}. Look at it before you send it.")
    return 0
