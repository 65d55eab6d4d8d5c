"""A model with others behind it: what fails without a trace is tried again, then the next model goes on with the conversation.

    client = Client("claude/opus", fallbacks=["codex"], on_fallback=print)
    async with client.chat() as chat: ...

Nothing is repeated after a tool was called: nobody could say what it does the second time.
"""

from __future__ import annotations

from collections.abc import Sequence

from clisup.llm.chain import ClientChat, ModelChain
from clisup.llm.chat import LanguageModel
from clisup.llm.failures import LLMError
from clisup.llm.models import models_of
from clisup.llm.retrying import FALLBACK_ON, OnFallback, OnRetry, RetryPolicy

__all__ = ["Client", "ClientChat"]


class Client(ModelChain):
    """Is a `LanguageModel`. `primary` and `fallbacks` are names, or models of any kind.

    Each chat begins with the primary. Where that cannot answer (`fallback_on`), the next model is asked with the whole conversation
    so far, and keeps it to the end of the chat. `on_retry` and `on_fallback` are told before it happens, and may be async.
    Raises the last model's error where none is left, and at once what `side_effects` forbid to repeat.
    """

    def __init__(
        self,
        primary: str | LanguageModel,
        fallbacks: str | Sequence[str | LanguageModel] = (),
        *,
        retry: RetryPolicy | None = None,
        on_retry: OnRetry | None = None,
        on_fallback: OnFallback | None = None,
        fallback_on: tuple[type[LLMError], ...] = FALLBACK_ON,
    ) -> None:
        others = (fallbacks,) if isinstance(fallbacks, str) else fallbacks
        models = [model for part in (primary, *others) for model in models_of(part)]
        super().__init__(models, retry=retry, on_retry=on_retry, on_fallback=on_fallback, fallback_on=fallback_on)
