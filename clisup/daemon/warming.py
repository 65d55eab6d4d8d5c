"""What the first session and turn of a daemon would have to build, built in the quiet after its start."""

from __future__ import annotations

import trio
from pydantic import BaseModel

from clisup.config.session_spec import SessionSpec
from clisup.policy.rate_limit import AccountLimit
from clisup.wire import models as m

__all__ = ["build_models"]

_MODELS: tuple[type[BaseModel], ...] = (
    m.PromptParams,
    m.PromptResult,
    m.SessionNewParams,
    SessionSpec,
    AccountLimit,
    m.SessionNewResult,
    m.SubscribeParams,
    m.SubscribeResult,
)


async def build_models(after_s: float = 0) -> None:
    """Build them in so many seconds, one in each round of the scheduler: 20 ms in all, which a first turn would wait for, and 0.1 MB.

    A model is built at its first use (`defer_build`), so that who comes earlier waits as it would without this.
    """
    await trio.sleep(after_s)
    for model in _MODELS:
        model.model_rebuild()
        await trio.lowlevel.checkpoint()
