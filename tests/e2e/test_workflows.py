"""Signatures and workflows with the real claude: its own structured output, and a conversation that another process takes over."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from clisup.llm.budget import Budget
from clisup.llm.models import resolve
from clisup.llm.signatures import ChainOfThought, InputField, OutputField, Predict, Signature
from clisup.llm.workflow import StageRun, ThinkPlanDoReflect, read_trace
from tests.e2e.lab import ClaudeLab
from tests.e2e.scenarios import Body, Reply, Scenario, say, tool, use

pytestmark = pytest.mark.e2e
BOUND_S = 120.0
VALUES: dict[str, dict[str, Any]] = {
    "steps": {"steps": ["Saw.", "Glue."]},
    "done": {"done": True, "answer": "A boat.", "lesson": ""},
    "people": {"reasoning": "It is old.", "city": "Rome", "people": 3},
}


class Capital(Signature):
    """Name the capital."""

    country: str = InputField()
    city: str = OutputField()
    people: int = OutputField(ge=0)


def by_schema(body: Body, n: int) -> Reply:
    """A model that takes the tool for the answer where it is offered it, and says what it is asked for in words else."""
    offered = next((t["input_schema"]["properties"] for t in body["tools"] if t["name"] == "StructuredOutput"), {})
    value = next((value for name, value in VALUES.items() if name in offered), None)
    return say(f"Words {n}.")(body, n) if value is None else use(tool("StructuredOutput", f"so{n}", value))(body, n)


BY_SCHEMA = Scenario("by_schema", by_schema)


def run(what: Callable[[], Any]) -> Any:
    async def bounded() -> Any:
        with trio.fail_after(BOUND_S):
            return await what()

    return trio.run(bounded)


def model(here: ClaudeLab) -> Any:
    return resolve("claude", socket=here.socket, cwd=str(here.cwd))


def said(body: Body) -> list[tuple[str, str]]:
    """Roles and texts of a request's messages, calls and results of tools by their names."""
    told = []
    for message in body["messages"]:
        blocks = (
            message["content"]
            if isinstance(message["content"], list)
            else [{"type": "text", "text": message["content"]}]
        )
        told += [(message["role"], str(block.get("text") or block.get("name") or block["type"])) for block in blocks]
    return told


def test_a_signature_is_answered_by_claudes_own_structured_output(lab: Callable[..., ClaudeLab]) -> None:
    here = lab(BY_SCHEMA)
    budget = Budget(usd=5.0, tokens=1_000_000)
    asked = ChainOfThought(Capital, model=model(here), budget=budget)
    prediction = run(lambda: asked.run(country="Italy"))
    assert prediction.value == Capital(country="Italy", city="Rome", people=3)
    assert (prediction.reasoning, len(prediction.completions)) == ("It is old.", 1)
    offered = here.api.main_requests[0].body["tools"]
    (schema,) = [t["input_schema"] for t in offered if t["name"] == "StructuredOutput"]
    assert list(schema["properties"]) == ["reasoning", "city", "people"]
    assert budget.spent.answers == 1
    assert (budget.spent.unknown_tokens, budget.spent.unknown_usd) == (0, 0)


def in_words(body: Body, n: int) -> Reply:
    """A model that takes no tool, and has to be told."""
    told = any("That is not what was asked for" in text for _, text in said(body))
    return say('So:\n```json\n{"city": "Rome", "people": "3"}\n```' if told else "Rome, I think.")(body, n)


def test_a_model_that_answers_in_words_is_asked_again_in_the_same_conversation(lab: Callable[..., ClaudeLab]) -> None:
    here = lab(Scenario("in_words", in_words))
    prediction = run(lambda: Predict(Capital, model=model(here)).run(country="Italy"))
    assert (prediction.value.city, len(prediction.completions)) == ("Rome", 2)
    last = said(here.api.main_requests[-1].body)
    assert ("assistant", "Rome, I think.") in last
    assert any("there is no JSON object in the answer" in text for _, text in last)


def test_what_was_said_before_a_failure_is_what_claude_is_given_after_it(
    lab: Callable[..., ClaudeLab], tmp_path: Path
) -> None:
    here = lab(BY_SCHEMA)
    trace = tmp_path / "t.jsonl"
    fails = True

    async def do(run: StageRun) -> str:
        if fails:
            raise OSError("no wood")
        return (await run.ask("Build it now.")).text

    workflow = ThinkPlanDoReflect(think="Think of it.", plan="Plan it.", do=do, reflect="Look back.")
    with pytest.raises(OSError, match="no wood"):
        run(lambda: workflow.run("A boat.", model=model(here), trace=trace))
    before = len(here.api.main_requests)
    fails = False
    result = run(lambda: workflow.run("A boat.", model=model(here), trace=trace))
    assert (result.outcome, result.result) == ("done", "A boat.")

    first = said(here.api.main_requests[before].body)
    texts = [text for _, text in first]
    assert any(text.startswith("Think of it.") for text in texts)
    assert any(text.startswith("Plan it.") for text in texts)
    assert "StructuredOutput" in texts
    assert ("assistant", json.dumps(VALUES["steps"], separators=(",", ":"))) in first
    assert any(text.endswith("Build it now.") for text in texts)
    progress = read_trace(trace)
    tries = [(one.stage, one.attempt) for one in progress.in_order()]
    assert tries == [("think", 1), ("plan", 1), ("do", 1), ("do", 2), ("reflect", 1)]
    sessions = {one.stage: one.session_id for one in progress.completed}
    assert sessions["think"] == sessions["plan"] != sessions["do"] == sessions["reflect"]
