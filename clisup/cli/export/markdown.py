"""Markdown of an exported session. Text of others brings no HTML, no images and no structure of its own.

An answer is Markdown itself and stays so. Its `<` becomes `&lt;`, except in code that every renderer takes for code.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator

from clisup.cli.export.facts import cut_words, end_words, head_facts, moment, title_of
from clisup.cli.export.parts import (
    Call,
    CallResult,
    Note,
    Part,
    PromptText,
    SaidText,
    SessionHead,
    Text,
    TurnBegin,
    TurnEnd,
)
from clisup.cli.views.terminal import plain

__all__ = ["safe_markdown", "write_markdown"]

_FENCE = re.compile(r"(`{3,})[^`]*|(~{3,}).*")
_LOOSE_FENCE = re.compile(r"[\s>]*(?:[-*+]|\d+[.)])?\s*(?:`{3,}[^`]*$|~{3,})")
_LOOKS_LIKE_FENCE = re.compile(r"```|~~~")
_SPECIAL = re.compile(r"([\\`*_\[\]!|<>~])")

# A destination of a link that is neither a web or mail address nor a plain path. Entities and escapes could spell `javascript:`.
_UNSAFE_LINK = re.compile(r"\]([(:])(?!\s*(?:https?://|mailto:|[\w/.#?=%~-]+(?:[)\s]|$)))")


def write_markdown(parts: Iterable[Part]) -> Iterator[str]:
    """Yield the pieces of the document."""
    for part in parts:
        yield from _pieces(part)


def _pieces(part: Part) -> Iterator[str]:
    match part:
        case SessionHead():
            yield f"# {_inline(title_of(part))}\n\n"
            yield from (f"- {name}: {_inline(value)}\n" for name, value in head_facts(part))
        case TurnBegin():
            yield f"\n## Turn {_inline(part.turn_id.removeprefix('t'))}\n\n*{moment(part.at)}*\n"
            if part.prompt is not None:
                yield from _pieces(part.prompt)
        case PromptText():
            images = f" ({part.images} images)" if part.images else ""
            yield f"\n**Prompt**{images}\n\n{_quoted(part.body)}\n"
        case SaidText(kind="thinking"):
            yield _folded("Thinking" + _whose(part.subagent), _quoted(part.body))
        case SaidText():
            yield _said(part)
        case Call():
            diff = part.diff
            body = _code(part.body, "json") if diff is None else _code(diff, "diff")
            yield _folded(part.title + _whose(part.subagent), body)
        case CallResult():
            title = f"{'Failed' if part.is_error else 'Result'}: {part.name}{_whose(part.subagent)}"
            body = _code(part.body, "") if part.diff is None else _code(part.diff, "diff")
            yield _folded(title, body)
        case Note():
            yield f"\n> {_inline(part.kind.replace('_', ' '))}: {_inline(part.text)}\n"
        case TurnEnd():
            yield f"\n*{_inline(end_words(part.event))}*\n"


def _said(part: SaidText) -> str:
    cut = f"\n\n*{cut_words(part.body)}*" if part.body.cut else ""
    if part.kind == "answer" and not part.subagent:
        return f"\n**Answer**\n\n{safe_markdown(part.body.text)}{cut}\n"
    titles = {"answer": "Text", "unfinished": "Unfinished text", "synthetic": "Text of the CLI"}
    return _folded(titles[part.kind] + _whose(part.subagent), safe_markdown(part.body.text) + cut)


def _whose(subagent: bool) -> str:
    return " (sub-agent)" if subagent else ""


def _folded(title: str, body: str) -> str:
    return f"\n<details><summary>{html.escape(' '.join(plain(title).split()))}</summary>\n\n{body}\n\n</details>\n"


def _code(body: Text, language: str) -> str:
    """Return a fenced block. Its fence is longer than any run of backticks in the text."""
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", body.text)), default=0))
    text = plain(body.text).rstrip("\n")
    cut = f"\n\n*{cut_words(body)}*" if body.cut else ""
    return f"{fence}{language}\n{text}\n{fence}{cut}"


def _quoted(body: Text) -> str:
    """Return a text as it is: a fenced block."""
    return _code(body, "text")


def _inline(text: str) -> str:
    """Return one line in which nothing is Markdown."""
    return _SPECIAL.sub(r"\\\1", " ".join(plain(text).split())).replace("\\<", "&lt;")


# -- answers ------------------------------------------------------------------------------------------------------------


def safe_markdown(text: str) -> str:
    """Return Markdown without HTML and images.

    Renderers differ on fences in lists and quotes. If a fence can be read in two ways, no text counts as code. If fences do
    not even come in pairs, the whole text is shown as it is.
    """
    lines = plain(text).split("\n")
    inside, fence = _fenced(lines)
    if inside is not None:
        certain = all(code or _has_plain_spans(line) for line, code in zip(lines, inside, strict=True))
        outside = _with_spans if certain else _bare
        safe = [line if code else outside(line) for line, code in zip(lines, inside, strict=True)]
        return "\n".join([*safe, fence] if fence else safe)
    if sum(_LOOSE_FENCE.match(line) is not None for line in lines) % 2:
        return _quoted(Text(text))
    return "\n".join(map(_bare, lines))


def _fenced(lines: list[str]) -> tuple[list[bool] | None, str]:
    """Tell which lines are fenced code or its fences, and the fence that stays open. Return None if that is not certain."""
    inside: list[bool] = []
    fence = ""
    for line in lines:
        if fence:
            closes = re.fullmatch(rf"\s*{re.escape(fence[0])}{{{len(fence)},}}\s*", line)
            if closes and line[0].isspace():
                return None, ""
            inside.append(True)
            fence = "" if closes else fence
        elif match := _FENCE.fullmatch(line):
            fence = match.group(1) or match.group(2)
            inside.append(True)
        elif _LOOKS_LIKE_FENCE.search(line):
            return None, ""
        else:
            inside.append(False)
    return inside, fence


def _has_plain_spans(line: str) -> bool:
    """Tell whether the code spans of a line begin and end in it, for every renderer."""
    return "`" not in line or (line.count("`") % 2 == 0 and not any(mark in line for mark in ("``", "\\", "|")))


def _with_spans(line: str) -> str:
    """Return a line without HTML, except in its code spans."""
    return "`".join(piece if at % 2 else _bare(piece) for at, piece in enumerate(line.split("`")))


def _bare(text: str) -> str:
    return _UNSAFE_LINK.sub(r"]\\\1", text.replace("<", "&lt;").replace("![", "!\\["))
