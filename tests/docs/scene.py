"""A home of its own in which the commands of a page are typed into one bash, beside a real daemon.

Pages speak of claude, codex, gemini and qwen: here these names are backends of the kind `demo` (`ALIASES`), which needs no login
and no model. A session's id on a page (four hex digits, or a whole UUID) stands for the session that was opened last; where
there is none yet, one with three turns is made.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from clisup.client.sync import Client
from clisup.errors import ClisupError
from tests.docs.blocks import ROOT, blocks
from tests.docs.relay import Relay

ALIASES = ("claude", "codex", "gemini", "qwen")
PATIENCE_S = 60.0
ENDLESS_S = 3
"""How long a command that follows is left running; it must not fail within it."""
UUID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
SHORT_ID = re.compile(r"(?:(?<=build/)|(?<![\w./:-]))(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])[0-9a-f]{4}(?![\w:.-])")
APPROVAL_ID = re.compile(r"\b([0-9a-f]{8}/)?\d+:\d+\b")
ANSWERED = re.compile(r"(?<=approvals answer )\S+")
NUMBERED = re.compile(r"(?<=approvals allow )\d+(?=\s|$)|(?<=approvals deny )\d+(?=\s|$)")
QUESTIONS = [{"question": word, "options": [{"label": "A"}, {"label": "B"}]} for word in ("Which?", "Where?")]
CONFIG = "".join(f'[backends.{name}]\nkind = "demo"\n\n' for name in ALIASES)


def until(what: Callable[[], Any], why: str) -> Any:
    end = time.monotonic() + PATIENCE_S
    while not (value := what()):
        assert time.monotonic() < end, f"waited in vain: {why}"
        time.sleep(0.02)
    return value


class Scene:
    """`run` types a line and gives its exit code; what it said is in `said`."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="cd", dir="/tmp"))
        self.home, self.work = self.root / "home", self.root / "home" / "work"
        for directory in (self.work, self.root / "bin", self.root / "run", self.home / ".config" / "clisup"):
            directory.mkdir(parents=True)
        (self.root / "run").chmod(stat.S_IRWXU)
        (self.home / ".config" / "clisup" / "config.toml").write_text(CONFIG)
        for name, line in {"clisup": f"{sys.executable} -m clisup", "python": sys.executable}.items():
            program = self.root / "bin" / name
            program.write_text(f'#!/bin/sh\nexec {line} "$@"\n')
            program.chmod(0o755)
        self.env = {
            "PATH": f"{self.root}/bin:{os.environ.get('PATH', os.defpath)}",
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "XDG_RUNTIME_DIR": str(self.root / "run"),
            "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
            "CLISUP_SOCKET": self.socket,
        }
        self.log = self.root / "said"
        self._mark = 0
        self._status, status = os.pipe()
        with self.log.open("ab") as log:
            argv = ["bash", "--noprofile", "--norc"]
            self._bash = subprocess.Popen(
                argv, env=self.env, cwd=self.work, stdin=subprocess.PIPE, stdout=log, stderr=log, pass_fds=(status,)
            )
        self._say_status = status
        self._relays: list[Relay] = []
        self._count = 0
        assert self.run("set -o pipefail") == 0  # what fails at the head of a pipe has failed

    @property
    def socket(self) -> str:
        return str(self.root / "run" / "clisup" / "clisup.sock")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # -- the shell

    def run(self, line: str) -> int:
        """Type it, wait for the prompt to come back; its exit code."""
        self._count += 1
        self._mark = self.log.stat().st_size
        script = self.root / f"line{self._count}"
        script.write_text(line + "\n")
        assert self._bash.stdin is not None
        self._bash.stdin.write(f'source {script} </dev/null; echo "$?" >&{self._say_status}\n'.encode())
        self._bash.stdin.flush()
        ready, _, _ = select.select([self._status], [], [], PATIENCE_S)
        assert ready, f"{line!r} does not end: {self.said}"
        return int(os.read(self._status, 64))

    @property
    def said(self) -> str:
        """By the last line, on both streams, and by what runs in the background meanwhile."""
        with self.log.open("rb") as log:
            log.seek(self._mark)
            return log.read().decode(errors="replace")

    # -- the daemon

    def serves(self) -> bool:
        try:
            with Client.connect(self.socket):  # a call would wait for 30 s for a daemon that has just gone
                return True
        except (OSError, ClisupError):
            return False

    def start(self) -> None:
        assert self.run("clisup serve 2>>~/serve.log &") == 0
        self.await_served()

    def await_served(self) -> None:
        until(self.serves, "no daemon serves")

    def await_gone(self) -> None:
        until(lambda: not self.serves(), "the daemon does not stop")

    def client(self) -> Client:
        return Client.connect(self.socket)

    # -- what ids stand for

    def newest(self) -> str:
        """The session that was opened last. Where there is none, one with three turns."""
        with self.client() as client:
            sessions = client.call("session/list", state=None)["sessions"]
            if sessions:
                return str(sessions[0]["session_id"])
            session = client.open("claude", str(self.work), labels={"job": "nightly"})
            for text in ("Say hello.", '@tool Bash {"command":"echo hi"}\nDone.', "Say it again."):
                session.prompt(text)
            return session.id

    def ask_for_leave(self) -> None:
        """A turn that waits for an approval, in a session of its own."""
        with self.client() as client:
            session = client.open("claude", str(self.work), mode="live")
            session.prompt('@ask Bash {"command":"echo hi"}\nDone.', wait=False)
            until(session.open_approvals, "nothing asks")

    def await_tool(self) -> None:
        """What a line before has begun in the background is at its tool: the reader has typed the next one by hand."""
        with self.client() as client:
            until(lambda: any(row["phase"] == "tool" for row in client.status()["sessions"]), "nothing is at a tool")

    def approval(self) -> str:
        """`SESSION/ID` of one that waits; where none does, one is asked for."""
        with self.client() as client:
            if not client.open_approvals():
                self.ask_for_leave()
            found = client.open_approvals()[0]
        return f"{found.session_id[:8]}/{found.approval_id}"

    def questions(self) -> str:
        """`SESSION/ID` of two questions that wait for their answers."""
        with self.client() as client:
            session = client.open("claude", str(self.work), mode="live")
            session.prompt(f"@ask AskUserQuestion {json.dumps({'questions': QUESTIONS})}\nDone.", wait=False)
            until(session.open_approvals, "nothing asks")
            return f"{session.id[:8]}/{session.open_approvals()[0].approval_id}"

    def real(self, line: str) -> str:
        """The line with the ids of this daemon in place of the page's."""
        if ANSWERED.search(line):
            return ANSWERED.sub(self.questions(), line)
        if NUMBERED.search(line):
            return NUMBERED.sub(self.approval(), line)
        if APPROVAL_ID.search(line) and "approvals" in line:
            return APPROVAL_ID.sub(self.approval(), line)
        for pattern in (UUID, SHORT_ID):
            if pattern.search(line):
                line = pattern.sub(self.newest(), line)
        return line

    # -- what else a page speaks of

    def name_recording(self, name: str) -> None:
        """The recording that the page has just made, under the name that it would have with the real CLI."""
        for path in self.work.glob("claude-1*"):
            path.rename(self.work / (name + path.name[path.name.index(".", path.name.rindex("-t")) :]))

    def copy_examples(self, target: Path | None = None) -> None:
        """The programs of docs/examples, where the page has its reader put them."""
        for path in (ROOT / "docs" / "examples").iterdir():
            if path.is_file():  # whoever ran or checked them may have left byte code
                shutil.copy(path, target or self.work)

    def write_program(self, page: str, name: str) -> None:
        """The first Python program of a page, saved as it says; and the Python of an installed clisup."""
        text = next(block.text for block in blocks(ROOT / page) if block.language == "python")
        (self.work / name).write_text(text)
        python = self.home / ".local" / "share" / "clisup" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.symlink_to(self.root / "bin" / "python")

    def own_configuration(self) -> None:
        """A `clisup.toml` where the page's reader works."""
        (self.work / "clisup.toml").write_text(CONFIG)

    def add_receiver(self) -> None:
        """A receiver of messages, which the daemon knows."""
        path = self.home / ".config" / "clisup" / "config.toml"
        path.write_text(f'{CONFIG}\n[[notify]]\ncommand = ["cat"]\n')
        assert self.run("clisup daemon reload") == 0

    def forward(self, local: Path) -> None:
        """What `ssh -L local:socket` would make."""
        self._relays.append(Relay(str(local), self.socket))

    def add_ssh(self) -> None:
        """An ssh whose other end is this machine."""
        program = self.root / "bin" / "ssh"
        program.write_text('#!/bin/sh\nfor word; do command=$word; done\nexec env -u CLISUP_ON sh -c "exec $command"\n')
        program.chmod(0o755)

    # -- the end

    def close(self) -> None:
        """Nothing that was started here may be left."""
        if self.serves():
            with self.client() as client:
                client.stop_daemon("kill")
            self.await_gone()
        self.run("kill $(jobs -p) 2>/dev/null; true")
        for relay in self._relays:
            relay.close()
        assert self._bash.stdin is not None
        self._bash.stdin.close()
        try:
            self._bash.wait(PATIENCE_S)
            until(lambda: not self.mine(), f"left behind: {self.mine()}")
        finally:
            for pid in self.mine():
                os.kill(pid, signal.SIGKILL)
            os.close(self._status)
            os.close(self._say_status)
            shutil.rmtree(self.root, ignore_errors=True)

    @property
    def bash_pid(self) -> int:
        return self._bash.pid

    def mine(self) -> set[int]:
        """Every process that was started in this scene and still runs."""
        found = set()
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                try:
                    if str(self.root).encode() in Path(f"/proc/{name}/environ").read_bytes():
                        found.add(int(name))
                except OSError:
                    continue
        return found
