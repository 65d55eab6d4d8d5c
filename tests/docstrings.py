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
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def findings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the first line of each docstring that opens badly."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
            first = text.splitlines()[0].rstrip()
            if OPENINGS.match(first) or first.endswith("?"):
                yield node.body[0].lineno, first


def main() -> int:
    failed = 0
    for path in sorted((ROOT / "clisup").rglob("*.py")):
        for line, first in findings(path.read_text()):
            print(f"{path.relative_to(ROOT)}:{line}: begin this docstring with a verb or a noun: {first}")
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
