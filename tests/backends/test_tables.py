"""The pages about backends are made from what the adapters declare. CLISUP_UPDATE_EXPECTED=1 writes them anew."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from clisup.backends.base import Capabilities
from clisup.backends.errors import Taxonomy
from clisup.backends.registry import get_adapter
from tests.backends.tables import ABILITIES, PAGES, SHOWN, event_table
from tests.backends.tried import SHOWN_BY_TESTS, TRIED

ROOT = Path(__file__).parents[2]
TABLES = [(page, name, make) for page, tables in PAGES.items() for name, make in tables.items()]


@pytest.mark.parametrize(("page", "name", "make"), TABLES, ids=[f"{page}:{name}" for page, name, _ in TABLES])
def test_a_page_holds_the_table_that_the_adapters_declare(page: str, name: str, make: Callable[[], str]) -> None:
    path = ROOT / page
    place = re.compile(rf"(<!-- table {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    text = path.read_text()
    assert place.search(text), f"{page} has no place for the table {name}"
    wanted = place.sub(lambda found: f"{found[1]}\n{make()}\n{found[2]}", text)
    if "CLISUP_UPDATE_EXPECTED" in os.environ:
        path.write_text(wanted)
    assert path.read_text() == wanted


@pytest.mark.parametrize("kind", SHOWN)
def test_every_backend_is_in_the_tables_and_has_rules_for_the_failures_that_programs_branch_on(kind: str) -> None:
    assert re.search(rf"[|,] {kind}[ ,]", event_table())
    kinds = {rule.kind for rule in get_adapter(kind).errors}
    assert {"authentication", "rate_limit", "server", "session_not_found"} <= kinds


@pytest.mark.parametrize("ability", ABILITIES)
def test_what_an_adapter_declares_is_tried_by_a_test_and_nothing_else_is(ability: str) -> None:
    """A new capability needs a line in tests/backends/tried.py: the test that tries it."""
    declares = ABILITIES[ability][1]
    assert sorted(TRIED[ability]) == sorted(kind for kind in SHOWN if declares(get_adapter(kind)))


def test_every_flag_of_capabilities_is_an_ability_or_no_matter_of_the_table() -> None:
    flags = {each.name for each in msgspec.structs.fields(Capabilities) if each.type is bool}
    assert flags - ABILITIES.keys() == {"auth_method", "caches", "ids_once", "running_usage"}
    assert TRIED.keys() == ABILITIES.keys() | SHOWN_BY_TESTS.keys()


@pytest.mark.parametrize("test", sorted({test for tests in TRIED.values() for test in tests.values()}))
def test_the_tests_that_try_an_ability_are_there(test: str) -> None:
    file, _, function = test.partition("::")
    assert re.search(rf"^(?:async )?def {function}\(", (ROOT / "tests" / file).read_text(), re.MULTILINE)


@pytest.mark.parametrize("kind", SHOWN)
def test_the_rules_of_a_backend_can_be_asked(kind: str) -> None:
    """Patterns compile, and each exact word finds a rule of its own place."""
    rules = get_adapter(kind).errors
    taxonomy = Taxonomy(rules)
    for rule in rules:
        if rule.where in ("code", "status", "exit"):
            found = taxonomy.exact(rule.where, rule.says)
            assert found is not None and (found.where, found.says) == (rule.where, rule.says)
