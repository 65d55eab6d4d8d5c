"""Types of the state in a session's journal that no client sees: the memo beside an event, and parts of the ledger."""

from __future__ import annotations

from typing import NamedTuple, Required, TypedDict

from clisup.model.structs import JsonObject


class SpoolPlace(TypedDict):
    """Position in both spools of a run, in bytes."""

    out: int
    err: int


class SentMessage(NamedTuple):
    """Message of the daemon to a CLI's stdin: its id, and the name of the file that keeps its text."""

    id: int
    file: str


class TurnEnding(TypedDict, total=False):
    """Decision to end a turn or a run. `asked` repeats the reason if the CLI was asked in its own protocol."""

    reason: Required[str]
    asked: str
    actor: JsonObject
    error: JsonObject
    failure: JsonObject
    limit_s: float
    limit: int
    seen: int


class ApprovalEntry(TypedDict):
    """Approval that waits for a decision. `seq` is the seq of its request, and `at` the time."""

    seq: int
    tool_name: str
    at: str


class Resolution(TypedDict):
    """Decision on an approval."""

    decision: str
    by: str
    seq: int


class EndedTurn(TypedDict):
    """Last turn of a session that has ended."""

    turn_id: str
    outcome: str
    error_kind: str | None
    ended_at: str


class NewestEvent(TypedDict):
    """Newest event of a session."""

    seq: int
    type: str
    ts: str


class Steer(TypedDict, total=False):
    """Prompt that was sent to a CLI at work. `over`: a turn has taken it, or it was dropped."""

    turn: Required[str]
    key: str | None
    seq: Required[int]
    over: bool


class TurnState(TypedDict, total=False):
    """Memo of a journal record: changes of the state that the event itself does not tell."""

    # the run of the turn
    run: int
    live: bool
    pid: int
    begin: SpoolPlace
    background: dict[str, str | None] | list[str]
    ending: TurnEnding
    transcript_at: int
    say: SentMessage
    heard: int
    # the session
    cost_total_usd: float
    usage_total: JsonObject
    native_lost: bool
    transcript: JsonObject
    budget: JsonObject
    settings: dict[str, str]
    dropped: list[str]
    more_tokens: int


class Intent(TypedDict, total=False):
    """Intent of a run (intent.json): what the daemon is about to start. It holds names of variables, never values."""

    turn_id: str
    argv: list[str]
    env_names: list[str]
    cgroup: str | None
    transcript_at: int
    native: tuple[str | None, bool]  # the native session id, and whether it is resumed
    live: dict[str, str]  # the fingerprint of a live run
