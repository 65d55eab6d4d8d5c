"""Typed questions to models: a `Signature` has inputs and outputs, and modules ask it. docs/llm/signatures.md is the guide."""

from clisup.llm.signatures.modules import ChainOfThought, Module, Predict, Prediction, active, using
from clisup.llm.signatures.signature import InputField, OutputField, Signature, signature

__all__ = [
    "ChainOfThought",
    "InputField",
    "Module",
    "OutputField",
    "Predict",
    "Prediction",
    "Signature",
    "active",
    "signature",
    "using",
]
