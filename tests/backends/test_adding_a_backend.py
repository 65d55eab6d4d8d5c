"""docs/how-to/add-a-backend.md: its example is an adapter that works, and what it shows of files and stories is there."""

from __future__ import annotations

import importlib.metadata
import json
import re
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from clisup.backends import registry
from clisup.backends.base import Carried, LaunchRequest
from clisup.model.lines.framing import Line
from clisup.model.usage import NO_USAGE

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "add-a-backend.md").read_text()


def block(language: str, mark: str) -> str:
    """The page's code block in this language with this in it."""
    return next(text for text in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if mark in text)


@pytest.fixture
def kestrel(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The page's package, as if it were installed."""
    module = ModuleType("clisup_kestrel")
    exec(compile(block("python", "KestrelAdapter"), "docs/how-to/add-a-backend.md", "exec"), module.__dict__)
    monkeypatch.setitem(__import__("sys").modules, "clisup_kestrel", module)
    entries = tomllib.loads(block("toml", "entry-points"))["project"]["entry-points"][registry.GROUP]
    found = [EntryPoint(name, value, registry.GROUP) for name, value in entries.items()]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: found)
    return registry.get_adapter("kestrel")


def test_the_example_is_a_kind_of_its_own(kestrel: Any) -> None:
    spec = kestrel.launch(LaunchRequest(("kestrel-agent",), "hi", None, False, "/w"))
    assert (spec.argv, kestrel.lists) == (("kestrel-agent", "--resume"), "acp")


def test_its_error_rule_decides(kestrel: Any) -> None:
    decoder = kestrel.decoder(Carried(0.0, NO_USAGE), LaunchRequest(("kestrel-agent",), "hi", None, False, "/w"))
    data = json.dumps({"id": 0, "error": {"code": -32603, "message": "no more seeds"}}).encode()
    error = decoder.decode(Line(0, len(data) + 1, data)).terminal.error
    assert (error.kind, error.message.endswith("buy some")) == ("quota_exceeded", True)


def test_what_the_page_shows_is_there() -> None:
    story = (ROOT / "tests" / "backends" / "expected" / "acp" / "qwen-0.24.4" / "text.txt").read_text()
    assert story in PAGE
    assert (
        '    "acp": "clisup.backends.acp.adapter:AcpAdapter",\n'
        in (ROOT / "clisup" / "backends" / "registry.py").read_text()
    )
    (rows,) = re.findall(r"\| file \| content \|\n(.*?)\n\n", PAGE, re.DOTALL)
    named = set(re.findall(r"`([a-z]+\.py)`", rows))
    assert named == {path.name for path in (ROOT / "clisup" / "backends" / "acp").glob("*.py")} - {"__init__.py"}
    recordings = len(list((ROOT / "tests" / "recordings" / "acp" / "qwen-0.24.4").glob("*.jsonl")))
    assert f"all {recordings} of them" in PAGE
