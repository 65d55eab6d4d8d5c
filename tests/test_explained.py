"""Every failure has its word in the table of what the doctor explains, and the table names checks that there are."""

from __future__ import annotations

from typing import get_args

import pytest

from clisup.errors import KINDS
from clisup.explained import ERRORS, TURN_ERRORS, Explained, doctor_hint
from clisup.model.events import TurnErrorKind
from clisup.ops.doctor import BACKEND_CHECKS, MACHINE_CHECKS

MACHINE, BACKEND = dict(MACHINE_CHECKS), dict(BACKEND_CHECKS)
CALLERS = {  # whoever asked has to ask otherwise: nothing of the machine is wrong
    "parse_error", "invalid_request", "invalid_params", "request_cancelled", "rate_limited", "session_not_found", "session_busy",
    "session_closed", "turn_not_found", "session_exists", "unsupported", "limit_exceeded", "budget_exhausted",
    "approval_not_found", "approval_already_resolved", "tool_call_not_found", "shutting_down", "usage",
}  # fmt: skip
UNSEEN = {"internal"}  # a fault of clisup's own: the log says where
MODELS = {  # what the API or the model says, or a limit that was reached: no check can see it
    "rate_limit", "overloaded", "server", "model_not_found", "context_overflow", "max_turns", "budget", "refusal", "session_not_found",
    "idle_timeout", "turn_timeout", "cancelled", "output_limit", "session_busy",
}  # fmt: skip


def test_every_kind_of_error_is_in_the_table() -> None:
    assert list(ERRORS) == list(KINDS)
    assert {kind for kind, explained in ERRORS.items() if explained is None} == CALLERS | UNSEEN


def test_every_kind_of_a_turns_error_is_in_the_table() -> None:
    assert list(TURN_ERRORS) == list(get_args(TurnErrorKind))
    assert {kind for kind, explained in TURN_ERRORS.items() if explained is None} == MODELS


@pytest.mark.parametrize("explained", [e for e in (*ERRORS.values(), *TURN_ERRORS.values()) if e is not None])
def test_the_checks_are_the_doctors(explained: Explained) -> None:
    known = BACKEND | MACHINE if explained.backend else MACHINE  # the doctor of a backend looks at the machine, too
    assert explained.checks and set(explained.checks) <= set(known)


def test_the_command_names_the_backend_where_there_is_one() -> None:
    assert doctor_hint(ERRORS["backend_unavailable"], "claude") == "clisup doctor claude (executable, version)"
    assert doctor_hint(ERRORS["backend_unavailable"]) == "clisup doctor (executable, version)"
    assert doctor_hint(ERRORS["storage_failed"], "claude") == "clisup doctor (state directory)"
    assert doctor_hint(ERRORS["usage"]) == ""
