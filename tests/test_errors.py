"""One table says what follows from an error: its code on the wire, a command's exit code, and whether to try again."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from clisup.errors import (
    KINDS,
    ClisupError,
    ConfigurationError,
    UsageError,
    WorldError,
    error_from_wire,
)

CLIENTS = ("daemon_not_running", "box_unknown")
LOCAL = (
    "box_unknown",
    "daemon_not_running",
    "daemon_already_running",
    "unsupported_system",
    "spawn_failed",
    "service_manager",
    "usage",
)


def test_kinds_that_travel_have_a_code_of_their_own() -> None:
    codes = [KINDS[kind].code for kind in KINDS if kind not in LOCAL]
    assert [code for code, count in Counter(codes).items() if count > 1] == [-32033]  # approvals: unknown, or resolved
    assert all(-32800 <= code <= -32001 for code in codes)


def test_exit_codes_are_those_of_sysexits_and_the_shell() -> None:
    assert {kind.exit_code for kind in KINDS.values()} <= {1, 2, 3, 4, 69, 75, 77, 78, 124, 130}
    assert all(kind.exit_code != 0 for kind in KINDS.values())


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_survives_the_wire(kind: str) -> None:
    error = ClisupError("cannot do it", kind=kind, hint="try this", limit="x", value=5)
    sent = json.loads(json.dumps(error.to_wire()))
    assert sent["code"] == error.code == KINDS[kind].code
    assert sent["data"]["retryable"] is KINDS[kind].retryable
    again = error_from_wire(sent)
    if kind in CLIENTS:
        return
    assert (again.kind, again.message, again.hint, again.data) == (kind, "cannot do it", "try this", error.data)
    assert again.exit_code == error.exit_code


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_daemon_cannot_say_that_it_is_not_there(kind: str) -> None:
    """A command would read the files of this machine in its place."""
    error = error_from_wire({"code": -32603, "message": "m", "data": {"kind": kind}})
    assert (error.kind, error.data) == ("internal", {"kind_sent": kind})


def test_a_kind_that_is_in_no_table_cannot_be_raised() -> None:
    with pytest.raises(ValueError, match="unknown error kind 'new_kind'"):
        ClisupError("cannot", kind="new_kind")


def test_a_kind_of_a_later_version_becomes_internal_and_is_kept() -> None:
    error = error_from_wire({"code": -1, "message": "m", "data": {"kind": "new_kind", "x": 1}})
    assert (error.kind, error.data) == ("internal", {"kind_sent": "new_kind", "x": 1})


@pytest.mark.parametrize(
    "sent", [{}, {"data": None}, {"message": "m"}, {"data": {"message": "a", "self": 1, "hint": None}}]
)
def test_an_error_that_says_little_is_still_an_error(sent: dict[str, Any]) -> None:
    error = error_from_wire(sent)
    assert (error.kind, bool(error.message)) == ("internal", True)


@pytest.mark.parametrize(
    "sent", [None, 7, "no", [], [1], {"data": 7}, {"data": [[1, 2, 3]]}, {"data": "x", "message": None}]
)
def test_what_is_no_error_of_ours_becomes_internal(sent: Any) -> None:
    assert error_from_wire(sent).kind == "internal"


def test_people_read_the_message_and_the_next_step() -> None:
    assert str(UsageError("cannot x, because y", hint="do z")) == "cannot x, because y; do z"
    assert str(WorldError("cannot x")) == "cannot x"


def test_the_two_families_are_told_apart() -> None:
    assert UsageError("m").kind == "invalid_params"
    assert ConfigurationError("m").exit_code == 78
    assert issubclass(ConfigurationError, UsageError)
    assert not issubclass(WorldError, UsageError)
