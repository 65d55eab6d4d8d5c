"""Sampling of a model's words: the `sampling` of `session/prompt`. Pure."""

# Not `from __future__ import annotations`: pydantic would compile and evaluate each annotation at every start.

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class SamplingParams(BaseModel):
    """Sampling of one answer. `max_tokens` limits its length, `stop` ends it, and `seed` repeats it as far as the API can."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    max_tokens: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    stop: Annotated[list[Annotated[str, Field(min_length=1, max_length=1024)]], Field(max_length=16)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None
