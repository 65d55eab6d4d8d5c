"""Generates the blocking twin of the trio client: `make client` writes `clisup/client/sync_*.py` from `aio_*.py`.

Words are replaced line by line. A line of the source that ends with `# blocking: CODE` becomes CODE in
the twin; without CODE the line is left out.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).resolve().parents[2] / "clisup" / "client"
TWINS = {f"aio_{name}.py": f"sync_{name}.py" for name in ("requests", "session", "calls")}

_INSTEAD = re.compile(r"^( *).*# blocking:(?: (.*))?$")
_NOTE = re.compile(r"`clisup\.client\.sync_(\w+)` is generated from this file by `make client`\.")
_WORDS = [
    (_NOTE, r"Generated from `clisup/client/aio_\1.py` by `make client`: change that file."),
    (re.compile(r"\basync (?=def|with|for)"), ""),
    (re.compile(r"(?i)\ban `async with`"), "a `with`"),
    (re.compile(r"\bawait "), ""),
    (re.compile(r"\b(__)a(iter__|next__|enter__|exit__)"), r"\1\2"),
    (re.compile(r"\banext\("), "next("),
    (re.compile(r"\bStopAsyncIteration\b"), "StopIteration"),
    (re.compile(r"\bAsyncConnection\b"), "RawClient"),
    (re.compile(r"\bAsync(?=[A-Z])"), "Blocking"),
    (re.compile(r"\bclisup\.client\.aio_connection\b"), "clisup.client.raw"),
    (re.compile(r"\bclisup\.client\.aio_(?=requests|session|calls)"), "clisup.client.sync_"),
    (re.compile(r"\btrio\.sleep\("), "time.sleep("),
]


def blocking(source: str) -> str:
    """Return the twin of a source file."""
    lines = []
    for line in source.splitlines():
        if instead := _INSTEAD.match(line):
            if instead[2] is None:
                continue
            line = instead[1] + instead[2]
        for words, replacement in _WORDS:
            line = words.sub(replacement, line)
        lines.append(_without_awaitables(line))
    code = "\n".join(lines) + "\n"
    for command in (["check", "--quiet", "--fix", "--select", "I,F401"], ["format", "--quiet"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(CLIENT / "twin.py"), "-"]
        code = subprocess.run(ruff, input=code, capture_output=True, text=True, check=True).stdout
    return code


def _without_awaitables(line: str) -> str:
    """Replace `Awaitable[X]` by `X`."""
    while (at := line.find("Awaitable[")) >= 0:
        begin = end = at + len("Awaitable[")
        depth = 1
        while depth:
            depth += {"[": 1, "]": -1}.get(line[end], 0)
            end += 1
        line = line[:at] + line[begin : end - 1] + line[end:]
    return line


def main() -> None:
    """Write the twins."""
    for source, twin in TWINS.items():
        (CLIENT / twin).write_text(blocking((CLIENT / source).read_text()))


if __name__ == "__main__":
    main()
