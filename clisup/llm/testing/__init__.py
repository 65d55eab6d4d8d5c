"""The test kit of the model layer: models that need no daemon. docs/llm/testing.md is the guide.

A `ScriptedModel` says what a test tells it to; a `RecordingModel` writes down what a real one says, and a `ReplayingModel` says it
again. They are `LanguageModel`s, so whatever takes a model takes them.
"""

from clisup.llm.testing.asked import Asked
from clisup.llm.testing.recorded import RecordingModel, ReplayingModel
from clisup.llm.testing.script import Reply, Step, Thinking, ToolCall
from clisup.llm.testing.scripted import ScriptedChat, ScriptedModel, ScriptError

__all__ = [
    "Asked",
    "RecordingModel",
    "ReplayingModel",
    "Reply",
    "ScriptError",
    "ScriptedChat",
    "ScriptedModel",
    "Step",
    "Thinking",
    "ToolCall",
]
