"""Spec of a session: the durable, secret-free part of `session/new`. Pure."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from clisup.config.model import TimeoutsConfig
from clisup.errors import ClisupError, WorldError
from clisup.model.sessions.budget import Budget
from clisup.model.structs import JsonObject, wrong_field
from clisup.policy.approval_rules import ApprovalRule
from clisup.policy.watchdog import TurnTimeouts

SPEC_VERSION = 1
_NOT_KEPT: set[str] = set()


class SessionApprovals(BaseModel):
    """Session's own rules for approvals, and its action if nobody is there; None: the backend's."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    rules: tuple[ApprovalRule, ...] = ()
    unattended: Literal["wait", "deny"] | None = None


class SessionWorktree(BaseModel):
    """Git worktree of a session. `owner` is the session that made the worktree; forks share it.

    `git_dir` is the repository's common directory, `own_git_dir` the worktree's directory in it (None in records of older
    versions). `target` is the branch that was checked out in `repository` at that time, or None for a detached head.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    owner: str
    repository: str
    git_dir: str
    path: str
    branch: str
    base: str
    own_git_dir: str | None = None
    target: str | None = None
    left_changes: bool = False  # the repository had uncommitted changes, and they stayed there


class SessionSpec(BaseModel):
    """Content of `session.json`.

    Values of variables, the system prompt, the MCP configuration and the tools lie in files of their own (0600).
    """

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    version: int = SPEC_VERSION
    session_id: str
    backend: str
    cwd: str
    created_at: str
    digest: str
    mode: str | None = None
    model: str | None = None
    permission_mode: str | None = None
    has_system_prompt: bool = False
    has_mcp_config: bool = False
    tools: tuple[str, ...] = ()  # their names; the definitions are in a file of their own
    cli_tools: Literal["default", "none"] | tuple[str, ...] = "default"
    system_prompt_mode: Literal["append", "replace"] = "append"
    env_names: tuple[str, ...] = ()
    timeouts: dict[str, float] = {}
    approvals: SessionApprovals = SessionApprovals()
    budget: Budget | None = None
    labels: dict[str, str] = {}
    title: str | None = None
    resume_native_id: str | None = None
    forked_from: JsonObject | None = None  # the fields of `session_forked`
    usage_total: JsonObject | None = None  # with which the CLI's running total begins in a fork
    seeded: JsonObject | None = None  # the fields of `session_seeded`
    worktree: SessionWorktree | None = None
    journaled: bool = False  # the journal has the opening, since before the first run

    def model_post_init(self, _context: Any) -> None:
        """Drop pydantic's set of the given field names: nothing reads it, and it takes 2 KB of each session."""
        object.__setattr__(self, "__pydantic_fields_set__", _NOT_KEPT)

    @classmethod
    def read(cls, session_id: str, raw: JsonObject) -> SessionSpec:
        """Return the spec in `raw`.

        Raises `WorldError(storage_failed)` with the field's name only: its value may be a secret.
        """
        try:
            return cls.model_validate(raw)
        except ValidationError as error:
            where, reason = wrong_field(error)
            name = where.partition(".")[0]  # names below it may be a text of the file's own
            raise WorldError(
                f"cannot read session {session_id}, because its session.json is wrong at {name!r}: {reason}",
                kind="storage_failed",
                hint="restore it, or move the session's directory away",
            ) from None

    @property
    def begins_at_zero(self) -> bool:
        """Tell whether the CLI's own running totals are zero before the first turn.

        A transcript that was written for the session holds no totals.
        """
        return self.resume_native_id is None or self.has_own_transcript

    @property
    def has_own_transcript(self) -> bool:
        """Tell whether a transcript was written for the session at its opening."""
        return self.forked_from is not None or self.seeded is not None

    def merged_timeouts(self, configured: TimeoutsConfig) -> TurnTimeouts:
        """Return the backend's timeouts, overridden by the session's."""
        return TurnTimeouts(**{**configured.model_dump(), **self.timeouts})


def params_digest(session_id: str, params: JsonObject) -> str:
    """Return a digest that is equal for two `session/new` with the same id and params.

    Salted with the id; holds no value.
    """
    text = json.dumps(params, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(f"{session_id}\0{text}".encode()).hexdigest()


def why_unreadable(error: Exception) -> str:
    """Return a safe reason why a session cannot be read. It never quotes the session's files."""
    if isinstance(error, ClisupError):
        return str(error)
    return f"its files make no sense ({type(error).__name__})"
