"""`clisup demo`: a tour with the embedded demo backend and real commands, in a scratch directory."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from clisup.cli.lookup import stored
from clisup.client.sync import Client
from clisup.errors import ClisupError, WorldError

__all__ = ["demo"]

START_LIMIT_S = 20.0
CHUNKS = 40
CANARIES = {"ANTHROPIC_API_KEY": "sk-ant-demo-canary-000000000000", "AWS_SECRET_ACCESS_KEY": "demo-canary-1111111111"}
CONFIG = """\
[backends.demo.timeouts]
model_idle = 2
term_grace = 1
"""
STORY = """\
@text A supervised CLI answers, piece by piece:
@sleep 0.4
@text  its bytes go into a spool,
@sleep 0.4
@text  the daemon reads them there,
@sleep 0.4
@text  and every client gets the same events.
"""


@click.command("demo")
def demo() -> int:
    """Show the main features in about 10 seconds: no login, no network, nothing left behind.

    A separate daemon in a scratch directory runs real subprocesses that pretend to be a model's CLI.

    \b
    Example:
      clisup demo
    """
    with tempfile.TemporaryDirectory(prefix="clisup-demo-") as scratch:
        stage = _Stage(Path(scratch))
        try:
            return _play(stage)
        finally:
            stage.stop()


def _play(stage: _Stage) -> int:
    stage.start()
    _heading(1, "A streamed answer")
    stage.clisup("run", "-b", "demo", STORY, shown="... a prompt ...")
    _heading(2, "A tool call: a real command, run by the CLI")
    stage.clisup("run", "-b", "demo", "@bash uname -sr")
    _heading(3, "What the CLI's environment keeps and drops (the daemon was started with two secrets in its own)")
    stage.clisup("run", "-b", "demo", f"@env {' '.join(CANARIES)} HOME")
    stage.dropped()
    _heading(4, "A CLI that falls silent is ended by the watchdog (limit here: 2 s)")
    stage.clisup("run", "-b", "demo", "@text I begin to answer,\n@stall", expected=124)
    _heading(5, "The daemon is killed with SIGKILL in the middle of a turn; the turn arrives whole")
    whole = stage.survive_a_kill()
    _heading(6, "clisup status")
    stage.clisup("status")
    click.echo("\nThe tour is over. With your own login:  clisup run -b claude 'Say hello.'")
    return 0 if whole else 1


def _heading(number: int, text: str) -> None:
    click.echo("\n" + click.style(f"{number}. {text}", bold=True))


class _Stage:
    """Scratch directory, its daemon, and the commands that talk to the daemon."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._socket = str(scratch / "clisup.sock")
        (scratch / "config.toml").write_text(CONFIG)
        (scratch / "home").mkdir()
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TERM", "NO_COLOR") if name in os.environ}
        self._env = {**kept, "HOME": str(scratch / "home"), "CLISUP_SOCKET": self._socket}
        self._daemon: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the daemon and wait until it answers."""
        config, state = str(self._scratch / "config.toml"), str(self._scratch / "state")
        argv = [sys.executable, "-m", "clisup", "serve", "--config", config, "--state-dir", state]
        with (self._scratch / "daemon.log").open("ab") as log:
            self._daemon = subprocess.Popen(argv, env={**self._env, **CANARIES}, stderr=log, cwd=self._scratch)
        until = time.monotonic() + START_LIMIT_S
        while True:
            try:
                with self._client():
                    return
            except ClisupError as error:
                if time.monotonic() > until or self._daemon.poll() is not None:
                    log_text = (self._scratch / "daemon.log").read_text()
                    raise WorldError(f"cannot start the demo's daemon: {log_text[-500:]}", hint=error.hint) from None
                time.sleep(0.05)

    def stop(self) -> None:
        """Stop the daemon and everything that it runs."""
        if self._daemon is not None and self._daemon.poll() is None:
            self._command("stop", "--mode", "kill", quiet=True)
            try:
                self._daemon.wait(START_LIMIT_S)
            except subprocess.TimeoutExpired:
                self._daemon.kill()
                self._daemon.wait()

    def clisup(self, *args: str, shown: str | None = None, expected: int = 0) -> None:
        """Print a command and run it."""
        words = [*args[:-1], shown] if shown else list(args)
        click.echo(click.style("$ clisup " + shlex.join(words), fg="cyan"))
        code = self._command(*args)
        if code != expected:
            raise WorldError(f"the demo has failed, because that command ended with {code}", hint="report this")

    def _command(self, *args: str, quiet: bool = False) -> int:
        sys.stdout.flush()
        sink = subprocess.DEVNULL if quiet else None
        argv = [sys.executable, "-m", "clisup", *args]
        return subprocess.run(argv, env=self._env, cwd=self._scratch, stdout=sink, stderr=sink, check=False).returncode

    def dropped(self) -> None:
        """Print the scrub's rules for the two secrets."""
        with self._client() as client:
            report = client.call("backend/env", name="demo")
        rules = {row["name"]: row["rule"] for row in report["dropped"]}
        for name in CANARIES:
            click.echo(f"  dropped {name:24} by {rules[name]}")
        click.echo(f"  kept {', '.join(row['name'] for row in report['kept'])}  (the whole list: clisup env demo)")

    def survive_a_kill(self) -> bool:
        """Kill the daemon while a client follows a turn, start it again, and check the events."""
        assert self._daemon is not None
        prompt = f"@stream {CHUNKS} 14 0.1"
        click.echo(click.style(f"$ clisup run -b demo {prompt!r}", fg="cyan"))
        sys.stdout.flush()
        argv = [sys.executable, "-m", "clisup", "run", "-b", "demo", prompt]
        with subprocess.Popen(argv, env=self._env, cwd=self._scratch) as run:
            self._wait_for_chunks(CHUNKS // 4)
            self._daemon.send_signal(signal.SIGKILL)
            self._daemon.wait()
            click.echo(click.style("\n  -- kill -9 of the daemon; a new one starts --", fg="red"), err=True)
            self.start()
            run.wait()
        return self._check()

    def _wait_for_chunks(self, count: int) -> None:
        with self._client() as client:
            until = time.monotonic() + START_LIMIT_S
            while time.monotonic() < until:
                rows = client.call("session/list", state="running")["sessions"]
                if rows and rows[0]["next_seq"] > count:
                    return
                time.sleep(0.02)

    def _check(self) -> bool:
        with self._client() as client:
            session = client.call("session/list", limit=1)["sessions"][0]["session_id"]
            events = list(stored(client, session))
        chunks = [event["text"] for event in events if event["type"] == "content_delta"]
        seqs = [event.get("seq") for event in events]
        adopted = sum(event.get("code") == "adopted" for event in events)
        holes = seqs != list(range(1, len(seqs) + 1))
        exact = len(chunks) == CHUNKS == len(set(chunks))
        click.echo(
            f"  {len(chunks)} of {CHUNKS} pieces, {len(chunks) - len(set(chunks))} doubled; "
            f"{len(seqs)} events, {'WITH' if holes else 'no'} holes in seq; adopted by the new daemon: {adopted}"
        )
        return exact and not holes

    @contextmanager
    def _client(self) -> Iterator[Client]:
        with Client.connect(self._socket, name="clisup-demo") as client:
            yield client
