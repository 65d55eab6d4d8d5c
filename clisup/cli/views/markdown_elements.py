"""Markdown elements of rich, for answers on a terminal. Loaded only to draw: rich takes as long to load as a whole command."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.text import Text
from rich.theme import Theme

__all__ = ["THEME", "AnswerMarkdown"]

THEME = Theme(
    {
        "markdown.code": "cyan",
        "markdown.code_block": "cyan",
        "markdown.block_quote": "dim",
        "markdown.item.bullet": "cyan",
        "markdown.item.number": "cyan",
        "markdown.link": "underline",
        "markdown.link_url": "underline",
        "markdown.h1": "bold",
        "markdown.h2": "bold",
        "markdown.h3": "bold",
        "markdown.h4": "bold",
        "markdown.h5": "bold",
        "markdown.h6": "bold",
        "markdown.h7": "bold",
        "markdown.table.border": "dim",
        "markdown.table.header": "bold",
    }
)
"""One accent colour. rich's own theme has many."""


class WholeCode(CodeBlock):
    """Block of code whose lines are never wrapped or cut, so that they can be copied."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in str(self.text).rstrip().split("\n"):
            yield Text(line, style=self.style_name, no_wrap=True, overflow="ignore")


class LeftHeading(Heading):
    """Heading at the left edge."""

    LEVEL_ALIGN: ClassVar[dict[str, JustifyMethod]] = {}


class AnswerMarkdown(Markdown):
    """Markdown that keeps raw HTML as text and single line ends as line ends."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "fence": WholeCode,
        "code_block": WholeCode,
        "heading_open": LeftHeading,
    }

    def __init__(self, text: str) -> None:
        super().__init__(text, hyperlinks=False)
        _keep_whole(self.parsed)


def _keep_whole(tokens: Iterable[Any]) -> None:
    """Change the parser's tokens that rich would drop or join: HTML becomes text, a single line end stays one."""
    for token in tokens:
        if token.type == "html_block":
            token.type = "fence"
        for child in token.children or ():
            child.type = {"softbreak": "hardbreak", "html_inline": "text"}.get(child.type, child.type)
