"""Every kind of error says which checks of the doctor explain it, and these checks exist."""

from __future__ import annotations

from typing import get_args

import pytest

from clisup.errors import KINDS, TURN_KINDS, Explanation, doctor_hint
from clisup.model.events import TurnErrorKind
from clisup.ops.doctor import MACHINE_CHECKS
from clisup.ops.doctor_backend import BACKEND_CHECKS

MACHINE, BACKEND = dict(MACHINE_CHECKS), dict(BACKEND_CHECKS)
ERRORS = {kind: known.explanation for kind, known in KINDS.items()}
TURN_ERRORS = {kind: known.explanation for kind, known in TURN_KINDS.items()}
CALLERS = {  # the caller made a mistake, and the machine is sound
    "parse_error", "invalid_request", "invalid_params", "request_cancelled", "rate_limited", "session_not_found", "session_busy",
    "session_closed", "turn_not_found", "session_exists", "unsupported", "limit_exceeded", "budget_exhausted",
    "approval_not_found", "approval_already_resolved", "option_needed", "tool_call_not_found", "worktree_refused", "shutting_down", "usage",
    "box_unknown",
}  # fmt: skip
UNSEEN = {
    "internal",
    "git_failed",
    "box_away",
    "fleet_away",
}  # a fault of clisup itself, which the log shows, of a repository, of another machine or the fleet
MODELS = {  # an answer of the API or the model, or a limit that was reached: no check can see the cause
    "rate_limit", "overloaded", "server", "model_not_found", "context_overflow", "max_turns", "budget", "refusal", "session_not_found",
    "idle_timeout", "turn_timeout", "cancelled", "output_limit", "session_busy",
}  # fmt: skip


def test_only_mistakes_of_the_caller_and_our_own_faults_have_no_explanation() -> None:
    assert {kind for kind, explanation in ERRORS.items() if explanation is None} == CALLERS | UNSEEN


def test_every_kind_of_a_turns_error_is_in_the_table() -> None:
    assert list(TURN_KINDS) == list(get_args(TurnErrorKind))
    assert {kind for kind, explanation in TURN_ERRORS.items() if explanation is None} == MODELS


@pytest.mark.parametrize("explanation", [e for e in (*ERRORS.values(), *TURN_ERRORS.values()) if e is not None])
def test_the_checks_are_the_doctors(explanation: Explanation) -> None:
    known = BACKEND | MACHINE if explanation.of_backend else MACHINE  # the doctor of a backend checks the machine, too
    assert explanation.checks and set(explanation.checks) <= set(known)


@pytest.mark.parametrize("kind", TURN_KINDS)
def test_a_hint_names_only_the_backend_and_the_session(kind: str) -> None:
    TURN_KINDS[kind].hint.format(backend="claude", session_id="3f2a")


def test_the_command_names_the_backend_where_there_is_one() -> None:
    assert doctor_hint(ERRORS["backend_unavailable"], "claude") == "clisup doctor claude (executable, version)"
    assert doctor_hint(ERRORS["backend_unavailable"]) == "clisup doctor (executable, version)"
    assert doctor_hint(ERRORS["storage_failed"], "claude") == "clisup doctor (state directory)"
    assert doctor_hint(ERRORS["usage"]) == ""
