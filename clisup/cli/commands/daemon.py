"""Commands on the daemon: serve, stop, metrics, and the group `daemon` with reload, restart and log."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import click

from clisup.cli.daemon_log import file_of_log, lines_of_file, log_line
from clisup.cli.failure import usage
from clisup.cli.lookup import find_session
from clisup.cli.on import SESSION
from clisup.cli.options import HelpGroup, complete_session, config_option, json_option
from clisup.cli.views.terminal import Ink, plain, print_table
from clisup.client.failures import AWAY, Unreachable
from clisup.client.options import given
from clisup.client.raw import JsonObject, RawClient
from clisup.client.sync import Client
from clisup.errors import EXIT_NOT_RUNNING, EXIT_OK, ClisupError, WorldError
from clisup.locations import box_of

__all__ = ["daemon", "metrics", "serve", "stop"]

STOP_TIMEOUT_S = 180.0
"""More than the default `daemon.drain_s` and the ladder after it."""

RESTART_TIMEOUT_S = 60.0
"""Far more than a restart takes, even with 500 running sessions."""

COUNT_EVERY_S = 0.5
"""Seconds between two counts of running turns."""

_PAUSE_S = 0.05
_ACTIVATED = "stopped; the next client starts it again. To keep it down, stop its socket unit (docs/how-to/systemd.md)"
_MODES = {
    "drain": (
        "it may end first, and clisup stop --mode kill ends it now",
        "they may end first, and clisup stop --mode kill ends them now",
    ),
    "detach": ("it goes on without the daemon", "they go on without the daemon"),
    "kill": ("it is killed", "they are killed"),
}
"""Effect of each mode on one running turn, and on several."""


@click.command("serve")
@config_option
@click.option("--socket", type=click.Path(), help="The socket for clients.")
@click.option(
    "--state-dir", metavar="DIRECTORY", type=click.Path(), help="The directory for sessions and their events."
)
@click.option("--check", is_flag=True, help="Only check that it would start: configuration, scrub lists, settings.")
@click.option("--log-format", type=click.Choice(("auto", "console", "json", "journald")), default="auto", show_default=True,
              help="Format of the log; auto: the journal under systemd, text on a terminal, else JSON.")  # fmt: skip
@click.option(
    "--log-file", metavar="FILE", type=click.Path(), help="Write the log to this file, as JSON; bounded by rotation."
)
def serve(
    config: str | None, socket: str | None, state_dir: str | None, check: bool, log_format: str, log_file: str | None
) -> int:
    """Run the daemon in the foreground, for a supervisor or to watch its log. In the background: clisup start.

    The daemon serves until `clisup stop` or SIGTERM ends it. Flags override CLISUP_* variables, and these override the
    configuration file. As a background job of a terminal (`clisup serve &`), the daemon logs to daemon.log in its state
    directory.

    \b
    Example:
      clisup serve
      clisup serve --config ./clisup.toml --log-format json
      clisup serve --config ./clisup.toml --check
    """
    from clisup.daemon.start import Flags
    from clisup.daemon.start import serve as run_daemon

    if log_file is not None and log_format not in ("auto", "json"):
        raise usage(
            f"cannot write the log as {log_format} to a file, because a log file has JSON lines",
            hint="omit --log-format",
        )
    return run_daemon(Flags(config, socket, state_dir, log_format, check, log_file))  # type: ignore[arg-type]  # click checks it


# -- stop ---------------------------------------------------------------------------------------------------------------


@click.command("stop")
@click.option("--mode", type=click.Choice(list(_MODES)), default="drain", show_default=True,
              help="Effect on running turns: drain lets them end, detach leaves them running, kill ends them.")  # fmt: skip
@json_option("Print the stopped daemon as JSON: pid, mode, running, seconds.")
def stop(mode: str, as_json: bool) -> int:
    """Stop the daemon and wait until it has stopped.

    Running turns may end first, for `daemon.drain_s` (60 s); then they are ended. Meanwhile stderr shows how many still
    run. With detach, running turns go on, and the next daemon takes them over without loss. Ctrl-C ends the waiting, not
    the stop.

    \b
    Example:
      clisup stop
      clisup stop --mode detach && clisup start
    """
    begun = time.monotonic()
    with Client.connect(name="clisup-stop") as client:
        path, server = client.path, client.server.get("server", {})
        pid, activated = server.get("pid"), bool(server.get("activated"))
        running = _running(client)
        client.call("daemon/shutdown", mode=mode)
        print(f"stopping the daemon (pid {pid}); {_effect(mode, running)}", file=sys.stderr)
        # If systemd holds the socket, another connection would start the next daemon. To a box it would start another ssh.
        _wait_until(
            (lambda: _hung_up(client)) if activated or box_of(path) else (lambda: _nobody_listens(path)),
            client,
            running,
        )
    stopped = {"pid": pid, "mode": mode, "running": running, "seconds": round(time.monotonic() - begun, 3)}
    stopped["activated"] = activated
    print(json.dumps(stopped) if as_json else _ACTIVATED if activated else "stopped")
    return EXIT_OK


def _effect(mode: str, running: int | None) -> str:
    turns = "running turns" if running is None else "no turn runs" if not running else turns_run(running)
    return turns if running == 0 else f"{turns}: {_MODES[mode][running != 1]}"


def turns_run(count: int) -> str:
    """Return `1 turn runs` or `7 turns run`."""
    return "1 turn runs" if count == 1 else f"{count} turns run"


def _wait_until(gone: Callable[[], bool], client: Client, running: int | None) -> None:
    until = time.monotonic() + STOP_TIMEOUT_S
    count_at = time.monotonic() + COUNT_EVERY_S
    while time.monotonic() < until:
        if gone():
            return
        if running and time.monotonic() >= count_at:
            running, count_at = _report_running(client, running), time.monotonic() + COUNT_EVERY_S
        time.sleep(_PAUSE_S)
    raise WorldError(
        f"the daemon at {client.path} has not stopped, because turns still run after {STOP_TIMEOUT_S:g} s",
        kind="overloaded",
        hint="see them: clisup status; end them: clisup stop --mode kill",
    )


def _nobody_listens(path: str) -> bool:
    client = RawClient(path, "clisup-stop")
    try:
        client.dial()
    except ClisupError as error:
        return error.kind == "daemon_not_running"
    client.close()
    return False


def _hung_up(client: Client) -> bool:
    """Tell whether the daemon has closed this connection, which is one of its last actions."""
    if client.lost:  # another call would connect again
        return True
    try:
        client.call("ping")
    except ClisupError as error:
        if error.kind not in (*AWAY, "overloaded", "shutting_down"):
            raise
        return error.kind in AWAY
    return False


def _report_running(client: Client, before: int) -> int | None:
    """Print the number of running turns if it has changed, and return it. Return None if the daemon does not answer."""
    running = _running(client)
    if running is not None and running != before:
        print(f"{turns_run(running)} still" if running else "no turn runs any more", file=sys.stderr)
    return running


def _running(client: Client) -> int | None:
    """Return the number of running turns, or None if this daemon no longer answers. Never wait for a successor."""
    try:
        if client.lost:
            return None
        return int(client.call("daemon/status")["daemon"]["running"])
    except ClisupError:
        return None


# -- metrics ------------------------------------------------------------------------------------------------------------


@click.command("metrics")
@click.option("--openmetrics", is_flag=True, help="Print OpenMetrics instead of Prometheus' text format.")
@json_option("Print the metrics as JSON, each with its samples.")
def metrics(openmetrics: bool, as_json: bool) -> int:
    """Print the daemon's metrics in Prometheus' text format.

    Use the output with node_exporter's textfile collector, or read it; docs/reference/observe.md explains each metric.

    \b
    Example:
      clisup metrics | grep clisup_turns_total
      clisup metrics > clisup.prom.tmp && mv clisup.prom.tmp clisup.prom
      clisup metrics --json | jq '.[] | select(.name == "clisup_tokens_total").samples'
    """
    form = "openmetrics" if openmetrics and not as_json else "prometheus"
    with Client.connect(name="clisup-metrics") as client:
        text = client.call("daemon/metrics", format=form)["text"]
    sys.stdout.write(json.dumps(_families(text), ensure_ascii=False) + "\n" if as_json else text)
    return EXIT_OK


def _families(text: str) -> list[JsonObject]:
    from prometheus_client.parser import text_string_to_metric_families

    return [
        {
            "name": f"{family.name}_total" if family.type == "counter" else family.name,  # the name in the text format
            "type": family.type,
            "help": family.documentation,
            "samples": [{"name": s.name, "labels": s.labels, "value": s.value} for s in family.samples],
        }
        for family in text_string_to_metric_families(text)
    ]


# -- reload, restart and log --------------------------------------------------------------------------------------------


@click.group("daemon", cls=HelpGroup)
def daemon() -> None:
    """Show the daemon's log, reload its configuration, or restart it in place.

    To start and to stop the daemon: clisup start, clisup stop.

    \b
    Example:
      clisup daemon reload
      clisup daemon restart
    """


@daemon.command("reload")
@click.option("-n", "--dry-run", is_flag=True, help="Only show the changes.")
@json_option("Print the daemon's answer as JSON.")
def reload(dry_run: bool, as_json: bool) -> int:
    """Reload the daemon's configuration file.

    The daemon accepts the whole file or, if something in it is wrong, nothing. Running turns go on unchanged. The table
    shows when each change takes effect: at once; with the next turn of a session (a live process is replaced first if
    necessary); with the next connection; or only after a stop and a start. SIGHUP does the same.

    Exit codes: 78 for a wrong configuration, 75 if it lacks the backend of an open session.

    \b
    Example:
      clisup config check && clisup daemon reload
      clisup daemon reload --dry-run
    """
    with Client.connect(name="clisup-reload") as client:
        answer = client.call("daemon/reload", dry_run=dry_run)
    if as_json:
        print(json.dumps(answer))
    else:
        _print_changes(answer["file"], answer["changed"], dry_run)
    return EXIT_OK


def _print_changes(file: str, changed: list[JsonObject], dry_run: bool) -> None:
    from clisup.config.keys import EFFECTS

    if not changed:
        print(f"nothing has changed: {plain(file)}")
        return
    count = "1 change" if len(changed) == 1 else f"{len(changed)} changes"
    print(f"{count}{' to come' if dry_run else ''}: {plain(file)}")
    rows = [[c["key"], c["what"], EFFECTS.get(c["effect"], c["effect"])] for c in changed]
    print_table(["KEY", "WHAT", "TAKES EFFECT"], rows)
    if any(c["effect"] == "start" for c in changed):
        print("\nThe socket and the state directory do not change: to change them, clisup stop, then clisup start.")


@daemon.command("restart")
@json_option("Print the new daemon as JSON: version, pid, instance_id.")
def restart(as_json: bool) -> int:
    """Restart the daemon in place, with the installed code and configuration.

    Running turns go on: the new daemon takes them over in mid-answer. clisup's own clients reconnect by themselves. If the
    new daemon would not start, the old one prints a message and goes on. The socket and the state directory do not change:
    to change those, stop and start the daemon.

    \b
    Example:
      pip install --upgrade clisup && clisup daemon restart
    """
    with Client.connect(name="clisup-restart") as client:
        path, before = client.path, client.server["server"]["instance_id"]
        running = client.call("daemon/restart")["running"]
    turns = "1 running turn goes on" if running == 1 else f"{running} running turns go on"
    print(f"restarting the daemon; {turns}", file=sys.stderr)
    server = _successor(path, before)
    print(json.dumps(server) if as_json else f"restarted: clisup {server['version']}, pid {server['pid']}")
    return EXIT_OK


def _successor(path: str, before: str) -> dict[str, object]:
    """Wait for the daemon after the instance `before`, and return its description."""
    until = time.monotonic() + RESTART_TIMEOUT_S
    while time.monotonic() < until:
        try:
            with Client.connect(path, name="clisup-restart") as client:
                server: dict[str, object] = client.server["server"]
                if server["instance_id"] != before:
                    return server
        except ClisupError as error:
            if error.kind not in (*AWAY, "overloaded"):
                raise
        time.sleep(_PAUSE_S)
    raise WorldError(
        f"the daemon at {path} has not come back after {RESTART_TIMEOUT_S:g} s",
        kind="daemon_not_running",
        hint="its log says why; start it: clisup start",
    )


@daemon.command("log")
@click.option(
    "-n", "--lines", type=click.IntRange(1, 1000), default=50, show_default=True, help="The most lines to show."
)
@click.option(
    "--session", metavar="SESSION", type=SESSION, shell_complete=complete_session, help="Only lines about this session."
)
@json_option("Print the lines as JSON, one object each.")
def log(lines: int, session: str | None, as_json: bool) -> int:
    """Show the last lines of the daemon's own log.

    The daemon keeps up to 1,000 lines since its start. Without a daemon, as after a crash, the lines come from its log file,
    and the exit code is 3. Under systemd the journal has all lines: journalctl --user -t clisup. For the events of a
    session, use clisup logs.

    \b
    Example:
      clisup daemon log
      clisup daemon log --session 3f2a --json | jq -r .event
    """
    try:
        with Client.connect(name="clisup-daemon-log") as client:
            session_id = find_session(client, session) if session else None
            found, code = client.call("daemon/log", limit=lines, **given({"session_id": session_id}))["lines"], EXIT_OK
    except Unreachable as error:
        path = file_of_log(error)
        print(plain(f"clisup: the daemon is not running; its last lines, from {path}"), file=sys.stderr)
        found, code = lines_of_file(path, lines, session), EXIT_NOT_RUNNING
    ink = Ink()
    for line in found:
        print(json.dumps(line, ensure_ascii=False) if as_json else log_line(line, ink))
    return code
