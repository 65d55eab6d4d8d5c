"""What `clisup.llm` exports: each name is there, typed and at run time, and costs nothing until it is asked for."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

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


def test_a_checker_of_types_sees_the_same_names() -> None:
    tree = ast.parse(Path(clisup.llm.__file__).read_text())
    typed = {
        (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("clisup.")
        for alias in node.names
    }
    assert typed == {(module, name) for name, module in clisup.llm._FROM.items()}
    assert {name for _, name in typed} == set(clisup.llm.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(clisup.llm, "Agent")


def test_importing_the_package_loads_nothing_else() -> None:
    code = "import sys, clisup.llm; print([name for name in sys.modules if name.startswith(('clisup.llm.', 'pydantic', 'trio'))])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
