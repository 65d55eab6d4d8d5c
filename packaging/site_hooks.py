"""Hooks of MkDocs for `make site`: navigation from docs/README.md, and links to files that are not part of the site."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
MERMAID = ROOT / "packaging/site/node_modules/mermaid/dist/mermaid.min.js"
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


def on_config(config: Any) -> Any:
    """Set the navigation: the sections of the index, each with the pages of its tables, and the decisions."""
    index = (DOCS / "README.md").read_text()
    nav: list[dict[str, Any]] = [{"Home": "README.md"}]
    for title, body in re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", index, re.MULTILINE | re.DOTALL):
        pages = [(name, link) for name, link in _LINK.findall(body) if link.endswith(".md")]
        nav.append({title: [{name: link} for name, link in pages]})
        if any(link.startswith("decisions/") for _, link in pages):
            records = sorted((DOCS / "decisions").glob("0*.md"))
            nav[-1][title].append({"Records": [f"decisions/{record.name}" for record in records]})
    config["nav"] = nav
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the page with links that leave docs/ replaced by the path of the file."""
    place = (DOCS / page.file.src_path).parent

    def plain(found: re.Match[str]) -> str:
        target = found[2].partition("#")[0]
        if not target or re.match(r"[a-z]+:", target):
            return found[0]
        path = (place / target).resolve()
        if path.suffix in (".md", ".json", ".svg", ".png") and DOCS in path.parents:
            return found[0]
        return f"{found[1]} (`{path.relative_to(ROOT)}`)" if path.is_relative_to(ROOT) else found[0]

    return _LINK.sub(plain, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Return the page with bars in table cells as GitHub shows them: MkDocs keeps the backslash before a bar in code."""
    return re.sub(r"<td.*?</td>", lambda cell: cell[0].replace("\\|", "|"), html, flags=re.DOTALL)


def on_post_build(config: Any, **_: Any) -> None:
    """Add Mermaid to the site, so that no page loads a script of another host."""
    shutil.copy(MERMAID, Path(config["site_dir"]) / "mermaid.min.js")
