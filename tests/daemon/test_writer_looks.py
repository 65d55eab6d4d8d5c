"""Who asks for writers while a look is made shares the next one, and nobody is answered from a look that began before."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing

from clisup.daemon.sessions import concurrent_writers as native_guard
from clisup.daemon.sessions.concurrent_writers import WriterLooks
from clisup.host.process.native_writers import OwnProcesses, Question


class Looks:
    """In the place of `find_writers`: each look waits for `go`, and answers with its number."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.launched: list[frozenset[int]] = []
        self.go: dict[str | None, threading.Event] = {}

    def __call__(self, questions: Sequence[Question], launched: frozenset[int]) -> list[int | None]:
        self.asked.append([question.native_id for question in questions])
        self.launched.append(launched)
        number = len(self.asked)
        assert self.go.setdefault(questions[0].directory, threading.Event()).wait(20)
        return [number * 100 + at for at in range(len(questions))]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    made = Looks()
    monkeypatch.setattr(native_guard, "find_writers", made)
    return made


def question(native: str, directory: str = "/home") -> Question:
    rules: Any = None
    return Question(rules, directory, native, OwnProcesses("s"))


async def until(condition: Any) -> None:
    with trio.fail_after(20):
        while not condition():
            await trio.sleep(0.001)


async def test_those_who_ask_during_a_look_share_the_next_one(looks: Looks) -> None:
    launched = {7}
    writers, answers = WriterLooks(launched), dict[str, int | None]()

    async def ask(native: str) -> None:
        answers[native] = await writers.ask(question(native))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, "a")
        await until(lambda: looks.asked == [["a"]])
        launched.add(8)
        for native in "bcd":
            nursery.start_soon(ask, native)
            await trio.testing.wait_all_tasks_blocked()
        looks.go["/home"].set()
    assert looks.asked == [["a"], ["b", "c", "d"]]
    assert answers == {"a": 100, "b": 200, "c": 201, "d": 202}
    assert looks.launched == [frozenset({7}), frozenset({7, 8})]


async def test_where_the_one_who_looks_gives_up_the_others_look_again(looks: Looks) -> None:
    writers, answers = WriterLooks(), dict[str, int | None]()
    scope = trio.CancelScope()

    async def give_up() -> None:
        with scope:
            await writers.ask(question("b"))

    async def ask(native: str) -> None:
        answers[native] = await writers.ask(question(native))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, "a")
        await until(lambda: looks.asked == [["a"]])
        nursery.start_soon(give_up)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(ask, "c")
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
        looks.go["/home"].set()
    assert answers["a"] == 100 and answers["c"] is not None


async def test_one_directory_that_hangs_holds_up_no_other(looks: Looks) -> None:
    writers = WriterLooks()
    looks.go["/fine"] = threading.Event()
    looks.go["/fine"].set()
    with trio.move_on_after(20) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writers.ask, question("a", "/hangs"))
            await until(lambda: looks.asked == [["a"]])
            assert await writers.ask(question("b", "/fine")) == 200
            nursery.cancel_scope.cancel()
    looks.go["/hangs"].set()
    assert not scope.cancelled_caught
