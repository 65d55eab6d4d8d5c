"""What stands in the pages besides commands: configurations, requests and answers, programs, links."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from clisup.config.model import parse_config
from clisup.wire.methods import METHODS
from clisup.wire.results import ToolCallParams
from tests.docs.blocks import PAGES, ROOT, Block, anchors, blocks, links, name_of

EVERY = [block for path in PAGES for block in blocks(path)]
SESSION = "0d9c1c1e-0000-4000-8000-000000000000"
INDEX = ROOT / "docs" / "README.md"


def of(*languages: str) -> list[Block]:
    return [block for block in EVERY if block.language in languages]


def by_place(block: Block) -> str:
    return block.at


@pytest.mark.parametrize("block", of("toml"), ids=by_place)
def test_a_configuration_is_one_that_the_daemon_takes(block: Block) -> None:
    found = tomllib.loads(block.text)
    if "project" not in found:  # that one is the pyproject.toml of a package
        parse_config(found)


def objects(block: Block) -> list[Any]:
    """The JSON of a block: a whole document, or an object a line. `...` in a page stands for what is left out."""
    text = re.sub(r",\s*\.\.\.(?=\s*[}\]])", "", block.text)
    try:
        return [json.loads(text)]
    except ValueError:
        return [json.loads(line) for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("block", of("json", "jsonl"), ids=by_place)
def test_json_is_json(block: Block) -> None:
    assert objects(block)


def requests() -> list[tuple[str, dict[str, Any]]]:
    """Every JSON-RPC request on a page, in whatever kind of block, and those that a shell sends."""
    found = []
    for block in EVERY:
        if block.language in ("python", "js", "mermaid"):
            continue
        for line in block.text.splitlines():
            for text in [line, *re.findall(r"'(\{.*?\})'", line)]:
                try:
                    value = json.loads(text)
                except ValueError:
                    continue
                if isinstance(value, dict) and "method" in value and "id" in value:
                    found.append((block.at, value))
    return found


OF_THE_DAEMON = {"tool/call": ToolCallParams}
"""What it asks of a client."""


@pytest.mark.parametrize(("at", "request_"), requests(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_request_is_one_that_the_daemon_takes_or_makes(at: str, request_: dict[str, Any]) -> None:
    assert set(request_) <= {"jsonrpc", "id", "method", "params"}, at
    params = {name: SESSION if value == "..." else value for name, value in request_.get("params", {}).items()}
    if request_["method"] in OF_THE_DAEMON:
        OF_THE_DAEMON[request_["method"]].model_validate(params)
    else:
        METHODS[request_["method"]].params.model_validate(params)


@pytest.mark.parametrize("block", of("python"), ids=by_place)
def test_a_program_is_python(block: Block) -> None:
    text = re.sub(r"^    (?=\S)", "", block.text) if block.text.startswith("    ") else block.text
    compile(text, block.at, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_link_leads_somewhere(path: Path) -> None:
    lost = []
    for file, anchor in links(path):
        target = (path.parent / file).resolve() if file else path
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            lost.append(f"{file}#{anchor}")
    assert lost == []


def test_the_index_has_every_page_once() -> None:
    listed = [str((INDEX.parent / file).resolve()) for file, _ in links(INDEX)]
    pages = {
        str(path) for path in PAGES if path != INDEX and path != ROOT / "README.md" and "decisions" not in path.parts
    }
    assert pages - set(listed) == set()
    assert sorted(set(listed)) == sorted(listed)


def words(*paths: Path) -> int:
    """Return the number of words: bars and dashes of tables do not count."""
    return sum(1 for path in paths for word in path.read_text().split() if re.search(r"\w", word))


def test_the_pages_stay_short() -> None:
    assert words(ROOT / "README.md") <= 900
    assert words(ROOT / "CONTRIBUTING.md") <= 600
    assert (
        words(*(path for path in PAGES if path != ROOT / "README.md")) <= 69_500
    )  # 60,000 for one box, 600 for faults from public reports, the rest for the fleet, the doors and backends of others


def test_the_readme_fits_120_columns() -> None:
    assert [line for line in (ROOT / "README.md").read_text().splitlines() if len(line) > 120] == []
