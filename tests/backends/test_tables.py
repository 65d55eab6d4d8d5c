"""The pages about backends are made from what the adapters declare. CLISUP_UPDATE_EXPECTED=1 writes them anew."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from clisup.backends.errors import Taxonomy
from clisup.backends.registry import get_adapter
from tests.backends.tables import PAGES, SHOWN, event_table

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


@pytest.mark.parametrize("kind", SHOWN)
def test_the_rules_of_a_backend_can_be_asked(kind: str) -> None:
    """Patterns compile, and each exact word finds a rule of its own place."""
    rules = get_adapter(kind).errors
    taxonomy = Taxonomy(rules)
    for rule in rules:
        if rule.where in ("code", "status", "exit"):
            found = taxonomy.exact(rule.where, rule.says)
            assert found is not None and (found.where, found.says) == (rule.where, rule.says)
