"""The demo CLI, with each line of its stdin written down: `overheard_demo.py FILE ARGUMENTS...`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

heard, *arguments = sys.argv[1:]
demo = subprocess.Popen([sys.executable, "-m", "clisup.demo", *arguments], stdin=subprocess.PIPE)
assert demo.stdin is not None
if "--version" not in arguments:
    with Path(heard).open("ab", buffering=0) as file:
        for line in sys.stdin.buffer:
            file.write(line)
            demo.stdin.write(line)
            demo.stdin.flush()
demo.stdin.close()
raise SystemExit(demo.wait())
