"""Backends are found by kind, with and without installed metadata."""

from __future__ import annotations

import importlib.metadata
from importlib.metadata import EntryPoint

import pytest

from clisup.backends import registry
from clisup.backends.base import Adapter, Capabilities, ErrorRule
from clisup.backends.claude.adapter import ClaudeAdapter
from clisup.backends.declarations import REQUIRED_ATTRIBUTES, REQUIRED_METHODS, declaration_faults
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


class Wrong(ClaudeAdapter):
    kind = "odd"


@pytest.mark.parametrize("name", ["NoAdapter", "make_adapter"])
def test_a_plug_in_that_is_no_subclass_of_adapter_is_told_to_become_one(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    bring(monkeypatch, entry("odd", f"{__name__}:{name}"))
    with pytest.raises(ConfigurationError, match=r"no subclass of clisup\.backends\.base\.Adapter") as caught:
        registry.get_adapter("odd")
    assert f"mend {name} by docs/how-to/add-a-backend.md" in caught.value.hint


def test_a_plug_in_is_told_all_that_its_adapter_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    bring(monkeypatch, entry("odd", f"{__name__}:Unfinished"))
    with pytest.raises(ConfigurationError, match=f"from {__name__}:Unfinished, because") as caught:
        registry.get_adapter("odd")
    missing = [*list(REQUIRED_ATTRIBUTES)[1:], *(f"{name}()" for name in REQUIRED_METHODS)]  # it has a kind
    assert {"lists", "capabilities", "errors", "launch()", "decoder()"} <= set(missing)
    assert all(f"{name} is missing" in str(caught.value) for name in missing)
    assert "kind is missing" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("default_command", "odd-cli", "default_command is wrong: Expected `array`, got `str`"),
        ("capabilities", {"deltas": False}, "capabilities is wrong: it is no Capabilities"),
        ("capabilities", Capabilities(tokens="input"), "capabilities is wrong: Expected `array`, got `str`"),  # type: ignore[arg-type]
        ("capabilities", Capabilities(tokens=("inputs",)), "capabilities.tokens has unknown names: inputs"),
        ("capabilities", Capabilities(events=("answer",)), "capabilities.events has unknown names: answer"),
        ("errors", (("text", "busy", "no_such_kind"),), "errors is wrong: Invalid enum value 'no_such_kind'"),
        ("errors", (ErrorRule("text", "(", "server"),), "errors has the pattern '(', which is wrong"),
        ("version_pattern", "(", "version_pattern has the pattern '(', which is wrong"),
        ("default_versions", "1.x", "default_versions is wrong: cannot read the version range '1.x'"),
    ],
)
def test_a_wrong_declaration_of_a_plug_in_is_named(
    monkeypatch: pytest.MonkeyPatch, field: str, value: object, words: str
) -> None:
    monkeypatch.setattr(Wrong, field, value)
    bring(monkeypatch, entry("odd", f"{__name__}:Wrong"))
    with pytest.raises(ConfigurationError) as caught:
        registry.get_adapter("odd")
    assert words in str(caught.value)


@pytest.mark.parametrize("kind", registry.BUILT_IN)
def test_no_adapter_of_clisup_has_a_wrong_declaration(kind: str) -> None:
    assert declaration_faults(type(registry.get_adapter(kind))) == []


def test_a_built_in_kind_is_known_without_a_look_at_all_installed_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: pytest.fail("looked"))
    assert registry.is_kind("claude") and isinstance(registry.get_adapter("claude"), ClaudeAdapter)


def test_a_brought_kind_is_a_kind_and_an_unknown_one_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    bring(monkeypatch, entry("other", "clisup.backends.claude.adapter:ClaudeAdapter"))
    assert registry.is_kind("other") and not registry.is_kind("cluade")
