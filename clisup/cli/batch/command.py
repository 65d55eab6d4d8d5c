"""`clisup batch`: many prompts, some of them at once. A batch that was killed goes on when it is started again."""

from __future__ import annotations

import hashlib
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any, BinaryIO

import click

from clisup.cli.batch.lines import MAX_NAME, BatchLines, LineDefaults, read_lines
from clisup.cli.daemon_start import ensure_daemon, no_start_option
from clisup.cli.failure import usage
from clisup.cli.options import (
    complete_backend,
    in_utf8,
    json_file,
    json_option,
    labels_of,
    session_directory,
    text_file,
    time_limit,
    utf8,
)
from clisup.client.options import given
from clisup.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_TURN_FAILED, ClisupError

__all__ = ["DEFAULT_JOBS", "MAX_JOBS", "batch"]

DEFAULT_JOBS = 4
MAX_JOBS = 50
"""Turns at once at most: the daemon answers 64 requests of a connection at once."""


@click.command("batch")
@click.argument("file", metavar="FILE|-", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("-j", "--jobs", type=click.IntRange(1, MAX_JOBS), default=DEFAULT_JOBS, metavar="N",
              help=f"Turns that run at once (default {DEFAULT_JOBS}, at most {MAX_JOBS}).")  # fmt: skip
@click.option("-b", "--backend", metavar="BACKEND", shell_complete=complete_backend, callback=utf8("name the backend"),
              help="The backend of lines that name none.")  # fmt: skip
@click.option("-C", "directory", metavar="DIRECTORY", help="The directory of lines that name none (default: here).")
@click.option("--model", metavar="MODEL", callback=utf8("name the model"), help="The model of lines that name none.")
@click.option("--permission-mode", metavar="MODE", callback=utf8("name the permission mode"),
              help="What the CLI may do without asking, in its own words: acceptEdits, plan, ...")  # fmt: skip
@click.option("--prompt", metavar="TEXT", callback=utf8("send the prompt"),
              help="The prompt of every line. Lines are then directories.")  # fmt: skip
@click.option("--prompt-file", type=click.Path(exists=True, dir_okay=False), help="A file with that prompt.")
@click.option("--output-schema", "schema", type=click.Path(exists=True, dir_okay=False),
              help="A file with a JSON Schema for the answers.")  # fmt: skip
@click.option("--timeout", metavar="TIME", callback=time_limit,
              help="Limit of the time of each turn, such as 90s or 10m.")  # fmt: skip
@click.option("--label", "labels", multiple=True, metavar="K=V", callback=utf8("set the label"),
              help="A label of the sessions, besides batch=NAME; may be repeated.")  # fmt: skip
@click.option("--unattended", type=click.Choice(["wait", "deny"]),
              help="What happens to an approval that no client answers (default: as configured).")  # fmt: skip
@click.option("--name", metavar="NAME", callback=utf8("name the batch"),
              help="The batch's name (default: from the path of FILE, of - from its content).")  # fmt: skip
@click.option("--retry-failed", is_flag=True, help="Run lines again that had not completed before.")
@click.option("--stop-on-failure", is_flag=True, help="Begin no other line once one has not completed.")
@click.option("--keep", is_flag=True, help="Leave the sessions open, for further prompts.")
@click.option("--rm", "remove", is_flag=True, help="Delete the sessions at the end, if every line has completed.")
@click.option("--fleet", is_flag=True, help="Let the boxes of the fleet run the lines, as jobs (clisup job).")
@no_start_option
@json_option("Print the result of each line as a JSON object, as soon as it has ended.")
def batch(file: str, jobs: int, as_json: bool, retry_failed: bool, stop_on_failure: bool, keep: bool, remove: bool,
          fleet: bool, no_start: bool, **options: Any) -> int:  # fmt: skip
    """Run the prompts of FILE, some at once, and print a table of the results. `-` reads stdin.

    A line is a prompt, or a JSON object with a prompt and other members: key, cwd, backend, model, permission_mode, mode,
    system_prompt, mcp_config, output_schema, expand, title, labels, budget, timeout. With --prompt, a line is a directory. The
    whole file is checked before the first prompt is sent.

    Each line has a session of its own, which is closed at the end of its turn. A batch of the same name goes on where it
    was killed: lines that have ended are not run again, and running turns are taken up. Another --name runs them again.

    The first Ctrl-C interrupts the turns, the second kills them, the third leaves without waiting.

    \b
    Exit codes: 0 every line completed, 1 some did not, 130 interrupted; before the first prompt: 2 usage, 3 no daemon.

    \b
    Example:
      clisup batch prompts.jsonl -b claude -j 8
      ls -d ~/src/*/ | clisup batch - -b codex --prompt "Is the licence named in the README?"
      clisup batch prompts.jsonl --retry-failed --json | jq -r .text
      clisup batch prompts.jsonl --fleet -C /srv/app -j 50
    """
    if keep and remove:
        raise usage("cannot keep the sessions and delete them", hint="give --keep or --rm")
    if fleet and (keep or remove):
        raise usage("cannot keep or delete the sessions of other boxes", hint="leave out --keep and --rm")
    settings = {"keep": keep, "retry_failed": retry_failed, "stop_on_failure": stop_on_failure}
    with _open(file) as source, read_lines(source, _defaults(options)) as lines:
        lines.rename(options["name"] or _name(file, lines))
        _check(lines, file)
        if fleet:
            return _run_jobs(lines, jobs, options["backend"], as_json=as_json, settings=settings)
        ensure_daemon("clisup-batch", no_start=no_start)
        return _run(lines, jobs, as_json=as_json, remove=remove, settings=settings)


def _run(lines: BatchLines, jobs: int, *, as_json: bool, remove: bool, settings: dict[str, bool]) -> int:
    import trio

    from clisup.cli.batch.view import BatchView
    from clisup.cli.batch.work import BatchWork
    from clisup.client.aio import open_client

    view = BatchView(lines.total, as_json=as_json)

    async def main() -> int:
        async with open_client(name="clisup-batch") as client:
            _check_backends(lines, client.server.get("backends") or [])
            work = BatchWork(
                client=client, name=lines.name, tell=view.tell, note=view.note, watch=view.waiting, **settings
            )
            view.begin()
            try:
                await work.run(lines, jobs)
                if remove and view.outcomes["completed"] == lines.total:
                    await work.remove(lines)
            finally:
                view.end()
            return work.interrupts

    try:
        interrupts = trio.run(main)
    except ClisupError as error:
        if view.ended:
            _report(view, lines, as_json=as_json)
            error.hint = f"{error.hint}; then start the same command again: the batch goes on"
        raise
    _report(view, lines, as_json=as_json)
    if interrupts:
        return EXIT_INTERRUPTED
    return EXIT_OK if view.outcomes["completed"] == lines.total else EXIT_TURN_FAILED


def _run_jobs(lines: BatchLines, jobs: int, backend: str | None, *, as_json: bool, settings: dict[str, bool]) -> int:
    """Run the lines as jobs of the fleet. Ctrl-C leaves the jobs running."""
    from clisup.cli.batch.fleet import FleetWork
    from clisup.cli.batch.view import BatchView
    from clisup.cli.job.command import member_of_this_command, with_jobs

    member, view = member_of_this_command(), BatchView(lines.total, as_json=as_json)
    again = {name: settings[name] for name in ("retry_failed", "stop_on_failure")}

    async def work(client: Any) -> None:
        run = FleetWork(jobs=client, member=member.name, tell=view.tell, backend=backend or "claude", **again)
        await run.run(lines, jobs)

    view.begin()
    try:
        with_jobs(member, work)
    except KeyboardInterrupt:
        view.note("the jobs go on; the same command waits for them again")
        return EXIT_INTERRUPTED
    finally:
        view.end()
    _report(view, lines, as_json=as_json)
    return EXIT_OK if view.outcomes["completed"] == lines.total else EXIT_TURN_FAILED


def _report(view: Any, lines: BatchLines, *, as_json: bool) -> None:
    if not as_json:
        view.print_table()
    view.note(view.summary())
    if view.before:
        view.note(f"batch {lines.name}: lines that have ended are not run again; --name NEW runs all of them again")
    if view.ended != view.outcomes["completed"]:
        view.note("the same command with --retry-failed runs the lines again that did not complete")


# -- options ------------------------------------------------------------------------------------------------------------


def _defaults(options: dict[str, Any]) -> LineDefaults:
    directory = in_utf8(session_directory(options["directory"]), "use the directory")
    prompt = options["prompt"]
    if options["prompt_file"] is not None:
        if prompt is not None:
            raise usage("cannot use two prompts", hint="give --prompt or --prompt-file")
        prompt = text_file(options["prompt_file"])
    if prompt is not None and not prompt.strip():
        raise usage("cannot send an empty prompt", hint="give it at least one character")
    members = given(
        {
            "backend": options["backend"],
            "model": options["model"],
            "permission_mode": options["permission_mode"],
            "output_schema": json_file(options["schema"], '{"type": "object", ...}'),
            "timeout": options["timeout"],
        }
    )
    name = options["name"]
    if name is not None and not (0 < len(name) <= MAX_NAME and name.isprintable()):
        raise usage("cannot use this name of a batch", hint=f"give 1 to {MAX_NAME} printable characters")
    labels = labels_of(options["labels"]) or {}
    return LineDefaults(name=name or "", directory=directory, prompt=prompt, members=members, labels=labels,
                    unattended=options["unattended"])  # fmt: skip


def _open(file: str) -> AbstractContextManager[BinaryIO]:
    if file == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return open(file, "rb")
    except OSError as error:
        raise usage(f"cannot read {file}, because {error.strerror}") from None


def _name(file: str, lines: BatchLines) -> str:
    """Return the name of a batch without --name: of a file by its path, of stdin by its content."""
    if file == "-":
        return f"stdin-{lines.digest[:12]}"
    path = os.path.realpath(file)
    base = "".join(char if char.isprintable() else "_" for char in os.path.basename(path))[:100]
    return f"{base}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"


def _check(lines: BatchLines, name: str) -> None:
    """Check all lines. Raises `UsageError` with the numbers of the bad ones."""
    from clisup.cli.views.terminal import clip

    problems = lines.check()
    if problems:
        for problem in problems:
            print(clip(problem, 300), file=sys.stderr)
        wrong = "1 line is" if len(problems) == 1 else f"{len(problems)} lines are"
        raise usage(f"cannot run the batch {name}, because {wrong} wrong", hint="no prompt was sent; see above")
    if not lines.total:
        raise usage(f"cannot run the batch {name}, because it has no lines", hint='one prompt a line: "Say hello."')


def _check_backends(lines: BatchLines, known: list[str]) -> None:
    for name, number in lines.backends.items():
        if name not in known:
            raise usage(
                f"cannot run the batch, because line {number} wants the backend {name}, which the daemon does not have",
                hint=f"no prompt was sent; backends: {', '.join(known)}",
            )
