"""Conversations as graphs of nodes, and what a model is to see of them. docs/llm/conversations.md is the guide."""

from clisup.llm.conversation.building import TurnBuilder, turns_of
from clisup.llm.conversation.context import context_of
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
from clisup.llm.conversation.tokens import estimate_tokens
from clisup.llm.conversation.wire import to_wire_messages
from clisup.llm.sound import sound

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
    "sound",
    "to_wire_messages",
    "turns_of",
    "walk",
]
