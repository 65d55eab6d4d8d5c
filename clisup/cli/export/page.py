"""HTML page of an exported session: one file with its own style, without scripts. Every text of others is escaped."""

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

__all__ = ["diff_html", "part_html", "pre_html", "write_html"]

# The policy is a second wall: even an unescaped text could load and run nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
:root { color-scheme: light dark; --text: #1c2024; --back: #fff; --soft: #f3f4f6; --line: #d5d9df; --dim: #626a74;
  --accent: #0b6bcb; --bad: #b42318; --plus: #e2f5e6; --minus: #fde7e6; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e8eb; --back: #14171a; --soft: #1f2429; --line: #363d45;
  --dim: #9aa4af; --accent: #6db3f2; --bad: #ff8a80; --plus: #143d22; --minus: #4a1d1d; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1rem; font: 16px/1.5 system-ui, sans-serif; color: var(--text);
  background: var(--back); overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; line-height: 1.25; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; border-top: 1px solid var(--line);
  padding-top: 1rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: 0;
  align-items: baseline; } dt, time, .end, .note, .cut {
  color: var(--dim); font-size: .875rem; } dd { margin: 0; }
.prompt { border-left: 3px solid var(--accent); background: var(--soft); padding: .5rem .75rem; margin: .75rem 0; }
.text { white-space: pre-wrap; margin: .75rem 0; } .prompt .text { margin: 0; }
details { border: 1px solid var(--line); border-radius: 6px; margin: .5rem 0; padding: .3rem .75rem; } summary {
  cursor: pointer; font-size: .9rem; } summary.bad, .end.bad { color: var(--bad); }
pre { margin: .5rem 0; padding: .5rem; background: var(--soft); font: .8125rem/1.45 ui-monospace, monospace;
  white-space: pre-wrap; max-height: 40rem; overflow: auto; } ins, del { text-decoration: none; display: block; }
ins { background: var(--plus); } del { background: var(--minus); } p { margin: .5rem 0; }
@media print { pre { max-height: none; } }
"""


def write_html(parts: Iterable[Part]) -> Iterator[str]:
    """Yield the pieces of the page."""
    for part in parts:
        yield from _pieces(part)
    yield "</body></html>\n"


def part_html(part: Part) -> str:
    """Return the HTML of one part, with every text of others escaped. `clisup web` shows the same."""
    return "".join(_pieces(part))


def _pieces(part: Part) -> Iterator[str]:
    match part:
        case SessionHead():
            yield _head(part)
        case TurnBegin():
            yield f'<h2 id="{_escape(part.turn_id)}">Turn {_escape(part.turn_id.removeprefix("t"))}</h2>\n'
            yield f"<time>{_escape(moment(part.at))}</time>\n"
            if part.prompt is not None:
                yield from _pieces(part.prompt)
        case PromptText():
            images = f'<p class="cut">{part.images} images</p>' if part.images else ""
            yield f'<div class="prompt"><div class="text">{_escape(part.body.text)}</div>{images}{_cut(part.body)}</div>\n'
        case SaidText():
            yield _said(part)
        case Call():
            diff = part.diff
            yield _folded(part.title, pre_html(part.body) if diff is None else diff_html(diff), part.subagent)
        case CallResult():
            title = f"{'Failed' if part.is_error else 'Result'}: {part.name}"
            body = pre_html(part.body) if part.diff is None else diff_html(part.diff)
            yield _folded(title, body, part.subagent, bad=part.is_error)
        case Note():
            yield f'<p class="note">{_escape(part.kind.replace("_", " "))}: {_escape(part.text)}</p>\n'
        case TurnEnd():
            bad = "" if part.event["outcome"] == "completed" else " bad"
            yield f'<p class="end{bad}">{_escape(end_words(part.event))}</p>\n'


def _head(part: SessionHead) -> str:
    title = _escape(title_of(part))
    facts = "".join(f"<dt>{_escape(name)}</dt><dd>{_escape(value)}</dd>" for name, value in head_facts(part))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_escape(_POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="referrer" content="no-referrer">\n'
        f"<style>{_STYLE}</style></head><body>\n<h1>{title}</h1>\n<dl>{facts}</dl>\n"
    )


def _said(part: SaidText) -> str:
    if part.kind == "answer" and not part.subagent:
        return f"{_answer(part.body)}{_cut(part.body)}\n"
    titles = {"answer": "Text", "thinking": "Thinking", "unfinished": "Unfinished text", "synthetic": "Text of the CLI"}
    return _folded(
        titles[part.kind], f'<div class="text">{_escape(part.body.text)}</div>{_cut(part.body)}', part.subagent
    )


def _answer(body: Text) -> str:
    """Return an answer. Its fenced code is in boxes; the rest of its Markdown stays as it is."""
    pieces = re.split(r"^```[^\n`]*\n(.*?)^```[ \t]*$\n?", body.text, flags=re.MULTILINE | re.DOTALL)
    return "".join(
        f"<pre>{_escape(piece)}</pre>" if at % 2 else f'<div class="text">{_escape(piece.strip(chr(10)))}</div>'
        for at, piece in enumerate(pieces)
        if piece.strip("\n")
    )


def _folded(title: str, body: str, subagent: bool, *, bad: bool = False) -> str:
    whose = " (sub-agent)" if subagent else ""
    kind = ' class="bad"' if bad else ""
    return f"<details><summary{kind}>{_escape(' '.join(title.split()))}{whose}</summary>{body}</details>\n"


def pre_html(body: Text) -> str:
    """Return a text in a box, escaped."""
    return f"<pre>{_escape(body.text)}</pre>{_cut(body)}"


def diff_html(body: Text) -> str:
    """Return a diff in a box, its lines marked and escaped."""
    lines = body.text.rstrip("\n").split("\n")
    names = {
        number
        for at, line in enumerate(lines)
        if line.startswith("--- ") and (at == 0 or "".join(lines[at + 2 : at + 3]).startswith("@@"))
        for number in (at, at + 1)
    }
    marked = (_diff_line(line, is_name=at in names) for at, line in enumerate(lines))
    return f"<pre>{''.join(marked)}</pre>{_cut(body)}"


def _diff_line(line: str, *, is_name: bool) -> str:
    """Return a line of a diff. A name of the file before or after the change is no changed line."""
    mark = {"+": "ins", "-": "del"}.get(line[:1]) if not is_name else None
    return f"<{mark}>{_escape(line)}</{mark}>" if mark else _escape(line) + "\n"


def _cut(body: Text) -> str:
    return f'<p class="cut">{_escape(cut_words(body))}</p>' if body.cut else ""


def _escape(text: str) -> str:
    """Return the text for HTML, without control characters."""
    return html.escape(plain(text))
