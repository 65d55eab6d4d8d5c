"""The test kit of the model layer: models that need no daemon. docs/llm/testing.md is the guide.

A `ScriptedModel` says what a test tells it to. It is a `LanguageModel`, so whatever takes a model takes it.
"""

from clisup.llm.testing.script import Reply, Step, Thinking, ToolCall
from clisup.llm.testing.scripted import Asked, ScriptedChat, ScriptedModel, ScriptError

__all__ = ["Asked", "Reply", "ScriptError", "ScriptedChat", "ScriptedModel", "Step", "Thinking", "ToolCall"]
