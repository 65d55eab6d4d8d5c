"""Conversations as graphs of nodes, and policies for the model's view. docs/llm/conversations.md is the guide."""

from clisup.llm.conversation.context import context_of, estimate_tokens, to_wire_messages
from clisup.llm.conversation.conversation import Conversation
from clisup.llm.conversation.nodes import (
    AgentPolicy,
    Node,
    Step,
    SubAgentDelegation,
    ToolInteraction,
    Turn,
    edited,
    walk,
)
from clisup.llm.conversation.policies import (
    CompressFailedPlans,
    DropCompletedToolCalls,
    Policy,
    SummarizeSubAgentChatter,
    TokenBudget,
    default_policies,
)
from clisup.llm.conversation.turn_builder import TurnBuilder, turns_of
from clisup.llm.histories import valid_history

__all__ = [
    "AgentPolicy",
    "CompressFailedPlans",
    "Conversation",
    "DropCompletedToolCalls",
    "Node",
    "Policy",
    "Step",
    "SubAgentDelegation",
    "SummarizeSubAgentChatter",
    "TokenBudget",
    "ToolInteraction",
    "Turn",
    "TurnBuilder",
    "context_of",
    "default_policies",
    "edited",
    "estimate_tokens",
    "to_wire_messages",
    "turns_of",
    "valid_history",
    "walk",
]
