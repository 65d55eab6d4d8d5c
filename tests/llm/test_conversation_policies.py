"""What a conversation forgets: few and large edits, marks alone, and never the user's last word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conversation_samples import agent, call, step, turn, turns
from hypothesis import given, settings
from hypothesis import strategies as st

from clisup.errors import UsageError
from clisup.llm.conversation.context import context_of, estimate_tokens
from clisup.llm.conversation.conversation import Conversation
from clisup.llm.conversation.nodes import AgentPolicy, SubAgentDelegation, Turn, walk
from clisup.llm.conversation.policies import (
    CompressFailedPlans,
    DropCompletedToolCalls,
    SummarizeSubAgentChatter,
    TokenBudget,
    default_policies,
)
from clisup.llm.messages import Message
from tests.backends.recorded import Recording

QUICK = settings(max_examples=60)
BuiltIn = DropCompletedToolCalls | CompressFailedPlans | SummarizeSubAgentChatter | TokenBudget
KEEP = st.integers(0, 3)
WORTH = st.sampled_from([0, 20, 2000])
POLICIES: st.SearchStrategy[BuiltIn] = st.one_of(
    st.builds(
        DropCompletedToolCalls, keep_turns=KEEP, leave=st.sampled_from(["nothing", "call"]), at_least_tokens=WORTH
    ),
    st.builds(CompressFailedPlans, keep_turns=KEEP, at_least_tokens=WORTH),
    st.builds(SummarizeSubAgentChatter, keep_turns=KEEP, at_least_tokens=WORTH),
    st.builds(
        TokenBudget, limit=st.integers(1, 2000), keep_turns=st.integers(1, 3), down_to=st.sampled_from([0.3, 1.0])
    ),
)
LONG = "word " * 2000


def size(made: tuple[Turn, ...]) -> int:
    return estimate_tokens(context_of(made))


# -- what holds for all of them


@QUICK
@given(turns(), POLICIES, st.integers(0, 500))
def test_a_second_time_changes_nothing(made: tuple[Turn, ...], policy: BuiltIn, beside: int) -> None:
    once = policy.edit(made, beside=beside)
    assert policy.edit(once, beside=beside) == once


@QUICK
@given(turns(), POLICIES)
def test_the_users_last_word_stays(made: tuple[Turn, ...], policy: BuiltIn) -> None:
    before, after = ([m for m in context_of(each) if m.role == "user"] for each in (made, policy.edit(made)))
    shown = [turn for turn in made if turn.include_in_context]
    if shown and shown[-1].prompt.content:
        kept = [turn for turn in policy.edit(made) if turn.include_in_context]
        assert kept[-1].prompt == shown[-1].prompt
    assert len(after) <= len(before)


@QUICK
@given(turns(), POLICIES)
def test_only_marks_are_changed(made: tuple[Turn, ...], policy: BuiltIn) -> None:
    before, after = list(walk(made)), list(walk(policy.edit(made)))
    bare = {"include_in_context": True, "summary": None}
    assert [n.model_dump(exclude={"steps"}) | bare for n in after] == [
        n.model_dump(exclude={"steps"}) | bare for n in before
    ]


@QUICK
@given(turns(), POLICIES)
def test_what_was_out_does_not_come_back(made: tuple[Turn, ...], policy: BuiltIn) -> None:
    after = {node.id: node for node in walk(policy.edit(made))}
    assert not [n.id for n in walk(made) if not n.include_in_context and after[n.id].include_in_context]


@QUICK
@given(turns(), st.integers(1, 3000))
def test_a_token_budget_is_kept_where_older_turns_can_go(made: tuple[Turn, ...], limit: int) -> None:
    policy = TokenBudget(limit=limit, keep_turns=1)
    after = policy.edit(made)
    shown = [turn for turn in after if turn.include_in_context]
    assert size(after) <= limit or len(shown) <= 1


# -- DropCompletedToolCalls


def test_calls_of_older_turns_go_and_those_of_the_last_one_stay() -> None:
    made = (turn(1, step("I read.", call("a", answer=LONG)), step("Read.")), turn(2, step(call("b")), step("Again.")))
    after = DropCompletedToolCalls().edit(made)
    assert [node.id for node in walk(after) if not node.include_in_context] == ["a"]
    assert [message.text for message in context_of(after[:1])] == ["Prompt 1.", "I read.Read."]


def test_failed_calls_and_excluded_ones_are_left_to_others() -> None:
    made = (turn(1, step(call("a", is_error=True), call("b", "memory")), step("So.")), turn(2, step("Yes.")))
    assert DropCompletedToolCalls(exclude=frozenset({"memory"})).edit(made) is made


def test_a_call_may_stay_without_its_result() -> None:
    made = (turn(1, step(call("a", answer=LONG, path="x")), step("So.")), turn(2, step("Yes.")))
    after = context_of(DropCompletedToolCalls(leave="call").edit(made))
    assert "result was left out" in str(after[2]) and LONG not in str(after)


def test_nothing_is_dropped_until_it_is_worth_it() -> None:
    made = (turn(1, step(call("a", answer="x" * 700)), step("So.")), turn(2, step("Yes.")))
    assert DropCompletedToolCalls(at_least_tokens=1000).edit(made) is made
    assert DropCompletedToolCalls(at_least_tokens=100).edit(made) is not made


# -- CompressFailedPlans


def test_a_failed_call_is_told_by_the_first_line_of_its_error() -> None:
    failed = call("a", "ExitPlanMode", f"\nThe plan was rejected.\n{LONG}", is_error=True, plan=LONG)
    made = (turn(1, step(failed), step("Another plan.")), turn(2, step("Yes.")))
    after = CompressFailedPlans().edit(made)
    assert after[0].calls[0].summary == "Failed: The plan was rejected."
    assert size(after) < 200 < size(made)


def test_a_turn_that_failed_is_told_by_how_it_ended_and_what_it_did() -> None:
    made = (
        turn(
            1,
            step("I try. " + LONG, call("a"), call("b"), call("c", "write")),
            outcome="failed",
            error="too many requests",
        ),
        turn(2, step("Yes.")),
    )
    after = CompressFailedPlans().edit(made)
    summary = after[0].summary
    assert summary is not None
    assert summary.startswith("(This attempt failed: too many requests Before that it called read (2 times), write;")
    assert len(summary) < 500


def test_the_last_turn_stays_whole_though_it_failed() -> None:
    made = (turn(1, step(call("a", answer=LONG, is_error=True)), outcome="failed"),)
    assert CompressFailedPlans().edit(made) is made


# -- SummarizeSubAgentChatter

INSIDE = (step("I look around.", call("in", answer="three files")), step("Found them."))


@pytest.mark.parametrize(
    ("keep", "seen", "unseen"),
    [
        ("whole", [LONG.strip()], ["three files"]),
        ("summary", ["characters left out"], [LONG.strip(), "three files"]),
        ("transcript", ["I look around.", "[read] three files", "Its report: word word"], [LONG.strip()]),
        ("nothing", [], ["word word", "Explore"]),
    ],
)
def test_each_sub_agent_is_shown_by_a_policy_of_its_own(keep: str, seen: list[str], unseen: list[str]) -> None:
    policy = AgentPolicy.model_validate({"keep": keep})
    made = (turn(1, step(agent("s", LONG, *INSIDE, policy=policy)), step("Good.")), turn(2, step("Yes.")))
    text = str(context_of(SummarizeSubAgentChatter(default=AgentPolicy(keep="whole")).edit(made)))
    assert [word for word in seen if word not in text] == []
    assert [word for word in unseen if word in text] == []


def test_a_sub_agent_of_a_sub_agent_has_its_own_too() -> None:
    inner = agent("inner", "inner report " * 200, *INSIDE, policy=AgentPolicy(keep="nothing"))
    second = agent("second", "short", policy=AgentPolicy(keep="whole"))
    outer = agent("outer", LONG, step("I ask others.", inner, second), policy=AgentPolicy(keep="transcript"))
    after = SummarizeSubAgentChatter(keep_turns=0).edit((turn(1, step(outer), step("Good.")),))
    shown = {node.id: node for node in walk(after) if isinstance(node, SubAgentDelegation)}
    assert not shown["inner"].include_in_context
    assert shown["second"].include_in_context
    summary = shown["outer"].summary
    assert summary is not None and "I ask others." in summary and "inner report" not in summary


def test_without_one_of_its_own_the_default_is_a_sub_agents_policy() -> None:
    made = (turn(1, step(agent("s", LONG)), step("Good.")), turn(2, step("Yes.")))
    after = SummarizeSubAgentChatter(default=AgentPolicy(max_chars=200)).edit(made)
    assert 160 < len(after[0].calls[0].summary or "") <= 200


def test_a_short_report_of_a_claude_sub_agent_is_kept_without_the_frame_around_it() -> None:
    (result,) = [e for e in Recording.of("claude/subagent").events("tool_result") if e.tool_use_id == "toolu_outer"]
    framed = agent("s", result.content)
    assert len(result.content) > 600 and framed.report == "subagent reports 42"
    made = (turn(1, step(framed), step("Good.")), turn(2, step("Yes.")))
    after = SummarizeSubAgentChatter().edit(made)
    assert after[0].calls[0].summary == "subagent reports 42"


@pytest.mark.parametrize("text", ["", "a report", "[Subagent hand-back] of my own", "x\nagentId: y"])
def test_a_report_without_a_frame_is_as_it_was(text: str) -> None:
    assert agent("s", text).report == text


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: AgentPolicy(max_chars=100),
        lambda: AgentPolicy.model_validate({"keep": "all"}),
        lambda: SummarizeSubAgentChatter(keep_turns=-1),
        lambda: TokenBudget(limit=0),
    ],
)
def test_an_option_that_is_wrong_is_an_error_of_use_that_names_it(wrong: Callable[[], object]) -> None:
    with pytest.raises(
        UsageError,
        match=r"wrong options of (AgentPolicy|SummarizeSubAgentChatter|TokenBudget): (max_chars|keep|keep_turns|limit): ",
    ):
        wrong()


# -- TokenBudget


def test_nothing_is_touched_below_the_limit() -> None:
    made = tuple(turn(n, step("x" * 350)) for n in range(5))
    assert TokenBudget(limit=size(made)).edit(made) is made
    assert TokenBudget(limit=size(made)).edit(made, beside=1) is not made


def test_results_go_before_words_and_words_before_turns_the_oldest_first() -> None:
    made = tuple(turn(n, step("I read.", call(f"c{n}", answer="x" * 3500)), step("y" * 3500)) for n in range(4))
    whole = size(made)

    def at(share: float) -> str:
        """For each turn: whole, results gone, summed up, or out."""
        after = TokenBudget(limit=int(whole * share), down_to=1, keep_turns=1).edit(made)
        return "".join(
            "-"
            if not t.include_in_context
            else "s"
            if t.summary is not None
            else "w"
            if t.calls[0].include_in_context
            else "r"
            for t in after
        )

    assert [at(share) for share in (1, 0.9, 0.65, 0.58, 0.42, 0.27, 0.1)] == [
        "wwww",
        "rwww",
        "rrrw",
        "srrw",
        "ssrw",
        "--sw",
        "---r",
    ]


def test_one_edit_lasts_for_some_turns() -> None:
    made: tuple[Turn, ...] = ()
    edits = 0
    for n in range(100):
        made = (*made, turn(n, step("x" * 350)))
        after = TokenBudget(limit=2000).edit(made)
        edits += after is not made
        made = after
        assert size(made) <= 2000
    assert 2 <= edits <= 15


def test_the_last_turns_keep_their_results_where_the_limit_can_be_held_with_them() -> None:
    made = tuple(turn(n, step(call(f"c{n}", answer="x" * 1400)), step("y" * 350)) for n in range(6))
    after = TokenBudget(limit=size(made) // 2, down_to=0.1, keep_turns=2).edit(made)
    assert [node.calls[0].include_in_context for node in after if node.include_in_context] == [True, True]


def test_a_limit_below_what_must_stay_leaves_the_last_turn() -> None:
    made = (turn(1, step("a")), turn(2, step("x" * 9000, call("c", answer=LONG)), step("End.")))
    after = TokenBudget(limit=10, keep_turns=1).edit(made)
    assert [message.role for message in context_of(after)] == ["user", "assistant"]
    assert context_of(after)[0] == Message.user("Prompt 2.")


# -- the default stack


def test_the_default_stack_holds_a_long_conversation_under_the_size_asked_for() -> None:
    made: tuple[Turn, ...] = ()
    for n in range(100):
        report = agent(f"s{n}", "found " * 300, *INSIDE)
        failed = call(f"f{n}", answer="no such file\n" + "trace " * 200, is_error=True)
        made = (*made, turn(n, step("I look.", call(f"c{n}", answer="x" * 3000), failed, report), step("y" * 400)))
        for policy in default_policies(10_000):
            made = policy.edit(made)
        assert size(made) <= 10_000
    assert made[-1].calls[0].include_in_context
    assert len(made) == 100


@pytest.mark.parametrize(
    ("policies", "budget"),
    [
        (None, 50_000),
        (default_policies(120_000), 120_000),
        ((), None),
        ((TokenBudget(limit=9), TokenBudget(limit=7)), 7),
    ],
)
def test_a_conversation_tells_the_budget_that_its_policies_hold(policies: Any, budget: int | None) -> None:
    assert Conversation("demo", policies=policies).context_budget == budget


def test_the_default_policies_say_what_they_hold() -> None:
    assert "TokenBudget(limit=50000" in repr(default_policies())
