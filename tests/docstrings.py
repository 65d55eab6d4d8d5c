"""Check how the docstrings of the package open: `python -m tests.docstrings`, a part of `make lint`.

A docstring begins with a verb or a noun. It never begins with a question word, a pronoun or a helping verb, and its first
line is no question.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OPENINGS = re.compile(
    r"(What|Who|Whoever|Where|Whether|Which|How|Of|These|Those|Nobody|Nothing|They|It is|Is|Are|Does|Do|Has|Have|May|Can"
    r"|One \w+'s)\b"
)
# Findings that are left, by folder. A number may only go down.
ALLOWED: dict[str, int] = {}

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def findings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the first line of each docstring that opens badly."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
            first = text.splitlines()[0].rstrip()
            if OPENINGS.match(first) or first.endswith("?"):
                yield node.body[0].lineno, first


def folder(path: Path) -> str:
    """Return the folder below the package that a file counts for; a file of the package itself counts for `clisup`."""
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def main() -> int:
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "clisup").rglob("*.py")):
        for line, first in findings(path.read_text()):
            found.setdefault(folder(path), []).append(f"{path.relative_to(ROOT)}:{line}: {first}")
    failed = False
    for name in sorted(found.keys() | ALLOWED.keys()):
        count, allowed = len(found.get(name, [])), ALLOWED.get(name, 0)
        if count > allowed:
            print(*found[name], sep="\n")
            print(f"{name}: {count} docstrings open badly, {allowed} may: begin with a verb or a noun\n")
        elif count < allowed:
            print(f"{name}: {count} docstrings open badly, fewer than ALLOWED says ({allowed}): lower the number\n")
        failed |= count != allowed
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
