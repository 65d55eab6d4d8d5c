"""`clisup setup`: CLIs, the daemon, keys, a test turn, and the next step. Each step is safe to repeat."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

import click

from clisup.cli.daemon_start import report
from clisup.cli.failure import usage
from clisup.cli.options import json_option
from clisup.cli.search_path import shell_advice
from clisup.cli.setup.files import add_setting, keep_key, write_text
from clisup.cli.setup.trial import ask_once
from clisup.cli.views.terminal import clip, cost, plain
from clisup.client.raw import JsonObject
from clisup.client.sync import Client
from clisup.config.edit import Addition
from clisup.errors import EXIT_OK, EXIT_TURN_FAILED, ClisupError

__all__ = ["setup"]

_PLACES = ("CLISUP_CONFIG", "CLISUP_SOCKET", "CLISUP_STATE_DIR")
"""Variables with which commands look elsewhere than the daemon of a unit does."""


@dataclass
class Setup:
    """Answers of the user, and the results so far. `yes` answers each question with its default."""

    yes: bool
    as_json: bool
    pass_env: tuple[str, ...]
    result: JsonObject = field(default_factory=dict)

    def say(self, text: str) -> None:
        """Print a line for people."""
        print(plain(text), file=sys.stderr if self.as_json else sys.stdout, flush=True)

    def ask(self, question: str, *, default: bool) -> bool:
        return default if self.yes else click.confirm(plain(question), default=default, err=self.as_json)

    def failed(self, error: ClisupError) -> None:
        """Print an error that ends a step, and not the command."""
        self.say(f"  {error.message}" + (f"\n  hint: {error.hint}" if error.hint else ""))


@click.command("setup")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing, and take the defaults. For scripts.")
@click.option(
    "-b",
    "--backend",
    metavar="BACKEND",
    help="The backend of the test turn (default: the first that works), and the default backend from now on.",
)
@click.option("--pass-env", multiple=True, metavar="NAME",
              help="Pass this key on to the CLIs that read it, without a question; may be repeated.")  # fmt: skip
@click.option("--no-service", is_flag=True, help="Install no unit of systemd; start the daemon in the background.")
@click.option("--no-test", is_flag=True, help="Run no test turn.")
@json_option("Print the results as JSON, and the rest on stderr.")
def setup(
    yes: bool, backend: str | None, pass_env: tuple[str, ...], no_service: bool, no_test: bool, as_json: bool
) -> int:
    """Set clisup up: find the CLIs, start the daemon, pass keys on, and run one test turn.

    If your systemd manager answers, the daemon becomes a service with the PATH of this shell (clisup install --user --now);
    else it starts in the background (clisup start). Keys of this shell, such as ANTHROPIC_API_KEY, are passed on only if you
    say so. The backend that you name with -b, or the only one that works, becomes the default of sessions without a backend,
    unless the configuration has a default (the demo never does). The configuration file gets additional lines; what you wrote
    stays. You can repeat this command at any time.

    \b
    Exit codes: 0 done, 1 the test turn failed, 2 no terminal and no --yes, 78 the configuration is wrong.

    \b
    Example:
      clisup setup
      clisup setup --yes --no-test
      clisup setup --yes -b claude --pass-env ANTHROPIC_API_KEY
    """
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise usage("cannot ask, because stdin or stderr is no terminal", hint="take the defaults: clisup setup --yes")
    work = Setup(yes, as_json, pass_env)
    found = _find_clis(work)
    path = _run_daemon(work, service=not no_service)
    rows = _look_at_backends(work, path, found)
    usable = [row["name"] for row in rows if row["supported"]]
    for name in usable:
        _pass_keys(work, path, name)
    _set_default(work, path, backend, usable)
    chosen = backend or next(iter(usable), "demo")
    passed = no_test or _test(work, path, chosen)
    _next_steps(work, chosen)
    if as_json:
        print(json.dumps(work.result, ensure_ascii=False))
    return EXIT_OK if passed else EXIT_TURN_FAILED


def _find_clis(work: Setup) -> dict[str, str | None]:
    from clisup.installing import find_clis, search_path_of

    found = find_clis(search_path_of(os.environ))
    work.result["clis"] = found
    work.say("CLIs on the PATH of this shell:")
    for name, path in found.items():
        work.say(f"  {name:<8}{path or '-'}")
    if not any(found.values()):
        work.say("  none of them is installed; the backend demo needs none. Install one, then repeat: clisup setup")
    return found


# -- the daemon ---------------------------------------------------------------------------------------------------------


def _run_daemon(work: Setup, *, service: bool) -> str:
    """Run the daemon as a service or in the background, and return the path of its socket. Raises if it does not start."""
    from clisup.daemon.start import Flags
    from clisup.starting import plan_start, start_daemon

    work.say("\nDaemon:")
    if service and _has_manager() and work.ask("Run the daemon as a service of your systemd manager?", default=True):
        _install(work)
    started = start_daemon(plan_start(Flags(), os.environ), os.environ, report)
    work.result["daemon"] = started._asdict()
    how = "started" if started.started else "runs"
    work.say(f"  {how}: pid {started.pid}, socket {started.socket}")
    return started.socket


def _has_manager() -> bool:
    """Tell whether a service would serve this user's commands."""
    from clisup.installing import target_of

    if any(os.environ.get(name) for name in _PLACES):
        return False
    try:
        target_of(os.environ, system=False, user=None).manager.check()
    except ClisupError:
        return False
    return True


def _install(work: Setup) -> None:
    from clisup.installing import plan_install, target_of

    try:
        target = target_of(os.environ, system=False, user=None)
        plan = plan_install(target, os.environ, executable=None, force=False, now=True, dry_run=False)
        plan.carry_out()
    except ClisupError as error:  # an edited unit, or a daemon that was started by hand: it goes on
        work.failed(error)
        return
    work.result["service"] = plan.to_json()
    work.say(f"  service {target.service}, with the PATH {plan.search_path}")
    for line in plan.advice:
        work.say(f"  -> {line}")


# -- backends and keys --------------------------------------------------------------------------------------------------


def _look_at_backends(work: Setup, path: str, found: dict[str, str | None]) -> list[JsonObject]:
    """Show what the daemon finds, and return the rows of the backends that are installed or configured."""
    with Client.connect(path, name="clisup-setup") as client:
        searched = client.server["server"].get("search_path")
        rows: list[JsonObject] = client.call("backend/list")
    shown = [row for row in rows if found.get(row["name"]) or not row["default"]]
    work.say("\nBackends of the daemon:" if shown else "")
    for row in shown:
        state = f"{row['version'] or 'found'}  {row['path']}" if row["supported"] else str(row["unavailable_reason"])
        work.say(f"  {row['name']:<14}  {state}")
        if row["command"] and (advice := shell_advice(row["name"], row["command"][0], searched=searched)):
            work.say(f"{'':18}{advice}")
    work.result["backends"] = {row["name"]: row["supported"] for row in shown}
    return shown


def _pass_keys(work: Setup, path: str, backend: str) -> None:
    """Pass on the backend's keys that this shell has and the CLI does not get, as far as the user wants it."""
    with Client.connect(path, name="clisup-setup") as client:
        answer = client.call("backend/env", name=backend)
        passed = {item["name"] for part in ("kept", "set") for item in answer[part]}
        wanted = [name for name in answer.get("keys") or () if os.environ.get(name) and name not in passed]
        wanted = [name for name in wanted if _wants(work, backend, name)]
        if not wanted:
            return
        file = client.call("daemon/reload", dry_run=True)["file"]
        dropped = {item["name"] for item in answer["dropped"]}
        try:
            for addition in _additions(backend, wanted, dropped, os.path.dirname(file)):
                _add(work, client, file, addition)
        except ClisupError as error:
            work.failed(error)


def _wants(work: Setup, backend: str, name: str) -> bool:
    question = f"{name} is set in this shell. {backend} does not get it, and uses its own login. Pass it on?"
    if name in work.pass_env or work.ask(question, default=False):
        return True
    work.say(f"  {name} is not passed on to {backend} (clisup setup --pass-env {name} does that)")
    return False


def _additions(backend: str, names: list[str], of_daemon: set[str], directory: str) -> Iterator[Addition]:
    """Yield what passes the keys on. A key that only the shell has goes into a file, which every later daemon can read."""
    if listed := [name for name in names if name in of_daemon]:
        yield Addition(backend, "pass_env", listed)
    if kept := {name: keep_key(directory, name, os.environ[name]) for name in names if name not in of_daemon}:
        yield Addition(backend, "env_files", kept)


def _add(work: Setup, client: Client, file: str, addition: Addition) -> None:
    """Add to the configuration and reload it. If the daemon refuses the file, restore the former text, and raise."""
    before = add_setting(file, addition)
    if before is None:
        return
    try:
        client.call("daemon/reload")
    except ClisupError:
        write_text(file, before)
        raise
    work.say(f"  {file}: [{'.'.join(addition.table)}] {addition}")
    work.result.setdefault("settings", []).append({"file": file, **addition._asdict()})


def _set_default(work: Setup, path: str, named: str | None, usable: list[str]) -> None:
    """Make the named backend, or the only one that works, the default backend. A default that is set stays."""
    wanted = named or (usable[0] if len(usable) == 1 else None)
    if wanted not in usable or wanted == "demo":
        return
    try:
        with Client.connect(path, name="clisup-setup") as client:
            file = client.call("daemon/reload", dry_run=True)["file"]
            _add(work, client, file, Addition(None, "backend", wanted))
    except ClisupError as error:
        work.failed(error)


# -- the test turn ------------------------------------------------------------------------------------------------------


def _test(work: Setup, path: str, backend: str) -> bool:
    """Run the test turn if the user wants it, and tell whether it was not a failure."""
    work.say("")
    if not work.ask(f"Run one short test turn with {backend}?", default=True):
        return True
    work.say(f"Test turn with {backend} ...")
    told = work.result["test"] = ask_once(path, backend)
    if told["outcome"] == "completed":
        price = "" if told["cost_usd"] is None else f"  ({cost(told['cost_usd'])})"
        work.say(f"  {backend} says: {clip(told['text'], 100)}{price}")
        return True
    work.say(f"  it failed: {clip(told['error'] or '', 400)}" + (f"\n  hint: {told['hint']}" if told["hint"] else ""))
    return False


def _next_steps(work: Setup, backend: str) -> None:
    work.say("\nNext:")
    for command, purpose in (
        (f'clisup run -b {backend} "Which files are here?"', "a turn in this directory"),
        ("clisup top", "watch all sessions"),
        ("clisup doctor", "check the machine and the backends"),
    ):
        work.say(f"  {command:<45}  {purpose}")
