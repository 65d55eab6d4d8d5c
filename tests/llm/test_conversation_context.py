"""What a model is to see: by the marks of the nodes, and always in the form that every API takes."""

from __future__ import annotations

from conversation_samples import agent, assert_fit, call, result, step, turn, turns
from hypothesis import given, settings

from clisup.llm.conversation.context import context_of
from clisup.llm.conversation.nodes import Turn
from clisup.llm.conversation.turn_builder import turns_of
from clisup.llm.histories import NO_ANSWER, NO_RESULT
from clisup.llm.messages import Message, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock

QUICK = settings(max_examples=80)


@QUICK
@given(turns())
def test_a_context_is_fit_and_ends_with_the_model(made: tuple[Turn, ...]) -> None:
    messages = context_of(made)
    assert_fit(messages)
    assert not messages or messages[-1].role == "assistant"


@QUICK
@given(turns())
def test_a_context_that_comes_back_as_turns_is_the_same_context(made: tuple[Turn, ...]) -> None:
    messages = context_of(made)
    assert context_of(turns_of(messages)) == messages


@QUICK
@given(turns())
def test_what_is_marked_as_out_is_not_sent(made: tuple[Turn, ...]) -> None:
    sent = {block.id for message in context_of(made) for block in message.content if isinstance(block, ToolUseBlock)}
    wanted = {
        node.id
        for each in made
        if each.include_in_context and each.summary is None
        for node in each.calls
        if node.include_in_context
    }
    assert sent == wanted


def test_a_step_is_a_message_and_its_results_are_the_next_one() -> None:
    made = turn(1, step("Both at once.", call("a", path="x"), call("b", "write")), step("Done."))
    assert context_of([made]) == (
        Message.user("Prompt 1."),
        Message.assistant(
            [
                TextBlock(text="Both at once."),
                ToolUseBlock(id="a", name="read", input={"path": "x"}),
                ToolUseBlock(id="b", name="write", input={}),
            ]
        ),
        Message.user([result("a"), result("b")]),
        Message.assistant("Done."),
    )


def test_a_call_that_is_left_out_leaves_what_was_said_around_it() -> None:
    gone = call("a").model_copy(update={"include_in_context": False})
    messages = context_of([turn(1, step("Before. ", gone), step("After."))])
    assert [message.text for message in messages] == ["Prompt 1.", "Before. After."]


def test_a_summary_takes_the_place_of_the_result_and_cuts_the_input() -> None:
    short = call("a", "write", "x" * 9000, text="y" * 5000, path="p").model_copy(update={"summary": "Written."})
    use, answer = (message.content[0] for message in context_of([turn(1, step(short), step("Done."))])[1:3])
    assert isinstance(use, ToolUseBlock) and isinstance(answer, ToolResultBlock)
    assert answer.content == "Written."
    assert use.input["path"] == "p"
    assert use.input["text"].endswith("(4800 characters left out)")


def test_a_turns_summary_stands_for_its_steps() -> None:
    made = turn(1, step("Long.", call("a")), step("Longer."), summary="It was long.")
    assert context_of([made]) == (Message.user("Prompt 1."), Message.assistant("It was long."))


def test_a_call_without_an_answer_says_so_rather_than_hiding_what_it_may_have_done() -> None:
    messages = context_of([turn(1, step(call("a", answer=None)), outcome="interrupted")])
    answer = messages[2].content[0]
    assert isinstance(answer, ToolResultBlock)
    assert (answer.content, answer.is_error) == (NO_RESULT, True)
    assert messages[-1].text == NO_ANSWER


def test_the_work_of_a_sub_agent_is_not_sent_but_its_report_is() -> None:
    inside = step("I look.", call("in", answer="secret"))
    messages = context_of([turn(1, step(agent("s", "All is well.", inside)), step("Good."))])
    assert "secret" not in str(messages) and "I look." not in str(messages)
    assert "All is well." in str(messages)


def test_thinking_goes_with_an_edited_step_and_stays_with_a_whole_one() -> None:
    thought = ThinkingBlock(text="Hm.", signature="sig")
    gone = call("a").model_copy(update={"include_in_context": False})
    whole = context_of([turn(1, step(thought, call("a")), step("Done."))])
    assert thought in whole[1].content
    assert thought not in context_of([turn(1, step(thought, "So.", gone), step("Done."))])[1].content


def test_a_turn_marked_for_the_cache_marks_its_last_block() -> None:
    messages = context_of([turn(1, step("Done."), cache=True), turn(2, step("Yes."))])
    assert [getattr(message.content[-1], "cache", None) for message in messages] == [False, True, False, False]
