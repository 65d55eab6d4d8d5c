"""Backends are found by kind, with and without installed metadata."""

from __future__ import annotations

import importlib.metadata
from importlib.metadata import EntryPoint

import pytest

from clisup.backends import registry
from clisup.backends.base import Adapter
from clisup.backends.claude.adapter import ClaudeAdapter
from clisup.errors import ConfigurationError


def bring(monkeypatch: pytest.MonkeyPatch, *entries: EntryPoint) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [e for e in entries if e.group == group])


def entry(name: str, value: str) -> EntryPoint:
    return EntryPoint(name=name, value=value, group=registry.GROUP)


def test_a_checkout_without_metadata_has_the_built_in_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    bring(monkeypatch)
    assert {"claude", "demo"} <= set(registry.kinds())
    assert isinstance(registry.get_adapter("claude"), ClaudeAdapter)


def test_another_package_can_bring_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    bring(monkeypatch, entry("other", "clisup.backends.claude.adapter:ClaudeAdapter"))
    assert "other" in registry.kinds()
    assert isinstance(registry.get_adapter("other"), ClaudeAdapter)


def test_another_package_cannot_take_a_built_in_name(monkeypatch: pytest.MonkeyPatch) -> None:
    bring(monkeypatch, entry("claude", "no.such.module:Adapter"))
    assert isinstance(registry.get_adapter("claude"), ClaudeAdapter)


def test_an_unknown_kind_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigurationError, match="cannot use the backend kind 'cluade'") as caught:
        registry.get_adapter("cluade")
    assert "claude" in caught.value.hint


@pytest.mark.parametrize(
    "value", ["no.such.module:Adapter", "clisup.backends.claude.adapter:Missing", "clisup.backends.claude.adapter"]
)
def test_a_broken_plug_in_harms_only_who_asks_for_it(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    bring(monkeypatch, entry("broken", value))
    assert "broken" in registry.kinds()
    assert registry.get_adapter("claude").kind == "claude"
    with pytest.raises(ConfigurationError, match="cannot load the backend kind 'broken'"):
        registry.get_adapter("broken")


class NoAdapter:
    kind = "odd"


def make_adapter() -> ClaudeAdapter:
    return ClaudeAdapter()


class Unfinished(Adapter):
    kind = "odd"


@pytest.mark.parametrize("name", ["NoAdapter", "make_adapter"])
def test_a_plug_in_that_is_no_subclass_of_adapter_is_told_to_become_one(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    bring(monkeypatch, entry("odd", f"{__name__}:{name}"))
    with pytest.raises(ConfigurationError, match=r"no subclass of clisup\.backends\.base\.Adapter") as caught:
        registry.get_adapter("odd")
    assert f"let {name} inherit from clisup.backends.base.Adapter" in caught.value.hint


def test_a_plug_in_without_a_required_method_is_told_which(monkeypatch: pytest.MonkeyPatch) -> None:
    bring(monkeypatch, entry("odd", f"{__name__}:Unfinished"))
    with pytest.raises(ConfigurationError, match=r"abstract methods.*launch"):
        registry.get_adapter("odd")


def test_a_built_in_kind_is_known_without_a_look_at_all_installed_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: pytest.fail("looked"))
    assert registry.is_kind("claude") and isinstance(registry.get_adapter("claude"), ClaudeAdapter)


def test_a_brought_kind_is_a_kind_and_an_unknown_one_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    bring(monkeypatch, entry("other", "clisup.backends.claude.adapter:ClaudeAdapter"))
    assert registry.is_kind("other") and not registry.is_kind("cluade")
