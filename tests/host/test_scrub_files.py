"""Where scrub lists come from, and that there is no start without them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from clisup.errors import ConfigurationError
from clisup.host.scrub_files import SYSTEM_DIRECTORY, Known, list_names, lists_directory, load_rules, search_path
from clisup.policy.environment.scrub import build_environment

CHECKOUT = Path(__file__).resolve().parents[2]


def write_lists(directory: Path, kind: str = "claude", **texts: str) -> Path:
    """Complete lists; `common_allow="..."` replaces the text of one."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in list_names("common", kind):
        (directory / name).write_text(texts.get(name.replace(".", "_"), f"{name.replace('.', '_').upper()} | w | s\n"))
    return directory


def test_lists_are_looked_for_in_the_system_then_the_package_then_the_checkout() -> None:
    assert search_path() == (SYSTEM_DIRECTORY, CHECKOUT / "clisup" / "scrub_lists", CHECKOUT / "scrub_lists")


@pytest.mark.parametrize("kind", ["claude", "demo"])
def test_the_shipped_lists_are_found_and_load(kind: str) -> None:
    search = [CHECKOUT / "clisup" / "scrub_lists", CHECKOUT / "scrub_lists"]
    assert load_rules(kind, search=search).denied("LD_PRELOAD")


def test_the_first_directory_that_is_there_decides_alone(tmp_path: Path) -> None:
    first = write_lists(tmp_path / "first", claude_allow="FIRST | w | s\n")
    second = write_lists(tmp_path / "second", claude_allow="SECOND | w | s\n")
    (tmp_path / "empty").mkdir()
    search = [tmp_path / "absent", tmp_path / "empty", first, second]
    assert lists_directory("claude", search=search) == first
    rules = load_rules("claude", search=search)
    assert build_environment({"FIRST": "1", "SECOND": "2"}, rules)[0] == {"FIRST": "1"}


def test_an_override_wins_over_every_other_directory(tmp_path: Path) -> None:
    override = write_lists(tmp_path / "mine")
    assert lists_directory("claude", override, search=[write_lists(tmp_path / "other")]) == override


@pytest.mark.fault(39)
def test_without_any_list_nothing_starts_and_the_error_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot start without scrub lists") as caught:
        load_rules("claude", search=[tmp_path / "a", tmp_path / "b"])
    assert str(tmp_path / "a") in str(caught.value)
    assert str(tmp_path / "b") in str(caught.value)
    assert caught.value.exit_code == 78


@pytest.mark.fault(39)
def test_an_override_that_is_not_there_is_no_reason_to_look_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"missing: common\.allow"):
        load_rules("claude", tmp_path / "absent", search=[write_lists(tmp_path / "complete")])


@pytest.mark.fault(39)
@pytest.mark.parametrize("missing", list_names("common", "claude"))
def test_an_incomplete_directory_is_refused_rather_than_passed_over(tmp_path: Path, missing: str) -> None:
    system = write_lists(tmp_path / "system")
    (system / missing).unlink()
    with pytest.raises(ConfigurationError, match=f"missing: {missing}"):
        load_rules("claude", search=[system, write_lists(tmp_path / "package")])


@pytest.mark.fault(39)
@pytest.mark.parametrize("content", [b"", b"NAME\n", b"NAME | w | cut", b"N\xff | w | s\n", b"#" * 1_048_577])
@pytest.mark.parametrize("name", list_names("common", "claude"))
def test_a_list_that_does_not_parse_is_refused_with_its_path(tmp_path: Path, name: str, content: bytes) -> None:
    directory = write_lists(tmp_path)
    (directory / name).write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        load_rules("claude", directory)
    assert str(directory / name) in str(caught.value)


@pytest.mark.fault(39)
def test_a_list_that_is_a_directory_is_refused(tmp_path: Path) -> None:
    directory = write_lists(tmp_path)
    (directory / "common.scrub").unlink()
    (directory / "common.scrub").mkdir()
    with pytest.raises(ConfigurationError, match=r"cannot read the scrub list .*common\.scrub"):
        load_rules("claude", directory)


@pytest.mark.parametrize("kind", ["", "common", "../claude", "Claude", "a/b", "x" * 65])
def test_a_kind_that_is_no_plain_name_never_becomes_a_path(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ConfigurationError, match="the kind is no list name"):
        load_rules(kind, write_lists(tmp_path))


def test_an_include_takes_in_another_backends_list_of_the_same_kind(tmp_path: Path) -> None:
    write_lists(tmp_path, claude_scrub="A_KEY | w | s\nB_KEY | w | s\n")
    write_lists(tmp_path, "demo", demo_scrub="@include claude\nB_KEY | own | s\n")
    rules = load_rules("demo", tmp_path)
    assert [rule.id for name in ("A_KEY", "B_KEY") if (rule := rules.verdict(name))] == [
        "claude.scrub:A_KEY",
        "demo.scrub:B_KEY",
    ]


@pytest.mark.fault(39)
def test_an_include_of_a_missing_list_or_a_second_level_is_refused(tmp_path: Path) -> None:
    write_lists(tmp_path, "demo", demo_scrub="@include claude\n")
    with pytest.raises(ConfigurationError, match=r"claude\.scrub"):
        load_rules("demo", tmp_path)
    write_lists(tmp_path, claude_scrub="@include demo\n")
    with pytest.raises(ConfigurationError, match="includes another"):
        load_rules("demo", tmp_path)


def test_the_lists_of_several_kinds_are_read_once_and_are_the_same() -> None:
    known: Known = {}
    shared = [load_rules(kind, known=known) for kind in ("claude", "demo", "codex")]
    assert shared == [load_rules(kind) for kind in ("claude", "demo", "codex")]
    by_name = {path.name: parsed for path, parsed in known.items()}
    assert {"common.deny", "claude.scrub", "codex.allow"} <= set(by_name)
    assert all(rules.rules[0] is by_name["common.allow"].rules[0] for rules in shared)


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for the scrub lists of another package, whose adapter is in the module `clisup_kestrel`."""
    module = ModuleType("clisup_kestrel")
    module.__file__ = str(tmp_path / "kestrel" / "__init__.py")
    monkeypatch.setitem(sys.modules, "clisup_kestrel", module)
    return tmp_path / "kestrel" / "scrub_lists"


def test_a_package_brings_the_lists_of_its_own_kind(plug_in: Path, tmp_path: Path) -> None:
    ours = write_lists(tmp_path / "ours", claude_scrub="A_KEY | w | s\n")
    write_lists(
        plug_in, "kestrel", kestrel_scrub="@include claude\nSEED_KEY | w | s\n", common_allow="LD_AUDIT | w | s\n"
    )
    rules = load_rules("kestrel", module="clisup_kestrel", search=[ours])
    found = [rule.id for name in ("A_KEY", "SEED_KEY", "LD_AUDIT") if (rule := rules.verdict(name))]
    assert found == ["claude.scrub:A_KEY", "kestrel.scrub:SEED_KEY"], "the common lists are clisup's"


def test_lists_of_the_administrator_replace_those_of_a_package(plug_in: Path, tmp_path: Path) -> None:
    system = write_lists(tmp_path / "system", "kestrel", kestrel_allow="SYSTEM | w | s\n")
    write_lists(plug_in, "kestrel", kestrel_allow="BROUGHT | w | s\n")
    rules = load_rules("kestrel", module="clisup_kestrel", search=[system])
    assert build_environment({"SYSTEM": "1", "BROUGHT": "2"}, rules)[0] == {"SYSTEM": "1"}


def test_a_package_may_name_lists_of_clisup_and_cannot_replace_them(plug_in: Path, tmp_path: Path) -> None:
    ours = write_lists(tmp_path / "ours", claude_allow="OURS | w | s\n")
    assert not load_rules("claude", module="clisup_kestrel", search=[tmp_path / "absent", ours]).denied("OURS")
    write_lists(plug_in, claude_allow="BROUGHT | w | s\n")
    rules = load_rules("claude", module="clisup_kestrel", search=[tmp_path / "absent", ours])
    assert build_environment({"OURS": "1", "BROUGHT": "2"}, rules)[0] == {"OURS": "1"}


@pytest.mark.fault(39)
@pytest.mark.parametrize("missing", list_names("kestrel"))
def test_a_package_without_one_of_its_lists_is_refused(plug_in: Path, tmp_path: Path, missing: str) -> None:
    (write_lists(plug_in, "kestrel") / missing).unlink()
    with pytest.raises(ConfigurationError, match=rf"{plug_in}, because these are missing: {missing}") as caught:
        load_rules("kestrel", module="clisup_kestrel", search=[write_lists(tmp_path / "ours")])
    assert "the package that brings the adapter" in caught.value.hint


@pytest.mark.fault(39)
def test_a_list_of_a_package_that_does_not_parse_is_refused_with_its_path(plug_in: Path, tmp_path: Path) -> None:
    write_lists(plug_in, "kestrel", kestrel_deny="NAME\n")
    with pytest.raises(ConfigurationError, match=str(plug_in / "kestrel.deny")):
        load_rules("kestrel", module="clisup_kestrel", search=[write_lists(tmp_path / "ours")])
