"""docs/how-to/add-a-backend.md: its examples are adapters that work, and what it shows is there. tests/docs/test_kestrel.py runs them."""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from clisup.backends import registry
from clisup.backends.base import Carried, Decoded, LaunchRequest
from clisup.backends.declarations import declaration_faults
from clisup.errors import UsageError
from clisup.model.lines.framing import Line
from clisup.model.usage import NO_USAGE

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "add-a-backend.md").read_text()
ASKED = LaunchRequest(("kestrel",), "hi", "k1", True, "/w", model="big")


def block(language: str, mark: str) -> str:
    """The page's code block in this language with this in it."""
    return next(text for text in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if mark in text)


@pytest.fixture(params=["kestrel", "falcon"])
def adapter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An adapter of the page, as if its package were installed."""
    name = f"clisup_{request.param}"
    module = ModuleType(name)
    code = block("python", f"class {request.param.capitalize()}Adapter")
    exec(compile(code, "docs/how-to/add-a-backend.md", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, name, module)
    entries = tomllib.loads(block("toml", "entry-points"))["project"]["entry-points"][registry.GROUP]
    entries["falcon"] = "clisup_falcon:FalconAdapter"
    found = [EntryPoint(kind, value, registry.GROUP) for kind, value in entries.items()]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: found)
    return registry.get_adapter(request.param)


def decode(adapter: Any, frame: dict[str, Any]) -> Decoded:
    data = json.dumps(frame).encode()
    decoded: Decoded = adapter.decoder(Carried(0.0, NO_USAGE), ASKED).decode(Line(0, len(data) + 1, data))
    return decoded


def test_an_example_is_a_kind_of_its_own_without_faults(adapter: Any) -> None:
    assert declaration_faults(type(adapter)) == []
    flags = ("--json", "--resume=k1", "--model=big") if adapter.kind == "kestrel" else ("--resume",)
    assert adapter.launch(ASKED).argv == ("kestrel", *flags)
    with pytest.raises(UsageError, match="empty text"):
        adapter.launch(LaunchRequest(("kestrel",), " ", None, False, "/w"))


def test_its_error_rules_decide(adapter: Any) -> None:
    if adapter.kind == "kestrel":
        frame: dict[str, Any] = {"type": "failed", "message": "no more seeds"}
    else:
        frame = {"id": 0, "error": {"code": -32603, "message": "no more mice"}}
    terminal = decode(adapter, frame).terminal
    assert terminal is not None and terminal.error is not None and terminal.error.kind == "quota_exceeded"


def test_the_native_decoder_raises_nothing(adapter: Any) -> None:
    for frame in ({"type": "from_the_future"}, {"type": "text"}, {"type": "done"}, {"type": "session"}, {}):
        decode(adapter, frame)


def test_what_the_page_shows_is_there() -> None:
    assert (ROOT / "clisup" / "backends" / "opencode" / "adapter.py").exists()
    for path in re.findall(r"`((?:clisup|tests|scrub_lists)/[a-z_/.]+)`", PAGE):
        assert (ROOT / path).exists(), path
