"""Turns and messages for the tests of conversations: made by hand, and by hypothesis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from clisup.llm.conversation.nodes import AgentPolicy, Said, Step, SubAgentDelegation, ToolInteraction, Turn
from clisup.llm.messages import Block, ImageBlock, Message, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock

AT = "2026-01-01T00:00:00.000000Z"


def result(id_: str, text: str = "ok", *, is_error: bool = False) -> ToolResultBlock:
    return ToolResultBlock(tool_use_id=id_, content=text, is_error=is_error)


def call(
    id_: str, name: str = "read", answer: str | None = "ok", *, is_error: bool = False, **input_: Any
) -> ToolInteraction:
    answered = None if answer is None else result(id_, answer, is_error=is_error)
    return ToolInteraction(id=id_, at=AT, name=name, input=input_, result=answered)


def agent(
    id_: str, report: str, *steps: Step, policy: AgentPolicy | None = None, kind: str = "Explore"
) -> SubAgentDelegation:
    asked = {"subagent_type": kind, "prompt": "Look around."}
    return SubAgentDelegation(
        id=id_, at=AT, name="Agent", input=asked, result=result(id_, report), steps=steps, policy=policy
    )


def step(*parts: str | Said) -> Step:
    return Step(said=tuple(TextBlock(text=part) if isinstance(part, str) else part for part in parts))


def turn(n: int, *steps: Step, prompt: str | None = None, **about: Any) -> Turn:
    return Turn(id=f"t{n}", at=AT, prompt=Message.user(prompt or f"Prompt {n}."), steps=steps, **about)


def assert_fit(messages: Sequence[Message]) -> None:
    """What every API asks of a conversation."""
    assert [m.role for m in messages] == ["user", "assistant"] * (len(messages) // 2) + ["user"] * (len(messages) % 2)
    seen: set[str] = set()
    for place, message in enumerate(messages):
        assert message.content
        uses = [block.id for block in message.content if isinstance(block, ToolUseBlock)]
        after = messages[place + 1].content if place + 1 < len(messages) else ()
        answered = [block.tool_use_id for block in after if isinstance(block, ToolResultBlock)]
        if message.role == "assistant":
            assert uses == answered
            assert all(isinstance(block, ToolResultBlock) for block in after[: len(uses)])
            assert not seen & set(uses)
            seen |= set(uses)
        else:
            assert not uses
        assert all(block.text.strip() for block in message.content if isinstance(block, TextBlock))


# -- made by hypothesis: anything that the types allow, with few different ids, so that they meet

IDS = st.sampled_from(["a", "b", "c", "item_1", "x y"])
WORDS = st.text(alphabet="ab \n\u00e9", max_size=12)
INPUTS = st.dictionaries(st.sampled_from(["path", "text"]), st.text(alphabet="xyz", max_size=300), max_size=2)
TEXTS = st.builds(TextBlock, text=WORDS, cache=st.booleans())
IMAGES = st.builds(ImageBlock, media_type=st.just("image/png"), data=st.just("AAAA"))
THINKING = st.builds(ThinkingBlock, text=WORDS, signature=st.sampled_from([None, "sig"]))
RESULTS = st.builds(
    ToolResultBlock,
    tool_use_id=IDS,
    content=st.one_of(WORDS, st.lists(st.one_of(TEXTS, IMAGES), max_size=2).map(tuple)),
    is_error=st.booleans(),
    cache=st.booleans(),
)
USES = st.builds(ToolUseBlock, id=IDS, name=st.sampled_from(["read", "write"]), input=INPUTS)
BLOCKS: st.SearchStrategy[Block] = st.one_of(TEXTS, IMAGES, THINKING, RESULTS, USES)
MESSAGES = st.lists(
    st.builds(Message, role=st.sampled_from(["user", "assistant"]), content=st.lists(BLOCKS, max_size=4).map(tuple)),
    max_size=8,
)


def _marks() -> dict[str, Any]:
    return {
        "at": st.just(AT),
        "include_in_context": st.sampled_from([True, True, True, False]),
        "summary": st.sampled_from([None, None, "In short."]),
    }


@st.composite
def turns(draw: st.DrawFn) -> tuple[Turn, ...]:
    """A whole conversation, ids unique as a builder makes them."""
    made = []
    for n in range(draw(st.integers(0, 8))):
        steps = tuple(_step(draw, f"{n}-{k}", depth=2) for k in range(draw(st.integers(0, 3))))
        prompt = draw(st.lists(st.one_of(TEXTS, IMAGES), max_size=2))
        outcome = draw(st.sampled_from(["completed", "completed", "failed", "interrupted"]))
        marks = {name: draw(how) for name, how in _marks().items()}
        made.append(
            Turn(
                id=f"t{n}",
                prompt=Message.user(prompt),
                steps=steps,
                outcome=outcome,
                cache=draw(st.booleans()),
                **marks,
            )
        )
    return tuple(made)


def _step(draw: st.DrawFn, name: str, depth: int) -> Step:
    said: list[Said] = []
    for k in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["text", "thinking", "tool", "agent"]))
        if kind == "text":
            said.append(draw(TEXTS))
        elif kind == "thinking":
            said.append(draw(THINKING))
        else:
            said.append(_call(draw, kind, f"{name}-{k}", depth))
    return Step(said=tuple(said))


def _call(draw: st.DrawFn, kind: str, id_: str, depth: int) -> ToolInteraction | SubAgentDelegation:
    text = draw(st.one_of(st.none(), WORDS, st.just("long " * 300)))
    answered = None if text is None else result(id_, text, is_error=draw(st.booleans()))
    marks = {name: draw(how) for name, how in _marks().items()}
    name = draw(st.sampled_from(["read", "write", "memory"]))
    if kind == "tool" or not depth:
        return ToolInteraction(id=id_, name=name, input=draw(INPUTS), result=answered, **marks)
    steps = tuple(_step(draw, f"{id_}.{k}", depth - 1) for k in range(draw(st.integers(0, 2))))
    keep = draw(st.sampled_from([None, "whole", "transcript", "summary", "nothing"]))
    policy = None if keep is None else AgentPolicy(keep=keep, max_chars=200)
    return SubAgentDelegation(id=id_, name="Agent", result=answered, steps=steps, policy=policy, **marks)
