"""The model layer: typed calls, tools, conversations and workflows, for programs that want a model rather than a process.

    from clisup.llm import Client, tool

    @tool
    def add(a: int, b: int) -> int:
        "Add two numbers."
        return a + b

    answer = await Client("claude/opus", ["codex"]).complete("What is 2 + 40?", tools=[add])

The layer is a client of the daemon and never touches a CLI. docs/llm/README.md is the guide.
"""

from clisup.llm.answers import (
    Completion,
    Cost,
    Finished,
    FinishReason,
    MessageDone,
    ModelName,
    Retracted,
    StreamEvent,
    TaskChanged,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolInputDelta,
    ToolStarted,
    Waiting,
)
from clisup.llm.budget import Budget
from clisup.llm.calls import ModelCalls
from clisup.llm.chat import Chat, ChatOptions, LanguageModel, Sampling, SessionBudget
from clisup.llm.conversation import (
    AgentPolicy,
    CompressFailedPlans,
    Conversation,
    DropCompletedToolCalls,
    Step,
    SubAgentDelegation,
    SummarizeSubAgentChatter,
    TokenBudget,
    ToolInteraction,
    Turn,
    default_policies,
    to_wire_messages,
)
from clisup.llm.failures import (
    Authentication,
    BackendUnavailable,
    BudgetExhausted,
    Cancelled,
    ContextOverflow,
    DaemonUnavailable,
    Failed,
    InvalidRequest,
    LLMError,
    ModelNotFound,
    Overloaded,
    RateLimited,
    Refused,
    StructureError,
    TimedOut,
    Uncertain,
    Unsupported,
)
from clisup.llm.fallbacks import Fallback, Retry, RetryPolicy
from clisup.llm.memory import WorkingMemory
from clisup.llm.messages import (
    Block,
    ImageBlock,
    Message,
    Prompt,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from clisup.llm.models import Client, Model, resolve
from clisup.llm.registry import register, registered, unregister
from clisup.llm.signatures import (
    ChainOfThought,
    InputField,
    Module,
    OutputField,
    Predict,
    Prediction,
    Signature,
    signature,
    using,
)
from clisup.llm.streams import EventStream
from clisup.llm.structured import Structured
from clisup.llm.tools import Tool, ToolDefinition, ToolError, ToolOutput, tool
from clisup.llm.workflow import Loop, Stage, StageDone, StageRun, ThinkPlanDoReflect, WorkflowResult
from clisup.model.usage import Usage

__all__ = [
    "AgentPolicy",
    "Authentication",
    "BackendUnavailable",
    "Block",
    "Budget",
    "BudgetExhausted",
    "Cancelled",
    "ChainOfThought",
    "Chat",
    "ChatOptions",
    "Client",
    "Completion",
    "CompressFailedPlans",
    "ContextOverflow",
    "Conversation",
    "Cost",
    "DaemonUnavailable",
    "DropCompletedToolCalls",
    "EventStream",
    "Failed",
    "Fallback",
    "FinishReason",
    "Finished",
    "ImageBlock",
    "InputField",
    "InvalidRequest",
    "LLMError",
    "LanguageModel",
    "Loop",
    "Message",
    "MessageDone",
    "Model",
    "ModelCalls",
    "ModelName",
    "ModelNotFound",
    "Module",
    "OutputField",
    "Overloaded",
    "Predict",
    "Prediction",
    "Prompt",
    "RateLimited",
    "Refused",
    "Retracted",
    "Retry",
    "RetryPolicy",
    "Sampling",
    "SessionBudget",
    "Signature",
    "Stage",
    "StageDone",
    "StageRun",
    "Step",
    "StreamEvent",
    "StructureError",
    "Structured",
    "SubAgentDelegation",
    "SummarizeSubAgentChatter",
    "TaskChanged",
    "TextBlock",
    "TextDelta",
    "ThinkPlanDoReflect",
    "ThinkingBlock",
    "ThinkingDelta",
    "TimedOut",
    "TokenBudget",
    "Tool",
    "ToolDefinition",
    "ToolEnded",
    "ToolError",
    "ToolInputDelta",
    "ToolInteraction",
    "ToolOutput",
    "ToolResultBlock",
    "ToolStarted",
    "ToolUseBlock",
    "Turn",
    "Uncertain",
    "Unsupported",
    "Usage",
    "Waiting",
    "WorkflowResult",
    "WorkingMemory",
    "default_policies",
    "register",
    "registered",
    "resolve",
    "signature",
    "to_wire_messages",
    "tool",
    "unregister",
    "using",
]
