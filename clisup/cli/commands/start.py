"""`clisup start` and `clisup socket`: the daemon in the background, and the path at which it listens."""

from __future__ import annotations

import json
import os
import sys

import click

from clisup.cli.daemon_start import report
from clisup.cli.failure import usage
from clisup.cli.options import config_option, json_option
from clisup.cli.views.terminal import plain
from clisup.client.raw import RawClient
from clisup.errors import EXIT_OK, ClisupError
from clisup.locations import socket_for_client, state_dir_for_client

__all__ = ["socket", "start"]


@click.command("start")
@config_option
@click.option("--socket", metavar="PATH", type=click.Path(), help="The socket for clients.")
@click.option(
    "--state-dir", metavar="DIRECTORY", type=click.Path(), help="The directory for sessions and their events."
)
@json_option("Print the daemon as JSON: started, pid, version, socket, state_dir, log_file, unit.")
def start(config: str | None, socket: str | None, state_dir: str | None, as_json: bool) -> int:
    """Start the daemon in the background, and wait until it is ready.

    A daemon that already runs is success. The log goes to daemon.log in the state directory: clisup daemon log shows it. If
    a unit of clisup install --user is there, systemd starts the daemon. `clisup stop` stops it.

    If the daemon ends at once, this command prints the daemon's last words and returns its exit code, such as 78 for a
    wrong configuration.

    \b
    Example:
      clisup start
      clisup start --config ./clisup.toml
      clisup start --json | jq -r .socket
    """
    from clisup.daemon.start import Flags
    from clisup.starting import plan_start, start_daemon

    found = start_daemon(plan_start(Flags(config, socket, state_dir), os.environ), os.environ, report)
    if as_json:
        print(json.dumps(found._asdict()))
        return EXIT_OK
    how = f"{found.unit} runs" if found.unit else "started the daemon" if found.started else "the daemon runs already"
    print(plain(f"{how}: pid {found.pid}, clisup {found.version}"))
    print(plain(f"socket  {found.socket}"))
    print(plain(f"log     {found.log_file or 'clisup daemon log'}"))
    return EXIT_OK


@click.command("socket")
@json_option("Print a JSON object: socket, state_dir, answers (does a daemon answer there?).")
@click.option("--stdio", is_flag=True, help="Connect stdin and stdout to the daemon; --on runs this on a box.")
def socket(as_json: bool, stdio: bool) -> int:
    """Print the path of the socket at which commands and clients find the daemon.

    The path is $CLISUP_SOCKET, else daemon.socket of the configuration, else clisup/clisup.sock in $XDG_RUNTIME_DIR or
    /run/user/UID, else clisup.sock in the state directory. If no socket is there, it is that of the system's daemon for this
    user (/run/clisup/USER/clisup.sock), if there is one. The command does not need a daemon.

    \b
    Example:
      clisup socket
      echo '{"id":1,"method":"ping"}' | nc -NU "$(clisup socket)"
      clisup socket --json | jq .answers
    """
    path = socket_for_client(os.environ, os.getuid())
    if stdio:
        from clisup.cli.fleet.stdio import carry

        if as_json:
            raise usage("cannot give two forms at once", hint="choose one of --json and --stdio")
        return carry(path)
    if as_json:
        state_dir = state_dir_for_client(os.environ, os.getuid())
        print(json.dumps({"socket": path, "state_dir": state_dir, "answers": _answers(path)}))
    else:
        print(plain(path) if sys.stdout.isatty() else path)
    return EXIT_OK


def _answers(path: str) -> bool:
    try:
        RawClient.connect(path, name="clisup-socket").close()
    except ClisupError:
        return False
    return True
