"""Accounts with the time until the reset, as a pure function of the daemon's rows."""

from __future__ import annotations

from typing import Any

import pytest

from clisup.policy.rate_limit import iso
from clisup.web.pages.site import render
from clisup.web.views.accounts import MOST_ACCOUNTS, MOST_WAITING, account_cards

NOW = 1_780_000_000.0
SCRIPT = "<script>alert(1)</script>"


def used(name: str, state: str, /, left: float | None = None, **values: Any) -> dict[str, Any]:
    until = None if left is None else iso(NOW + left)
    return {"account": name, "kind": "claude", "state": state, "until": until, "limit_type": None, "utilization": None,
            "message": None, "said_at": iso(NOW - 130), "waiting": [], "probe": None, **values}  # fmt: skip


def shared(name: str, **limit: Any) -> dict[str, Any]:
    empty = {
        "state": "unknown",
        "until": None,
        "limit_type": None,
        "utilization": None,
        "message": None,
        "said_at": None,
    }
    return {"account": name, "limit": {**empty, **limit}, "waiting": [], "probe": None}


def test_limited_accounts_come_first_and_accounts_of_the_configuration_are_there_unused() -> None:
    rows = [used("b", "ok"), used("a", "limited"), used("c", "warned")]
    listed = [shared("a", state="ok"), shared("unused"), shared("named", state="warned", until=NOW + 3600, said_at=NOW)]
    cards = account_cards(rows, listed, [], NOW)
    assert [(card.name, card.status) for card in cards] == [
        ("a", "limit reached"), ("c", "near the limit"), ("named", "near the limit"), ("b", "below the limit"),
        ("unused", "no limit reported yet"),
    ]  # fmt: skip
    assert (cards[2].reset, cards[2].said) == ("in 1 h 0 min", "less than a minute ago")
    assert (cards[0].said, cards[4].said, cards[4].reset) == ("2 min ago", "", "")


@pytest.mark.parametrize(
    ("left", "words"),
    [
        (7980, "in 2 h 13 min"),
        (42, "in 42 s"),
        (60, "in 1 min"),
        (0, "now"),
        (-99, "now"),
        (None, ""),
        (93_600, "in 1 d 2 h"),
    ],
)
def test_the_time_until_the_reset_is_in_words(left: float | None, words: str) -> None:
    (card,) = account_cards([used("a", "limited", left)], [], [], NOW)
    assert card.reset == words and bool(card.reset_at) == (left is not None)


def test_the_window_its_use_and_the_waiting_sessions_are_shown() -> None:
    waiting = [f"{n:08d}-x" for n in range(MOST_WAITING + 2)]
    sessions = [{"session_id": waiting[0], "title": "Fix the build"}, {"session_id": waiting[1], "title": None}]
    row = used("a", "limited", 60, limit_type="five_hour", utilization=1.07, waiting=waiting, probe=waiting[0])
    (card,) = account_cards([row], [], sessions, NOW)
    assert (card.window, card.used, card.more, len(card.waiting)) == ("five hour", 100, 2, MOST_WAITING)
    assert [each.title for each in card.waiting[:3]] == ["Fix the build", "Session 00000001", "Session 00000002"]
    assert card.probe is not None and card.probe.title == "Fix the build"
    assert len(account_cards([used(str(n), "ok") for n in range(200)], [], [], NOW)) == MOST_ACCOUNTS


def test_words_of_a_cli_are_escaped() -> None:
    row = used(
        SCRIPT, "limited", 60, kind=SCRIPT + "x", limit_type=SCRIPT, message=SCRIPT + "\x1b[31m", waiting=['"><b>']
    )
    cards = account_cards([row], [], [{"session_id": '"><b>', "title": SCRIPT}], NOW)
    html = render("account_cards.html", cards=cards, hold="1 h 0 min")
    assert "<script" not in html and "<b>" not in html and "\x1b" not in html and html.count("&lt;script&gt;") == 5
