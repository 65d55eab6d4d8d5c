"""`make pictures`: docs/images/kill.svg, a turn that goes on while its daemon is killed, recorded from real commands.

python -m tests.pictures.movie [FILE.svg]
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.pictures.terminal import Film, Pane, Run, moving

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "kill.svg"
PROMPT = "@stream 48 60 0.2"
"""For the demo backend: 48 pieces of 60 characters, one each 0.2 s."""


class Shell:
    """Pane with a shell's prompt, in which commands are typed and run."""

    def __init__(self, film: Film, pane: Pane, env: dict[str, str], cwd: str) -> None:
        self.film, self.pane, self.env, self.cwd = film, pane, env, cwd
        pane.say("$ ")

    def begin(self, command: str) -> Run:
        self.film.type(self.pane, command)
        run = Run(self.pane, ["/bin/sh", "-c", command], self.env, self.cwd)
        self.film.runs.append(run)
        return run

    def run(self, command: str) -> None:
        run = self.begin(command)
        self.film.until(lambda: run not in self.film.runs, command)
        run.close()
        self.pane.say("$ ")


def record(home: Path) -> str:
    bin_ = Path(sys.executable).parent
    env = {"HOME": str(home), "PATH": f"{bin_}:/usr/bin:/bin", "LANG": "C.UTF-8", "XDG_RUNTIME_DIR": str(home / "run")}
    (home / "run").mkdir(mode=0o700)
    (home / "project").mkdir()
    upper, lower = Pane(100, 16, "a turn"), Pane(100, 14, "another terminal")
    film = Film(upper, lower)
    above, below = (Shell(film, pane, env, str(home / "project")) for pane in (upper, lower))
    try:
        below.run("clisup start")
        turn = above.begin(f'clisup run -b demo "{PROMPT}"')
        film.play(3.0)
        below.run(f"kill -9 {daemon_pid(env)}")
        film.play(1.0)
        below.run("clisup status -q")
        film.play(1.0)
        below.run("clisup start")
        film.until(lambda: turn not in film.runs, "the end of the turn")
        turn.close()
        upper.say("$ ")
        below.run("clisup sessions")
        film.play(4.0)
        seconds = film.end()
    finally:
        for run in film.runs:
            run.close()
        subprocess.run([str(bin_ / "clisup"), "stop"], env=env, capture_output=True, check=False)
    return moving((upper, lower), seconds)


def daemon_pid(env: dict[str, str]) -> int:
    said = subprocess.run(["clisup", "status", "--json"], env=env, capture_output=True, check=True).stdout
    return int(json.loads(said)["daemon"]["pid"])


def main() -> int:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    home = Path(tempfile.mkdtemp(prefix="cs", dir="/tmp"))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        target.write_text(record(home).replace(str(home), "/home/you"))  # no path of this machine
    finally:
        shutil.rmtree(home, ignore_errors=True)
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
