"""Typed questions to models: a `Signature` says what goes in and what comes out, modules ask it. docs/llm/signatures.md is the guide."""

from clisup.llm.signatures.module import Module, active, using
from clisup.llm.signatures.predict import ChainOfThought, Predict, Prediction
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
