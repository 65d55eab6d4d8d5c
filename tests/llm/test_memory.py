"""Working memory: what is set stays, whole, whoever else writes and whatever dies."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clisup.errors import UsageError, WorldError
from clisup.llm.memory import BRIEF_CHARS, QUERY_LIMIT, WorkingMemory
from clisup.llm.tools import Tool

ROOT = Path(__file__).resolve().parents[2]
JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=20)
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)


@pytest.fixture
def memory(tmp_path: Path) -> WorkingMemory:
    return WorkingMemory(tmp_path / "memory.json")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(value=JSON)
def test_any_json_comes_back_as_it_was_also_from_the_file(tmp_path: Path, value: Any) -> None:
    WorkingMemory(tmp_path / "m.json").set("k", value)
    assert WorkingMemory(tmp_path / "m.json").get("k") == value


def test_values_are_set_read_and_forgotten(memory: WorkingMemory) -> None:
    memory.set("a", 1)
    memory.set("a", [2])
    assert (memory.get("a"), memory.get("b"), memory.get("b", 7), "a" in memory, "b" in memory) == (
        [2],
        None,
        7,
        True,
        False,
    )
    assert (memory.delete("a"), memory.delete("a"), len(memory)) == (True, False, 0)


def test_what_is_given_out_is_a_copy(memory: WorkingMemory) -> None:
    value = {"list": [1]}
    memory.set("a", value)
    value["list"].append(2)
    memory.get("a")["list"].append(3)
    assert memory.get("a") == {"list": [1]}


def test_a_query_goes_by_prefix_and_by_fields_in_order_of_the_keys(memory: WorkingMemory) -> None:
    memory.set("plan/2", {"done": False, "owner": {"name": "Ada"}})
    memory.set("plan/1", {"done": True})
    memory.set("plan/3", "a text")
    memory.set("note", {"done": False})
    assert list(memory.query("plan/")) == ["plan/1", "plan/2", "plan/3"]
    assert list(memory.query(where={"done": False})) == ["note", "plan/2"]
    assert list(memory.query("plan/", {"owner.name": "Ada"})) == ["plan/2"]
    assert list(memory.query(where=lambda value: isinstance(value, str))) == ["plan/3"]
    assert list(memory.query(limit=2)) == ["note", "plan/1"]


def test_two_memories_of_one_file_see_each_other(memory: WorkingMemory) -> None:
    assert memory.path is not None
    other = WorkingMemory(memory.path)
    other.set("a", 1)
    memory.set("b", 2)
    assert other.keys() == memory.keys() == ["a", "b"]
    other.delete("b")
    assert memory.keys() == ["a"]


def test_threads_and_processes_lose_nothing_of_each_other(memory: WorkingMemory) -> None:
    assert memory.path is not None
    write = "import sys; from clisup.llm.memory import WorkingMemory as M; m = M(sys.argv[1])\n"
    write += "for n in range(20): m.set(f'{sys.argv[2]}{n}', n)"
    others = [
        subprocess.Popen([sys.executable, "-c", write, str(memory.path), name], cwd=ROOT, stderr=subprocess.PIPE)
        for name in "xy"
    ]
    threads = [
        threading.Thread(target=lambda name=name: [memory.set(f"{name}{n}", n) for n in range(20)]) for name in "abc"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for other in others:
        _, error = other.communicate(timeout=60)
        assert (other.returncode, error) == (0, b"")
    assert len(memory) == 100


@pytest.mark.parametrize("key", ["", "x" * 201, "a\nb", " a", None])
def test_a_key_that_no_one_could_name_is_refused(memory: WorkingMemory, key: Any) -> None:
    with pytest.raises(UsageError, match="is not a key"):
        memory.set(key, 1)


@pytest.mark.parametrize("value", [{1, 2}, float("nan"), b"x"])
def test_what_is_no_json_is_refused(memory: WorkingMemory, value: Any) -> None:
    with pytest.raises(UsageError, match="not JSON"):
        memory.set("a", value)


def test_every_limit_holds_and_changes_nothing(tmp_path: Path) -> None:
    memory = WorkingMemory(tmp_path / "m.json", max_entries=2, max_value_bytes=100, max_bytes=180)
    memory.set("a", "x" * 90)
    for key, value in (("b", "x" * 99), ("b", "x" * 90)):
        with pytest.raises(UsageError) as refused:
            memory.set(key, value)
        assert refused.value.kind == "limit_exceeded"
    memory.set("b", 1)
    with pytest.raises(UsageError, match="2 values already"):
        memory.set("c", 1)
    memory.set("b", 2)
    assert WorkingMemory(tmp_path / "m.json").query() == {"a": "x" * 90, "b": 2}


@pytest.mark.parametrize(
    "text", ["", "[]", '{"format": "clisup.memory", "version": 9, "values": {}}', '{"format": "x"}', "{"]
)
def test_a_file_that_is_no_memory_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "m.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"is not a working memory: ."):
        WorkingMemory(path)
    assert path.read_text() == text


def test_the_file_is_private_and_nothing_lies_about_beside_it(memory: WorkingMemory) -> None:
    memory.set("a", 1)
    assert memory.path is not None
    assert memory.path.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in memory.path.parent.iterdir()) == [".memory.json.lock", "memory.json"]


def test_a_place_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(WorldError) as failed:
        WorkingMemory(tmp_path / "nowhere" / "m.json").set("a", 1)
    assert failed.value.kind == "storage_failed"


def test_without_a_path_it_lives_in_the_process() -> None:
    memory = WorkingMemory()
    memory.set("a", 1)
    assert memory.get("a") == 1


def test_a_memory_lies_beside_its_conversation(tmp_path: Path) -> None:
    WorkingMemory.beside(tmp_path / "chat.json", max_entries=3).set("a", 1)
    assert WorkingMemory(tmp_path / "chat.memory.json").get("a") == 1


def test_the_brief_names_the_keys_and_is_bounded() -> None:
    memory = WorkingMemory()
    assert memory.brief().endswith("It is empty.")
    memory.set("plan", 1)
    assert memory.brief().endswith("It holds: plan.")
    for n in range(100):
        memory.set(f"{n:03}" + "x" * 60, n)
    assert len(memory.brief()) < BRIEF_CHARS + 400
    assert "more." in memory.brief()


# -- the tool


async def said(memory: WorkingMemory, **arguments: Any) -> tuple[str, bool]:
    tool: Tool = memory.tool()
    jsonschema.validate(arguments, tool.input_schema)
    output = await tool.run(arguments)
    assert isinstance(output.content, str)
    return output.content, output.is_error


async def test_a_model_sets_gets_queries_and_deletes(memory: WorkingMemory) -> None:
    assert await said(memory, operation="set", key="plan/1", value={"done": False}) == ("kept plan/1", False)
    assert await said(memory, operation="get", key="plan/1") == ('{"done": false}', False)
    assert await said(memory, operation="query", prefix="plan/", where={"done": False}) == (
        '{"plan/1": {"done": false}}',
        False,
    )
    assert await said(memory, operation="delete", key="plan/1") == ("deleted plan/1", False)
    assert await said(memory, operation="get", key="plan/1") == ("there is no 'plan/1'; keys: none", True)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"operation": "drop"},
        {"operation": "set", "key": "a"},
        {"operation": "get"},
        {"operation": "get", "key": 7},
        {"operation": "query", "where": "x"},
        {"operation": "set", "key": "a\nb", "value": 1},
    ],
)
async def test_what_a_model_asks_wrongly_is_told_to_it(memory: WorkingMemory, arguments: dict[str, Any]) -> None:
    output = await memory.tool().run(arguments)
    assert output.is_error and output.content
    assert len(memory) == 0


async def test_a_failing_disk_is_told_to_the_model(tmp_path: Path) -> None:
    output = (
        await WorkingMemory(tmp_path / "nowhere" / "m.json").tool().run({"operation": "set", "key": "a", "value": 1})
    )
    assert output.is_error and "failed to open" in str(output.content)


async def test_a_large_query_is_cut_and_says_so(memory: WorkingMemory) -> None:
    memory = WorkingMemory()
    for n in range(QUERY_LIMIT + 5):
        memory.set(f"k{n:03}", n)
    text, _ = await said(memory, operation="query")
    assert text.endswith("(There are more: ask by a longer prefix, or by where.)")
    assert len(json.loads(text.splitlines()[0])) == QUERY_LIMIT
    for n in range(5):
        memory.set(f"big{n}", "x" * 15_000)
    text, _ = await said(memory, operation="query", prefix="big")
    assert list(json.loads(text.splitlines()[0])) == ["big0", "big1"]
