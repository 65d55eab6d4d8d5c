"""Pure rules of `clisup mcp`: bounds, news and transcripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clisup.client.events import (
    AssistantMessage,
    Envelope,
    Gap,
    PromptAccepted,
    ToolUse,
    TurnCompleted,
)
from clisup.doors.mcp.bounds import MAX_WAIT_S, AgentBounds, depth_of, left_of, wait_within
from clisup.doors.mcp.news import MAX_FILES, MAX_TOOLS, TEXT_CHARS, NewsFold, cut
from clisup.doors.mcp.transcript import TRANSCRIPT_CHARS, SessionTranscript
from clisup.errors import UsageError
from clisup.model.events import Block, TurnError


def envelope(seq: int, event: Any, turn: str | None = "t1") -> Envelope:
    return Envelope("s", seq, "2026-01-01T00:00:00Z", turn, "backend", event)


def words(text: str, parent: str | None = None) -> AssistantMessage:
    return AssistantMessage(blocks=(Block("thinking", text="hm"), Block("text", text=text)), parent_tool_use_id=parent)


def test_a_directory_is_below_the_root_by_its_real_path(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "rooted").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path)
    bounds = AgentBounds(str(tmp_path / "root"))
    assert bounds.directory(None) == str(tmp_path / "root")
    assert bounds.directory("a/../b") == str(tmp_path / "root" / "b")
    for outside in ("..", "../rooted", str(tmp_path), "link", "/", "a\0b"):
        with pytest.raises(UsageError) as caught:
            bounds.directory(outside)
        assert caught.value.kind == "permission_denied"
    assert AgentBounds("/").holds("/srv")
    (tmp_path / "root" / "link").unlink()
    (tmp_path / "root").rmdir()
    (tmp_path / "root").symlink_to("/")
    assert not bounds.holds("/") and not bounds.holds(str(tmp_path / "root"))


@pytest.mark.parametrize(
    ("most", "left", "asked", "given"),
    [
        (None, None, None, None),
        (None, None, 7.0, 7.0),
        (2.0, None, None, 2.0),
        (2.0, None, 2.0, 2.0),
        (2.0, 3.0, None, 1.5),
        (1.0, 3.0, None, 1.0),
        (None, 3.0, None, 1.5),
        (None, 3.0, 3.0, 3.0),
        (2.0, None, 2.1, None),
        (None, 3.0, 3.1, None),
        (9.0, 0.0, 0.1, None),
    ],
)
def test_a_budget_is_within_the_users_and_what_the_parent_has_left(
    most: float | None, left: float | None, asked: float | None, given: float | None
) -> None:
    bounds = AgentBounds("/", budget_usd=most)
    if asked is not None and given is None:
        with pytest.raises(UsageError, match="at most"):
            bounds.budget(asked, left)
    else:
        assert bounds.budget(asked, left) == given


def test_what_is_left_of_a_budget() -> None:
    assert left_of(None) is None and left_of({"limit": {"turns": 3}, "used": {}}) is None
    assert left_of({"limit": {"usd": 2}, "used": {"usd": 0.5}}) == 1.5
    assert left_of({"limit": {"usd": 2}, "used": {"usd": None}}) == 2
    assert left_of({"limit": {"usd": 2}, "used": {"usd": 3}}) == 0


def test_depth_and_room_are_bounded() -> None:
    bounds = AgentBounds("/", depth=2, agents=3)
    assert [depth_of({"mcp_depth": text}) for text in ("3", "x", "-1", "", "\u00b2")] == [3, 0, 0, 0, 0]
    assert bounds.depth_below({}) == 1 and bounds.depth_below({"mcp_depth": "1"}) == 2
    with pytest.raises(UsageError, match="2 is the limit"):
        bounds.depth_below({"mcp_depth": "2"})
    bounds.check_room(2)
    with pytest.raises(UsageError, match="3 is the limit"):
        bounds.check_room(3)
    assert [wait_within(wait) for wait in (-1, 5, 1e9)] == [0, 5, MAX_WAIT_S]


def test_modes_are_by_backend() -> None:
    bounds = AgentBounds("/", {"claude": "acceptEdits", "": "plan"})
    assert (bounds.permission_mode("claude"), bounds.permission_mode("codex")) == ("acceptEdits", "plan")
    assert AgentBounds("/", {"claude": "acceptEdits"}).permission_mode("codex") is None


def test_news_have_the_last_words_the_tools_and_the_changed_files() -> None:
    fold = NewsFold(3)
    fold.take(envelope(4, words("First.")))
    fold.take(envelope(5, ToolUse("a", "Read", {"file_path": "/r"})))
    fold.take(envelope(6, ToolUse("b", "Edit", {"file_path": "/w"}, parent_tool_use_id="p")))
    fold.take(envelope(7, words("Of a sub-agent.", parent="p")))
    assert fold.progress(envelope(7, words("Of a sub-agent.", parent="p"))) is None
    running = fold.news("s", "running")
    assert (running.state, running.text, running.tools, running.files, running.after_seq) == (
        "running", "First.", {"Read": 1, "Edit": 1}, ["/w"], 7,
    )  # fmt: skip
    fold.take(envelope(8, TurnCompleted("failed", error=TurnError("server", "x" * 9_999), cost_usd=0.5)))
    failed = fold.news("s", "running")
    assert (failed.state, failed.turn, failed.cost_usd) == ("failed", "t1", 0.5)
    assert failed.error is not None and failed.error.startswith("server: ") and len(failed.error) < 2_100


def test_the_end_of_another_turn_is_not_the_end() -> None:
    fold = NewsFold(0, "t2")
    fold.take(envelope(1, TurnCompleted("completed"), "t1"))
    assert fold.ended is None
    fold.take(envelope(2, TurnCompleted("completed", delivery="uncertain"), "t2"))
    assert fold.ended and "before you send it again" in fold.news("s", "running").next


def test_news_are_bounded() -> None:
    fold = NewsFold(0)
    fold.take(envelope(1, words("y" * (TEXT_CHARS + 5))))
    for number in range(2 * MAX_FILES):
        fold.take(envelope(2 + number, ToolUse(str(number), f"Tool{number}", {})))
        fold.take(envelope(2 + number, ToolUse(str(number), "Write", {"file_path": f"/{number}", "content": ""})))
    news = fold.news("s", "running")
    assert news.text == "y" * TEXT_CHARS + "\n[5 more characters are left out]"
    assert len(news.files) == MAX_FILES and len(news.tools) == MAX_TOOLS
    assert cut("short") == "short"


def test_a_transcript_is_bounded_and_says_what_it_leaves_out() -> None:
    transcript = SessionTranscript()
    transcript.take(envelope(1, PromptAccepted(delivery="delivered", text="Do it.")))
    transcript.take(envelope(2, PromptAccepted(delivery="delivered")))
    transcript.take(envelope(3, words("Well.")))
    transcript.take(envelope(4, TurnCompleted("timed_out")))
    assert transcript.text() == (
        "## User\n\nDo it.\n\n## User\n\n(the text of this prompt is not kept)\n\nWell.\n\n(the turn t1 is timed_out)"
    )
    for number in range(12):
        transcript.take(envelope(5 + number, words("z" * 10_000)))
    text = transcript.text()
    assert text.startswith("(Older parts are left out.)") and len(text) < TRANSCRIPT_CHARS + 100
    gap = SessionTranscript()
    gap.take(envelope(9, Gap(1, 9, "retention")))
    assert gap.text() == "(Older parts are left out.)"
