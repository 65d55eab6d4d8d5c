"""What the daemon refuses, as the layer's own exceptions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from clisup.errors import ClisupError
from clisup.llm.failures import error_of_refusal

__all__ = ["as_llm_errors"]


@contextmanager
def as_llm_errors() -> Iterator[None]:
    """Within this block a `ClisupError` becomes the `LLMError` of its kind."""
    try:
        yield
    except ClisupError as error:
        raise error_of_refusal(error) from error
