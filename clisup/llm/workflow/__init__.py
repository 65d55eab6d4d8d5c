"""Workflows: loops of stages with a budget and a trace, from which they resume after a crash. docs/llm/workflows.md is the guide."""

from clisup.llm.workflow.cycle import Plan, Reflection, ThinkPlanDoReflect
from clisup.llm.workflow.loop import Loop, StageDone, WorkflowResult
from clisup.llm.workflow.stages import Stage, StageRun
from clisup.llm.workflow.trace import Trace, read_trace

__all__ = [
    "Loop",
    "Plan",
    "Reflection",
    "Stage",
    "StageDone",
    "StageRun",
    "ThinkPlanDoReflect",
    "Trace",
    "WorkflowResult",
    "read_trace",
]
