"""Params and result of `session/set_budget`."""

from __future__ import annotations

from typing import Any

from clisup.model.sessions.budget import Budget
from clisup.wire.models import Params, Result, SessionId

__all__ = ["SetBudgetParams", "SetBudgetResult"]


class SetBudgetParams(Params):
    """`budget` replaces the whole budget. A missing limit is no limit."""

    session_id: SessionId
    budget: Budget


class SetBudgetResult(Result):
    """Budget as `session/get` shows it. Null if the session has no limit any more."""

    budget: dict[str, Any] | None
