"""Findings of `clisup doctor`: a status, a reason in one line, and a remedy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from msgspec import Struct

__all__ = ["Finding", "Status", "examine", "fail", "ok", "warn"]

Status = Literal["ok", "warn", "fail"]
Facts = TypeVar("Facts")


class Finding(Struct, frozen=True):
    """Result of one check. `fix` is set if the status is not ok; `backend` is None for a check of the machine.

    A finding may hold names of variables, but never values.
    """

    check: str
    status: Status
    detail: str
    fix: str = ""
    backend: str | None = None


Verdict = tuple[Status, str, str]
"""Result of a rule: status, detail, fix."""


def ok(detail: str) -> Verdict:
    """Return a verdict without a problem."""
    return "ok", detail, ""


def warn(detail: str, fix: str) -> Verdict:
    """Return a warning with its remedy."""
    return "warn", detail, fix


def fail(detail: str, fix: str) -> Verdict:
    """Return a failure with its remedy."""
    return "fail", detail, fix


def examine(
    facts: Facts, checks: Sequence[tuple[str, Callable[[Facts], Verdict | None]]], *, backend: str | None = None
) -> list[Finding]:
    """Return every rule's finding, in the order of the table.

    A rule that does not apply returns None and has no finding.
    """
    verdicts = [(name, judge(facts)) for name, judge in checks]
    return [Finding(name, *verdict, backend=backend) for name, verdict in verdicts if verdict is not None]
