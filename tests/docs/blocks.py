"""The pages as a program sees them: fenced blocks, the commands typed in them, links and anchors."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCE = re.compile(r"^( *)```(\S*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """One fenced block: where it begins, its language ("" where none is named) and its text."""

    page: str
    line: int
    language: str
    text: str

    @property
    def at(self) -> str:
        return f"{self.page}:{self.line}"


class Command(NamedTuple):
    """One line after a `$ ` prompt, joined with the lines that a backslash continues."""

    page: str
    line: int
    text: str

    @property
    def at(self) -> str:
        return f"{self.page}:{self.line}"


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path) -> Iterator[Block]:
    text = path.read_text()
    for found in _FENCE.finditer(text):
        yield Block(name_of(path), text.count("\n", 0, found.start()) + 1, found[2], found[3])


def is_console(block: Block) -> bool:
    """Prompts make a console, whatever the block is called."""
    return block.language in ("console", "") and re.search(r"^\$ ", block.text, re.MULTILINE) is not None


def commands(block: Block) -> Iterator[Command]:
    """What is typed: after prompts in a console, all of it where the block is a script (`sh`, `bash`)."""
    script = block.language in ("sh", "bash") and not block.text.startswith("#!")
    lines = block.text.splitlines()
    at = 0
    while at < len(lines):
        begin, line = at, lines[at]
        at += 1
        if not (line.startswith("$ ") or (script and line.strip() and not line.startswith("#"))):
            continue
        text = line.removeprefix("$ ")
        while text.endswith("\\") and at < len(lines):
            text += "\n" + lines[at]
            at += 1
        yield Command(block.page, block.line + begin + 1, text)


def prose(path: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", path.read_text())


_SEPARATORS = ("|", "||", "&&", ";", "&", "|&", "(", ")", "\n")


def simple_commands(text: str) -> Iterator[list[str]]:
    """The words of each command of a shell line; redirections and leading assignments are cut off.

    Command substitutions are read as words of their own: `$(clisup ...)` gives that command, too.
    """
    for inner in re.findall(r"\$\(([^()]*)\)", text):
        yield from simple_commands(inner)
    lexer = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars="|&;()<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words: list[str] = []
    skip = False
    for word in [*lexer, ";"]:
        if word in _SEPARATORS:
            while words and re.fullmatch(r"\w+=.*", words[0], re.DOTALL):
                words.pop(0)
            if words:
                yield words
            words, skip = [], False
        elif set(word) <= set("<>&") and word:
            if words and words[-1].isdigit():
                words.pop()  # the number of a descriptor
            skip = True
        elif skip:
            skip = False
        else:
            words.append(word)


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings, and those that the page sets itself."""
    found = set(re.findall(r'<a id="([^"]+)"></a>', path.read_text()))
    for heading in re.findall(r"^#{1,6} (.+?)\s*$", _FENCE.sub("", path.read_text()), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        number, free = 0, slug
        while free in found:
            number += 1
            free = f"{slug}-{number}"
        found.add(free)
    return found


def links(path: Path) -> Iterator[tuple[str, str]]:
    """(target, anchor) of every link to a file of the repository, images included."""
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", prose(path))):
        if "://" not in target and not target.startswith("mailto:"):
            file, _, anchor = target.partition("#")
            yield file, anchor
