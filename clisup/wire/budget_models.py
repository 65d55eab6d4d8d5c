"""Params and result of `session/set_budget`."""

from __future__ import annotations

from typing import Any

from clisup.model.sessions.budget import Budget
from clisup.wire.models import Params, Result, SessionId

__all__ = ["SetBudgetParams", "SetBudgetResult"]


class SetBudgetParams(Params):
    """`budget` takes the place of the whole budget: what it leaves out is not limited."""

    session_id: SessionId
    budget: Budget


class SetBudgetResult(Result):
    """The budget as `session/get` shows it; null where nothing is limited any more."""

    budget: dict[str, Any] | None
