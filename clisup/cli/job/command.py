"""`clisup job`: submit prompts to the fleet, and see what became of them. The commands speak to the engine themselves."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import click

from clisup.cli.failure import usage
from clisup.cli.fleet.extra import check_extra
from clisup.cli.options import HelpGroup, json_option, utf8
from clisup.cli.views.terminal import plain, print_table
from clisup.client.options import given
from clisup.errors import EXIT_OK, EXIT_TIMED_OUT, EXIT_TURN_FAILED, UsageError
from clisup.fleet.member import FleetMember, joined, read_member

if TYPE_CHECKING:
    from clisup.fleet.job_client import Job, JobClient

__all__ = ["job", "job_row", "member_of_this_command", "with_jobs"]

_T = TypeVar("_T")
_STATUSES = ("pending", "claimed", "started", "done", "lost", "cancelled", "expired")
_ID = 8
MOST_REASONS = 20


@click.group("job", cls=HelpGroup)
def job() -> None:
    """Submit prompts to the boxes of a fleet, and see what became of them.

    A box that fits takes a job when it has room. This box needs the role operator: clisup fleet join. CLISUP_FLEET_MEMBER names
    a member's file instead, such as for CI.

    \b
    Example:
      clisup job submit --workspace app --needs gpu "Run the benchmarks."
      clisup job list
      clisup job wait 3f2a
    """


@job.command("submit")
@click.argument("prompt", callback=utf8("submit this prompt", "send it on stdin (-)"))
@click.option("-b", "--backend", default="claude", show_default=True, help="Backend of the session.")
@click.option("--versions", default="", metavar="RANGE", help="Versions of the backend that will do, such as >=2.1,<3.")
@click.option("-C", "--cwd", metavar="PATH", help="Directory on the box; a box without it does not take the job.")
@click.option("--workspace", metavar="NAME", help="Directory by the name that boxes give it in their table [fleet].")
@click.option("--box", help="Only this box.")
@click.option("--needs", multiple=True, metavar="NAME[=VALUE]", help="Label that the box must have. May be repeated.")
@click.option("--model", metavar="MODEL", callback=utf8("name the model"), help="The model.")
@click.option("--permission-mode", metavar="MODE", callback=utf8("name the permission mode"),
              help="What the CLI may do without asking, in its own words: acceptEdits, plan, ...")  # fmt: skip
@click.option("--key", help="Same key, same job: a repeated submit runs nothing twice. Default: a new one.")
@click.option("--on-lost", type=click.Choice(["wait", "rerun"]), default="wait", show_default=True,
              help="If the box disappears: wait for it, or run the job anew elsewhere, so perhaps twice.")  # fmt: skip
@click.option("--start-within", type=click.FloatRange(1, 7 * 86_400), metavar="SECONDS",
              help="No box starts the job later. Default: seven days.")  # fmt: skip
@click.option("--runs", type=click.IntRange(1, 100), default=5, show_default=True,
              help="Most starts. A start that a daemon refused counts, too.")  # fmt: skip
@click.option("--wait", "waits", is_flag=True, help="Wait for the end. The exit code is then that of the turn.")
@json_option("Print the job as JSON.")
def submit(
    prompt: str, backend: str, versions: str, cwd: str | None, workspace: str | None, box: str | None,
    needs: tuple[str, ...], model: str | None, permission_mode: str | None, key: str | None, on_lost: str,
    start_within: float | None, runs: int, waits: bool, as_json: bool,
) -> int:  # fmt: skip
    """Submit PROMPT as a job; - reads it from stdin. Print the job's id.

    \b
    Example:
      clisup job submit -C /srv/app "Update the dependencies."
      clisup job submit --workspace app --needs gpu --needs arch=arm64 --wait "Run the benchmarks."
      git log -1 --format=%B | clisup job submit --workspace app --key "$CI_JOB_ID" -
    """
    from clisup.fleet.job_client import new_request

    member = member_of_this_command()
    text = sys.stdin.buffer.read().decode("utf-8", "replace") if prompt == "-" else prompt
    if not text.strip():
        raise usage("cannot submit a job without a prompt", hint="give it as an argument or on stdin")
    labels = dict(_label(need) for need in needs)
    request = new_request(
        member.name, key or str(uuid4()), text, backend,
        versions=versions, cwd=cwd, workspace=workspace, box=box, needs=labels, on_lost=on_lost,
        not_after=time.time() + start_within if start_within else 0.0, runs=runs,
        session=given({"model": model, "permission_mode": permission_mode}),
    )  # fmt: skip

    async def send(jobs: JobClient) -> Job:
        stored = await jobs.submit(request)
        if stored.state.status == "pending":
            _tell_reasons(await jobs.reasons(request))
        if not waits:
            return stored
        print(plain(f"submitted {stored.id}"), file=sys.stderr)
        return await jobs.wait(stored.id)

    found = with_jobs(member, send)
    if waits:
        return _show_ended([found], as_json)
    print(json.dumps(job_row(found)) if as_json else found.id)
    return EXIT_OK


def _tell_reasons(reasons: dict[str, str]) -> None:
    """Say on stderr why no box takes a job, if that is so."""
    if not all(reasons.values()):
        return
    print("clisup: no box takes this job now:" if reasons else "clisup: no box beats now", file=sys.stderr)
    for box, why in sorted(reasons.items())[:MOST_REASONS]:
        print(plain(f"  {box}: {why}"), file=sys.stderr)


def _label(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not name:
        raise usage(f"cannot use --needs {text!r}", hint="--needs NAME, or --needs NAME=VALUE")
    return name, value


@job.command("list")
@click.option(
    "--status", type=click.Choice(_STATUSES), multiple=True, help="Only jobs with this status. May be repeated."
)
@click.option("--mine", is_flag=True, help="Only jobs of this member.")
@click.option(
    "-n", "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Most jobs to print."
)
@json_option("Print the jobs as JSON.")
def list_(status: tuple[str, ...], mine: bool, limit: int, as_json: bool) -> int:
    """List jobs, the latest change first. The engine keeps a job for 14 days.

    \b
    Example:
      clisup job list
      clisup job list --status pending --status lost --json | jq -r '.[].job'
    """
    member = member_of_this_command()

    async def look(jobs: JobClient) -> list[Job]:
        return await jobs.list()

    found = [
        each
        for each in with_jobs(member, look)
        if (not status or each.state.status in status) and (not mine or each.state.submitter == member.name)
    ][:limit]
    if as_json:
        print(json.dumps([job_row(each) for each in found]))
    elif not found:
        print("No jobs.")
    else:
        columns = ["JOB", "STATUS", "OUTCOME", "BOX", "STARTS", "SUBMITTER", "CHANGED"]
        print_table(columns, [_cells(each) for each in found])
    return EXIT_OK


def _cells(each: Job) -> list[str]:
    state = each.state
    changed = datetime.fromtimestamp(each.at, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    outcome = f"{state.outcome}{' (late)' if state.late else ''}" or "-"
    return [each.id[:_ID], state.status, outcome, state.box or "-", str(state.attempt), state.submitter, changed]


@job.command("get")
@click.argument("id_", metavar="ID")
@json_option("Print the job as JSON, with its request.")
def get(id_: str, as_json: bool) -> int:
    """Show one job: its state, its box, its session and its prompt.

    \b
    Example:
      clisup job get 3f2a
      clisup job get 3f2a --json | jq -r .session
    """

    async def look(jobs: JobClient) -> Job:
        found = await jobs.get(await jobs.named(id_))
        if found.state.status == "pending" and found.request is not None:
            _tell_reasons(await jobs.reasons(found.request))
        return found

    found = with_jobs(member_of_this_command(), look)
    if as_json:
        print(json.dumps(job_row(found)))
        return EXIT_OK
    for name, value in job_row(found).items():
        if value not in (None, "", {}, False):
            print(plain(f"{name + ':':<11}{json.dumps(value) if isinstance(value, dict) else value}"))
    return EXIT_OK


@job.command("wait")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option(
    "--timeout", type=click.FloatRange(0.001), metavar="SECONDS", help="Longest wait; then the exit code is 124."
)
@json_option("Print the jobs as JSON.")
def wait(ids: tuple[str, ...], timeout: float | None, as_json: bool) -> int:
    """Wait until all these jobs are done, cancelled or expired. A lost job may still end.

    The exit code is 0 if all turns completed.

    \b
    Example:
      clisup job wait 3f2a 77c1 --timeout 3600
    """

    async def look(jobs: JobClient) -> list[Job]:
        async with asyncio.timeout(timeout):
            names = [await jobs.named(id_) for id_ in ids]
            return list(await asyncio.gather(*(jobs.wait(name) for name in names)))

    try:
        found = with_jobs(member_of_this_command(), look)
    except TimeoutError:
        print(f"clisup: not all jobs have ended within {timeout:g} s", file=sys.stderr)
        return EXIT_TIMED_OUT
    return _show_ended(found, as_json)


@job.command("cancel")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
def cancel(ids: tuple[str, ...]) -> int:
    """Cancel jobs of this member that no box has taken yet. The error for a started one names its session.

    \b
    Example:
      clisup job cancel 3f2a
    """

    async def stop(jobs: JobClient) -> None:
        for id_ in ids:
            name = await jobs.named(id_)
            try:
                await jobs.cancel(name)
            except UsageError as error:
                if error.hint:
                    error.hint = f"clisup interrupt {job_row(await jobs.get(name))['session']}"
                raise
            print(plain(f"cancelled {name}"))

    with_jobs(member_of_this_command(), stop)
    return EXIT_OK


# -- shared -----------------------------------------------------------------------------------------------------------


def member_of_this_command() -> FleetMember:
    """Return the member as which a command speaks. Raises `UsageError` for a box without a fleet, or without the role."""
    check_extra()
    file = os.environ.get("CLISUP_FLEET_MEMBER")
    member = read_member(file) if file else joined(os.environ)
    if member is None:
        raise UsageError("this box has joined no fleet", hint="clisup fleet join FILE, or CLISUP_FLEET_MEMBER=FILE")
    return member


def with_jobs(member: FleetMember, do: Callable[[JobClient], Awaitable[_T]]) -> _T:
    """Return what `do` returns with a connection to the engine. Raises `ClisupError`."""
    from clisup.fleet.job_client import JobClient
    from clisup.fleet.nats_engine import connect_member

    async def run() -> _T:
        async with connect_member(member) as engine:
            return await do(JobClient(engine, member.name))

    return asyncio.run(run())


def job_row(found: Job) -> dict[str, Any]:
    """Return a job for programs."""
    from clisup.fleet.jobs import session_of

    state, request = found.state, found.request
    row: dict[str, Any] = {
        "job": found.id, "status": state.status, "outcome": state.outcome, "error": state.error, "late": state.late,
        "box": state.box, "session": f"{state.box}/{session_of(found.id, state.attempt)}" if state.attempt else "",
        "starts": state.attempt, "runs": state.runs, "submitter": state.submitter, "on_lost": state.on_lost,
        "changed_at": datetime.fromtimestamp(found.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }  # fmt: skip
    if request is not None:
        row |= {
            "backend": request.backend, "versions": request.versions, "cwd": request.cwd,
            "workspace": request.workspace, "for_box": request.box, "needs": request.needs, "prompt": request.prompt,
        }  # fmt: skip
    return row


def _show_ended(found: list[Job], as_json: bool) -> int:
    rows = [job_row(each) for each in found]
    if as_json:
        print(json.dumps(rows if len(rows) > 1 else rows[0]))
    else:
        for row in rows:
            _show_answer(row, alone=len(rows) == 1)
    good = all(each.state.status == "done" and each.state.outcome == "completed" for each in found)
    return EXIT_OK if good else EXIT_TURN_FAILED


def _show_answer(row: dict[str, Any], *, alone: bool) -> None:
    """Print the answer on stdout, as `clisup run` does, and the end on stderr. Of several jobs print a line each."""
    from clisup.cli.job.answer import end_of

    told, why = row["outcome"] or row["status"], f": {row['error']}" if row["error"] else ""
    where = f"  (clisup logs {row['session']})" if row["session"] else ""
    if alone and row["session"]:
        end = end_of(row["session"])
        if end is not None:
            print(plain(str(end.get("text") or "")))
        else:
            print(plain(f"clisup: {row['box']} does not answer now, so its answer is not shown"), file=sys.stderr)
    print(plain(f"{row['job'][:_ID]}  {told}{why}{where}"), file=sys.stderr if alone else sys.stdout)
