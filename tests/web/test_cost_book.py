"""The book of costs reads each journal once, in the time that a page has."""

from __future__ import annotations

from typing import Any, cast

import trio
import trio.testing

from clisup.client.aio import AsyncClient
from clisup.errors import UsageError
from clisup.web.cost_book import LIVE_S, CostBook, today
from clisup.web.views.cost import cost_view


class FakeDaemon:
    """Sessions with `turns` ended turns of a dollar each. A page of events has two, and takes `takes_s`."""

    def __init__(self, **turns: int) -> None:
        self.turns, self.takes_s, self.asked = dict(turns), 0.0, 0
        self.closed: set[str] = set()

    async def call(self, method: str, **params: Any) -> Any:
        if method == "session/list":
            names = [n for n in self.turns if (n in self.closed) == (params.get("state") == "closed")]
            return {"sessions": [self._row(name) for name in names], "next_cursor": None}
        await trio.sleep(self.takes_s)
        self.asked += 1
        if (count := self.turns.get(params["session_id"])) is None:
            raise UsageError("no such session", kind="session_not_found")
        first = params["after_seq"] + 1
        seqs = range(first, min(first + 2, count + 1))
        events = [{"type": "turn_completed", "ts": f"{today()}T00:00:00Z", "cost_usd": 1.0} for _ in seqs]
        return {"events": events, "next_seq": seqs.stop, "eof": seqs.stop > count}

    def _row(self, name: str) -> dict[str, Any]:
        return {"session_id": name, "backend": "demo", "model": "m", "turns": self.turns[name],
                "next_seq": self.turns[name] + 1, "last_event": {"ts": f"{today()}T00:00:00Z"}}  # fmt: skip

    async def client(self) -> AsyncClient:
        return cast("AsyncClient", self)


def dollars(book: CostBook) -> str:
    return cost_view(book.spending.values(), today()).total.cost


def test_journals_are_read_once_and_then_from_where_they_were() -> None:
    async def main() -> None:
        daemon = FakeDaemon(a=5, b=2, c=0)
        daemon.closed.add("b")
        book = CostBook(daemon.client)
        await book.refresh(2.0)
        assert (dollars(book), book.unread, daemon.asked) == ("$7.0000", 0, 4)
        daemon.turns["a"] = 6
        await book.refresh(2.0)
        assert dollars(book) == "$7.0000"  # asked a moment ago
        await trio.sleep(LIVE_S)
        await book.refresh(2.0)
        assert (dollars(book), daemon.asked) == ("$8.0000", 5)
        del daemon.turns["b"]
        await trio.sleep(LIVE_S)
        await book.refresh(2.0)
        assert (dollars(book), daemon.asked) == ("$6.0000", 5)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_long_journals_do_not_hold_up_a_page_and_nothing_counts_twice() -> None:
    async def main() -> None:
        daemon = FakeDaemon(a=9, b=3)
        daemon.takes_s = 1.0
        book = CostBook(daemon.client)
        await book.refresh(2.5)
        assert (dollars(book), book.unread) == ("$4.0000", 2)
        await book.refresh(60.0)
        assert (dollars(book), book.unread) == ("$12.0000", 0)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
