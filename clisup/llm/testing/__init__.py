"""The test kit of the model layer: models that need no daemon. docs/llm/testing.md is the guide.

A `ScriptedModel` follows a test's script. A `RecordingModel` records the answers of a real model, and a `ReplayingModel` repeats
them. All are `LanguageModel`s, for any code that takes a model.
"""

from clisup.llm.testing.recorded import RecordingModel, ReplayingModel
from clisup.llm.testing.scripted import Asked, Reply, ScriptedChat, ScriptedModel, ScriptError, Step, Thinking, ToolCall

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
