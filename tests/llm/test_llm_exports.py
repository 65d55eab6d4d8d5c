"""The names that `clisup.llm` exports."""

from __future__ import annotations

import clisup.llm

PROMISED = {
    "resolve",
    "Client",
    "Message",
    "Usage",
    "tool",
    "Conversation",
    "Turn",
    "ToolInteraction",
    "SubAgentDelegation",
    "DropCompletedToolCalls",
    "CompressFailedPlans",
    "SummarizeSubAgentChatter",
    "WorkingMemory",
    "Signature",
    "Predict",
    "ChainOfThought",
    "Budget",
    "ThinkPlanDoReflect",
    "LLMError",
    "RateLimited",
    "BudgetExhausted",
}


def test_every_exported_name_is_there() -> None:
    for name in clisup.llm.__all__:
        assert getattr(clisup.llm, name) is not None
    assert set(clisup.llm.__all__) >= PROMISED


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(clisup.llm, "Agent")
