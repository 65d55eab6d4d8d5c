"""What `clisup doctor` finds: one word, one line of why, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from msgspec import Struct

__all__ = ["Finding", "Status", "examine", "fail", "ok", "warn"]

Status = Literal["ok", "warn", "fail"]
Facts = TypeVar("Facts")


class Finding(Struct, frozen=True):
    """One check's outcome. `fix` is there where the status is not ok; `backend` is None for what concerns the machine.

    Names of variables may be in it, values never.
    """

    check: str
    status: Status
    detail: str
    fix: str = ""
    backend: str | None = None


Verdict = tuple[Status, str, str]
"""What a rule gives: status, detail, fix."""


def ok(detail: str) -> Verdict:
    return "ok", detail, ""


def warn(detail: str, fix: str) -> Verdict:
    return "warn", detail, fix


def fail(detail: str, fix: str) -> Verdict:
    return "fail", detail, fix


def examine(
    facts: Facts, checks: Sequence[tuple[str, Callable[[Facts], Verdict | None]]], *, backend: str | None = None
) -> list[Finding]:
    """Every rule's finding, in the order of the table. A rule that has nothing to say gives None."""
    verdicts = [(name, judge(facts)) for name, judge in checks]
    return [Finding(name, *verdict, backend=backend) for name, verdict in verdicts if verdict is not None]
